"""The small text files that Kafka keeps of a partition, and of a whole data directory.

    <partition>/partition.metadata         version: 0
                                           topic_id: <UUID in URL-safe base64, without padding>
    <partition>/leader-epoch-checkpoint    0, how many lines follow, lines of: epoch, first offset
    <log_dir>/log-start-offset-checkpoint  0, how many lines follow, lines of: topic, partition,
                                           offset
    <log_dir>/recovery-point-offset-checkpoint
                                           the same; up to where Kafka knows that logs are on disk

`partition.metadata` makes a directory one of Kafka's: Kafka 4 takes one without it for a stray.
Each file is replaced as a whole.

Format: Kafka 4 (`PartitionMetadataFile`, `CheckpointFile`).
"""

import os
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final
from uuid import UUID

from hermes.errors import CorruptLogError
from hermes.storage.files import FileLayer, write_all
from hermes.storage.whole_files import read_or_nothing, read_whole, replace_whole

METADATA_NAME: Final = "partition.metadata"
EPOCHS_NAME: Final = "leader-epoch-checkpoint"
STARTS_NAME: Final = "log-start-offset-checkpoint"
RECOVERY_POINTS_NAME: Final = "recovery-point-offset-checkpoint"

#: What Kafka rewrites every few seconds while it runs, and Hermes never.
HIGH_WATERMARKS_NAME: Final = "replication-offset-checkpoint"

#: What Hermes knows of a partition: `hermes.storage.partition_record`.
RECORD_NAME: Final = "partition.hermes"

#: What a kill leaves of a small file that was to be replaced, by Hermes or by Kafka.
KAFKA_DRAFTS: Final = (
    f"{EPOCHS_NAME}.new",
    f"{EPOCHS_NAME}.tmp",
    f"{METADATA_NAME}.tmp",
    f"{RECORD_NAME}.new",
)

#: The files of a partition of Kafka's that belong to no segment.
KAFKA_NAMES: Final = (METADATA_NAME, EPOCHS_NAME, RECORD_NAME, *KAFKA_DRAFTS)

#: What a segment is called while compaction writes it anew.
CLEANED_SUFFIX: Final = ".cleaned"

_MAX_METADATA_BYTES: Final = 1000
_MAX_CHECKPOINT_BYTES: Final = 64 << 20
_LARGEST_OFFSET: Final = 2**63 - 1


def encode_topic_id(topic_id: UUID) -> str:
    return urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")


def read_topic_id(directory: str, files: FileLayer) -> UUID | None:
    """Read the id of a partition's topic; None when the directory isn't one of Kafka's.

    Raises CorruptLogError: the file is damaged.
    """
    path = os.path.join(directory, METADATA_NAME)
    data = read_whole(path, _MAX_METADATA_BYTES, files)
    if data is None:
        return None
    try:
        lines = dict(line.partition(": ")[::2] for line in data.decode("ascii").splitlines())
        if lines["version"] != "0":
            raise ValueError(f"its version is {lines['version'][:20]}")
        return UUID(bytes=urlsafe_b64decode(lines["topic_id"] + "=="))
    except (ValueError, KeyError) as error:
        raise CorruptLogError(
            f"{path} is damaged ({error}): it says which topic the partition belongs to; put back "
            "a copy of it, or that of another partition of the topic"
        ) from None


def write_topic_id(
    directory: str, topic_id: UUID, files: FileLayer, *, is_synced: bool = False
) -> None:
    """Write what makes a directory one of Kafka's; `is_synced`: put it on disk but for its name."""
    text = f"version: 0\ntopic_id: {encode_topic_id(topic_id)}"
    path = os.path.join(directory, METADATA_NAME)
    descriptor = files.open_append(path, create=True)
    try:
        write_all(files, descriptor, [text.encode("ascii")], 0)
        if is_synced:
            files.fdatasync(descriptor)
    finally:
        files.close(descriptor)


