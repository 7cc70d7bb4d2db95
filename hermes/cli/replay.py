"""`hermes replay`: messages of a topic once more, into another topic."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from hermes.cli.lines import LineBatch
from hermes.cli.options import (
    BROKER_OPTION,
    JSON_OPTION,
    MAX_EXPANDED_OPTION,
    PARTITION_OPTION,
    QUIET_OPTION,
    SIZE,
    TIMEOUT_OPTION,
    TOPIC,
    BrokerAddress,
    acks_option,
    compress_option,
    option_type,
    parse_broker,
    topic_option,
)
from hermes.cli.pacing import Pace
from hermes.cli.places import BEGINNING, END, START, Place, start_option
from hermes.cli.positions import find_position
from hermes.cli.reading import Chunk, PartitionReader, read_partitions
from hermes.cli.retrying import Retrying
from hermes.cli.sending import BatchSender, choose_acks
from hermes.cli.stored_topics import StoredTopics
from hermes.cli.terminal import format_bytes, note, progress, write_json, write_line
from hermes.cli.topic_source import TopicSource
from hermes.client import SyncProducer
from hermes.client.conversations import metadata
from hermes.errors import ClientError
from hermes.protocol import Acks, Codec, MetadataRequest

_MAX_WAIT_MS: Final = 1000
_BATCH_MESSAGES: Final = 5000


class _Plan(NamedTuple):
    """What is to be read of one partition."""

    reader: PartitionReader
    start: int
    end: int


@dataclass(slots=True)
class _Copied:
    """What was copied of one partition; `offset` is where to continue."""

    start: int
    offset: int
    messages: int = 0
    payload_bytes: int = 0


@click.command("replay", short_help="Copy a topic's messages into another topic.")
@BROKER_OPTION
@topic_option("What to read.")
@click.option(
    "--to", "new_topic", type=TOPIC, required=True, metavar="TOPIC", help="Where to write."
)
@click.option(
    "--from",
    "other_broker",
    type=option_type(parse_broker, "host:port"),
    metavar="HOST:PORT",
    help="Read from another broker than the one that is written to.",
)
@click.option(
    "--log-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Read the segments of a data directory (a restored backup, say) instead of a broker.",
)
@PARTITION_OPTION
@start_option("Where to begin: see consume.")
@click.option(
    "--until",
    type=START,
    default="end",
    show_default=True,
    metavar="END",
    help="Where to end: end (as it is now), an offset, or @TIME. What starts there isn't copied.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="At most N messages per second.",
)
@click.option(
    "--byte-rate", type=SIZE, metavar="SIZE", help="At most so many bytes of payloads per second."
)
@click.option(
    "--to-partition",
    type=click.IntRange(-1, 2**31 - 1),
    metavar="N",
    help="Write all to one partition, or with -1 to any. Else to the one with the same number.",
)
@acks_option("flushed", "What to wait for.")
@compress_option("Compress what is written.")
@click.option("--skip-corrupt", is_flag=True, help="Skip damaged messages instead of giving up.")
@JSON_OPTION
@QUIET_OPTION
@MAX_EXPANDED_OPTION
@TIMEOUT_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    broker: BrokerAddress,
    topic: str,
    new_topic: str,
    other_broker: BrokerAddress | None,
    log_dir: Path | None,
    partition: int | None,
    start: Place,
    until: Place,
    rate: float | None,
    byte_rate: int | None,
    to_partition: int | None,
    acks_name: str,
    codec: Codec,
    skip_corrupt: bool,
    as_json: bool,
    quiet: bool,
    max_expanded_bytes: int,
    timeout_seconds: float,
) -> None:
    r"""Copy the messages of a topic, or a range of them, into another topic.

    Each partition is copied in order, into the one with the same number. It ends where the topic
    ended when the command began. A broker that becomes unavailable is waited for, for up to two
    minutes; then some messages may be copied twice. If it ends early it says where to go on.

    \b
    Examples:
      hermes replay -t clicks --to clicks-again -o @2026-05-22T10:00 --until @2026-05-22T11:00
      hermes replay -t clicks --to trial --rate 500
      hermes replay -t clicks --to clicks --log-dir /tmp/restored -p 0 -o 81920
    """
    if other_broker is not None and log_dir is not None:
        raise click.UsageError("--from and --log-dir exclude each other")
    if topic == new_topic and log_dir is None and other_broker in (None, broker):
        raise click.UsageError("a topic can't be copied into itself: give another --to")
    if until.kind == "last":
        raise click.UsageError("--until is end, an offset, or @TIME")
    acks_given = ctx.get_parameter_source("acks_name") is not ParameterSource.DEFAULT
    with ExitStack() as stack:
        producer = stack.enter_context(broker.producer(timeout_seconds))
        acks = choose_acks(producer, acks_name, is_required=acks_given)
        if log_dir is not None:
            source = TopicSource(StoredTopics(log_dir), topic, partition)
        else:
            consumer = (other_broker or broker).consumer(
                timeout_seconds, max_expanded_bytes=max_expanded_bytes
            )
            source = TopicSource(stack.enter_context(consumer), topic, partition)
        plans = _plans(source, start, until, skip_corrupt=skip_corrupt)
        if to_partition is None:
            _check_partitions(producer, new_topic, max(plans))
        copy = _Copy(plans, producer, new_topic, to_partition, acks, codec, Pace(rate, byte_rate))
        retrying = Retrying(120, quiet=quiet)
        readers = [plan.reader for plan in plans.values()]
        total = sum(max(plan.end - plan.start, 0) for plan in plans.values())
        try:
            with progress(total, "replaying", quiet=quiet) as advance:
                for chunk in read_partitions(source.consumer, readers, _MAX_WAIT_MS, retrying):
                    copy.add(chunk, advance)
            copy.finish()
        except BaseException:
            copy.tell_where()
            raise
    copy.report(topic, as_json)


def _plans(
    source: TopicSource, start: Place, until: Place, *, skip_corrupt: bool
) -> dict[int, _Plan]:
    """What to read of each partition."""
    ranges, exists = source.ranges()
    if not exists:
        raise ClientError(source.missing_text())
    if len(ranges) > 1 and "offset" in (start.kind, until.kind):
        raise click.UsageError(
            f"an offset belongs to one partition: give -p, 0 to {len(ranges) - 1}"
        )
    plans = {}
    for number, available in ranges.items():
        first = find_position(source, number, available, start)
        end = available.end if until == END else find_position(source, number, available, until)[0]
        if until == BEGINNING:
            end = available.earliest
        reader = PartitionReader(
            source,
            number,
            first.offset,
            end=max(end, first.offset),
            drop=first.drop,
            skip_corrupt=skip_corrupt,
        )
        plans[number] = _Plan(reader, first.offset, end)
    return plans


def _check_partitions(producer: SyncProducer, topic: str, last: int) -> None:
    """Make sure that every partition has one to go to, as far as the broker can tell."""
    if MetadataRequest.TYPE not in producer.channel.versions():
        return
    (described,) = producer.channel.run(metadata([topic])).topics
    if described.partition_count <= last:
        raise ClientError(
            f"topic {topic!r} has {described.partition_count} partitions, {last + 1} are needed: "
            "give --to-partition, or create it with more"
        )


class _Copy:
    """Sends what was read, and keeps account of how far it has come."""

    def __init__(
        self,
        plans: Mapping[int, _Plan],
        producer: SyncProducer,
        topic: str,
        to_partition: int | None,
        acks: Acks | None,
        codec: Codec,
        pace: Pace,
    ) -> None:
        self._plans = plans
        self._topic = topic
        self._to_partition = to_partition
        self._pace = pace
        self._senders: dict[int, BatchSender] = {}
        self._copied: dict[int, _Copied] = {
            number: _Copied(plan.start, plan.start) for number, plan in plans.items()
        }

        def make(partition: int) -> BatchSender:
            return BatchSender(
                producer, topic, partition, acks, codec, Retrying(120), noun="message"
            )

        self._make: Callable[[int], BatchSender] = make

    def add(self, chunk: Chunk, advance: Callable[[int], None]) -> None:
        """Send the messages of a chunk."""
        target = chunk.partition if self._to_partition is None else self._to_partition
        if target not in self._senders:
            self._senders[target] = self._make(target)
        copied = self._copied[chunk.partition]
        done = 0
        for piece in _batches(self._pace, [message.payload for message, _ in chunk.messages]):
            size = sum(map(len, piece))
            self._senders[target].send(LineBatch(piece, size))
            done += len(piece)
            following = chunk.messages[done - 1][1]
            advance(max(following - copied.offset, 0))
            copied.offset = following
            copied.messages += len(piece)
            copied.payload_bytes += size

    def finish(self) -> None:
        """Return when the broker has read everything. Raises ClientError."""
        for sender in self._senders.values():
            sender.finish()
        for number, copied in self._copied.items():
            plan = self._plans[number]  # damage at its end may have been skipped
            copied.offset = max(copied.offset, min(plan.reader.offset, plan.end))

    def tell_where(self) -> None:
        """Say where to continue, for an end that comes early."""
        for number, copied in self._copied.items():
            if copied.messages:
                where = f"partition {number} was copied up to offset {copied.offset}"
                note(f"{where}: continue with -p {number} -o {copied.offset}")

    def report(self, topic: str, as_json: bool) -> None:
        """Say what was copied."""
        if as_json:
            rows: list[dict[str, Any]] = [
                {
                    "partition": number,
                    "from": copied.start,
                    "to": copied.offset,
                    "messages": copied.messages,
                    "payload_bytes": copied.payload_bytes,
                }
                for number, copied in self._copied.items()
            ]
            write_json({"topic": topic, "to": self._topic, "partitions": rows})
            return
        messages = sum(each.messages for each in self._copied.values())
        size = format_bytes(sum(each.payload_bytes for each in self._copied.values()))
        write_line(f"{messages} messages, {size}, copied from {topic} to {self._topic}")


def _batches(pace: Pace, payloads: list[bytes]) -> Iterator[list[bytes]]:
    for piece in pace.pieces(payloads):
        for first in range(0, len(piece), _BATCH_MESSAGES):
            yield list(piece[first : first + _BATCH_MESSAGES])
