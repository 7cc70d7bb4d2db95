"""What a partition of Kafka's has beside its segments: its topic's id, leader epochs, its start.

What Kafka's files say of that stands in a file of ours, too (`hermes.storage.partition_record`).
What changes here waits in memory for the log's next flush: nothing is synced where a log is made.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from errno import EIO
from functools import partial
from uuid import UUID

from hermes.errors import StorageError
from hermes.protocol.record_batches import BatchHeader
from hermes.protocol.transaction_markers import Marker, marker_in
from hermes.storage.aborted_index import AbortedIndex, AbortedTransaction
from hermes.storage.batch_walk import BatchReader, Place, walk
from hermes.storage.checkpoints import (
    CLEANED_SUFFIX,
    EPOCHS_NAME,
    KAFKA_DRAFTS,
    METADATA_NAME,
    RECORD_NAME,
    STARTS_NAME,
    Checkpoints,
    LeaderEpochs,
    read_topic_id,
    write_topic_id,
)
from hermes.storage.files import FileLayer
from hermes.storage.kafka_index import KafkaIndex
from hermes.storage.layout import is_unused
from hermes.storage.partition_record import (
    PartitionRecord,
    forget_record,
    read_record,
    write_record,
)
from hermes.storage.producer_snapshots import ProducerSnapshots, Replayed
from hermes.storage.producer_states import ProducerStates
from hermes.storage.segment import LogView, Segment
from hermes.storage.sidecar import FormatSidecar, KnownLog
from hermes.storage.transactions import Transactions


class KafkaPartition(FormatSidecar):
    """Kafka's small files about one partition.

    Args:
        topic_id: the id in its `partition.metadata`; None to read it there.
        checkpoints: the data directory's; those of the directory above unless given.
    """

    can_begin_inside = True
    producers: ProducerStates

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
        self.epochs = LeaderEpochs("", ())
        self._has_new_epochs = False
        self._unwritten_epochs: StorageError | None = None
        self._is_new = False
        self.topic_id = topic_id
        self.producers = ProducerStates(f"{topic}-{partition}")
        self._snapshots = ProducerSnapshots(directory, files)
        self.transactions = Transactions()
        self.aborted = AbortedIndex(directory, files)
        self._replayed: Replayed | None = None
        self._scanned_from: int | None = None
        self.mended: list[str] = []
        self.lost = ""
        self._recalled: PartitionRecord | None = None
        self._is_clean = True
        # Guards the file of ours, which flushes and deletes write; taken alone.
        self._recording = threading.Lock()
        self._recorded: PartitionRecord | None = None
        self._is_record_synced = False
        # What the log was like when that was written, or tried: there may be very many segments.
        self._seen: tuple[object, ...] = ()

    def load(self, *, clean: bool, is_new: bool) -> None:
        """Read what is known of the partition; what the disk has lost is taken for damaged."""
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
        self._is_record_synced = False
        self._is_clean, self._scanned_from = clean, None
        self.known = KnownLog() if found is None else KnownLog(found.segments, found.end)
        self._seen = ()
        is_made_now = is_new and is_unused(self._directory, self._files)
        if found is None and not clean and not is_made_now:
            self._sync_topic_id()

    def _sync_topic_id(self) -> None:
        """Put on disk what a process that was killed may have left in memory.

        As in `sync`, before any index is there: recovery makes them.
        """
        try:
            descriptor = self._files.open_append(os.path.join(self._directory, METADATA_NAME))
        except FileNotFoundError:
            return
        try:
            self._files.fdatasync(descriptor)
        finally:
            self._files.close(descriptor)
        self._files.fsync_directory(self._directory)

    def _mend(self, name: str, text: str) -> None:
        path = name if name == STARTS_NAME else f"{os.path.basename(self._directory)}/{name}"
        self.mended.append(f"{path}, which {text}")

    def recovery_point(self) -> int:
        return self._checkpoints.recovery_point(*self._key)

    def end_of_epoch(self, epoch: int, log_end: int) -> tuple[int, int]:
        return self.epochs.end_of(epoch, log_end)

    def opened(self, segments: tuple[Segment, ...], end: int, now_ms: int, *, is_new: bool) -> int:
        """Read the files that say what the segments don't.

        Raises CorruptLogError: `partition.metadata` is damaged.
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
        self.epochs = LeaderEpochs.load(self._directory, self._files)
        found = self._unknown_epochs(segments, end)
        self._has_new_epochs = self.epochs.settle(found, earliest, end)
        if self._recalled is not None:
            self._recall_epochs(segments, earliest, end)
            self.lost = "; ".join(f"it {loss}" for loss in self._recalled.losses(first, end))
        replay = partial(self._headers, segments, end)
        damaged = None if self._is_clean else partial(self._damaged, segments, end)
        # What was deleted inside of a segment is there still: else the end of what a snapshot knows
        # of a producer would be taken for the end of what it sent.
        self._replayed = self._snapshots.load(
            self.producers, first, end, now_ms, replay, damaged, self._scanned_from
        )
        self._settle_aborted(segments)
        return earliest

    def end_for(self, start: int, end: int, bad_ranges: Sequence[tuple[int, int]]) -> int:
        self._scanned_from = start
        return end

    def _settle_aborted(self, segments: Sequence[Segment]) -> None:
        assert self._replayed is not None
        bases = [each.base_offset for each in segments]
        self.aborted.settle(bases, self._replayed.since, self._replayed.aborted)

    def installed(self) -> None:
        self._take_replayed()

    def _take_replayed(self) -> None:
        replayed, self._replayed = self._replayed, None
        if replayed is not None:
            self.transactions.replace(replayed.begun, replayed.ended)

    def _start(self, first: int, end: int) -> int:
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
        assert self._recalled is not None
        said, self.epochs = self.epochs, self.epochs.with_entries(self._recalled.epochs)
        self.epochs.settle(self._unknown_epochs(segments, end), earliest, end)
        if self.epochs.entries != said.entries:
            self._has_new_epochs = True
            self._mend(EPOCHS_NAME, f"said otherwise: epochs begin {self.epochs.entries}")

    def record(
        self,
        view_of: Callable[[], LogView],
        *,
        is_synced: bool = False,
        has_new_end: bool = False,
    ) -> None:
        self._record(view_of, None, is_synced=is_synced, has_new_end=has_new_end)

    def _record(
        self,
        view_of: Callable[[], LogView],
        start: int | None,
        *,
        is_synced: bool,
        has_new_end: bool = False,
    ) -> None:
        """See `Sidecar.record`; `start` is where the log is to begin, if not where it does."""
        with self._recording:
            view, topic_id = view_of(), self.topic_id
            if is_synced and view.segments:  # what lies before is about to be deleted
                self.aborted.begin_at(view.segments[0].base_offset)
            if topic_id is None or not view.bases:
                return
            start = view.earliest if start is None else start
            seen = (view.segments, start, self.epochs.entries)
            # Each flush comes here, on a full disk, too: what can't be written isn't tried again.
            if not (is_synced or has_new_end) and self._is_as(seen):
                return
            end = view.flushed_end
            segments = tuple(
                each.base_offset
                for each in view.segments
                if each.is_flushed_name and each.base_offset <= end
            )
            stay = self._checkpoints.kafka_stay()
            wanted = PartitionRecord(topic_id, start, end, self.epochs.entries, segments, stay)
            # The name of a segment changes once, with a flush.
            self._seen = seen if len(segments) == len(view.segments) else ()
            before = self._recorded
            if before is not None and not has_new_end:
                before = before._replace(end=end)
            if before == wanted and (self._is_record_synced or not is_synced):
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
            self._recorded, self._is_record_synced = wanted, is_synced

    def _is_as(self, seen: tuple[object, ...]) -> bool:
        """Whether nothing has changed; segments are the same only as the same tuple."""
        return bool(self._seen) and self._seen[0] is seen[0] and self._seen[1:] == seen[1:]

    def adopt(self, topic_id: UUID) -> None:
        with self._recording:
            forget_record(self._directory, self._files)
            self._recorded, self._seen = None, ()
        write_topic_id(self._directory, topic_id, self._files)
        self.topic_id, self._is_new = topic_id, True
        self.has_provisional_id = False

    def recovered(self, segments: Sequence[Segment], earliest: int, end: int, now_ms: int) -> None:
        replay = partial(self._headers, segments, end)
        first = segments[0].base_offset
        self._replayed = self._snapshots.load(self.producers, first, end, now_ms, replay)
        self._settle_aborted(segments)

    def _headers(
        self, segments: Sequence[Segment], end: int, start: int
    ) -> Iterator[tuple[BatchHeader, Marker | None]]:
        for reader, (position, header) in self._places(segments, end, start):
            marker = None
            if header.is_control:
                marker = marker_in(header, reader.read(position, header.size_bytes))
            yield header, marker

    def _damaged(self, segments: Sequence[Segment], end: int, offsets: set[int]) -> set[int]:
        return {
            place.header.base_offset
            for reader, place in self._places(segments, end, min(offsets, default=end))
            if place.header.base_offset in offsets and not reader.is_intact(place)
        }

    def _places(
        self, segments: Sequence[Segment], end: int, start: int
    ) -> Iterator[tuple[BatchReader, Place]]:
        ends = [*(each.base_offset for each in segments[1:]), end]
        for segment, stop in zip(segments, ends, strict=True):
            if stop <= start or segment.base_offset == end:
                continue
            descriptor = self._files.open_read(segment.path)
            try:
                index = _loaded_index(segment, descriptor, stop)
                position, base = 0, segment.base_offset
                if start > base:
                    position, *_ = index.find(descriptor, start)
                size = self._files.fstat(descriptor).st_size
                reader = BatchReader(self._files, descriptor, base, size)
                for place in walk(reader, position, base, known_end=stop):
                    if place.header.base_offset >= stop:
                        break
                    yield reader, place
            finally:
                self._files.close(descriptor)

    def rolled(self, end: int) -> None:
        self.producers.capture(end)

    def flushed(self, lock: AbstractContextManager[object], view_of: Callable[[], LogView]) -> None:
        view, seen = view_of(), self._seen
        if self.producers.captures:
            self._snapshots.write(self.producers.take_captures(view.flushed_end))
        # Said here, too: most flushes change nothing of it.
        if (
            not seen
            or view.segments is not seen[0]
            or (view.bases[0], self.epochs.entries) != seen[1:]
        ):
            self.record(view_of)
        if self._unwritten_epochs is not None:
            raise self._unwritten_epochs

    def close(self, end: int) -> None:
        self.producers.capture(end)
        self._snapshots.write(self.producers.take_captures(end))

    def _unknown_epochs(self, segments: tuple[Segment, ...], end: int) -> list[tuple[int, int]]:
        """Epochs at the log's end that the file doesn't know: who wrote them was killed since.

        There may be several segments of which no flush has ended; of what one has written down the
        record knows the epochs.
        """
        recorded = 0 if self._recalled is None else self._recalled.end
        found: list[tuple[int, int]] = []
        for segment in reversed(segments):
            if segment.base_offset < end:
                some = self._epochs_of(segment, end)
                if not some:
                    break
                is_one = found and found[0][0] == some[-1][0]
                found = [*some, *found[1 if is_one else 0 :]]
            if segment.base_offset <= recorded:
                break
            end = segment.base_offset
        return found

    def _epochs_of(self, segment: Segment, end: int) -> list[tuple[int, int]]:
        """A segment's epochs, and where they begin in it; none where that of its end is known."""
        descriptor = self._files.open_read(segment.path)
        try:
            last, *_ = _loaded_index(segment, descriptor, end).find(descriptor, end - 1)
            size = self._files.fstat(descriptor).st_size
            reader = BatchReader(self._files, descriptor, segment.base_offset, size)
            header = reader.header_at(last, segment.base_offset)
            if header is None or header.leader_epoch == self.epochs.before(end):
                return []
            found: list[tuple[int, int]] = []
            for _, header in walk(reader, 0, segment.base_offset, known_end=end):
                if not found or header.leader_epoch > found[-1][0]:
                    found.append((header.leader_epoch, header.base_offset))
            return found
        finally:
            self._files.close(descriptor)

    def cut(self, earliest: int, end: int) -> None:
        self._has_new_epochs |= self.epochs.settle((), earliest, end)
        self._take_replayed()

    def epoch_before(self, offset: int) -> int:
        return self.epochs.before(offset)

    def begin_epoch(self, epoch: int, offset: int) -> None:
        self._has_new_epochs |= self.epochs.begin(epoch, offset)

    def ends_in(
        self, headers: Sequence[BatchHeader], markers: Mapping[int, Marker]
    ) -> list[AbortedTransaction]:
        """Under the log's lock: which transactions are aborted in batches about to be appended.

        `markers`: those that end transactions, by their offsets.
        """
        aborted: list[AbortedTransaction] = []
        if not markers:
            return aborted
        after = Transactions()
        after.replace(self.transactions.open, ())
        for each in headers:
            marker, begun = markers.get(each.base_offset), after.open.get(each.producer_id)
            if marker is not None and not marker.is_commit and begun is not None:
                stable = after.stable_without(each.producer_id, each.last_offset)
                entry = AbortedTransaction(each.producer_id, begun, each.last_offset, stable)
                aborted.append(entry)
            after.follow(each)
        return aborted

    def placed(
        self, headers: Sequence[BatchHeader], markers: Mapping[int, Marker], now_ms: int
    ) -> None:
        for each in headers:
            self.begin_epoch(each.leader_epoch, each.base_offset)
            marker = markers.get(each.base_offset)
            self.producers.note((each,), each.base_offset, now_ms, marker)
            self.transactions.follow(each)

    def restarted(self, offset: int) -> None:
        self.cut(offset, offset)
        self.producers.replace({})
        self.transactions.replace({}, ())
        self.aborted.begin_at(offset)

    def keep_restart(self, offset: int, view_of: Callable[[], LogView]) -> None:
        self._snapshots.clear()
        self.keep_start(offset, view_of)

    def keep_start(self, earliest: int, view_of: Callable[[], LogView]) -> None:
        self._record(view_of, earliest, is_synced=True)
        self._checkpoints.keep(*self._key, earliest)

    def forget(self) -> None:
        self._checkpoints.forget(*self._key)

    def keep_id(self) -> None:
        if self._is_new:
            assert self.topic_id is not None
            write_topic_id(self._directory, self.topic_id, self._files, is_synced=True)
            # With its name, before any index is there: so who finds none knows of no flush.
            self._files.fsync_directory(self._directory)
            self._is_new = False

    def sync(self) -> None:
        if self.aborted.is_dirty:
            self.aborted.sync()
        if self._is_new:
            self.keep_id()
        if self._has_new_epochs:
            # Before it is written: an epoch may begin meanwhile.
            self._has_new_epochs, self._unwritten_epochs = False, None
            try:
                self.epochs.write(self._files)
            except StorageError as error:
                # No message depends on it: who opens the log finds the last epoch in its batches.
                self._has_new_epochs, self._unwritten_epochs = True, error


def _loaded_index(segment: Segment, descriptor: int, end: int) -> KafkaIndex:
    index = segment.index
    assert isinstance(index, KafkaIndex)
    index.load(descriptor, end)
    return index
