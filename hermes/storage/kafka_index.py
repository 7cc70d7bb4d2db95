"""What is kept beside a segment of record batches: Kafka's two indexes, and ours.

    <base>.index      where offsets lie: int32 offset (less the base), int32 position; an entry for
                      the first batch that begins more than 4096 bytes after the one of the last
                      entry; its offset is that of the batch's last message
    <base>.timeindex  the largest timestamp so far: int64 ms since 1970, int32 offset (less the
                      base) of the last message of the batch that has it; both ascending
    <base>.appends    our own: when the segment ended where, and up to where it is on disk, as
                      `hermes.storage.time_index` has it of 0.7's segments

All are big-endian. Kafka's are written after the fdatasync that covers the batches, like ours, but
some entries at a time, and say what the batches' own headers do. Nothing depends on their being
right: an entry is believed when the batch that it leads to ends with its offset, and what is
missing is walked. So they cost nothing but time when they are lost.

Of Kafka's entries the last few are in memory, for those who read what was just written.

Formats: Kafka 4 (`OffsetIndex`, `TimeIndex`, `LogSegment`).
"""

import os
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from struct import Struct
from typing import Final
from zlib import crc32

from hermes.protocol import core
from hermes.protocol.loops import BatchesEnd
from hermes.protocol.record_batches import HEADER_BYTES, LENGTH_END
from hermes.storage.batch_walk import BatchReader, Place, intact, plausible, walk
from hermes.storage.files import (
    FEW_BYTES,
    FileLayer,
    NotInMemoryError,
    ResidentFiles,
    read_exactly,
)
from hermes.storage.index_entries import unreadable_is_empty
from hermes.storage.sorted_file import SortedFile
from hermes.storage.time_index import SYNC_EVERY_BYTES, TAIL_BYTES, TimeIndex

APPENDS_SUFFIX: Final = ".appends"
OFFSETS_SUFFIX: Final = ".index"
TIMES_SUFFIX: Final = ".timeindex"

#: How many bytes of batches an entry of Kafka's indexes stands for, at least.
INTERVAL_BYTES: Final = 4096

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")

#: The timestamp of no message: earlier than every one.
NO_TIME_MS: Final = -(2**63)

#: So many entries of `.index`, at least, are in memory once they were written.
_RECENT: Final = 256

#: So many entries of `.index` wait in memory at most, to be written together.
_MOST_PENDING: Final = 64

#: Of so many offsets where readers went on, or soon will, the place is remembered.
_REMEMBERED: Final = 32

#: So many batches are stepped over before `.index` is asked, and at most behind what it says: an
#: entry stands for a tenth of that, and where there is none, less is read at a time.
_STEPS: Final = 16
_FURTHER_STEPS: Final = 1024
_STEP_BYTES: Final = 4096

# The last place that an entry can tell: a segment that is larger may be there, put by hand, say.
_LAST_POSITION: Final = 2**31 - 1

# No batch begins there, and nothing has so many.
_NO_END: Final = 2**63 - 1


