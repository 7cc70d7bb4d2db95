"""`hermes consume`: messages of a topic on stdout, read from a broker or as a member of a group."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import click

from hermes.cli.exit_codes import sigterm_as_exit
from hermes.cli.message_formats import FORMAT_HELP, MessageRenderer, choose_renderer
from hermes.cli.options import (
    MAX_EXPANDED_OPTION,
    PARTITION_OPTION,
    QUIET_OPTION,
    SIZE,
    BrokerOption,
    CommandConnection,
    broker_option,
    topic_option,
    zookeeper_option,
)
from hermes.cli.partition_reader import Chunk, PartitionReader, read_partitions, with_times
from hermes.cli.place_options import BEGINNING, END, PartitionPlace, start_option
from hermes.cli.record_codec import REGISTRY_OPTION, RecordDecoder, record_decoder, schema_option
from hermes.cli.registered_cluster import coordination_of
from hermes.cli.retrying import Retrying
from hermes.cli.security_options import connection_options
from hermes.cli.start_positions import check_one_partition, note_missing, noted_ranges, open_readers
from hermes.cli.terminal import note, progress, status
from hermes.cli.topic_source import OffsetRange, TopicSource
from hermes.client.fetching import DEFAULT_MAX_FETCH_BYTES
from hermes.client.groups import Consumer, ConsumerConfig, StreamMessage
from hermes.client.groups.streams import StreamRecord
from hermes.protocol import Message, RecordMessage
from hermes.protocol.stamps import STAMP_START, without_stamp
from hermes.security import ClientSecurity

# How long a broker is asked to wait for new messages; only the number of idle requests depends
# on it, new messages are shown at once.
_MAX_WAIT_MS: Final = 10_000

# How long a registry is waited for by a command that is to end.
_REGISTRY_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class _ConsumeOptions:
    topic: str
    partition: int | None
    start: PartitionPlace
    count: int | None
    exit_at_end: bool
    skip_corrupt: bool
    stamped: bool
    quiet: bool


@click.command("consume", short_help="Write messages to stdout.")
@broker_option(required=False)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    help="Read as a member of a consumer group, from the group's offsets.",
)
@zookeeper_option("ZooKeeper, for --group.")
@topic_option("What to read.")
@PARTITION_OPTION
@start_option(
    "beginning, end, an offset, -N for the last N messages of every partition, or @TIME: "
    "ISO 8601 (UTC unless it names a zone) or milliseconds since 1970."
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
    help="Exit after the last message that existed when the command started.",
)
@click.option("-f", "--format", "template", metavar="FORMAT", help=FORMAT_HELP)
@click.option(
    "-D",
    "--delimiter",
    metavar="TEXT",
    help="What ends each message instead of a newline, with the escapes of --format.",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="Write a JSON object for each message.")
@REGISTRY_OPTION
@schema_option("With --registry: an Avro schema (JSON) to which records are resolved.")
@QUIET_OPTION
@click.option(
    "--skip-corrupt",
    is_flag=True,
    help="Skip damaged messages, and with --registry those that aren't records, instead of "
    "giving up.",
)
@click.option(
    "--stamped", is_flag=True, help="Keep the stamps that audited producers put on messages."
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
@connection_options
def command(
    broker: BrokerOption | None,
    group: str | None,
    zookeeper: str | None,
    template: str | None,
    delimiter: str | None,
    as_json: bool,
    registry_url: str | None,
    schema_path: str | None,
    max_fetch_bytes: int,
    max_expanded_bytes: int,
    connection: CommandConnection,
    **options: Any,
) -> None:
    """Write a topic's messages to stdout, one per line, and nothing else there.

    Without -e and -c it runs until Ctrl-C; new messages are shown at once. Messages of one
    partition come in order. Without -e, a broker that becomes unavailable is waited for, and
    reading resumes where it stopped. With -f, newlines are written only where the format has them.

    With --registry, messages are records in Avro (or JSON Schema) with the id of their schema, and
    are written as JSON.
    """
    wanted = _ConsumeOptions(**options)
    renderer = _renderer(template, delimiter, as_json, has_values=bool(registry_url))
    decoding = _record_decoding(registry_url, connection.security, schema_path, wanted)
    if group is not None:
        if broker is not None and not zookeeper:
            zookeeper = coordination_of(broker, connection)
        config = _group_config(
            wanted,
            group=group,
            zookeeper_connect=zookeeper or "",
            max_fetch_bytes=max_fetch_bytes,
            timeout=connection.timeout_seconds * 1000,
            **connection.security.settings(),
        )
        with decoding as decoder:
            _consume_as_member(config, wanted, renderer, decoder)
        return
    if broker is None:
        raise click.UsageError("missing option '-b' / '--broker' (or --group and --zookeeper)")
    limits = {"max_fetch_bytes": max_fetch_bytes, "max_expanded_bytes": max_expanded_bytes}
    with broker.consumer(connection, **limits) as consumer, decoding as decoder:
        _consume(TopicSource(consumer, wanted.topic, wanted.partition), wanted, renderer, decoder)


def _record_decoding(
    registry_url: str | None,
    security: ClientSecurity,
    schema_path: str | None,
    wanted: _ConsumeOptions,
) -> AbstractContextManager[RecordDecoder | None]:
    if not registry_url:
        if schema_path is not None:
            raise click.UsageError("--schema needs --registry")
        return nullcontext()
    return record_decoder(
        registry_url,
        security,
        schema_path,
        retry_seconds=_REGISTRY_SECONDS if wanted.exit_at_end else None,
        skip_corrupt=wanted.skip_corrupt,
    )


def _renderer(
    template: str | None, delimiter: str | None, as_json: bool, *, has_values: bool
) -> MessageRenderer:
    if as_json and template is not None:
        raise click.UsageError("--format and --json exclude each other")
    if delimiter is not None:
        if as_json or template is not None:
            raise click.UsageError("--delimiter excludes --format and --json")
        template = "%s" + delimiter.replace("%", "%%")
    try:
        return choose_renderer(template, as_json, has_values=has_values)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-f") from None


# -- from a broker ------------------------------------------------------------------------------


def _consume(
    source: TopicSource,
    wanted: _ConsumeOptions,
    renderer: MessageRenderer,
    decoder: RecordDecoder | None,
) -> None:
    ranges = _existing_ranges(source, wanted)
    readers = open_readers(
        source,
        ranges,
        wanted.start,
        to_end=wanted.exit_at_end,
        skip_corrupt=wanted.skip_corrupt,
    )
    status(f"reading {wanted.topic}: {_summary(readers)}", quiet=wanted.quiet)
    retrying = Retrying(0 if wanted.exit_at_end else None, quiet=wanted.quiet)
    chunks = read_partitions(source.consumer, readers, _MAX_WAIT_MS, retrying)
    if not wanted.stamped:
        chunks = map(_without_stamps, chunks)
    if decoder is not None:
        chunks = decoder.decoded(chunks)
    if renderer.needs_times:
        chunks = with_times(source.consumer, chunks, retrying)
    if wanted.count is not None:
        chunks = _first(chunks, wanted.count)
    length_bytes = _progress_bytes(readers, ranges, wanted)
    try:
        with progress(length_bytes, "reading", quiet=wanted.quiet) as advance:
            for chunk in chunks:
                _write(renderer.render(chunk))
                advance(chunk.messages[-1][1] - chunk.offset)
    finally:
        if skipped := sum(reader.skipped for reader in readers):
            note(f"{skipped} damaged place{'s were' if skipped > 1 else ' was'} skipped")
        if decoder is not None and decoder.skipped:
            verb = "s were" if decoder.skipped > 1 else " was"
            note(f"{decoder.skipped} message{verb} skipped that can't be read")
    status("reached the end" if wanted.exit_at_end else "done", quiet=wanted.quiet)


def _existing_ranges(source: TopicSource, wanted: _ConsumeOptions) -> dict[int, OffsetRange]:
    ranges, exists = noted_ranges(source)
    check_one_partition(ranges, wanted.start)
    if not exists:
        note_missing(source, exit_at_end=wanted.exit_at_end, quiet=wanted.quiet)
    return ranges


def _summary(readers: list[PartitionReader]) -> str:
    places = [f"partition {reader.partition} from {reader.offset}" for reader in readers[:4]]
    if len(readers) > len(places):
        places.append(f"{len(readers) - len(places)} more")
    return ", ".join(places)


def _progress_bytes(
    readers: list[PartitionReader], ranges: dict[int, OffsetRange], wanted: _ConsumeOptions
) -> int | None:
    """How much there is to read, if that is known and the terminal is free for a bar."""
    if not wanted.exit_at_end or sys.stdout.isatty():
        return None
    return sum(max(ranges[each.partition].end - each.offset, 0) for each in readers)


def _first(chunks: Iterator[Chunk], count: int) -> Iterator[Chunk]:
    for chunk in chunks:
        messages = chunk.messages[:count]
        yield chunk._replace(messages=messages)
        count -= len(messages)
        if not count:
            return


def _without_stamps(chunk: Chunk) -> Chunk:
    # Only messages of 0.7 are stamped.
    if not any((message[0] or b"")[:5] == STAMP_START for message, _ in chunk.messages):
        return chunk
    messages = [
        (type(message)((message[0] and without_stamp(message[0]), *message[1:])), following)
        for message, following in chunk.messages
    ]
    return chunk._replace(messages=messages)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    # What was read is to be seen now, by the next program in a pipe as well.
    sys.stdout.buffer.flush()


# -- as a member of a group ---------------------------------------------------------------------


def _group_config(wanted: _ConsumeOptions, **settings: Any) -> ConsumerConfig:
    """A member's settings; usage errors for options that the group decides."""
    if not settings["zookeeper_connect"]:
        raise click.UsageError("--group needs --broker or --zookeeper")
    if wanted.partition is not None or wanted.exit_at_end:
        raise click.UsageError("--group excludes -p and -e: the group shares out the partitions")
    if wanted.start not in (BEGINNING, END):
        raise click.UsageError("with --group, -o is beginning or end, for partitions never read")
    return ConsumerConfig(
        **settings,
        auto_offset_reset="largest" if wanted.start == END else "smallest",
        on_corrupt="skip" if wanted.skip_corrupt else "raise",
    )


def _consume_as_member(
    config: ConsumerConfig,
    wanted: _ConsumeOptions,
    renderer: MessageRenderer,
    decoder: RecordDecoder | None,
) -> None:
    """Write messages until the count is reached, Ctrl-C or SIGTERM.

    What was written is committed; after a kill some messages may come again.
    """
    with sigterm_as_exit(), Consumer.create(config) as connector:
        (stream,) = connector.create_message_streams({wanted.topic: 1})[wanted.topic]
        status(f"{connector.consumer_id} has joined group {config.group}", quiet=wanted.quiet)
        chunks = map(_chunk_of, stream)
        if not wanted.stamped:
            chunks = map(_without_stamps, chunks)
        for number, chunk in enumerate(chunks if decoder is None else decoder.decoded(chunks), 1):
            _write(renderer.render(chunk))
            if number == wanted.count:
                break
        connector.commit_offsets()  # the last one was written, too


def _chunk_of(each: StreamMessage) -> Chunk:
    message = Message((each.message, 1, 0, 0))
    if isinstance(each, StreamRecord):
        message = RecordMessage.of_record(each.message, each.key, each.headers, each.timestamp_ms)
    return Chunk(each.topic, each.partition, each.offset, [(message, each.next_offset)])
