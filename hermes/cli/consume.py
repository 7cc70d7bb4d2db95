"""`hermes consume`: messages of a topic on stdout."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import click

from hermes.cli.consume_group import consume_as_member
from hermes.cli.formats import FORMAT_HELP, ConsumedMessage, MessageFormat
from hermes.cli.options import (
    MAX_EXPANDED_OPTION,
    PARTITION_OPTION,
    SIZE,
    START,
    TIMEOUT_OPTION,
    TOPIC,
    BrokerAddress,
    broker_option,
    coordination_of,
    zookeeper_option,
)
from hermes.cli.payloads import payload_json
from hermes.cli.positions import find_position
from hermes.cli.reading import Chunk, PartitionReader, read_partitions, with_times
from hermes.cli.retrying import Retrying
from hermes.cli.starts import AtOffset, Beginning, End, Start
from hermes.cli.terminal import harmless, note, progress, status
from hermes.cli.topic_source import OffsetRange, TopicSource
from hermes.client import SimpleConsumer
from hermes.client.fetching import DEFAULT_MAX_FETCH_BYTES
from hermes.client.groups import ConsumerConfig
from hermes.errors import ClientError

__all__ = ["command"]

# How long a broker is asked to wait for new messages; only the number of idle requests depends
# on it, new messages show at once.
_MAX_WAIT_MS: Final = 10_000


class _Render(NamedTuple):
    """How messages are written.

    Attributes:
        lines: makes the bytes for stdout of a topic and a chunk.
        needs_times: whether the chunk must say when its messages were appended.
    """

    lines: Callable[[str, Chunk], bytes]
    needs_times: bool = False


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the command line asks for."""

    topic: str
    partition: int | None
    start: Start
    count: int | None
    exit_at_end: bool
    skip_corrupt: bool
    quiet: bool


@click.command("consume", short_help="Write messages to stdout.")
@broker_option(required=False)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    help="Read as a member of a consumer group, from where the group stands.",
)
@zookeeper_option("ZooKeeper, for --group.")
@click.option("-t", "--topic", type=TOPIC, required=True, metavar="TOPIC", help="What to read.")
@PARTITION_OPTION
@click.option(
    "-o",
    "--offset",
    "start",
    type=START,
    default="beginning",
    show_default=True,
    metavar="START",
    help="beginning, end, an offset, -N for the last N messages of every partition, or @TIME: "
    "ISO 8601 (UTC unless it names a zone) or milliseconds since 1970.",
)
@click.option(
    "-c",
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help="Exit after N messages of all partitions together.",
)
@click.option(
    "-e",
    "--exit",
    "exit_at_end",
    is_flag=True,
    help="Exit after the last message that was there when the command started.",
)
@click.option("-f", "--format", "template", metavar="FORMAT", help=FORMAT_HELP)
@click.option(
    "-D",
    "--delimiter",
    metavar="TEXT",
    help="What ends each message instead of a newline, with the escapes of --format.",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="Write a JSON object for each message.")
@click.option("-q", "--quiet", is_flag=True, help="No status and no progress on the terminal.")
@click.option(
    "--skip-corrupt", is_flag=True, help="Pass over damaged messages instead of giving up."
)
@click.option(
    "--max-fetch",
    "max_fetch_bytes",
    type=SIZE,
    default=DEFAULT_MAX_FETCH_BYTES,
    metavar="SIZE",
    help="The largest message to expect (64MiB unless given).",
)
@MAX_EXPANDED_OPTION
@TIMEOUT_OPTION
def command(
    broker: BrokerAddress | None,
    group: str | None,
    zookeeper: str | None,
    template: str | None,
    delimiter: str | None,
    as_json: bool,
    max_fetch_bytes: int,
    max_expanded_bytes: int,
    timeout_seconds: float,
    **wanted: Any,
) -> None:
    """Write a topic's messages to stdout, a line each, and nothing else there.

    Without -e and -c it goes on until Ctrl-C; new messages show at once. Messages of one partition
    come in order. Without -e a broker that goes away is waited for, and reading goes on where it
    was. With -f a newline is written only where the format says so.
    """
    if as_json and template is not None:
        raise click.UsageError("--format and --json exclude each other")
    if delimiter is not None:
        if as_json or template is not None:
            raise click.UsageError("--delimiter excludes --format and --json")
        template = "%s" + delimiter.replace("%", "%%")
    render = _renderer(template, as_json)
    if group is not None:
        if broker is not None and not zookeeper:
            zookeeper = coordination_of(broker, timeout_seconds)
        config = _group_config(
            _Wanted(**wanted),
            group=group,
            zookeeper_connect=zookeeper or "",
            max_fetch_bytes=max_fetch_bytes,
            timeout=timeout_seconds * 1000,
        )
        topic, count, quiet = wanted["topic"], wanted["count"], wanted["quiet"]
        consume_as_member(config, topic, count, render.lines, quiet=quiet)
        return
    if broker is None:
        raise click.UsageError("missing option '-b' / '--broker' (or --group and --zookeeper)")
    with SimpleConsumer(
        broker.host,
        broker.port,
        timeout_seconds=timeout_seconds,
        max_fetch_bytes=max_fetch_bytes,
        max_expanded_bytes=max_expanded_bytes,
    ) as consumer:
        _consume(consumer, _Wanted(**wanted), render)


def _group_config(wanted: _Wanted, **settings: Any) -> ConsumerConfig:
    """The settings of a member of a group; usage errors for what a group decides itself."""
    if not settings["zookeeper_connect"]:
        raise click.UsageError("--group needs --broker or --zookeeper")
    if wanted.partition is not None or wanted.exit_at_end:
        raise click.UsageError("--group excludes -p and -e: the group shares out the partitions")
    if not isinstance(wanted.start, Beginning | End):
        raise click.UsageError("with --group, -o is beginning or end, for partitions never read")
    return ConsumerConfig(
        **settings,
        auto_offset_reset="largest" if isinstance(wanted.start, End) else "smallest",
        on_corrupt="skip" if wanted.skip_corrupt else "raise",
    )


