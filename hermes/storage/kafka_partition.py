"""What a partition of Kafka's has beside its segments: its topic's id, leader epochs, its start.

What Kafka's files say of that stands in a file of ours, too (`hermes.storage.partition_record`).

A log (`hermes.storage.log`) of another format has none. What is changed here waits in memory for
the log's next flush, so that nothing is synced where a log is made.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import EIO
from functools import partial
from uuid import UUID

from hermes.errors import StorageError
from hermes.protocol.record_batches import BatchHeader
from hermes.storage.batch_walk import BatchReader, walk
from hermes.storage.checkpoints import (
    CLEANED_SUFFIX,
    EPOCHS_NAME,
    KAFKA_DRAFTS,
    RECORD_NAME,
    STARTS_NAME,
    Checkpoints,
    LeaderEpochs,
    encode_topic_id,
    read_topic_id,
    write_topic_id,
)
from hermes.storage.files import FileLayer
from hermes.storage.partition_record import (
    PartitionRecord,
    forget_record,
    read_record,
    write_record,
)
from hermes.storage.producer_snapshots import ProducerSnapshots
from hermes.storage.producer_states import ProducerStates
from hermes.storage.segment import LogView, Segment

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
        mended: of the files here which were damaged, and what is true.
        lost: what was there before, and isn't any more, in words; empty for nothing.
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
        self.mended: list[str] = []
        self.lost = ""
        self._recalled: PartitionRecord | None = None
        # Guards the file of ours, which flushes and deletes write; taken alone.
        self._recording = threading.Lock()
        self._recorded: PartitionRecord | None = None
        # What the log was like when that was written, or tried: there may be very many segments.
        self._seen: tuple[object, ...] = ()

    def recall(self) -> PartitionRecord | None:
        """Read what is known of the partition, before it is loaded. Blocks.

        Raises:
            OSError: it can't be read now; what the disk has lost is taken for damaged.
        """
        self.mended, self.lost = [], ""
        try:
            found = read_record(self._directory, self._files, self._checkpoints)
        except ValueError as error:
            found = None
            self._mend(RECORD_NAME, f"was damaged ({error}): Kafka's files were believed")
        except OSError as error:
            if error.errno != EIO:
                raise
            found = None
            self._mend(RECORD_NAME, "could not be read: Kafka's files were believed")
        self._recalled = self._recorded = found
        self._seen = ()
        return found

    def _mend(self, name: str, text: str) -> None:
        path = name if name == STARTS_NAME else f"{os.path.basename(self._directory)}/{name}"
        self.mended.append(f"{path}, which {text}")

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
        earliest = self._start(first, end)
        self._is_new |= is_new
        self._epochs = LeaderEpochs.load(self._directory, self._files)
        found = self._unknown_epochs(segments, end)
        self._has_new_epochs = self._epochs.settle(found, earliest, end)
        if self._recalled is not None:
            self._recall_epochs(segments, earliest, end)
            self.lost = "; ".join(f"it {loss}" for loss in self._recalled.losses(first, end))
        self.load_producers(segments, earliest, end, now_ms)
        return earliest

    def _start(self, first: int, end: int) -> int:
        """Where the log begins, by what is known or else by Kafka's file."""
        said = self._checkpoints.start(*self._key)
        earliest = said if first <= said <= end else first
        if said > end:
            # That of a log that was removed by hand: this one may grow beyond it.
            self._checkpoints.forget(*self._key)
        if self._recalled is not None:
            start = self._recalled.start
            start = start if first <= start <= end else first
            if start != earliest:
                self._checkpoints.keep(*self._key, start)
                name = os.path.basename(self._directory)
                self._mend(STARTS_NAME, f"said otherwise: {name} begins at {start}")
            earliest = start
        return earliest

    def _recall_epochs(self, segments: tuple[Segment, ...], earliest: int, end: int) -> None:
        """Let the epochs be those that are known, if Kafka's file says others."""
        assert self._recalled is not None
        said, self._epochs = self._epochs, self._epochs.with_entries(self._recalled.epochs)
        self._epochs.settle(self._unknown_epochs(segments, end), earliest, end)
        if self._epochs.entries != said.entries:
            self._has_new_epochs = True
            self._mend(EPOCHS_NAME, f"said otherwise: epochs begin {self._epochs.entries}")

    def record(
        self,
        view_of: Callable[[], LogView],
        *,
        start: int | None = None,
        is_synced: bool = False,
        has_new_end: bool = False,
    ) -> None:
        """Write down what is known by now, if that has changed. Blocks.

        Args:
            view_of: tells the log's segments, and up to where they are on disk.
            start: where the log is to begin; where it does unless given.
            is_synced: put it on disk, before it comes true.
            has_new_end: whether that the log ends elsewhere is reason enough to write it.

        Raises:
            OSError, StorageError: it is not written, and something else may stand there.
        """
        with self._recording:
            view, topic_id = view_of(), self.topic_id
            if topic_id is None or not view.bases:
                return
            start = view.earliest if start is None else start
            seen = (view.segments, start, self._epochs.entries)
            # Each flush comes here, on a full disk, too: what can't be written isn't tried again.
            if not (is_synced or has_new_end) and self._is_as(seen):
                return
            end = view.high_watermark
            segments = tuple(
                each.base_offset
                for each in view.segments
                if each.is_flushed_name and each.base_offset <= end
            )
            stay = self._checkpoints.kafka_stay()
            wanted = PartitionRecord(topic_id, start, end, self._epochs.entries, segments, stay)
            # The name of a segment changes once, with a flush.
            self._seen = seen if len(segments) == len(view.segments) else ()
            before = self._recorded
            if before is not None and not has_new_end:
                before = before._replace(end=end)
            if before == wanted:
                return
            self._recorded = None
            try:
                write_record(self._directory, wanted, self._files, is_synced=is_synced)
            except StorageError:
                # On a full disk a segment can't go if nothing can be written. What isn't written
                # down says nothing wrong.
                if not is_synced:
                    raise
                self._seen = ()
                forget_record(self._directory, self._files)
                self._files.fsync_directory(self._directory)
                return
            self._recorded = wanted

    def _is_as(self, seen: tuple[object, ...]) -> bool:
        """Whether nothing has changed; segments are the same only as the same tuple."""
        return bool(self._seen) and self._seen[0] is seen[0] and self._seen[1:] == seen[1:]

    def adopt(self, topic_id: UUID) -> None:
        """Take the topic's id instead of one that was made up.

        Raises:
            OSError: it can't be written.
        """
        with self._recording:
            forget_record(self._directory, self._files)
            self._recorded, self._seen = None, ()
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

    def keep_start(self, earliest: int, view_of: Callable[[], LogView]) -> None:
        """Put on disk where the log begins, before anybody is told. Blocks.

        Raises:
            OSError, StorageError: it is not on disk.
        """
        self.record(view_of, start=earliest, is_synced=True)
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
