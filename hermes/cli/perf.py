"""`hermes perf`: how fast a broker stores messages and returns them, as one client sees it."""

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from hermes.cli.batch_sender import BatchSender, choose_acks
from hermes.cli.line_batches import LineBatch
from hermes.cli.options import (
    BROKER_OPTION,
    JSON_OPTION,
    PARTITION_OPTION,
    SIZE,
    BrokerOption,
    CommandConnection,
    acks_option,
    any_partition_option,
    compress_option,
    topic_option,
)
from hermes.cli.partition_reader import PartitionReader, read_partitions
from hermes.cli.place_options import PartitionPlace, start_option
from hermes.cli.security_options import connection_options
from hermes.cli.start_positions import open_readers
from hermes.cli.terminal import progress, write_json
from hermes.cli.topic_source import TopicSource
from hermes.client import SyncProducer
from hermes.errors import ClientError
from hermes.protocol import Codec

_PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)


@click.group("perf")
def command() -> None:
    """Measure how fast messages go in and out."""


@dataclass(frozen=True, slots=True)
class _Load:
    topic: str
    partition: int
    messages: int
    size_bytes: int
    batch: int
    acks_name: str
    codec: Codec


@command.command("produce", short_help="Send generated messages.")
@BROKER_OPTION
@topic_option("Where to.")
@any_partition_option(0, "-1 lets the broker choose one for every batch.")
@click.option(
    "-n",
    "--messages",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    metavar="N",
    help="How many to send.",
)
@click.option(
    "--size",
    "size_bytes",
    type=SIZE,
    default=200,
    show_default=True,
    metavar="SIZE",
    help="Size of each message's payload.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="Messages in a request.",
)
@acks_option("none", "What every request waits for.")
@compress_option("Compress every request's messages.")
@JSON_OPTION
@connection_options
def produce(
    broker: BrokerOption,
    as_json: bool,
    connection: CommandConnection,
    **load: Any,
) -> None:
    """Send generated messages, one request after another.

    With --acks written or flushed the latency of every request is measured too. The clock stops
    when the broker has read everything.
    """
    with broker.producer(connection) as producer:
        _produce(producer, _Load(**load), as_json)


def _produce(producer: SyncProducer, load: _Load, as_json: bool) -> None:
    acks = choose_acks(producer, load.acks_name, is_required=True)
    sender = BatchSender(producer, load.topic, load.partition, acks, load.codec)
    if load.size_bytes > sender.max_message_bytes:
        limit = sender.max_message_bytes
        raise click.UsageError(f"--size: the broker takes messages of up to {limit} bytes")
    latencies_ms = []
    with progress(load.messages, "sending") as advance:
        started = time.perf_counter()
        for batch in _generated(load):
            sent = time.perf_counter()
            sender.send(batch)
            latencies_ms.append((time.perf_counter() - sent) * 1000)
            advance(len(batch.lines))
        sender.finish()
        elapsed = time.perf_counter() - started
    result = _Result(load.messages, load.messages * load.size_bytes, elapsed)
    _report("sent", result, latencies_ms if acks is not None else [], as_json)


def _generated(load: _Load) -> Iterator[LineBatch]:
    half = (load.size_bytes + 1) // 2
    payloads = [os.urandom(half).hex().encode()[: load.size_bytes] for _ in range(load.batch)]
    for first in range(0, load.messages, load.batch):
        lines = payloads[: load.messages - first]
        yield LineBatch(lines, len(lines) * load.size_bytes)


@command.command("consume", short_help="Read a topic to its end.")
@BROKER_OPTION
@topic_option("What to read.")
@PARTITION_OPTION
@start_option("Where to begin, as for `hermes consume`.")
@click.option(
    "-n",
    "--messages",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many to read; by default all.",
)
@JSON_OPTION
@connection_options
def consume(
    broker: BrokerOption,
    topic: str,
    partition: int | None,
    start: PartitionPlace,
    messages: int | None,
    as_json: bool,
    connection: CommandConnection,
) -> None:
    """Read a topic to the end that it has now, and check every message."""
    with broker.consumer(connection) as consumer:
        source = TopicSource(consumer, topic, partition)
        readers = open_readers(source, source.ranges()[0], start, to_end=True)
        result = _consume(source, readers, messages)
    if not result.messages:
        raise ClientError(f"there is nothing to read in topic {topic!r} from there on")
    _report("read", result, [], as_json)


def _consume(source: TopicSource, readers: list[PartitionReader], limit: int | None) -> "_Result":
    count = size_bytes = 0
    with progress(limit, "reading") as advance:
        started = time.perf_counter()
        for chunk in read_partitions(source.consumer, readers, max_wait_ms=0):
            count += len(chunk.messages)
            size_bytes += sum([len(message[0] or b"") for message, _ in chunk.messages])
            advance(len(chunk.messages))
            if limit is not None and count >= limit:
                break
        elapsed = time.perf_counter() - started
    return _Result(count, size_bytes, elapsed)


# -- the report ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Result:
    """What was measured; `size_bytes` counts payloads only."""

    messages: int
    size_bytes: int
    seconds: float

    @property
    def rates(self) -> dict[str, float]:
        seconds = max(self.seconds, 1e-9)
        return {
            "messages_per_second": self.messages / seconds,
            "megabytes_per_second": self.size_bytes / seconds / 1e6,
        }


def _report(verb: str, result: _Result, latencies_ms: list[float], as_json: bool) -> None:
    latencies = _percentiles(sorted(latencies_ms))
    if as_json:
        measured = {"latency_ms": latencies} if latencies else {}
        write_json({**asdict(result), **result.rates, **measured})
        return
    rates = result.rates
    click.echo(
        f"{result.messages} messages {verb} in {result.seconds:.3f} s: "
        f"{rates['messages_per_second']:,.0f} messages/s, "
        f"{rates['megabytes_per_second']:.1f} MB/s"
    )
    if latencies:
        shown = ", ".join(f"{name} {value:.2f}" for name, value in latencies.items())
        click.echo(f"latency of a request in ms: {shown}")


def _percentiles(ascending: list[float]) -> dict[str, float]:
    if not ascending:
        return {}
    last = len(ascending) - 1
    named = {f"p{each:g}": ascending[round(last * each / 100)] for each in _PERCENTILES}
    return {**named, "max": ascending[-1]}