class LeaderEpochs:
    """Which leader epoch each part of a log was appended in.

    Hermes appends in the latest epoch that it finds, 0 in a new log; Kafka, when it takes over, in
    a later one. The latest one never goes back.

    Attributes:
        entries: (epoch, its first offset), both ascending.
        latest: the last of these epochs, or 0.
    """

    def __init__(self, path: str, entries: Iterable[tuple[int, int]]) -> None:
        self._path = path
        self._set(entries)

    def _set(self, entries: Iterable[tuple[int, int]]) -> None:
        self.entries = tuple(entries)
        self.latest = self.entries[-1][0] if self.entries else 0

    def with_entries(self, entries: Iterable[tuple[int, int]]) -> "LeaderEpochs":
        return LeaderEpochs(self._path, entries)

    @classmethod
    def load(cls, directory: str, files: FileLayer) -> "LeaderEpochs":
        """Read a partition's file; one that is missing or damaged says nothing."""
        path = os.path.join(directory, EPOCHS_NAME)
        data = read_or_nothing(path, _MAX_CHECKPOINT_BYTES, files)
        entries: list[tuple[int, int]] = []
        for line in _lines(data) or ():
            with suppress(ValueError):
                epoch, offset = map(int, line)
                if epoch >= 0 and (not entries or epoch > entries[-1][0]):
                    entries.append((epoch, offset))
        return cls(path, entries)

    def settle(self, found: Iterable[tuple[int, int]], start: int, end: int) -> bool:
        """Take over what the log's batches say, and forget what lies outside of the log.

        Args:
            found: (epoch, first offset) of epochs in a part of the log, ascending.
            start: the log's first offset.

        Returns:
            Whether that changed something, so that `write` is due.
        """
        before = list(self.entries)
        kept = [each for each in before if each[1] <= end]
        if len(kept) < len(before):
            # Clients have been told of the last one, although what was written in it is lost.
            kept = [*(each for each in kept if each[1] < end), (before[-1][0], end)]
        told = [each for each in kept if each[1] >= end]
        for epoch, offset in found:
            kept = _begun(kept, epoch, offset)
        kept += [each for each in told if each[0] > (kept[-1][0] if kept else -1)]
        # What was appended next to the start is in the last epoch that began before it.
        first = max(0, bisect_right(kept, start, key=lambda each: each[1]) - 1)
        kept = [(epoch, max(offset, start)) for epoch, offset in kept[first:]] or [(0, start)]
        self._set(kept)
        return kept != before

    def before(self, offset: int) -> int:
        """The epoch of what comes before an offset; -1 when it isn't known."""
        return next((epoch for epoch, first in reversed(self.entries) if first < offset), -1)

    def begin(self, epoch: int, offset: int) -> bool:
        """An epoch begins where the log ends; whether that changed something, as for `settle`."""
        before = self.entries
        if before and before[-1][0] == epoch:
            return False
        self._set(_begun(before, epoch, offset))
        return True

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Where an epoch ends, for clients that want to know whether a log was cut.

        Returns:
            (the largest epoch up to it that is known, where that ends); (-1, -1) when none is.
        """
        if epoch == self.latest:
            return epoch, log_end
        place = bisect_right(self.entries, epoch, key=lambda each: each[0])
        if not place or place == len(self.entries):
            return -1, -1
        return self.entries[place - 1][0], self.entries[place][1]

    def write(self, files: FileLayer) -> None:
        replace_whole(self._path, _text(self.entries), files)


def _begun(entries: Iterable[tuple[int, int]], epoch: int, offset: int) -> list[tuple[int, int]]:
    """What is true once a batch of an epoch is at an offset."""
    # What was to begin there, or in a later epoch, has come to nothing. It may go on with the epoch
    # before that: a follower's log was cut, and had been in a later one than its leader's is there.
    kept = [each for each in entries if each[0] <= epoch and each[1] < offset]
    return kept if kept and kept[-1][0] == epoch else [*kept, (epoch, offset)]


class Checkpoints:
    def __init__(self, directory: str, files: FileLayer) -> None:
        self._path = os.path.join(directory, STARTS_NAME)
        self._files = files
        self._lock = threading.Lock()  # never held while a disk is waited for
        self._writing = threading.Lock()
        self._directory = directory
        self._starts: dict[tuple[str, int], int] | None = None
        self._recovery_points: Mapping[tuple[str, int], int] | None = None
        self._kafka_stay: int | None = None

    def kafka_stay(self) -> int:
        """When a Kafka was at work in the data directory last, as a sign: ns since 1970, or 0."""
        with self._lock:
            if self._kafka_stay is None:
                path = os.path.join(self._directory, HIGH_WATERMARKS_NAME)
                try:
                    self._kafka_stay = self._files.lstat(path).st_mtime_ns
                except FileNotFoundError:
                    self._kafka_stay = 0
            return self._kafka_stay

    def recovery_point(self, topic: str, partition: int) -> int:
        """Up to where Kafka has put a log on disk, when it was the last to use it; 0 if unknown."""
        with self._lock:
            if self._recovery_points is None:
                path = os.path.join(self._directory, RECOVERY_POINTS_NAME)
                self._recovery_points = read_offsets(path, self._files)
            return self._recovery_points.get((topic, partition), 0)

    def start(self, topic: str, partition: int) -> int:
        """The first offset of a log; 0 when it was never cut, or the file is gone."""
        with self._lock:
            return self._loaded().get((topic, partition), 0)

    def keep(self, topic: str, partition: int, offset: int) -> None:
        """Put on disk where a log begins from now on; 0 forgets it. Blocks. Raises StorageError."""
        with self._writing:
            with self._lock:
                starts = dict(self._loaded())
            if starts.get((topic, partition), 0) == offset:
                return
            starts[topic, partition] = offset
            if not offset:
                del starts[topic, partition]
            replace_whole(self._path, _offsets_text(starts), self._files)
            with self._lock:
                self._starts = starts

    def forget(self, topic: str, partition: int) -> None:
        """Put on disk that nothing is known of a log; another of its name may follow. Blocks."""
        self.keep(topic, partition, 0)
        if not self.recovery_point(topic, partition):
            return
        with self._writing:
            points = dict(self._recovery_points or {})
            points.pop((topic, partition), None)
            path = os.path.join(self._directory, RECOVERY_POINTS_NAME)
            replace_whole(path, _offsets_text(points), self._files)
            self._recovery_points = points

    def _loaded(self) -> dict[tuple[str, int], int]:
        if self._starts is None:
            self._starts = dict(read_offsets(self._path, self._files))
        return self._starts


def read_offsets(path: str, files: FileLayer) -> Mapping[tuple[str, int], int]:
    """Read a file of offsets by (topic, partition); what is damaged is left out."""
    offsets: dict[tuple[str, int], int] = {}
    for line in _lines(read_or_nothing(path, _MAX_CHECKPOINT_BYTES, files)) or ():
        with suppress(ValueError):
            topic, partition, offset = line
            if 0 <= int(offset) <= _LARGEST_OFFSET:
                offsets[topic, int(partition)] = int(offset)
    return offsets


def _lines(data: bytes | None) -> list[list[str]] | None:
    if data is None:
        return None
    version, count, *lines = [*data.decode("utf-8", "replace").splitlines(), "", ""]
    if version.strip() != "0" or not count.strip().isdecimal():
        return None
    return [line.split() for line in lines if line]


def _offsets_text(offsets: Mapping[tuple[str, int], int]) -> bytes:
    return _text((topic, partition, each) for (topic, partition), each in offsets.items())


def _text(lines: Iterable[tuple[object, ...]]) -> bytes:
    rows = [" ".join(map(str, line)) for line in lines]
    return "".join(f"{row}\n" for row in ("0", len(rows), *rows)).encode()
