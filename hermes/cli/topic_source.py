"""What a command must know of a topic before reading: its partitions, where they begin and end.

A Hermes broker is asked for its metadata. Kafka 0.7 has no such request: there the number of
partitions is found by trying, which creates nothing.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from hermes.client import AppendTime, FetchRequest, FetchResult
from hermes.config.origins import ALTERED, TOPIC_ENTRY
from hermes.errors import ClientError, WrongPartitionError
from hermes.protocol import (
    EARLIEST,
    LATEST,
    BoundaryRequest,
    BrokerMetadata,
    DescribeSettingsRequest,
    ErrorCode,
    MetadataRequest,
    SettingDescription,
    error_for,
)

_PROBED_AT_ONCE: Final = 64
_ALL_SEGMENTS: Final = 1_000_000


class OffsetReader(Protocol):
    """What topics are read with: the methods of a `SimpleConsumer`, which documents them."""

    def supports(self, request_type: int) -> bool: ...

    def metadata(self, topics: Sequence[str]) -> BrokerMetadata: ...

    def get_offsets_before(
        self, topic: str, partition: int, time: int, max_offsets: int = 1
    ) -> list[int]: ...

    def boundary_before(self, topic: str, partition: int, offset: int) -> int:
        """Find a message boundary at or before an offset: a broker's is the largest."""

    def multifetch(self, requests: Sequence[FetchRequest]) -> list[FetchResult]: ...

    def fetch_waiting(
        self, requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int = 1
    ) -> list[FetchResult]: ...

    def describe_settings(self, topic: str) -> list[SettingDescription]: ...

    def append_times(
        self, topic: str, partition: int, start: int, end: int, interval_ms: int = 1
    ) -> list[AppendTime]: ...


class OffsetRange(NamedTuple):
    """A partition's offsets: of its first message, and after its last readable one."""

    earliest: int
    end: int


class TopicSource:
    """One topic of one broker.

    Args:
        consumer: stays the caller's.
        partition: the only one of interest; None for all.

    Attributes:
        counts_messages: whether offsets do, not bytes; known once `ranges` was asked.
        share_text: that other brokers have further partitions of those asked for, in words, or "";
            likewise.
    """

    def __init__(self, consumer: OffsetReader, topic: str, partition: int | None = None) -> None:
        self.consumer = consumer
        self._partition = partition
        self.topic = topic
        self.counts_messages = False
        self.share_text = ""

    def ranges(self) -> tuple[dict[int, OffsetRange], bool]:
        """Ask the broker what the topic holds.

        Returns:
            What each partition holds now, by number, and whether the topic exists. A broker of
            Kafka 0.7 can't tell a topic that was never written to from one that doesn't exist.

        Raises:
            ClientError: there is no such partition, or none of the topic's is here.
            BrokerError: the topic's name is not allowed.
        """
        if not self.consumer.supports(MetadataRequest.TYPE):
            ranges = self._probed_ranges()
            return ranges, any(each.end > 0 for each in ranges.values())
        (metadata,) = self.consumer.metadata([self.topic]).topics
        if metadata.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC):
            raise error_for(metadata.error, f"topic {self.topic!r}")
        self.counts_messages = metadata.holds_records
        known = {
            each.partition: OffsetRange(each.earliest, each.high_watermark)
            for each in metadata.partitions
        }
        numbers = self._wanted(metadata.numbers)
        self._look_at_share(numbers, metadata.partition_count)
        # A partition that was never written to has no log, and will start at 0.
        ranges = {number: known.get(number, OffsetRange(0, 0)) for number in numbers}
        return ranges, metadata.error == ErrorCode.NONE

    def _look_at_share(self, numbers: Sequence[int], count: int) -> None:
        if self._partition is not None or len(numbers) >= count:
            return
        if not numbers:
            raise ClientError(
                f"this broker has no partition of topic {self.topic!r}: name another one of the "
                "cluster"
            )
        self.share_text = (
            f"this broker has {len(numbers)} of the {count} partitions of topic {self.topic!r}, "
            "other brokers the rest"
        )

    def settings(self) -> dict[str, str]:
        """The settings to create another topic like this one, as `create_topic` takes them.

        The broker's own settings are left out, so that the other topic follows them, too.
        """
        own: dict[str, str] = {}
        if self.consumer.supports(DescribeSettingsRequest.TYPE):
            own = {
                each.name: each.value
                for each in self.consumer.describe_settings(self.topic)
                if each.origin in (TOPIC_ENTRY, ALTERED)
            }
        count, log_format = len(self.ranges()[0]), "0.7"
        if self.consumer.supports(MetadataRequest.TYPE):
            (described,) = self.consumer.metadata([self.topic]).topics
            count = max(described.partition_count, int(own.get("partitions", 0)))
            log_format = "kafka" if described.holds_records else "0.7"
            if described.copies > 1:
                own["replicas"] = str(described.copies)
        return {**own, "format": log_format, "partitions": str(count)}

    def missing_text(self) -> str:
        if self.consumer.supports(MetadataRequest.TYPE):
            return f"there is no topic {self.topic!r}"
        return (
            f"there is no topic {self.topic!r}, or nothing was ever written to it: "
            "a broker of Kafka 0.7 can't tell"
        )

    def name_of(self, partition: int) -> str:
        return f"topic {self.topic!r} partition {partition}"

    def out_of_range(self, partition: int, offset: int, available: OffsetRange) -> ClientError:
        return ClientError(
            f"{self.name_of(partition)}: offset {offset} is not available: it holds "
            f"{available.earliest} to {available.end}"
        )

    def boundary_before(self, partition: int, offset: int) -> int:
        """Find a message boundary at or before an offset.

        With a broker it is the last one; with a broker of Kafka 0.7, or a stopped one's data
        directory, it is where the segment starts.
        """
        if self.consumer.supports(BoundaryRequest.TYPE):
            return self.consumer.boundary_before(self.topic, partition, offset)
        starts = self.segment_starts(partition)
        return max((start for start in starts if start <= offset), default=offset)

    def next_segment(self, partition: int, offset: int) -> int | None:
        """The next segment's start after an offset, or else the partition's end; None there."""
        starts = self.segment_starts(partition)
        return min((start for start in starts if start > offset), default=None)

    def segment_starts(self, partition: int) -> list[int]:
        return self.consumer.get_offsets_before(self.topic, partition, LATEST, _ALL_SEGMENTS)

    def _wanted(self, numbers: Sequence[int]) -> Sequence[int]:
        if self._partition is None:
            return numbers
        if self._partition not in numbers:
            known = f"its partitions are 0 to {len(numbers) - 1}"
            if not isinstance(numbers, range):
                known = f"this broker of the cluster has {', '.join(map(str, numbers))}"
            raise ClientError(f"topic {self.topic!r} has no partition {self._partition}: {known}")
        return (self._partition,)

    def _probed_ranges(self) -> dict[int, OffsetRange]:
        ranges = {}
        for number in self._wanted(range(self._probed_count())):
            earliest = self.consumer.get_offsets_before(self.topic, number, EARLIEST)
            latest = self.consumer.get_offsets_before(self.topic, number, LATEST)
            ranges[number] = OffsetRange(min(earliest, default=0), max(latest, default=0))
        return ranges

    def _probed_count(self) -> int:
        count = 0
        while True:
            fetches = [
                FetchRequest(self.topic, number, 0, 0)
                for number in range(count, count + _PROBED_AT_ONCE)
            ]
            for result in self.consumer.multifetch(fetches):
                if isinstance(result.error, WrongPartitionError):
                    return count
                count += 1