class KafkaIndex(TimeIndex):
    __slots__ = (
        "_entry_position",
        "_indexing",
        "_newest",
        "_offsets",
        "_pending",
        "_pending_times",
        "_recent_offsets",
        "_recent_positions",
        "_remembered",
        "_synced_position",
        "_times",
        "_told_ms",
        "_walked",
    )

    # Together with Kafka's.
    _sync_every = 2**63

    def __init__(self, files: FileLayer, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset)
        stem = os.path.splitext(path)[0]
        self._offsets = SortedFile(files, stem, OFFSETS_SUFFIX, OFFSET_ENTRY)
        self._times = SortedFile(files, stem, TIMES_SUFFIX, TIME_ENTRY)
        # Guards what is below; taken after the lock of our own index.
        self._indexing = threading.Lock()
        self._restart(None, None)

    def _restart(self, last: Place | None, newest: tuple[int, int] | None) -> None:
        """Go on behind the batch of the last entry of `.index`, and from that of `.timeindex`."""
        base = self._base_offset
        # Up to where batches were walked: (offset, position); and where the last entry leads.
        self._walked = (base, 0) if last is None else (last.header.next_offset, last.end_position)
        self._entry_position = 0 if last is None else last.position
        # The largest timestamp, with the last offset of its batch; and what was written of it.
        self._newest = (NO_TIME_MS, base) if newest is None else (newest[0], base + newest[1])
        self._told_ms = self._newest[0]
        if last is not None and last.header.max_timestamp_ms > self._newest[0]:
            self._newest = last.header.max_timestamp_ms, last.header.last_offset
        # Entries to be written, and the last ones of `.index`: (relative offset, position).
        self._pending: list[tuple[int, int]] = []
        self._pending_times: list[tuple[int, int]] = []
        self._recent_offsets, self._recent_positions = array("q"), array("q")
        self._synced_position = self._walked[1]
        # (offset, where the batch begins that it is the first of): each at its offset's remainder,
        # so that it needs no lock. The inverted position where only the batch before was seen.
        self._remembered: list[tuple[int, int]] = [(-1, 0)] * _REMEMBERED

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, self._offsets.path, self._times.path)

    @property
    def newest(self) -> tuple[int, int]:
        """(the largest timestamp or `NO_TIME_MS`, its batch's last offset) of what was walked."""
        return self._newest

    @property
    def newest_ms(self) -> int:
        return self._newest[0]

    def begin(self) -> None:
        super().begin()
        with self._indexing:
            self._offsets.keep(0)
            self._times.keep(0)
            self._restart(None, None)

    def ensure_file(self) -> bool:
        made = [super().ensure_file(), self._offsets.ensure(), self._times.ensure()]
        return any(made)

    # -- loading --------------------------------------------------------------------------------

    def load(self, log_descriptor: int, end_offset: int, files: FileLayer | None = None) -> None:
        """As in other formats. `files`: reads the log in place of its own file layer."""
        if not self.is_loaded:
            with self._indexing, unreadable_is_empty():
                self._offsets.load()
                self._times.load()
                self._keep_until(log_descriptor, None, files)
            super().load(log_descriptor, end_offset)
            with self._indexing:
                self._walk(log_descriptor, end_offset, files)

    def settle(
        self, log_descriptor: int, known: int, end_offset: int, *, complete: bool = False
    ) -> None:
        self.ensure_file()
        with self._indexing:
            self._offsets.keep_ordered()
            self._times.keep_ordered()
            self._keep_until(log_descriptor, known)
            self._walk(log_descriptor, end_offset)
            is_sync_due = complete or self._walked[1] - self._synced_position >= SYNC_EVERY_BYTES
            self._write_kafkas(is_complete=complete, is_sync_due=is_sync_due)
        if is_sync_due:
            self._sync_kafkas()

    def _keep_until(
        self, log_descriptor: int, limit: int | None, files: FileLayer | None = None
    ) -> None:
        """Let only entries count that lead to batches, and only to those before an offset."""
        base, count, last = self._base_offset, self._offsets.count, None
        while count:
            entry = self._offsets.entry(count - 1)
            if entry is not None and (limit is None or base + entry[0] < limit):
                last = self._batch(log_descriptor, entry, files)
                if last is not None:
                    break
            count -= 1
        self._offsets.keep(count)
        end = base if last is None else last.header.next_offset
        times, newest = self._times.count, None
        while times:
            newest = self._times.entry(times - 1)
            if newest is not None and base + newest[1] < end:
                break
            newest, times = None, times - 1
        self._times.keep(times)
        self._restart(last, newest)

    def _batch(
        self, log_descriptor: int, entry: tuple[int, int], files: FileLayer | None = None
    ) -> Place | None:
        reader = self._reader(log_descriptor, files)
        header = reader.header_at(entry[1], self._base_offset) if entry[1] >= 0 else None
        if header is None or header.last_offset != self._base_offset + entry[0]:
            return None
        return Place(entry[1], header)

    def _reader(self, log_descriptor: int, files: FileLayer | None = None) -> BatchReader:
        files = self._files if files is None else files
        size = files.fstat(log_descriptor).st_size
        return BatchReader(files, log_descriptor, self._base_offset, size)

    # -- growing --------------------------------------------------------------------------------

    def write(
        self,
        entries: Sequence[tuple[int, int, int]],
        log_descriptor: int,
        descriptor: int,
        start: int | None = None,
        batches: Sequence[tuple[int, int, int, int]] = (),
        *,
        complete: bool = False,
    ) -> None:
        with self._indexing:
            if batches and batches[0][0] == self._walked[1]:
                self._advance(batches)
            if entries and self._walked[0] < entries[-1][1]:
                self._walk(log_descriptor, entries[-1][1])
            is_sync_due = complete or self._walked[1] - self._synced_position >= SYNC_EVERY_BYTES
            if is_sync_due or len(self._pending) >= _MOST_PENDING:
                self._write_kafkas(is_complete=complete, is_sync_due=is_sync_due)
        if is_sync_due:
            self._sync_kafkas()
        super().write(entries, log_descriptor, descriptor, start, complete=is_sync_due)

    def close(self) -> None:
        """The last timestamp is written, which a roll would write."""
        # Kafka looks for all of them, also of an empty segment.
        self.ensure_file()
        with self._indexing:
            is_due = self._newest[0] > self._told_ms or bool(self._pending)
            if is_due:
                self._write_kafkas(is_complete=True, is_sync_due=True)
        if is_due:
            self._sync_kafkas()

    def _walk(self, log_descriptor: int, end_offset: int, files: FileLayer | None = None) -> None:
        offset, position = self._walked
        if offset >= end_offset:
            return
        places = walk(self._reader(log_descriptor, files), position, offset, known_end=end_offset)
        self._advance(
            (position, header.size_bytes, header.last_offset, header.max_timestamp_ms)
            for position, header in takewhile(
                lambda place: place.header.next_offset <= end_offset, places
            )
        )
        # What compaction has left out at the end has no batch.
        self._walked = max(self._walked[0], end_offset), self._walked[1]

    def _advance(self, batches: Iterable[tuple[int, int, int, int]]) -> None:
        """Go over batches: (position, size in bytes, last offset, largest timestamp) of each."""
        walked = self._walked
        for position, size, last_offset, newest_ms in batches:
            if newest_ms > self._newest[0] and newest_ms >= 0:  # else without a message
                self._newest = newest_ms, last_offset
            if position - self._entry_position > INTERVAL_BYTES and position <= _LAST_POSITION:
                self._entry_position = position
                self._note(last_offset - self._base_offset, position)
            walked = last_offset + 1, position + size
        self._walked = walked

    def _note(self, relative: int, position: int) -> None:
        self._pending.append((relative, position))
        if self._newest[0] > self._told_ms:
            self._told_ms = self._newest[0]
            self._pending_times.append((self._told_ms, self._newest[1] - self._base_offset))
        self._recent_offsets.append(relative)
        self._recent_positions.append(position)
        if len(self._recent_offsets) >= 2 * _RECENT and len(self._pending) < _RECENT:
            del self._recent_offsets[:_RECENT], self._recent_positions[:_RECENT]

    def _write_kafkas(self, *, is_complete: bool, is_sync_due: bool) -> None:
        if is_complete and self._newest[0] > self._told_ms:
            self._told_ms = self._newest[0]
            self._pending_times.append((self._told_ms, self._newest[1] - self._base_offset))
        self._offsets.append(self._pending, is_complete=is_sync_due)
        self._pending = []
        self._times.append(self._pending_times, is_complete=is_sync_due)
        self._pending_times = []
        if is_sync_due:
            self._synced_position = self._walked[1]

    def _sync_kafkas(self) -> None:
        """Without the lock: readers, also in the reactor's thread, don't wait for a disk."""
        self._offsets.sync()
        self._times.sync()

    # -- asking ---------------------------------------------------------------------------------

    def find(
        self, log_descriptor: int, offset: int, files: FileLayer | None = None
    ) -> tuple[int, int, bool]:
        """Find where an offset lies.

        Args:
            offset: one of the segment's, or its end.
            files: reads in place of its own file layer.

        Returns:
            (the position of the first batch that reaches the offset, or the end of the last one;
            where the batch before that ends: the same position, unless bytes between are damaged;
            whether what was at the offset may be damaged).
        """
        walked = self._walked
        if offset == walked[0]:
            return walked[1], walked[1], False
        remembered, position = self._remembered[offset % _REMEMBERED]
        if remembered != offset:
            position = self._nearest(log_descriptor, offset, files)
        elif position >= 0:
            return position, position, False
        else:
            position = ~position
        end = position
        reader = self._reader(log_descriptor, files)
        for place in walk(reader, position, self._base_offset, known_end=offset):
            if place.header.next_offset > offset:
                first = place.header.base_offset
                if first == offset and place.position == end:
                    self._remembered[offset % _REMEMBERED] = offset, end
                return place.position, end, first > offset and place.position != end
            end = place.end_position
        return end, end, end < reader.end

    def is_damaged(self, log_descriptor: int, position: int, files: FileLayer) -> bool:
        """Whether something is at a position, and no whole batch."""
        reader = self._reader(log_descriptor, files)
        header = reader.header_at(position, self._base_offset)
        if header is None:
            return position < reader.end
        return not reader.is_intact(Place(position, header))

    def reach(self, log_descriptor: int, offset: int) -> tuple[int, int]:
        """As `LogFormat.reach`."""
        reached, end = self._base_offset, self._nearest(log_descriptor, offset, None)
        reader = self._reader(log_descriptor)
        for place in intact(reader, end, reached, offset):
            if place.header.next_offset > offset:
                return offset, end if reached == offset else place.position
            reached, end = place.header.next_offset, place.end_position
        left = reader.read(end, HEADER_BYTES)
        # Compaction may have left out what came before the offset; then that begins there.
        is_there = not left or plausible(left, 0, offset, self._base_offset) is not None
        return offset if is_there else reached, end

    @contextmanager
    def _guarded(self, files: FileLayer | None) -> Iterator[None]:
        """Hold the lock; who must not wait for a disk doesn't wait for it: NotInMemoryError."""
        if not self._indexing.acquire(blocking=not isinstance(files, ResidentFiles)):
            raise NotInMemoryError
        try:
            yield
        finally:
            self._indexing.release()

    def _nearest(self, log_descriptor: int, offset: int, files: FileLayer | None) -> int:
        """Where the last batch begins that an entry leads to and that ends up to an offset."""
        relative = offset - self._base_offset
        with self._guarded(files):
            if self._recent_offsets and self._recent_offsets[0] <= relative:
                return self._recent_positions[bisect_right(self._recent_offsets, relative) - 1]
            with unreadable_is_empty():
                found = self._offsets.last_not_above(relative, files=files)
                if found is not None and self._batch(log_descriptor, found[1], files) is not None:
                    return found[1][1]
        return 0

    def read_few(
        self,
        files: FileLayer,
        log_descriptor: int,
        start: int,
        end: int,
        max_bytes: int,
        whole_first: bool,
    ) -> bytes | None:
        """The same; whole batches, of which a range may have fewer.

        A reader will want the batch behind it next: where that will be is remembered.
        """
        if not self.is_loaded:
            return None
        remembered, position = self._remembered[start % _REMEMBERED]
        least = start
        if remembered != start:
            position, before, _ = self.find(log_descriptor, start, files)
            least = self._base_offset
            if position != before:
                return None  # what is between is damaged
        elif position < 0:
            position = ~position
        walked_end, stored = self._walked
        if end > walked_end:  # what was appended since the last flush
            stored = files.fstat(log_descriptor).st_size
        length = min(stored - position, max(max_bytes, _STEP_BYTES))
        if not 0 < length <= FEW_BYTES:
            return None
        data = files.pread(log_descriptor, length, position)
        taken, why, following, _ = core.whole_batches(data, 0, max_bytes, least, end, _NO_END)
        if not taken and why == BatchesEnd.LIMIT:
            if not whole_first:
                return None
            first = LENGTH_END + int.from_bytes(data[8:LENGTH_END])
            taken, why, following, _ = core.whole_batches(data, 0, first, least, end, 1)
        if not taken or taken > len(data) or (why == BatchesEnd.NONE and following < end):
            return None
        if why == BatchesEnd.CUT and len(data) < length:
            return None  # the rest isn't in memory
        self._remembered[following % _REMEMBERED] = following, ~(position + taken)
        return data[:taken]

    def end_of_whole(
        self, log_descriptor: int, position: int, limit: int, files: FileLayer | None = None
    ) -> int:
        """Find where the last batch ends of those that lie within a range of the segment.

        A reader will want the batch behind it next: where that begins is remembered.

        Args:
            position: where the range begins, with a batch.
            limit: where it ends; what lies before is on disk, and so is the batch there.
            files: reads in place of its own file layer.

        Returns:
            The position; that of the beginning when not even the first batch is whole.
        """
        files = self._files if files is None else files
        end, is_limit = self._step(files, log_descriptor, position, limit, _STEPS)
        if not is_limit and end > position:
            begin = max(end, self._nearest_position(log_descriptor, limit, files))
            further, _ = self._step(files, log_descriptor, begin, limit, _FURTHER_STEPS)
            end = max(end, further)
        return end

    def end_at(self, log_descriptor: int, position: int, limit: int) -> int:
        """The offset after the last batch that ends up to a limit, from a batch's position on."""
        end = self._base_offset
        begin = max(position, self._nearest_position(log_descriptor, limit - 1, self._files))
        for place in walk(self._reader(log_descriptor), begin, end, known_end=0):
            if place.end_position > limit:
                break
            end = place.header.next_offset
        return end

    def _step(
        self, files: FileLayer, log_descriptor: int, position: int, limit: int, steps: int
    ) -> tuple[int, bool]:
        """Step over batches: (where the last one ends that is whole, whether the next isn't)."""
        end, least = position, self._base_offset
        while steps > 0:
            data = read_exactly(files, log_descriptor, _STEP_BYTES, end)
            taken, why, least, count = core.whole_batches(
                data, 0, limit - end, least, _NO_END, steps
            )
            end, steps = end + taken, steps - count
            if why == BatchesEnd.LIMIT:
                base = int.from_bytes(data[taken : taken + 8])
                if base == least and end > position:
                    self._remembered[base % _REMEMBERED] = base, end
                return end, True
            if not taken:
                break
        return end, False

    def _nearest_position(self, log_descriptor: int, limit: int, files: FileLayer) -> int:
        """The last position up to a limit that an entry has where a batch begins; 0 without any."""
        with self._guarded(files):
            positions = self._recent_positions
            if positions and positions[0] <= limit:
                return positions[bisect_right(positions, limit) - 1]
            with unreadable_is_empty():
                found = self._offsets.last_not_above(limit, 1, files)
                if found is not None and self._batch(log_descriptor, found[1], files) is not None:
                    return found[1][1]
        return 0

    def last_end(self, log_descriptor: int, size_bytes: int) -> int:
        """Find the end of the last batch, of a segment that was just found. Raises OSError."""
        with self._indexing, unreadable_is_empty():
            self._offsets.load()
            self._keep_until(log_descriptor, None)
        end, position = self._walked
        reader = BatchReader(self._files, log_descriptor, self._base_offset, size_bytes)
        for is_torn in (False, True):  # or so it seems, once it has been walked through
            if position < size_bytes:
                known_end = self.told_end() if is_torn else 0
                for place in walk(reader, position, end, known_end=known_end):
                    position, end = place.end_position, place.header.next_offset
        return end

    def time_entry(self, time_ms: int) -> tuple[int, int]:
        """Find from where on to look for a message that is not older than a time.

        Returns:
            (the largest timestamp before, the offset): all messages up to the offset are older.
        """
        with self._indexing:
            found = self._times.last_not_above(time_ms - 1)
            pending = [each for each in self._pending_times if each[0] < time_ms]
        entry = pending[-1] if pending else found[1] if found else None
        if entry is None:
            return NO_TIME_MS, self._base_offset
        return entry[0], self._base_offset + entry[1]

    def tail_crc(self, log_descriptor: int, end_offset: int) -> int:
        _, position, _ = self.find(log_descriptor, end_offset)
        length = min(TAIL_BYTES, position)
        return crc32(read_exactly(self._files, log_descriptor, length, position - length))
