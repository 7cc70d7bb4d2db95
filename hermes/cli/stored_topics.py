"""Reads topics from a data directory's files, through the same methods as from a broker.

A broker may be using them: a partition is read as it was when first looked at, flushed or not.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hermes.client import AppendTime, FetchRequest, FetchResult
from hermes.config.origins import ALTERED
from hermes.errors import ClientError, InvalidMessageError, OffsetOutOfRangeBrokerError
from hermes.offline.backup.extents import LogExtent, open_segment, stopped_extent
from hermes.protocol import (
    EARLIEST,
    LATEST,
    BrokerMetadata,
    DescribeSettingsRequest,
    ErrorCode,
    MessageSet,
    MetadataRequest,
    PartitionMetadata,
    SettingDescription,
    TopicMetadata,
)
from hermes.storage.damage import ReadableFiles
from hermes.storage.files import read_exactly
from hermes.storage.kafka_0_7 import KAFKA_0_7
from hermes.storage.kafka_format import format_of
from hermes.storage.layout import list_partitions, partition_directory
from hermes.storage.topic_entries import read_entries

_LONGEST_BYTES: Final = 64 * 1024 * 1024
_LENGTH_BYTES: Final = 4


class StoredTopics:
    """The topics of a data directory; nothing is written, and no lock is taken."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._files = ReadableFiles()
        self._extents: dict[tuple[str, int], LogExtent | None] = {}

    def supports(self, request_type: int) -> bool:
        return request_type in (MetadataRequest.TYPE, DescribeSettingsRequest.TYPE)

    def metadata(self, topics: Sequence[str]) -> BrokerMetadata:
        """Describe topics; a partition without segments was never written to."""
        partitions, _ = list_partitions(os.fspath(self._log_dir), self._files)
        described = []
        for topic in topics:
            numbers = [number for name, number in partitions if name == topic]
            found = []
            for number in sorted(numbers):
                extent = self._extent(topic, number)
                if extent is not None:
                    size = extent.end - extent.bases[0]
                    found.append(PartitionMetadata(number, extent.bases[0], extent.end, size))
            error = ErrorCode.NONE if numbers else ErrorCode.UNKNOWN_TOPIC
            count = max(numbers, default=0) + 1
            described.append(TopicMetadata(topic, error, count, tuple(found)))
        return BrokerMetadata(-1, "", 0, 0, 1, (), tuple(described))

    def describe_settings(self, topic: str) -> list[SettingDescription]:
        """The settings that were altered at run time; broker.yaml isn't in the directory."""
        entries = read_entries(os.fspath(self._log_dir), self._files)
        return [
            SettingDescription(name, value, ALTERED, is_live=True)
            for name, value in entries.get(topic, {}).items()
        ]

    def get_offsets_before(
        self, topic: str, partition: int, time: int, max_offsets: int = 1
    ) -> list[int]:
        extent = self._extent(topic, partition)
        if extent is None:
            return []
        bases = list(extent.bases)
        if time == EARLIEST:
            return bases[:1]
        found = sorted({extent.end, *bases}, reverse=True) if time == LATEST else []
        if time != LATEST:
            for base in reversed(bases):
                ended = self._end_at(topic, partition, base, time)
                if ended is not None:
                    found.append(ended)
                    break
        return found[:max_offsets]

    def boundary_before(self, topic: str, partition: int, offset: int) -> int:
        """Where the segment at an offset begins: not the largest boundary."""
        extent = self._extent(topic, partition)
        bases = () if extent is None else extent.bases
        return max((base for base in bases if base <= offset), default=offset)

    def fetch_waiting(
        self, requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int = 1
    ) -> list[FetchResult]:
        """Never waits."""
        return [self._fetch(request) for request in requests]

    def multifetch(self, requests: Sequence[FetchRequest]) -> list[FetchResult]:
        return self.fetch_waiting(requests, 0)

    def append_times(
        self, topic: str, partition: int, start: int, end: int, interval_ms: int = 1
    ) -> list[AppendTime]:
        """Not supported."""
        return []

    def _extent(self, topic: str, partition: int) -> LogExtent | None:
        key = topic, partition
        if key not in self._extents:
            directory = self._directory(topic, partition)
            if format_of(directory, self._files) is not KAFKA_0_7:
                raise ClientError(
                    f"{directory} holds Kafka's record batches, which aren't read from files here: "
                    "`hermes dump-log` shows them, or start a broker on the directory"
                )
            self._extents[key] = stopped_extent(directory, self._files, clean=True)
        return self._extents[key]

    def _directory(self, topic: str, partition: int) -> str:
        return os.fspath(self._log_dir / partition_directory(topic, partition))

    def _end_at(self, topic: str, partition: int, base: int, time_ms: int) -> int | None:
        opened = open_segment(self._directory(topic, partition), base, self._files, KAFKA_0_7)
        if opened is None:
            return None
        descriptor, segment = opened
        try:
            status = self._files.fstat(descriptor)
            segment.index.load(descriptor, base + status.st_size)
        finally:
            self._files.close(descriptor)
        if segment.index.last is None:  # a segment of Kafka's is known by its file's time only
            return base + status.st_size if status.st_mtime_ns // 1_000_000 <= time_ms else None
        entry = segment.index.at_time(time_ms)
        return None if entry is None else entry.end_offset

    def _fetch(self, request: FetchRequest) -> FetchResult:
        nothing = MessageSet(b"", request.offset)
        extent = self._extent(request.topic, request.partition)
        if extent is None:
            return FetchResult(request, nothing, -1)
        if not extent.bases[0] <= request.offset <= extent.end:
            error = OffsetOutOfRangeBrokerError(f"offset {request.offset}")
            return FetchResult(request, nothing, extent.end, error)
        base = max(base for base in extent.bases if base <= request.offset)
        later = [each for each in extent.bases if each > base]
        size = (later[0] if later else extent.end) - base
        data = self._read(request, base, size)
        if request.offset < extent.end and len(data) < _length_of(data):
            torn = InvalidMessageError(f"it ends at {base + size}, in the middle of a message")
            return FetchResult(request, nothing, extent.end, torn)
        return FetchResult(request, MessageSet(data, request.offset), extent.end)

    def _read(self, request: FetchRequest, base: int, size: int) -> bytes:
        directory = self._directory(request.topic, request.partition)
        opened = open_segment(directory, base, self._files, KAFKA_0_7)
        if opened is None:
            raise ClientError(f"{directory}: the segment at {base} was deleted while it was read")
        descriptor, _ = opened
        try:
            position = request.offset - base
            data = read_exactly(
                self._files, descriptor, min(request.max_size, size - position), position
            )
            length = _length_of(data)
            if len(data) < length <= min(size - position, _LONGEST_BYTES):
                data = read_exactly(self._files, descriptor, length, position)
        finally:
            self._files.close(descriptor)
        return data


def _length_of(data: bytes) -> int:
    return _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big", signed=True)
