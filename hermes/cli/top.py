"""`hermes top`: how fast topics grow and how far groups are behind, again and again."""

import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import click

from hermes.cli.exit_codes import EXIT_FAILURE
from hermes.cli.options import (
    JSON_OPTION,
    BrokerOption,
    CommandConnection,
    broker_option,
    zookeeper_option,
)
from hermes.cli.security_options import connection_options
from hermes.cli.terminal import (
    format_time_ms,
    note,
    table_lines,
    write_json,
    write_line,
)
from hermes.cli.top_samples import LagSample, Sample, TopicSample, TopSampler, lag_rows, topic_rows
from hermes.config.units import format_bytes
from hermes.errors import HermesError
from hermes.quoting import printable

# What the columns beside the names take.
_FIGURES_WIDTH: Final = 42
# And more than that, where the unit is a word.
_WORDS_WIDTH: Final = 18

# Of a table in a file or a pipe.
_FILE_WIDTH: Final = 120

# Another screen, which leaves the one before as it was; no cursor.
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"


@click.command("top", short_help="Watch rates and lag.")
@broker_option(required=False)
@zookeeper_option("Look at all brokers that are registered there.")
@click.option(
    "-g",
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="Only these groups; all by default.",
)
@click.option(
    "-i",
    "--interval",
    "interval_seconds",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How long each look takes.",
)
@click.option(
    "-n",
    "--rows",
    "most_rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many topics, and groups, to show; what fits on a terminal, and all elsewhere.",
)
@click.option("--once", is_flag=True, help="Look once, over one interval, and exit.")
@JSON_OPTION
@connection_options
def command(
    broker: BrokerOption | None,
    zookeeper: str | None,
    groups: tuple[str, ...],
    interval_seconds: float,
    most_rows: int | None,
    once: bool,
    as_json: bool,
    connection: CommandConnection,
) -> None:
    r"""Show which topics grow how fast, and how far groups are behind, until q or Ctrl-C.

    Rates and lag are in bytes; in messages is the lag in a topic of Kafka's format, whose offsets
    count these. If stdout is no terminal, a plain table is written
    after every interval; with --json, an object.

    With -Z, a broker that doesn't answer is left out and named on stderr (and in the JSON); with
    --once the status is 1 then. Late ones are waited for as long as a look takes.

    \b
    Examples:
      hermes top -b localhost:9092
      hermes top -Z zk1:2181/hermes -g search --interval 10
      hermes top -b localhost:9092 --once --json
    """
    if broker is None and not zookeeper:
        raise click.UsageError("missing option '-b' / '--broker', or '-Z' / '--zookeeper'")
    named = str(broker) if broker is not None else str(zookeeper)
    with closing(TopSampler(broker, zookeeper, connection, groups, interval_seconds)) as sampler:
        first = sampler.take(time.monotonic())
        if sys.stdout.isatty() and not (once or as_json):
            with _screen() as keys:
                _watch(sampler, first, named, interval_seconds, most_rows, keys)
            return
        faults: list[str] = []
        while True:
            _note_new(faults, first.faults)
            faults = first.faults
            time.sleep(interval_seconds)
            second = sampler.take(time.monotonic())
            tables = topic_rows(second, first)[:most_rows], lag_rows(second, first)[:most_rows]
            if as_json:
                _write_object(named, second, *tables)
            else:
                for line in _lines(_headline(named, second, first), *tables, _width()):
                    write_line(line)
            sys.stdout.flush()
            if once:
                _note_new(faults, second.faults)
                if first.unanswered or second.unanswered:
                    raise click.exceptions.Exit(EXIT_FAILURE)
                return
            first = second


def _note_new(before: Sequence[str], faults: Sequence[str]) -> None:
    """Report what could not be found out, when that begins and not with every sample."""
    for fault in faults:
        if fault not in before:
            note(fault)


def _write_object(
    named: str, sample: Sample, topics: Sequence[TopicSample], lags: Sequence[LagSample]
) -> None:
    write_json(
        {
            "cluster": named,
            "time_ms": time.time_ns() // 1_000_000,
            "unanswered": sorted(sample.unanswered),
            "faults": sample.faults,
            "topics": [each._asdict() for each in topics],
            "groups": [each._asdict() for each in lags],
        }
    )


