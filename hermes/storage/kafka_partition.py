"""What a partition of Kafka's has beside its segments: its topic's id, leader epochs, its start.

A log (`hermes.storage.log`) of another format has none. What is changed here waits in memory for
the log's next flush, so that nothing is synced where a log is made.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from hermes.errors import StorageError
from hermes.protocol.record_batches import BatchHeader
from hermes.storage.batch_walk import BatchReader, walk
from hermes.storage.checkpoints import (
    CLEANED_SUFFIX,
    KAFKA_DRAFTS,
    Checkpoints,
    LeaderEpochs,
    encode_topic_id,
    read_topic_id,
    write_topic_id,
)
from hermes.storage.files import FileLayer
from hermes.storage.producer_snapshots import ProducerSnapshots
from hermes.storage.producer_states import ProducerStates
from hermes.storage.segment import Segment

__all__ = ["KafkaPartition", "encode_topic_id"]


class KafkaPartition:
    """Kafka's small files about one partition.

    Args:
        topic: the topic's name.
        partition: the partition's number.
        directory: its directory.
        files: the file layer.
        topic_id: the id in its `partition.metadata`; None to read it there.
        checkpoints: the data directory's; those of the directory above unless given.

    Attributes:
        topic_id: as given.
        producers: what is known of idempotent producers.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        files: FileLayer,
        topic_id: UUID | None,
        checkpoints: Checkpoints | None,
    ) -> None:
        self._key = (topic, partition)
        self._directory = directory
        self._files = files
        self._checkpoints = checkpoints or Checkpoints(os.path.dirname(directory), files)
        self._epochs = LeaderEpochs("", ())
        self._has_new_epochs = False
        self._is_new = False
        self.topic_id = topic_id
        self.producers = ProducerStates(f"{topic}-{partition}")
        self._snapshots = ProducerSnapshots(directory, files)

    @property
    def leader_epoch(self) -> int:
        """In which epoch batches are appended."""
        return self._epochs.latest

    def recovery_point(self) -> int:
        """See `Checkpoints.recovery_point`."""
        return self._checkpoints.recovery_point(*self._key)

    def end_of_epoch(self, epoch: int, log_end: int) -> tuple[int, int]:
        """See `LeaderEpochs.end_of`."""
        return self._epochs.end_of(epoch, log_end)

    def open(self, segments: tuple[Segment, ...], end: int, now_ms: int, *, is_new: bool) -> int:
        """Read what there is, once the log is loaded. Blocks.

        Args:
            segments: the log's.
            end: where it ends.
            now_ms: ms since 1970.
            is_new: whether what makes the directory one of Kafka's may be in memory only.

        Returns:
            Where the log begins.

        Raises:
            CorruptLogError: `partition.metadata` is damaged.
            OSError, StorageError: the disk failed.
        """
        if self.topic_id is None:
            self.topic_id = read_topic_id(self._directory, self._files)
        for name in self._files.listdir(self._directory):
            # An interrupted compaction's, or a small file's; Kafka's or ours.
            if name.endswith(CLEANED_SUFFIX) or name in KAFKA_DRAFTS:
                self._files.unlink(os.path.join(self._directory, name))
        first = segments[0].base_offset
        earliest = self._checkpoints.start(*self._key)
        if not first <= earliest <= end:
            if earliest > end:
                # That of a log that was removed by hand: this one may grow beyond it.
                self._checkpoints.forget(*self._key)
            earliest = first
        self._is_new |= is_new
        self._epochs = LeaderEpochs.load(self._directory, self._files)
        found = self._unknown_epochs(segments, end)
        self._has_new_epochs = self._epochs.settle(found, earliest, end)
        self.load_producers(segments, earliest, end, now_ms)
        return earliest

    def adopt(self, topic_id: UUID) -> None:
        """Take the topic's id instead of one that was made up.

        Raises:
            OSError: it can't be written.
        """
        write_topic_id(self._directory, topic_id, self._files)
        self.topic_id, self._is_new = topic_id, True

    def load_producers(
        self, segments: Sequence[Segment], earliest: int, end: int, now_ms: int
    ) -> None:
        """Find out what producers have sent, from a snapshot and the log's tail. Blocks.

        Args:
            segments: the log's.
            earliest: where it begins.
            end: where it ends.
            now_ms: ms since 1970.

        Raises:
            OSError: the disk failed.
        """
        replay = partial(self._headers, segments, end)
        self._snapshots.load(self.producers, earliest, end, now_ms, replay)

    def _headers(self, segments: Sequence[Segment], end: int, start: int) -> Iterator[BatchHeader]:
        """The headers of the batches from an offset on."""
        ends = [*(each.base_offset for each in segments[1:]), end]
        for segment, stop in zip(segments, ends, strict=True):
            if stop <= start or segment.base_offset == end:
                continue
            descriptor = self._files.open_read(segment.path)
            try:
                segment.index.load(descriptor, stop)
                position, base = 0, segment.base_offset
                if start > base:
                    position, _ = segment.format.locate(
                        segment, self._files, descriptor, start, stop
                    )
                size = self._files.fstat(descriptor).st_size
                reader = BatchReader(self._files, descriptor, base, size)
                for _, header in walk(reader, position, base, over_damage=True):
                    if header.base_offset >= stop:
                        break
                    yield header
            finally:
                self._files.close(descriptor)

    def flushed(self, end: int) -> None:
        """Write the snapshot of producers that has become due by a flush. Blocks.

        Args:
            end: up to where the log is on disk.

        Raises:
            OSError: the disk refused; it costs time when the log is opened, and nothing else.
        """
        self._snapshots.write(self.producers.take_captures(end))

    def close(self, end: int) -> None:
        """Write what is known of producers, for the next start. As `flushed`."""
        self.producers.capture(end)
        self.flushed(end)

    def _unknown_epochs(self, segments: tuple[Segment, ...], end: int) -> list[tuple[int, int]]:
        """Epochs in the last segment that the file doesn't know: Kafka was killed since."""
        segment = segments[-1]
        if segment.base_offset == end:
            return []
        descriptor = self._files.open_read(segment.path)
        try:
            segment.index.load(descriptor, end)
            last = segment.format.locate(segment, self._files, descriptor, end - 1, end)[0]
            size = self._files.fstat(descriptor).st_size
            reader = BatchReader(self._files, descriptor, segment.base_offset, size)
            header = reader.header_at(last, segment.base_offset)
            if header is None or header.leader_epoch <= self._epochs.last_known:
                return []
            found: list[tuple[int, int]] = []
            for _, header in walk(reader, 0, segment.base_offset, over_damage=True):
                if not found or header.leader_epoch > found[-1][0]:
                    found.append((header.leader_epoch, header.base_offset))
            return found
        finally:
            self._files.close(descriptor)

    def cut(self, earliest: int, end: int) -> None:
        """The log begins or ends elsewhere since."""
        self._has_new_epochs |= self._epochs.settle((), earliest, end)

    def keep_start(self, earliest: int) -> None:
        """Put on disk where the log begins, before anybody is told. Blocks.

        Raises:
            OSError, StorageError: it is not on disk.
        """
        self._checkpoints.keep(*self._key, earliest)

    def forget(self) -> None:
        """The log is about to be deleted: another one of its name begins at 0. As `keep_start`."""
        self._checkpoints.forget(*self._key)

    def sync(self) -> None:
        """Put on disk what has changed; a flush calls this before it syncs the directory.

        Raises:
            OSError: what makes the directory one of Kafka's can't be put on disk.
        """
        if self._is_new:
            assert self.topic_id is not None
            write_topic_id(self._directory, self.topic_id, self._files, is_synced=True)
            # With its name, before any index is there: so who finds none knows of no flush.
            self._files.fsync_directory(self._directory)
            self._is_new = False
        if self._has_new_epochs:
            # No message depends on it: who opens the log finds the last epoch in its batches.
            with suppress(StorageError):
                self._epochs.write(self._files)
                self._has_new_epochs = False
