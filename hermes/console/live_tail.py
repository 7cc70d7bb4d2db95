"""A live tail: what was appended since the last poll, and where to continue.

The page polls every second. What comes faster than it can be read is skipped, and said so: a tail
is for looking, and must cost the broker little however much is written.
"""

from dataclasses import dataclass
from typing import Final

from hermes.console.cluster_client import ClusterClient
from hermes.console.messages import (
    FoundMessage,
    MessageQuery,
    ScanCounter,
    UnreadableRange,
    newest_first,
)
from hermes.console.partition_search import PartitionSearch
from hermes.console.payload_display import ValueReader
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.errors import HermesError

_MOST_MESSAGES: Final = 100
# Of a partition; what is before that is skipped.
_MOST_BYTES: Final = 64 * 1024
#: How many partitions are followed: an address has all their places, and is limited itself.
MOST_PARTITIONS: Final = 300


@dataclass(frozen=True, slots=True)
class TailUpdate:
    """`rows`: newest first. `places`: up to where each partition was read.

    `skipped_bytes`: how much was skipped; in messages where offsets count these.
    """

    rows: tuple[FoundMessage | UnreadableRange, ...]
    places: dict[str, int]
    skipped_bytes: int
    errors: tuple[str, ...]


def known_ends(topic: TopicView, partitions: list[PartitionRow]) -> dict[str, int]:
    """Where partitions end, by name; those that nobody leads at the moment are left out."""
    return {
        row.name: row.high_watermark or 0
        for row in partitions[:MOST_PARTITIONS]
        if row.holder in topic.addresses
    }


def tail(
    cluster: ClusterClient,
    topic: TopicView,
    partitions: list[PartitionRow],
    places: dict[str, int],
    reader: ValueReader,
) -> TailUpdate:
    """Read what is new since `places`; a partition that is missing there starts at its end."""
    parts: list[list[FoundMessage | UnreadableRange]] = []
    ends = known_ends(topic, partitions)
    now = {**places, **ends}  # where nobody answers for a partition, its place stays
    skipped = 0
    errors: list[str] = []
    for row in partitions[:MOST_PARTITIONS]:
        end = ends.get(row.name, 0)
        place = places.get(row.name, end)
        if place >= end or row.earliest is None:
            continue
        consumer = cluster.consumer(topic.address_of(row))
        begin = place
        try:
            if row.counts_messages:
                begin = max(place, end - _most_messages(row))
            elif end - place > _MOST_BYTES:
                found = consumer.boundary_before(topic.name, row.number, end - _MOST_BYTES)
                begin = max(place, found)
            wanted = MessageQuery(
                "offset", begin, _MOST_MESSAGES * 10, _MOST_MESSAGES * 10, None, reader
            )
            search = PartitionSearch(consumer, topic.name, row, wanted)
            read = [
                each
                for each in search.forwards(ScanCounter(0))
                if isinstance(each, FoundMessage | UnreadableRange)
            ]
        except HermesError as error:
            errors.append(f"partition {row.label}: {error}")
            now[row.name] = place
            continue
        skipped += max(begin, row.earliest) - place
        parts.append(read)
    return TailUpdate(
        tuple(newest_first(parts)[:_MOST_MESSAGES]), now, max(skipped, 0), tuple(errors)
    )


def _most_messages(row: PartitionRow) -> int:
    count = (row.high_watermark or 0) - (row.earliest or 0)
    return max(_MOST_BYTES * count // max(row.size_bytes, 1), 1)