def _headline(named: str, now: Sample, before: Sample | None) -> str:
    topics = topic_rows(now, before)
    total = sum(each.bytes_per_second or 0 for each in topics)
    when = format_time_ms(time.time_ns() // 1_000_000)
    return f"{printable(named)}  {when}  {len(topics)} topics  {_rate(total)} in"


def _lines(
    headline: str, topics: Sequence[TopicSample], lags: Sequence[LagSample], width: int
) -> list[str]:
    room = max(width - _FIGURES_WIDTH, 24)
    rows = [
        (
            _short(each.topic, room),
            each.partitions,
            format_bytes(each.size_bytes),
            _rate(each.bytes_per_second),
        )
        for each in topics
    ]
    lines = [headline, "", *table_lines(("TOPIC", "PARTITIONS", "SIZE", "IN"), rows)]
    if lags:
        if any(each.lag_messages is not None for each in lags):
            room = max(room - _WORDS_WIDTH, 24)
        behind = [
            (
                _short(each.group, room // 2),
                _short(each.topic, room // 2),
                each.members,
                *_lag(each),
            )
            for each in lags
        ]
        lines += ["", *table_lines(("GROUP", "TOPIC", "MEMBERS", "LAG", "CHANGE"), behind)]
    return [*lines, ""]


def _width() -> int:
    """How wide a table may be; COLUMNS says so where there is no terminal."""
    return shutil.get_terminal_size((_FILE_WIDTH, 0)).columns


def _short(name: str, room: int) -> str:
    """Leave out the middle of a long name: many differ at their ends."""
    if len(name) <= room:
        return name
    end = (room - 1) // 3
    return f"{name[: room - 1 - end]}…{name[-end:]}"


def _lag(row: LagSample) -> tuple[str, str | None]:
    if row.lag_messages is None:
        return format_bytes(row.lag_bytes or 0), _rate(row.change_per_second, signed=True)
    change = row.change_per_second
    shown = None if change is None else f"{_sign(change)}{abs(change):,.0f} messages/s"
    return f"{row.lag_messages:,} message{'s' if row.lag_messages != 1 else ''}", shown


def _rate(value: float | None, *, signed: bool = False) -> str | None:
    if value is None:
        return None
    sign = _sign(value) if signed else ""
    return f"{sign}{format_bytes(round(abs(value)))}/s"


def _sign(value: float) -> str:
    return "-" if value <= -0.5 else "+" if value >= 0.5 else ""


# -- on a terminal ------------------------------------------------------------------------------


@contextmanager
def _screen() -> Iterator[int | None]:
    """An alternate screen; yields where keys come from, if that is a terminal too."""
    keys = sys.stdin.fileno() if sys.stdin.isatty() else None
    before = None if keys is None else termios.tcgetattr(keys)
    sys.stdout.write(_ENTER)
    sys.stdout.flush()
    try:
        if keys is not None:
            tty.setcbreak(keys)
        yield keys
    finally:
        if keys is not None and before is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _watch(
    sampler: TopSampler,
    first: Sample,
    named: str,
    interval_seconds: float,
    most_rows: int | None,
    keys: int | None,
) -> None:
    """Show one sample after the other; a broker that is away for a while is waited for."""
    earlier: Sample | None = None
    latest, trouble = first, ""
    while True:
        _draw(latest, earlier, named, trouble, most_rows)
        if _is_quit(keys, interval_seconds):
            return
        try:
            taken = sampler.take(time.monotonic(), needs_one=False)
        except HermesError as error:
            trouble = f"{error}; trying again"
        else:
            earlier, latest, trouble = latest, taken, ""


def _draw(
    latest: Sample, earlier: Sample | None, named: str, trouble: str, most_rows: int | None
) -> None:
    width, height = shutil.get_terminal_size()
    topics, lags = topic_rows(latest, earlier), lag_rows(latest, earlier)
    # Beside the rows: the first line, two headings, three empty lines, one for trouble.
    room = max(height - 7, 2)
    for_lags = min(len(lags), max(room // 2, room - len(topics)), most_rows or room)
    for_topics = min(room - for_lags, most_rows or room)
    lines = _lines(_headline(named, latest, earlier), topics[:for_topics], lags[:for_lags], width)
    hint = trouble or "; ".join(latest.faults) or "q quits"
    shown = [line[: width - 1] for line in [*lines, printable(hint)][:height]]
    sys.stdout.write("\x1b[H" + "\x1b[K\r\n".join(shown) + "\x1b[K\x1b[J")
    sys.stdout.flush()


def _is_quit(keys: int | None, seconds: float) -> bool:
    if keys is None:
        time.sleep(seconds)
        return False
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not select.select([keys], [], [], left)[0]:
            return False
        pressed = os.read(keys, 64)
        if not pressed or b"q" in pressed.lower():
            return True
    return False
