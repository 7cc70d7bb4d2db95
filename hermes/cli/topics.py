"""`hermes topics`: which topics a broker has, what is in them, and their end."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from hermes.cli.exits import require_subcommand
from hermes.cli.options import (
    BROKER_OPTION,
    JSON_OPTION,
    TIMEOUT_OPTION,
    TOPIC,
    BrokerAddress,
)
from hermes.cli.terminal import format_bytes, write_json, write_line, write_table
from hermes.client import SimpleConsumer
from hermes.errors import ClientError
from hermes.protocol import ErrorCode, MetadataRequest, TopicMetadata, error_for

__all__ = ["command"]


@click.group(
    "topics",
    short_help="List, describe and delete topics.",
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, describe and delete the topics of a broker (of Hermes; Kafka 0.7 can't be asked)."""
    require_subcommand(ctx)


@command.command("list")
@BROKER_OPTION
@JSON_OPTION
@TIMEOUT_OPTION
def list_(broker: BrokerAddress, as_json: bool, timeout_seconds: float) -> None:
    """List the topics of a broker."""
    with _connected(broker, timeout_seconds, "list its topics") as consumer:
        topics = sorted(consumer.metadata().topics, key=lambda each: each.topic)
    sizes = {each.topic: _size_bytes(each) for each in topics}
    if as_json:
        for each in topics:
            size = sizes[each.topic]
            write_json(
                {"topic": each.topic, "partitions": each.partition_count, "size_bytes": size}
            )
        return
    rows = [(each.topic, each.partition_count, format_bytes(sizes[each.topic])) for each in topics]
    write_table(("TOPIC", "PARTITIONS", "SIZE"), rows)


@command.command("describe", short_help="Show the partitions of topics.")
@BROKER_OPTION
@JSON_OPTION
@TIMEOUT_OPTION
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, type=TOPIC)
def describe(
    broker: BrokerAddress, as_json: bool, timeout_seconds: float, topics: tuple[str, ...]
) -> None:
    """Show the partitions of TOPICs: where they begin, up to where they can be read, their size.

    Partitions that were never written to have no offsets.
    """
    with _connected(broker, timeout_seconds, "describe a topic") as consumer:
        described = consumer.metadata(list(dict.fromkeys(topics))).topics
    for each in described:
        _check_exists(each)
    if as_json:
        for each in described:
            write_json({"topic": each.topic, "partitions": _partition_values(each)})
        return
    rows = [
        (each.topic, *values.values()) for each in described for values in _partition_values(each)
    ]
    write_table(("TOPIC", "PARTITION", "EARLIEST", "LATEST", "BYTES"), rows)


@command.command("delete", short_help="Delete topics and their messages.")
@BROKER_OPTION
@JSON_OPTION
@TIMEOUT_OPTION
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, type=TOPIC)
def delete(
    broker: BrokerAddress, as_json: bool, timeout_seconds: float, yes: bool, topics: tuple[str, ...]
) -> None:
    """Delete TOPICs on a broker, with all their messages. There is no way back.

    All are found to be there, and asked about, before the first is deleted.
    """
    with _connected(broker, timeout_seconds, "delete a topic") as consumer:
        for name in dict.fromkeys(topics):
            (described,) = consumer.metadata([name]).topics
            _check_exists(described)
            if not yes:
                size = format_bytes(_size_bytes(described))
                question = f"Delete topic {name!r} on {broker}, {size}, for good?"
                click.confirm(question, abort=True, err=True)
        for name in dict.fromkeys(topics):
            consumer.delete_topic(name)
            if as_json:
                write_json({"deleted": name})
            else:
                write_line(f"deleted {name}")


@contextmanager
def _connected(
    broker: BrokerAddress, timeout_seconds: float, purpose: str
) -> Iterator[SimpleConsumer]:
    """A consumer whose broker can do what the command is for."""
    with SimpleConsumer(broker.host, broker.port, timeout_seconds=timeout_seconds) as consumer:
        if not consumer.supports(MetadataRequest.TYPE):
            raise ClientError(
                f"{broker} is a broker of Kafka 0.7, which can't {purpose}; its topics are "
                "directories in its log.dir, and nodes of /brokers/topics in ZooKeeper "
                "(`hermes offsets` and `hermes consume` work with it)"
            )
        yield consumer


def _check_exists(topic: TopicMetadata) -> None:
    if topic.error == ErrorCode.UNKNOWN_TOPIC:
        raise ClientError(f"there is no topic {topic.topic!r} (hermes topics list shows all)")
    if topic.error != ErrorCode.NONE:
        raise error_for(topic.error, f"topic {topic.topic!r}")


def _size_bytes(topic: TopicMetadata) -> int:
    return sum(each.size_bytes for each in topic.partitions)


def _partition_values(topic: TopicMetadata) -> list[dict[str, Any]]:
    """A mapping for each partition, those that were never written to included."""
    known = {each.partition: asdict(each) for each in topic.partitions}
    missing = {"earliest": None, "high_watermark": None, "size_bytes": 0}
    return [
        known.get(number, {"partition": number, **missing})
        for number in range(topic.partition_count)
    ]
