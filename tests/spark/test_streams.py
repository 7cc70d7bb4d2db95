"""The toolbox against plain Python: in a batch, and in a stream, where rows come late."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as sf

from hermes.errors import ConfigError
from hermes.spark.streams import (
    deduplicate,
    join_table,
    join_within,
    late_rows,
    session_counts,
    sliding_counts,
    top_n,
    tumbling_counts,
)

NOON = datetime(2011, 6, 13, 12, tzinfo=UTC)
CLICK = "time timestamp, page string, n int"
_numbers = count()


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def clicks(*rows: tuple[float, str]) -> list[tuple[Any, ...]]:
    return [(at(seconds), page, number) for number, (seconds, page) in enumerate(rows)]


class Feed:
    """A stream over a folder: a file a micro-batch, in the order in which they were written."""

    def __init__(self, spark: Any, folder: Path, schema: str) -> None:
        self._spark, self._folder, self._schema = spark, folder, schema
        folder.mkdir()

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        name = self._folder / f"{next(_numbers):06}"
        frame = self._spark.createDataFrame(rows, self._schema).coalesce(1)
        frame.write.parquet(str(name))

    def stream(self) -> Any:
        return self._spark.readStream.schema(self._schema).parquet(f"{self._folder}/*")


@pytest.fixture
def feed(spark: Any, tmp_path: Path) -> Callable[..., Feed]:
    return lambda schema=CLICK, name="in": Feed(spark, tmp_path / name, schema)


@pytest.fixture
def run(spark: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a query into a table in memory; gives the query and a function that reads it."""
    queries = []

    def start(df: Any, mode: str = "append") -> tuple[Any, Callable[[], list[Any]]]:
        name = f"streams_{next(_numbers)}"
        query = df.writeStream.format("memory").queryName(name).outputMode(mode).start()
        queries.append(query)

        def rows() -> list[Any]:
            query.processAllAvailable()
            return sorted(map(plain, spark.table(name).collect()), key=repr)

        return query, rows

    yield start
    for query in queries:
        query.stop()
        spark.catalog.dropTempView(query.name)


def plain(row: Any) -> tuple[Any, ...]:
    """A row with its times as seconds after noon, and a window as two of them."""
    return tuple(
        tuple(seconds(part) for part in value) if isinstance(value, tuple) else seconds(value)
        for value in row
    )


def seconds(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value.astimezone(UTC) - NOON).total_seconds()
    return value


def collected(df: Any) -> list[Any]:
    return sorted(map(plain, df.collect()), key=repr)


# -- windows ---------------------------------------------------------------------------------------


def chance_clicks() -> list[tuple[float, str]]:
    chance = random.Random(7)
    return [(chance.randrange(0, 3_600_000) / 1000, chance.choice("abc")) for _ in range(300)]


