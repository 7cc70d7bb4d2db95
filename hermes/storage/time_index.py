"""What a segment knows of its own past: when it ended where, and up to where it is on disk.

A file `<base>.timeindex` beside each segment holds entries, appended in order; the byte table is in
`hermes.storage.index_entries`.

An entry says: "when time_ms had passed its appends, the log ended at end_offset, and that is on
disk". It is written only after the fdatasync that covers it. So one file answers these questions:

- *Where was the end at a time?* The end_offset of the last entry with time_ms <= that time.
- *When was the last append?* The last entry's time, if the segment ends there (retention).
- *When was this byte appended?* At the time of the first entry that ends after it, except in a
  gap: the bytes between the entry before and a *gap entry* were not appended while this index was
  written (Kafka wrote them, or the index was lost, or a crash came before the entry), so that their
  time is only known to be no later than the gap entry's.
- *From where must recovery look?* From the last entry that can be trusted: its own CRC is right,
  end_offset lies inside the segment, and the segment's bytes before it give tail_crc. Entries
  after that one are dropped: they are torn, or Kafka has cut and rewritten the segment since.

Losing the file costs accuracy and speed of recovery, never messages: 0.7's behaviour remains.

Nothing but the last entry is kept in memory; lookups bisect the file. Threads: any, one lock per
index; it is held over small reads and writes that usually hit the page cache, never over a sync.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final
from zlib import crc32

from hermes.storage.files import (
    FEW_BYTES,
    FileLayer,
    NotInMemoryError,
    read_exactly,
    write_all,
)
from hermes.storage.index_entries import (
    ENTRY_BYTES,
    IndexEntry,
    IndexReader,
    decode_entry,
    encode_entry,
    unreadable_is_empty,
)

#: How many bytes before end_offset an entry's tail_crc covers, at most.
TAIL_BYTES = 64

#: Entries reach the disk by the kernel's own writeback; a sync of ours follows this many bytes of
#: log, which bounds what a power cut adds to recovery.
SYNC_EVERY_BYTES = 64 * 1024 * 1024

#: The CRC of an entry where it isn't known.
NO_CRC: Final = -1

_ENTRIES_A_READ = 2048


class TimeIndex:
    """The time index of one segment. Made without touching a file; `load` reads what there is.

    Until `load` (or `begin`, for a segment just created) was called, the other methods must not be.
    `hermes.storage.log` sees to that.

    Attributes:
        last: the last entry: the recovery point and the time of the last append; None when empty.
    """

    _sync_every = SYNC_EVERY_BYTES

    __slots__ = (
        "_base_offset",
        "_count",
        "_file_may_be_longer",
        "_files",
        "_lock",
        "_synced_end",
        "is_loaded",
        "last",
        "path",
    )

    def __init__(self, files: FileLayer, path: str, base_offset: int) -> None:
        self._files = files
        self.path = path
        self._base_offset = base_offset
        self._lock = threading.Lock()
        self._count = 0
        self.last: IndexEntry | None = None
        self._file_may_be_longer = True
        self._synced_end = base_offset
        self.is_loaded = False

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    @property
    def newest_ms(self) -> int:
        """The largest of the messages' own timestamps, of what was looked at; < 0 if unknown."""
        return -1

    # -- beginning ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start empty, for a segment that was just created: a file of that name is a leftover."""
        with self._lock:
            self._count = 0
            self.last = None
            self._file_may_be_longer = True
            self.is_loaded = True

    def load(self, log_descriptor: int, end_offset: int) -> None:
        """Find the last entry that can be trusted; do nothing when that was done before.

        Walks back from the end of the index, entry by entry. What comes after the trusted one is
        ignored from now on and cut off by the next append. A missing index is an empty one, and
        so is one that the disk doesn't give back.
        """
        with self._lock:
            if self.is_loaded:
                return
            try:
                descriptor = self._files.open_read(self.path)
            except FileNotFoundError:
                self.is_loaded = True
                return
            try:
                with unreadable_is_empty():
                    self._walk_back(descriptor, log_descriptor, end_offset)
            finally:
                self._files.close(descriptor)
            self.is_loaded = True

    def _walk_back(self, descriptor: int, log_descriptor: int, segment_end: int) -> None:
        for number, entry in self._backwards(descriptor):
            if self._is_trusted(entry, log_descriptor, segment_end):
                self._count = number + 1
                self.last = entry
                self._synced_end = entry.end_offset
                return

    def _backwards(self, descriptor: int) -> Iterator[tuple[int, IndexEntry]]:
        """The entries that are whole, the last one first, each with its number."""
        upper = self._files.fstat(descriptor).st_size // ENTRY_BYTES
        while upper:
            lower = max(0, upper - _ENTRIES_A_READ)
            data = read_exactly(
                self._files, descriptor, (upper - lower) * ENTRY_BYTES, lower * ENTRY_BYTES
            )
            for number in reversed(range(len(data) // ENTRY_BYTES)):
                entry = decode_entry(data, number * ENTRY_BYTES)
                if entry is not None:
                    yield lower + number, entry
            upper = lower

    def _is_trusted(self, entry: IndexEntry, log_descriptor: int, segment_end: int) -> bool:
        if not self._base_offset < entry.end_offset <= segment_end:
            return False
        with unreadable_is_empty():
            return entry.tail_crc == self.tail_crc(log_descriptor, entry.end_offset)
        return False  # the disk doesn't give back what is there

    def told_end(self) -> int:
        """Up to where the segment was on disk once, by the last entry of the file that is whole."""
        with unreadable_is_empty():
            descriptor = self._files.open_read(self.path)
            try:
                for _, entry in self._backwards(descriptor):
                    return entry.end_offset
            finally:
                self._files.close(descriptor)
        return self._base_offset

    def mend(self) -> None:
        """Leave out what a power loss has torn, between entries that count and after them.

        For recovery; looks no further back than to what was synced. What follows a hole becomes a
        gap entry, since when the bytes before it were appended is not known any more. Fewer entries
        may count after an OSError.
        """
        with self._lock:
            first, found = self._unsynced()
            kept, holes = _without_torn(found)
            if not holes:
                self._cut_rest()
                return
            descriptor = self._files.open_append(self.path, create=False)
            try:
                before = holes[0]
                self._count = first + before
                self.last = kept[before - 1] if before else None
                self._file_may_be_longer = True
                self._files.ftruncate(descriptor, self._count * ENTRY_BYTES)
                again = b"".join(map(encode_entry, kept[before:]))
                write_all(self._files, descriptor, [again], self._count * ENTRY_BYTES)
                self._files.fdatasync(descriptor)
            finally:
                self._files.close(descriptor)
            self._count = first + len(kept)
            self.last = kept[-1]
            self._file_may_be_longer = False

    def _cut_rest(self) -> None:
        size = self._count * ENTRY_BYTES
        with suppress(FileNotFoundError):
            if self._files.lstat(self.path).st_size <= size:
                return
            descriptor = self._files.open_append(self.path, create=False)
            try:
                self._files.ftruncate(descriptor, size)
            finally:
                self._files.close(descriptor)

    def _unsynced(self) -> tuple[int, list[IndexEntry | None]]:
        if self.last is None:
            return 0, []
        known = self.last.end_offset - SYNC_EVERY_BYTES
        found: list[IndexEntry | None] = []
        first = self._count
        descriptor = self._files.open_read(self.path)
        try:
            while first:
                lower = max(0, first - _ENTRIES_A_READ)
                size = (first - lower) * ENTRY_BYTES
                data = read_exactly(self._files, descriptor, size, lower * ENTRY_BYTES)
                block = [decode_entry(data, at) for at in range(0, len(data), ENTRY_BYTES)]
                found[:0] = block
                first = lower
                if block[0] is not None and block[0].end_offset < known:
                    break
        finally:
            self._files.close(descriptor)
        return first, found

    def tail_crc(self, log_descriptor: int, end_offset: int) -> int:
        """The CRC-32 of up to `TAIL_BYTES` bytes before an offset, which an entry about it has."""
        position = end_offset - self._base_offset
        length = min(TAIL_BYTES, position)
        return crc32(read_exactly(self._files, log_descriptor, length, position - length))

    # -- asking ---------------------------------------------------------------------------------

    def ends_at(self, end_offset: int) -> bool:
        return self.last is not None and self.last.end_offset == end_offset

    def first(self) -> IndexEntry | None:
        """The first undamaged entry, which says about when the segment was begun, if any."""
        if self.last is None:
            return None
        with suppress(OSError), self.opened() as reader:
            found = reader.good_at_or_after(0)
            return None if found is None else found[1]
        return None

    def at_time(self, time_ms: int) -> IndexEntry | None:
        """Find the last entry that is not later than a time: where the log ended then.

        None when every entry is later, there is none, or the file can't be read.
        """
        return self._last_not_above(0, time_ms)

    def at_offset(self, offset: int) -> IndexEntry | None:
        """Find the last entry that does not end beyond an offset; it ends at a message boundary.

        None as for `at_time`.
        """
        return self._last_not_above(1, offset)

    def _last_not_above(self, field: int, value: int) -> IndexEntry | None:
        """Bisect the file by time (field 0) or by end offset (field 1)."""
        if self.last is None or self.last[field] <= value:
            return self.last
        with suppress(OSError), self.opened() as reader:
            found = reader.last_not_above(field, value)
            return None if found is None else found[1]
        return None

    @contextmanager
    def opened(self) -> Iterator[IndexReader]:
        """Open it for reading; one that is missing or unreadable looks empty.

        Yields:
            Its entries, as of now.

        Raises:
            OSError: there is no descriptor (or memory) for it now; try again.
        """
        descriptor, count = None, 0
        with unreadable_is_empty():
            descriptor, count = self._files.open_read(self.path), self._count
        try:
            yield IndexReader(self._files, descriptor, count)
        finally:
            if descriptor is not None:
                self._files.close(descriptor)

    def read_few(
        self,
        files: FileLayer,
        log_descriptor: int,
        start: int,
        end: int,
        max_bytes: int,
        whole_first: bool,
    ) -> bytes | None:
        """Read what `LogFormat.locate` and `whole_bytes` would find, with their arguments.

        None where it is none, more than `FEW_BYTES`, or not all in memory; or where only `locate`
        can tell. NotInMemoryError where that would raise it, too.
        """
        length = end - start
        if length > max_bytes and not whole_first:
            length = max_bytes
        if length > FEW_BYTES or length > max_bytes:
            return None
        try:
            data = files.pread(log_descriptor, length, start - self._base_offset)
        except NotInMemoryError:
            return None
        return data if len(data) == length else None

    # -- growing --------------------------------------------------------------------------------

    def ensure_file(self) -> bool:
        """Create the file when it is missing, so that one sync of the directory covers it too."""
        try:
            self._files.lstat(self.path)
        except FileNotFoundError:
            self._files.close(self._files.open_append(self.path, create=True))
            return True
        return False

    def append(
        self,
        entries: Sequence[tuple[int, int]],
        log_descriptor: int,
        *,
        start: int | None = None,
        complete: bool = False,
    ) -> None:
        """Write entries of (time_ms, end_offset) into the file, which is opened by its name.

        Else as `write`.
        """
        if entries or (complete and self.last is not None):
            made = [(*each, NO_CRC) for each in entries]
            descriptor = self._files.open_append(self.path, create=True)
            try:
                self.write(made, log_descriptor, descriptor, start, complete=complete)
            finally:
                self._files.close(descriptor)

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
        """Write entries; to be called after the fdatasync that covers them, never before.

        Args:
            entries: (time_ms, end_offset, what `tail_crc` reads there or `NO_CRC`), ascending and
                inside this segment; none only if something is there and it is `complete`. A time
                before the last entry's (the clock was set back) is written as the last entry's.
            log_descriptor: the segment's file; its bytes before an end_offset are read back.
            descriptor: the index's file.
            start: the offset from which on the entries are known: where it is after the last entry
                (or the base), a gap entry is written first. Entries that don't end after it are
                left out: start = end_offset makes a gap of all. None: there is no gap.
            batches: in Kafka's format (position, size in bytes, last offset, largest timestamp) of
                what was appended, as far as it is known.
            complete: the segment will not grow any more: sync the index too, even without entries.

        Raises:
            OSError: nothing of it counts as written; the same entries may be written again.
        """
        with self._lock:
            if entries:
                self._write(entries, log_descriptor, descriptor, start)
            assert self.last is not None
            end = self.last.end_offset
        # Also when nothing is new: what is there may be another process's, and not synced.
        if complete or end - self._synced_end >= self._sync_every:
            # An entry that is lost costs recovery a longer look, no more.
            with suppress(OSError):
                self._files.fdatasync(descriptor)
                self._synced_end = end

    def settle(
        self, log_descriptor: int, known: int, end_offset: int, *, complete: bool = False
    ) -> None:
        """Make good after a crash what is kept of a segment besides this index; here nothing is.

        `known`: up to which offset what is there was written after a flush.
        """

    def close(self) -> None:
        """Write what only waits for more, at a clean stop; here nothing does."""

    def _write(
        self,
        entries: Sequence[tuple[int, int, int]],
        log_descriptor: int,
        descriptor: int,
        start: int | None,
    ) -> None:
        last, gap_end = self.last, None
        earliest, known = (0, self._base_offset) if last is None else last[:2]
        if start is not None and start > known:
            # The bytes before `start` may have been appended at any time until then.
            told = [each for each in entries if each[1] > start]
            entries, gap_end = [(entries[0][0], start, NO_CRC), *told], start
        data = bytearray()
        for time_ms, end, crc in entries:
            if crc == NO_CRC:
                crc = self.tail_crc(log_descriptor, end)
            last = IndexEntry(max(time_ms, earliest), end, crc, end == gap_end)
            data += encode_entry(last)
        position = self._count * ENTRY_BYTES
        if self._file_may_be_longer:
            self._files.ftruncate(descriptor, position)
        self._file_may_be_longer = True
        written = self._files.pwritev(descriptor, (data,), position)
        if written != len(data):
            write_all(self._files, descriptor, [data[written:]], position + written)
        self._file_may_be_longer = False
        self._count += len(entries)
        self.last = last


def _without_torn(found: Sequence[IndexEntry | None]) -> tuple[list[IndexEntry], list[int]]:
    """Leave out entries that are damaged, or of another life of the file and so out of order.

    Args:
        found: entries in their order, the last of them good.

    Returns:
        (the others, those after a hole as gap entries; the places of what was left out).
    """
    kept: list[IndexEntry] = []
    holes: list[int] = []
    for place, entry in enumerate(found):
        if entry is None or not _is_between(entry, kept, found[-1]):
            holes.append(place)
        else:
            is_behind = bool(holes) and holes[-1] == place - 1
            kept.append(entry._replace(is_gap=True) if is_behind else entry)
    return kept, holes


def _is_between(entry: IndexEntry, kept: Sequence[IndexEntry], last: IndexEntry | None) -> bool:
    assert last is not None
    first = kept[-1] if kept else IndexEntry(0, 0, 0)
    return all(first[field] <= entry[field] <= last[field] for field in (0, 1))
