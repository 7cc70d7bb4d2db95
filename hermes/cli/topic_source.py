"""What a command must know of a topic before it reads: its partitions and where they begin and end.

A Hermes broker is asked for its metadata. One of Kafka 0.7 has no such request: there the number
of partitions is found by trying, which creates nothing.
"""

from typing import Final, NamedTuple

from hermes.client import SimpleConsumer
from hermes.errors import ClientError, WrongPartitionError
from hermes.protocol import (
    EARLIEST,
    LATEST,
    BoundaryRequest,
    ErrorCode,
    FetchRequest,
    MetadataRequest,
    error_for,
)

__all__ = ["OffsetRange", "TopicSource"]

_PROBED_AT_ONCE: Final = 64
_ALL_SEGMENTS: Final = 1_000_000


class OffsetRange(NamedTuple):
    """What a partition holds.

    Attributes:
        earliest: the offset of its first message.
        end: the offset behind its last readable message.
    """

    earliest: int
    end: int


class TopicSource:
    """One topic of one broker.

    Args:
        consumer: talks to the broker; stays the caller's.
        topic: the topic's name.
        partition: the only partition of interest; None for all.
    """

    def __init__(self, consumer: SimpleConsumer, topic: str, partition: int | None = None) -> None:
        self._consumer = consumer
        self._partition = partition
        self.topic = topic

    def ranges(self) -> tuple[dict[int, OffsetRange], bool]:
        """Ask what there is.

        Returns:
            What each partition holds now, by number, and whether the topic exists. A broker of
            Kafka 0.7 can't tell a topic that was never written to from one that isn't there.

        Raises:
            ClientError: there is no such partition.
            BrokerError: the topic's name is not allowed.
        """
        if not self._consumer.supports(MetadataRequest.TYPE):
            ranges = self._probed_ranges()
            return ranges, any(each.end > 0 for each in ranges.values())
        (metadata,) = self._consumer.metadata([self.topic]).topics
        if metadata.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC):
            raise error_for(metadata.error, f"topic {self.topic!r}")
        known = {
            each.partition: OffsetRange(each.earliest, each.high_watermark)
            for each in metadata.partitions
        }
        numbers = self._wanted(metadata.partition_count)
        # A partition that was never written to has no log, and will start at 0.
        ranges = {number: known.get(number, OffsetRange(0, 0)) for number in numbers}
        return ranges, metadata.error == ErrorCode.NONE

    def missing_text(self) -> str:
        """What to say when the topic does not exist."""
        if self._consumer.supports(MetadataRequest.TYPE):
            return f"there is no topic {self.topic!r}"
        return (
            f"there is no topic {self.topic!r}, or nothing was ever written to it: "
            "a broker of Kafka 0.7 can't tell"
        )

    def boundary_before(self, partition: int, offset: int) -> int:
        """Find a place at or before an offset where a message starts.

        Args:
            partition: its number.
            offset: any within the partition.

        Returns:
            The nearest one; with a broker of Kafka 0.7 the start of the segment.
        """
        if self._consumer.supports(BoundaryRequest.TYPE):
            return self._consumer.boundary_before(self.topic, partition, offset)
        starts = self.segment_starts(partition)
        return max((start for start in starts if start <= offset), default=offset)

    def next_segment(self, partition: int, offset: int) -> int | None:
        """Find the first segment's start, or else the partition's end, behind an offset."""
        starts = self.segment_starts(partition)
        return min((start for start in starts if start > offset), default=None)

    def segment_starts(self, partition: int) -> list[int]:
        """The end of the partition, and the starts of its segments, descending."""
        return self._consumer.get_offsets_before(self.topic, partition, LATEST, _ALL_SEGMENTS)

    def _wanted(self, partition_count: int) -> range:
        if self._partition is None:
            return range(partition_count)
        if self._partition >= partition_count:
            raise ClientError(
                f"topic {self.topic!r} has no partition {self._partition}: "
                f"they go from 0 to {partition_count - 1}"
            )
        return range(self._partition, self._partition + 1)

    def _probed_ranges(self) -> dict[int, OffsetRange]:
        ranges = {}
        for number in self._wanted(self._probed_count()):
            earliest = self._consumer.get_offsets_before(self.topic, number, EARLIEST)
            latest = self._consumer.get_offsets_before(self.topic, number, LATEST)
            ranges[number] = OffsetRange(min(earliest, default=0), max(latest, default=0))
        return ranges

    def _probed_count(self) -> int:
        """Count partitions by fetching nothing from each until there is no such partition."""
        count = 0
        while True:
            fetches = [
                FetchRequest(self.topic, number, 0, 0)
                for number in range(count, count + _PROBED_AT_ONCE)
            ]
            for result in self._consumer.multifetch(fetches):
                if isinstance(result.error, WrongPartitionError):
                    return count
                count += 1