def test_tumbling_and_sliding_counts_of_a_batch(spark: Any) -> None:
    rows = chance_clicks()
    df = spark.createDataFrame([*clicks(*rows), (None, "a", 0)], CLICK)
    expected = Counter((second // 60 * 60, page) for second, page in rows)
    total: Counter[Any] = Counter()
    for number, (second, page) in enumerate(rows):
        total[second // 60 * 60, page] += number
    assert collected(
        tumbling_counts(df, "1m", time="time", by="page", totals=[sf.sum("n").alias("total")])
    ) == sorted(
        [
            ((start, start + 60), page, number, total[start, page])
            for (start, page), number in expected.items()
        ],
        key=repr,
    )
    sliding = Counter(second // 60 * 60 - 60 * back for second, _ in rows for back in range(5))
    assert collected(sliding_counts(df, "5 minutes", "60s", time="time")) == sorted(
        [((start, start + 300), number) for start, number in sliding.items()], key=repr
    )


def sessions(rows: list[tuple[float, str]], gap: float) -> list[Any]:
    """Sessions by sorting; the same as merging in any order."""
    times = defaultdict(list)
    for second, page in rows:
        times[page].append(second)
    found = []
    for page, values in times.items():
        values.sort()
        start = last = values[0]
        number = 0
        for value in values:
            if value > last + gap + 1e-9:  # a touch is no gap
                found.append(((start, round(last + gap, 3)), page, number))
                start, number = value, 0
            last, number = value, number + 1
        found.append(((start, round(last + gap, 3)), page, number))
    return sorted(found, key=repr)


def test_sessions_of_a_batch(spark: Any) -> None:
    rows = [*chance_clicks(), (5000, "d"), (5030, "d"), (5060.001, "d")]
    df = spark.createDataFrame(clicks(*rows), CLICK)
    assert collected(session_counts(df, "30s", time="time", by="page")) == sessions(rows, 30)


@pytest.mark.nightly
def test_windows_of_a_stream_and_rows_that_come_late(feed: Any, run: Any) -> None:
    source = feed()
    counts = tumbling_counts(source.stream(), "1m", time="time", by="page", watermark="30s")
    query, rows = run(counts)
    source.add(clicks((10, "a"), (20, "a"), (70, "b")))
    assert rows() == []  # the watermark is at 40
    source.add(clicks((35, "a"), (5, "a")))  # behind the watermark, but their window is open
    assert rows() == []
    source.add(clicks((100, "b")))  # the watermark moves to 70 and closes the first window
    assert rows() == [((0, 60), "a", 4)]
    assert late_rows(query) == 0
    source.add(clicks((50, "a"), (65, "b")))  # the first one is too late
    assert rows() == [((0, 60), "a", 4)]
    assert late_rows(query) == sum(map(late_rows, query.recentProgress)) == 1
    source.add(clicks((1000, "c")))
    assert rows() == [((0, 60), "a", 4), ((60, 120), "b", 3)]


@pytest.mark.nightly
def test_sessions_of_a_stream_are_merged(feed: Any, run: Any) -> None:
    source = feed()
    counts = session_counts(source.stream(), "30s", time="time", by="page", watermark="1m")
    query, rows = run(counts)
    source.add(clicks((0, "a"), (50, "a"), (0, "b")))
    assert rows() == []
    source.add(clicks((25, "a")))  # makes one session of the two
    source.add(clicks((200, "c")))  # the watermark moves to 140
    assert rows() == [((0, 30), "b", 1), ((0, 80), "a", 3)]
    source.add(clicks((60, "a"), (130, "b")))  # the first is too late, the second isn't quite
    source.add(clicks((400, "c")))
    assert rows() == [
        ((0, 30), "b", 1),
        ((0, 80), "a", 3),
        ((130, 160), "b", 1),
        ((200, 230), "c", 1),
    ]
    assert late_rows(query) == 1


# -- joins -----------------------------------------------------------------------------------------

SHOWN = "shown timestamp, ad string, place string"
CLICKED = "clicked timestamp, ad string, member string"


def impressions(*rows: tuple[float, Any]) -> list[tuple[Any, ...]]:
    return [(at(second), ad, f"place{second}") for second, ad in rows]


def clicked(*rows: tuple[float, Any]) -> list[tuple[Any, ...]]:
    return [(at(second), ad, f"member{second}") for second, ad in rows]


def joined(left: Any, right: Any, **arguments: Any) -> Any:
    return join_within(
        left, right, "60s", on="ad", left_time="shown", right_time="clicked", **arguments
    )


def test_a_join_of_batches_takes_what_lies_within_the_bounds(spark: Any) -> None:
    left = [(0, "a"), (0, "b"), (100, "a"), (0, None), (5, "z")]
    right = [(0, "a"), (60, "a"), (60.001, "a"), (99, "a"), (110, "a"), (30, "b"), (0, None)]
    shown = spark.createDataFrame(impressions(*left), SHOWN)
    seen = spark.createDataFrame(clicked(*right), CLICKED)
    for before in (0, 1):
        pairs = [
            (one, ad, f"place{one}", other, f"member{other}")
            for one, ad in left
            for other, same in right
            if ad is not None and ad == same and one - before <= other <= one + 60
        ]
        assert len(pairs) == 4 + before
        alone = [
            (one, ad, f"place{one}", None, None)
            for one, ad in left
            if (one, ad) not in {pair[:2] for pair in pairs}
        ]
        bound = f"{before}s"
        assert collected(joined(shown, seen, before=bound)) == sorted(pairs, key=repr)
        outer = joined(shown, seen, before=bound, how="left_outer")
        assert collected(outer) == sorted(pairs + alone, key=repr)
    assert outer.columns == ["shown", "ad", "place", "clicked", "member"]


@pytest.mark.nightly
def test_streams_are_joined_and_what_stays_alone_comes_at_last(feed: Any, run: Any) -> None:
    shown, seen = feed(SHOWN, "shown"), feed(CLICKED, "clicked")
    outer = joined(
        shown.stream(),
        seen.stream(),
        how="left_outer",
        left_watermark="10s",
        right_watermark="10s",
    )
    query, rows = run(outer)
    shown.add(impressions((0, "a"), (5, "b"), (7, None)))
    seen.add(clicked((20, "a"), (80, "b")))
    first = (0, "a", "place0", 20, "member20")
    assert rows() == [first]
    # Late, but its partner is still there, since the other side is at 7.
    seen.add(clicked((200, "c"), (30, "a")))
    shown.add(impressions((200, "c")))
    complete = [
        first,
        (0, "a", "place0", 30, "member30"),
        (200, "c", "place200", 200, "member200"),
        (5, "b", "place5", None, None),
        (7, None, "place7", None, None),
    ]
    assert rows() == sorted(complete, key=repr)
    assert late_rows(query) == 0
    shown.add(impressions((300, "d"), (2, "a")))  # the second is too late, and doesn't stay alone
    seen.add(clicked((300, "x")))
    assert rows() == sorted(complete, key=repr)
    assert late_rows(query) == 1


def test_a_stream_is_joined_with_a_table(spark: Any, feed: Any, run: Any) -> None:
    source = feed()
    table = spark.createDataFrame([("a", "Home"), ("b", "Jobs")], "page string, title string")
    source.add(clicks((0, "a"), (1, "z"), (2, "b")))
    inner = join_table(source.stream(), table, on="page")
    outer = join_table(source.stream(), table, on=["page"], how="left_outer")
    pairs = [(0, "a", 0, "Home"), (2, "b", 2, "Jobs")]
    assert run(inner)[1]() == pairs
    assert run(outer)[1]() == sorted([*pairs, (1, "z", 1, None)], key=repr)
    assert collected(join_table(table, table.withColumnRenamed("title", "t"), on="page")) == [
        ("a", "Home", "Home"),
        ("b", "Jobs", "Jobs"),
    ]


# -- top n -----------------------------------------------------------------------------------------


def test_top_n_of_a_batch(spark: Any) -> None:
    rows = [("x", "b", 3), ("x", "a", 3), ("x", "c", 9), ("y", "a", None), ("y", "b", 1)]
    df = spark.createDataFrame(rows, "country string, page string, count long")
    assert [tuple(row) for row in top_n(df, 3).collect()] == [rows[2], rows[1], rows[0]]
    assert collected(top_n(df, 2, per="country")) == sorted(
        [rows[2], rows[1], rows[3], rows[4]], key=repr
    )


@pytest.mark.nightly
def test_top_n_of_a_stream(feed: Any, run: Any, spark: Any) -> None:
    source = feed()
    stream = source.stream()
    windows = tumbling_counts(stream, "1m", time="time", by="page", watermark="10s")
    _, closed = run(top_n(windows, 2, per="window"))
    _, overall = run(top_n(stream.groupBy("page").count(), 2), "complete")
    first = [(1, "a"), (2, "b"), (3, "c"), (4, "c"), (5, "d"), (61, "d")]
    source.add(clicks(*first, (6, "b"), (62, "d"), (63, "a")))
    assert closed() == []
    assert overall() == [("a", 2), ("d", 3)]
    source.add(clicks((400, "e")))
    assert closed() == [
        ((0, 60), "b", 2),
        ((0, 60), "c", 2),
        ((60, 120), "a", 1),
        ((60, 120), "d", 2),
    ]
    # The same in a batch, of the same windows.
    batch = tumbling_counts(spark.createDataFrame([*clicks((1, "a"))], CLICK), "1m", time="time")
    assert collected(top_n(batch, 1, per="window")) == [((0, 60), 1)]


# -- de-duplication --------------------------------------------------------------------------------


def test_duplicates_of_a_batch(spark: Any) -> None:
    rows = [(5, "a"), (1, "a"), (9999, "a"), (2, None), (2, None), (3, "b")]
    df = spark.createDataFrame([(at(second), page, 0) for second, page in rows], CLICK)
    expected = [(1, "a", 0), (2, None, 0), (2, None, 0), (3, "b", 0)]
    assert collected(deduplicate(df, "page", time="time", watermark="10s")) == expected
    whole = deduplicate(df, ["page", "n"], time="time", watermark="10s")
    assert collected(whole) == expected


def test_duplicates_of_a_stream_through_a_restart(spark: Any, feed: Any, tmp_path: Path) -> None:
    source = feed()
    out = tmp_path / "out"

    def run_once() -> list[Any]:
        once = deduplicate(source.stream(), "page", time="time", watermark="1m")
        query = (
            once.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )
        query.awaitTermination()
        assert query.exception() is None
        return collected(spark.read.schema(CLICK).parquet(str(out)).select("time", "page"))

    source.add([(at(0), "a", 0), (at(0), "a", 1), (at(1), None, 2), (at(1), None, 3)])
    first = [(0, "a"), (1, None), (1, None)]
    assert run_once() == first
    source.add(clicks((59, "a"), (70, "b")))
    assert run_once() == [*first[:1], *first[1:], (70, "b")]
    source.add(clicks((200, "c")))
    run_once()
    source.add(clicks((201, "a"), (100, "d")))  # a is forgotten, and d too late
    assert run_once() == sorted([*first, (70, "b"), (200, "c"), (201, "a")], key=repr)


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda df: tumbling_counts(df, "1m", time="t"), "time: there is no column 't'; there are"),
        (
            lambda df: tumbling_counts(df, "1m", time="page"),
            "time: expected a timestamp, but the column 'page' is string",
        ),
        (lambda df: tumbling_counts(df, "1", time="time"), "width: expected a duration such as"),
        (lambda df: tumbling_counts(df, "1 month", time="time"), "width: expected a duration such"),
        (lambda df: tumbling_counts(df, "0s", time="time"), "width: expected at least 1 ms, got"),
        (
            lambda df: tumbling_counts(df, timedelta(microseconds=1), time="time"),
            "width: datetime.timedelta(microseconds=1) is finer than 1ms",
        ),
        (
            lambda df: tumbling_counts(df, "1m", time="time", by="n", watermark="soon"),
            "watermark: expected a duration such as",
        ),
        (
            lambda df: tumbling_counts(df, "1m", time="time", by=["n", "n"]),
            "by: expected names of columns, each once, got ['n', 'n']",
        ),
        (
            lambda df: tumbling_counts(
                df.withColumnRenamed("n", "Count"), "1m", time="time", by="Count"
            ),
            "by: there is a column 'Count' already; choose another name",
        ),
        (
            lambda df: tumbling_counts(df, "1m", time="time", totals=["n"]),
            "totals: expected aggregates, such as",
        ),
        (
            lambda df: sliding_counts(df, "1m", "2m", time="time"),
            "width: expected at least 120000 ms, got '1m'",
        ),
        (
            lambda df: session_counts(df, "1m", time="time", by=[]),
            "by: expected names of columns, each once, got []",
        ),
        (
            lambda df: join_within(df, df, "1m", on="page", left_time="time", right_time="time"),
            "right: both sides have a column 'time'; rename or drop it on one of them",
        ),
        (
            lambda df: join_within(
                df, df.select("time"), "1m", on="time", left_time="time", right_time="time"
            ),
            "on: the times are joined by `within`, not by being equal",
        ),
        (lambda df: join_table(df, df, on="page", how="full"), "how: expected inner or left_outer"),
        (lambda df: join_table(df, df, on=[]), "on: expected names of columns, each once, got []"),
        (lambda df: top_n(df, 0, by="n"), "n: expected a whole number >= 1, got 0"),
        (
            lambda df: top_n(df, 1, by="page"),
            "by: expected a number or a timestamp, but",
        ),
        (lambda df: top_n(df, 1, by="n", per="x"), "per: there is no column 'x'; there are time"),
        (
            lambda df: deduplicate(df, [], time="time", watermark="1m"),
            "ids: expected names of columns, each once, got []",
        ),
        (
            lambda df: deduplicate(df, "time", time="time", watermark="1m"),
            "ids: the time can't be part of the id",
        ),
        (
            lambda df: deduplicate(df, "page", time="time", watermark="0s"),
            "watermark: expected at least 1 ms, got '0s'",
        ),
    ],
)
def test_wrong_arguments(spark: Any, call: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call(spark.createDataFrame([], CLICK))
    assert str(caught.value).startswith(message)


def test_what_a_stream_can_not_do(feed: Any, spark: Any) -> None:
    stream = feed().stream()
    with pytest.raises(ConfigError, match=r"^table: expected a table, not a stream; streams join"):
        join_table(stream, stream, on="page")
    with pytest.raises(ConfigError, match=r"^per: a stream is ranked per window; rank other"):
        top_n(stream, 1, by="n", per="page")
