"""`hermes offsets`: where reading can start."""

import click

from hermes.cli.options import (
    BROKER_OPTION,
    JSON_OPTION,
    PARTITION_OPTION,
    BrokerOption,
    CommandConnection,
    topic_option,
)
from hermes.cli.place_options import TIME
from hermes.cli.security_options import connection_options
from hermes.cli.start_positions import noted_ranges
from hermes.cli.terminal import write_json, write_rows, write_table
from hermes.cli.topic_source import OffsetRange, TopicSource
from hermes.errors import ClientError


@click.command("offsets", short_help="Show where reading can start.")
@BROKER_OPTION
@topic_option("Whose offsets.")
@PARTITION_OPTION
@click.option(
    "--time",
    "time_ms",
    type=TIME,
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
@connection_options
def command(
    broker: BrokerOption,
    topic: str,
    partition: int | None,
    time_ms: int | None,
    max_offsets: int,
    as_json: bool,
    connection: CommandConnection,
) -> None:
    """Show the earliest and the latest offset of each partition, or the offsets before a time."""
    with broker.consumer(connection) as consumer:
        source = TopicSource(consumer, topic, partition)
        ranges, exists = noted_ranges(source)
        if not exists:
            raise ClientError(f"there is no topic {topic!r} (hermes topics list shows all)")
        if time_ms is None:
            _write_ranges(topic, ranges, as_json)
            return
        found = {
            number: consumer.get_offsets_before(topic, number, time_ms, max_offsets)
            for number in ranges
        }
    _write_offsets(topic, found, as_json)


def _write_ranges(topic: str, ranges: dict[int, OffsetRange], as_json: bool) -> None:
    rows = [
        {"topic": topic, "partition": number, "earliest": earliest, "latest": latest}
        for number, (earliest, latest) in ranges.items()
    ]
    write_rows(("topic", "partition", "earliest", "latest"), rows, as_json)


def _write_offsets(topic: str, found: dict[int, list[int]], as_json: bool) -> None:
    if not as_json:
        rows: list[tuple[str, int, int | None]] = []
        for number, offsets in found.items():
            rows += [(topic, number, offset) for offset in offsets] or [(topic, number, None)]
        write_table(("TOPIC", "PARTITION", "OFFSET"), rows)
        return
    for number, offsets in found.items():
        write_json({"topic": topic, "partition": number, "offsets": offsets})
