"""`hermes offsets`: where one can start to read."""

from typing import Final

import click

from hermes.cli.options import (
    BROKER_OPTION,
    JSON_OPTION,
    PARTITION_OPTION,
    TIMEOUT_OPTION,
    TOPIC,
    BrokerAddress,
    option_type,
)
from hermes.cli.terminal import write_json, write_table
from hermes.cli.times import parse_time_ms
from hermes.cli.topic_source import TopicSource
from hermes.client import SimpleConsumer
from hermes.errors import ClientError
from hermes.protocol import EARLIEST, LATEST

__all__ = ["command"]

_NAMED_TIMES: Final = {"earliest": EARLIEST, "latest": LATEST}


def _parse_time(text: str) -> int:
    """`earliest`, `latest`, or a point in time with or without a leading @."""
    named = _NAMED_TIMES.get(text)
    return parse_time_ms(text.removeprefix("@")) if named is None else named


@click.command("offsets", short_help="Show where reading can start.")
@BROKER_OPTION
@click.option("-t", "--topic", type=TOPIC, required=True, metavar="TOPIC", help="Whose offsets.")
@PARTITION_OPTION
@click.option(
    "--time",
    "time_ms",
    type=option_type(_parse_time, "time"),
    metavar="TIME",
    help="earliest, latest, or a time (ISO 8601, UTC unless it names a zone, or milliseconds "
    "since 1970): offsets of what was appended up to then, newest first.",
)
@click.option(
    "--max",
    "max_offsets",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="How many offsets to list for a --time.",
)
@JSON_OPTION
@TIMEOUT_OPTION
def command(
    broker: BrokerAddress,
    topic: str,
    partition: int | None,
    time_ms: int | None,
    max_offsets: int,
    as_json: bool,
    timeout_seconds: float,
) -> None:
    """Show the earliest and the latest offset of each partition, or the offsets before a time."""
    with SimpleConsumer(broker.host, broker.port, timeout_seconds=timeout_seconds) as consumer:
        ranges, exists = TopicSource(consumer, topic, partition).ranges()
        if not exists:
            raise ClientError(f"there is no topic {topic!r} (hermes topics list shows all)")
        if time_ms is None:
            found = {number: list(available) for number, available in ranges.items()}
        else:
            found = {
                number: consumer.get_offsets_before(topic, number, time_ms, max_offsets)
                for number in ranges
            }
    if time_ms is None:
        _show_ranges(topic, found, as_json)
    else:
        _show_offsets(topic, found, as_json)


def _show_ranges(topic: str, found: dict[int, list[int]], as_json: bool) -> None:
    if not as_json:
        rows = [(topic, number, *ends) for number, ends in found.items()]
        write_table(("TOPIC", "PARTITION", "EARLIEST", "LATEST"), rows)
        return
    for number, (earliest, latest) in found.items():
        place = {"topic": topic, "partition": number}
        write_json({**place, "earliest": earliest, "latest": latest})


def _show_offsets(topic: str, found: dict[int, list[int]], as_json: bool) -> None:
    if not as_json:
        rows: list[tuple[str, int, int | None]] = []
        for number, offsets in found.items():
            rows += [(topic, number, offset) for offset in offsets] or [(topic, number, None)]
        write_table(("TOPIC", "PARTITION", "OFFSET"), rows)
        return
    for number, offsets in found.items():
        write_json({"topic": topic, "partition": number, "offsets": offsets})