def _consume(consumer: SimpleConsumer, wanted: _Wanted, render: _Render) -> None:
    source = TopicSource(consumer, wanted.topic, wanted.partition)
    ranges = _existing_ranges(source, wanted)
    readers = _readers(consumer, source, ranges, wanted)
    status(f"reading {wanted.topic}: {_summary(readers)}", quiet=wanted.quiet)
    retrying = Retrying(0 if wanted.exit_at_end else None, quiet=wanted.quiet)
    chunks = read_partitions(consumer, readers, _MAX_WAIT_MS, retrying)
    if render.needs_times:
        chunks = with_times(consumer, wanted.topic, chunks, retrying)
    if wanted.count is not None:
        chunks = _first(chunks, wanted.count)
    try:
        _write(chunks, wanted, render, _progress_bytes(readers, ranges, wanted))
    finally:
        if skipped := sum(reader.skipped for reader in readers):
            note(f"{skipped} damaged place{'s were' if skipped > 1 else ' was'} skipped")
    status("the end is reached" if wanted.exit_at_end else "done", quiet=wanted.quiet)


def _existing_ranges(source: TopicSource, wanted: _Wanted) -> dict[int, OffsetRange]:
    ranges, exists = source.ranges()
    if isinstance(wanted.start, AtOffset) and len(ranges) > 1:
        raise click.UsageError(
            f"an offset belongs to one partition: give -p, 0 to {len(ranges) - 1}"
        )
    if not exists:
        if wanted.exit_at_end:
            raise ClientError(source.missing_text())
        if not wanted.quiet:
            note(f"{source.missing_text()}; waiting for its first message")
    return ranges


def _readers(
    consumer: SimpleConsumer,
    source: TopicSource,
    ranges: dict[int, OffsetRange],
    wanted: _Wanted,
) -> list[PartitionReader]:
    readers = []
    for partition, available in ranges.items():
        position = find_position(consumer, source, partition, available, wanted.start)
        readers.append(
            PartitionReader(
                source,
                partition,
                position.offset,
                end=available.end if wanted.exit_at_end else None,
                drop=position.drop,
                skip_corrupt=wanted.skip_corrupt,
            )
        )
    return readers


def _summary(readers: list[PartitionReader]) -> str:
    places = [f"partition {reader.partition} from {reader.offset}" for reader in readers[:4]]
    if len(readers) > len(places):
        places.append(f"{len(readers) - len(places)} more")
    return ", ".join(places)


def _progress_bytes(
    readers: list[PartitionReader], ranges: dict[int, OffsetRange], wanted: _Wanted
) -> int | None:
    """How much there is to read, when that is known and the terminal is free for a bar."""
    if not wanted.exit_at_end or sys.stdout.isatty():
        return None
    return sum(max(ranges[each.partition].end - each.offset, 0) for each in readers)


def _first(chunks: Iterator[Chunk], count: int) -> Iterator[Chunk]:
    """The first `count` messages; fetches nothing more when it has them."""
    for chunk in chunks:
        messages = chunk.messages[:count]
        yield chunk._replace(messages=messages)
        count -= len(messages)
        if not count:
            return


# -- writing ------------------------------------------------------------------------------------


def _write(
    chunks: Iterable[Chunk], wanted: _Wanted, render: _Render, length_bytes: int | None
) -> None:
    stdout = sys.stdout.buffer
    with progress(length_bytes, "reading", quiet=wanted.quiet) as advance:
        for chunk in chunks:
            stdout.write(render.lines(wanted.topic, chunk))
            # What was read is to be seen now, also by the next program in a pipe.
            stdout.flush()
            advance(chunk.messages[-1][1] - chunk.offset)


def _renderer(template: str | None, as_json: bool) -> _Render:
    """What turns a chunk into the bytes for stdout."""
    if as_json:
        return _Render(lambda topic, chunk: b"".join(map(_json_line, _consumed(topic, chunk))))
    on_terminal = sys.stdout.isatty()
    if template is None:
        return _Render(_harmless_lines if on_terminal else _lines)
    try:
        compiled = MessageFormat(template, harmless) if on_terminal else MessageFormat(template)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-f") from None
    return _Render(
        lambda topic, chunk: b"".join(map(compiled.render, _consumed(topic, chunk))),
        compiled.needs_time,
    )


def _lines(_topic: str, chunk: Chunk) -> bytes:
    # A message is a tuple that begins with its payload.
    payloads = [message[0] for message, _ in chunk.messages]
    payloads.append(b"")
    return b"\n".join(payloads)


def _harmless_lines(topic: str, chunk: Chunk) -> bytes:
    return harmless(_lines(topic, chunk))


def _consumed(topic: str, chunk: Chunk) -> Iterator[ConsumedMessage]:
    offset, times = chunk.offset, iter(chunk.times)
    stretch = next(times, None)
    for message, following in chunk.messages:
        while stretch is not None and stretch.end_offset <= offset:
            stretch = next(times, None)
        time_ms = -1 if stretch is None or stretch.time_ms is None else stretch.time_ms
        yield ConsumedMessage(topic, chunk.partition, offset, following, message.payload, time_ms)
        offset = following


def _json_line(message: ConsumedMessage) -> bytes:
    value = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "next_offset": message.next_offset,
        **payload_json(message.payload),
    }
    return json.dumps(value).encode() + b"\n"
