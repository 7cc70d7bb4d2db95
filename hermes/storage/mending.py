"""Damaged places of a log get back what was there, from batches of another copy.

Other copies have the same batches, so these are written where they lay: who reads the segment, its
indexes and the rest of it are not concerned. Where copies were compacted differently they may not
fit; then nothing but damaged bytes was written over. For Kafka's format.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from hermes.errors import StorageError
from hermes.protocol.record_batches import BatchHeader
from hermes.storage.batch_walk import BatchReader, next_valid, walk
from hermes.storage.damage import BlockReads, Damage, read_or_zeros
from hermes.storage.files import FileLayer, identity, read_exactly, storage_error, write_all
from hermes.storage.kafka_index import KafkaIndex
from hermes.storage.log import Log
from hermes.storage.segment import Segment

_BLOCK_BYTES: Final = 64 * 1024

#: A batch begins with its offset.
_OFFSET_BYTES: Final = 8


class UnfitBatchesError(StorageError):
    """What came isn't what was there."""


class _Hole(NamedTuple):
    """Offsets that can't be read, and where they lie in their segment's file."""

    segment: Segment
    start: int
    end: int
    position: int
    end_position: int


class Mending:
    """Mends segments while nothing is appended to their log. What it calls blocks.

    Args:
        segments: where damage was found.

    Attributes:
        offset: from where on batches are wanted; all of these segments is whole before that.
    """

    def __init__(self, log: Log, segments: Collection[Segment], offset: int) -> None:
        self.segments = frozenset(segments)
        self.offset = offset
        self._log = log
        self._left = sorted(segments, key=lambda each: each.base_offset)
        self._hole: _Hole | None = None

    @property
    def wanted_end(self) -> int:
        """Up to where they are wanted."""
        return self.offset if self._hole is None else self._hole.end

    def look(self) -> bool:
        """Find the next damaged place, from `offset` on; False where there is none any more.

        Raises StorageError: the disk refused, or it can't be mended (`UnfitBatchesError`).
        """
        self._hole = None
        while self._left and self._hole is None:
            end = dict(self._log.flushed_segments()).get(self._left[0])
            if end is not None:
                self._hole = _hole_in(self._log, self._left[0], self.offset, end)
            if self._hole is None:
                del self._left[0]
        if self._hole is None:
            return False
        self.offset, earliest = self._hole.start, self._log.earliest
        if self.offset == earliest > self._hole.segment.base_offset:
            raise UnfitBatchesError(f"{self._log.name}: a batch that was deleted half is damaged")
        return True

    def write(self, data: memoryview, headers: Sequence[BatchHeader]) -> bool:
        """Put batches where they were, and `look` on once that is done.

        Args:
            data: whole batches, from `offset` on, and maybe more.
            headers: of those before `wanted_end`, which were checked.

        Raises StorageError: as `look`.
        """
        hole, state = self._hole, self._log.state
        assert hole is not None
        if hole.segment not in state.view.segments:
            return self.look()
        epochs, start = self._log.replica, hole.start
        if any(each.leader_epoch != epochs.epoch_before(each.next_offset) for each in headers):
            raise UnfitBatchesError(f"{self._log.name}: batches are of another history")
        size = sum(each.size_bytes for each in headers)
        if headers:
            start = headers[-1].next_offset
        following = data[size : size + _OFFSET_BYTES]
        is_next = len(following) == _OFFSET_BYTES and int.from_bytes(following) >= hole.end
        is_filled = start >= hole.end or is_next
        left = hole.end_position - hole.position - size
        if left < 0 or (is_filled and left):
            raise UnfitBatchesError(f"{self._log.name}: batches take other room than before")
        with state.flush_lock:
            state.check_online()
            if hole.segment in state.view.segments:
                self._put(hole, data[:size])
        self.offset = hole.end if is_filled else start
        self._hole = hole._replace(start=start, position=hole.position + size)
        return self.look() if is_filled else True

    def _put(self, hole: _Hole, data: memoryview) -> None:
        files = self._log.files
        with _opened(self._log, hole.segment) as descriptor:
            write_all(files, descriptor, [data], hole.position)
            try:
                files.fdatasync(descriptor)
            except OSError:
                # It is in memory only, where the next look would find it whole.
                write_all(files, descriptor, [bytes(len(data))], hole.position)
                raise


def damage_from(log: Log, start: int) -> tuple[Segment, Damage] | None:
    """Find the first damage of what a log has on disk from an offset on. Blocks.

    Raises StorageError: the disk refused.
    """
    for segment, end in log.flushed_segments():
        if start < end:
            hole = _hole_in(log, segment, start, end)
            if hole is not None:
                return segment, Damage(hole.start, hole.end)
    return None


@contextmanager
def _opened(log: Log, segment: Segment) -> Iterator[int]:
    """A descriptor of its own: the log's may be for reading only."""
    files = log.files
    try:
        descriptor = files.open_append(segment.path)
        try:
            if segment.file.identity not in (None, identity(files.fstat(descriptor))):
                raise StorageError(f"{log.name}: {segment.path} was replaced")
            yield descriptor
        finally:
            files.close(descriptor)
    except OSError as error:
        raise storage_error(f"{log.name}: {segment.path}", error) from error


def _hole_in(log: Log, segment: Segment, start: int, end: int) -> _Hole | None:
    with _opened(log, segment) as descriptor:
        files, index = log.files, segment.index
        size = files.fstat(descriptor).st_size
        offset = max(start, segment.base_offset, log.earliest)
        reads = _reads(files, descriptor, size)
        assert isinstance(index, KafkaIndex)
        index.load(descriptor, end, reads)
        _, position, _ = index.find(descriptor, offset, reads)
        reader = BatchReader(reads, descriptor, segment.base_offset, size)
        for place in walk(reader, position, segment.base_offset):
            if place.header.base_offset >= end:
                return None
            if not reader.is_intact(place):
                break
            position, offset = place.end_position, max(offset, place.header.next_offset)
        if offset >= end or position >= size:
            return None
        found = next_valid(reader, position, offset)
        if found is None:
            return _Hole(segment, offset, end, position, size)
        return _Hole(segment, offset, min(end, found.header.base_offset), position, found.position)


def _reads(files: FileLayer, descriptor: int, size: int) -> FileLayer:
    """Reads of a file by blocks; what the disk doesn't give back is damaged as well."""

    def read(position: int) -> bytes:
        length = max(0, min(_BLOCK_BYTES, size - position))
        return read_or_zeros(partial(read_exactly, files, descriptor), length, position)

    reads = BlockReads(read, _BLOCK_BYTES)
    reads.fstat = files.fstat
    return reads
