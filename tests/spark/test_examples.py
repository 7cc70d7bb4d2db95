"""The examples against plain Python: their functions in this session, one as its users run it."""

import importlib
import os
import re
import subprocess
import sys
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from short_lived_jvm import SPARK_OPTIONS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "spark"
NAMES = ("shop_window", "access_log", "clicks_per_minute", "sessions", "click_through_rate")
# The made-up log, and a web server's own (Apache's combined format) where one is named.
ACCESS_LOGS = [None, *filter(None, [os.environ.get("HERMES_ACCESS_LOG")])]
CUT_SHORT = b'1.1.1.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "Moz'
NO_REQUESTS = [b"no request", b"", b"\xff", CUT_SHORT]


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    for name in NAMES:
        del sys.modules[name]


@pytest.fixture
def servers(start_broker: Callable[..., Any]) -> str:
    return f"127.0.0.1:{start_broker().port}"


@pytest.fixture
def results(spark: Any, servers: str, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Runs an example over what is in its topics; gives the rows that came out."""

    def run(example: Any, **more: Any) -> list[dict[str, Any]]:
        output = str(tmp_path / example.__name__)
        options = Namespace(
            bootstrap_servers=servers,
            checkpoint=f"{output}-state",
            output=output,
            once=True,
            **more,
        )
        query = example.run(spark, options)
        query.awaitTermination()
        assert query.exception() is None
        return [row.asDict() for row in spark.read.parquet(output).collect()]

    return run


@pytest.mark.nightly
def test_the_examples_on_a_live_topic(examples: Any, servers: str, results: Any) -> None:
    made = list(examples.shop_window.events(600))
    assert examples.shop_window.send_sample(servers, 600) == len(made)
    shown = [event for topic, event in made if topic == "impressions"]
    clicks = [event for topic, event in made if topic == "clicks"]
    check_minutes(results(examples.clicks_per_minute), clicks)
    check_visits(results(examples.sessions, gap="1m"), clicks)
    check_rates(results(examples.click_through_rate), shown, clicks)


def time_of(event: dict[str, str]) -> datetime:
    return datetime.fromisoformat(event.get("click_time") or event["time"])


def start_of(time: datetime, width: timedelta) -> datetime:
    return time - (time - datetime(1970, 1, 1, tzinfo=UTC)) % width


def check_minutes(rows: list[dict[str, Any]], clicks: list[dict[str, str]]) -> None:
    minute = timedelta(minutes=1)
    watermark = max(map(time_of, clicks)) - 5 * minute
    counts = Counter((start_of(time_of(each), minute), each["page"]) for each in clicks)
    closed = {key: number for key, number in counts.items() if key[0] + minute <= watermark}
    found = {(row["minute"].astimezone(UTC), row["page"]): row["clicks"] for row in rows}
    assert len(found) == len(rows) > 50
    assert found == closed


def check_visits(rows: list[dict[str, Any]], clicks: list[dict[str, str]]) -> None:
    minute = timedelta(minutes=1)
    watermark = max(map(time_of, clicks)) - 10 * minute
    by_member = defaultdict(list)
    for click in sorted(clicks, key=time_of):
        visits = by_member[click["member"]]
        if visits and time_of(click) - time_of(visits[-1][-1]) <= minute:
            visits[-1].append(click)
        else:
            visits.append([click])
    expected = sorted(
        (
            member,
            time_of(visit[0]),
            round((time_of(visit[-1]) - time_of(visit[0])).total_seconds(), 3),
            len(visit),
            len({click["page"] for click in visit}),
        )
        for member, visits in by_member.items()
        for visit in visits
        if time_of(visit[-1]) + minute <= watermark
    )
    found = sorted(
        (
            row["member"],
            row["start"].astimezone(UTC),
            round(row["seconds"], 3),
            row["clicks"],
            row["pages"],
        )
        for row in rows
    )
    assert len(found) > 50
    assert found == expected


def check_rates(
    rows: list[dict[str, Any]], shown: list[dict[str, str]], clicks: list[dict[str, str]]
) -> None:
    width = timedelta(minutes=10)
    starts = {each["impression"]: (start_of(time_of(each), width), each["ad"]) for each in shown}
    impressions = Counter(starts.values())
    clicked = Counter(starts[each["impression"]] for each in clicks)
    found = {(row["start"].astimezone(UTC), row["ad"]): row for row in rows}
    assert len(found) == len(rows)
    # A window is closed when the watermark of both, less the two minutes for clicks, is past it.
    watermark = min(max(map(time_of, shown)), max(map(time_of, clicks))) - timedelta(minutes=1)
    closed = {key for key in impressions if key[0] + width <= watermark - timedelta(minutes=2)}
    assert set(found) == closed
    assert len({start for start, _ in found}) >= 3
    for key, row in found.items():
        assert (row["impressions"], row["clicks"]) == (impressions[key], clicked[key])
        assert row["rate"] == pytest.approx(clicked[key] / impressions[key])


# Not the example's own expression, and one that backtracks.
LINE = re.compile(
    rb"(\S+) \S+ \S+ \[(\d+)/(\w+)/(\d+):(\d+):[^]]* \+0000\] "
    rb'"\S+ ([^?" ]+)\S* [^"]*" (\d+) (\S+) ".*" ".*"'
)
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def plain_counts(lines: list[bytes]) -> tuple[Any, Any, int]:
    """What the example computes, computed by hand: status counts and bytes, pages, dead letters."""
    statuses: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    pages: dict[Any, Counter[str]] = defaultdict(Counter)
    dead = 0
    for line in lines:
        match = LINE.fullmatch(line)
        if match is None:
            dead += 1
            continue
        _, day, month, year, hour, page, status, size = (part.decode() for part in match.groups())
        start = datetime(int(year), MONTHS.index(month) + 1, int(day), int(hour), tzinfo=UTC)
        total = statuses[start, int(status)]
        total[0] += 1
        total[1] += 0 if size == "-" else int(size)
        if int(status) < 400:
            pages[start][page] += 1
    return statuses, pages, dead


@pytest.mark.parametrize("path", ACCESS_LOGS)
def test_the_access_log_is_counted_right(
    spark: Any, examples: Any, servers: str, path: str | None
) -> None:
    example = examples.access_log
    read = Path(path).read_bytes().splitlines() if path else example.made_up_log()
    lines = [*read, *NO_REQUESTS]
    assert examples.shop_window.send(servers, (("access", line) for line in lines)) == len(lines)
    requests, dead = example.parsed(example.read(spark, servers, "access"))
    statuses, pages, unread = plain_counts(lines)
    assert 0 < unread < 20
    assert dead.count() == unread
    hours = [tuple(row) for row in example.per_hour(requests).collect()]
    assert [(hour.astimezone(UTC), *rest) for hour, *rest in hours] == sorted(
        (hour, status, *numbers) for (hour, status), numbers in statuses.items()
    )
    best = [tuple(row) for row in example.top_pages(requests, 3).collect()]
    assert [(hour.astimezone(UTC), *rest) for hour, *rest in best] == [
        (hour, page, number)
        for hour in sorted(pages)
        for page, number in sorted(pages[hour].items(), key=lambda item: (-item[1], item[0]))[:3]
    ]


def test_an_example_as_its_users_run_it(servers: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "access_log.py"), "--bootstrap-servers", servers]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        # Another Python may come first on the path; the workers have to be the example's own.
        env={
            **{name: value for name, value in os.environ.items() if "PYSPARK" not in name},
            "PATH": os.pathsep.join(("/usr/bin", "/bin", os.environ["PATH"])),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            **SPARK_OPTIONS,
        },
    )
    assert done.returncode == 0, done.stderr
    assert "1000 lines sent, 990 requests, 10 dead letters" in done.stdout
    assert "|2015-05-17 03:00:00|404   |" in done.stdout
    assert "the text doesn't match" in done.stdout
