"""A file of sorted entries of one size, as Kafka's `.index` and `.timeindex` are.

Nothing but the number of entries is kept in memory; lookups bisect the file. Whoever uses one sees
to it that only one thread at a time writes.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import Final

from hermes.storage.files import (
    FileLayer,
    NotInMemoryError,
    ResidentFiles,
    read_exactly,
    write_all,
)

_BLOCK: Final = 512
#: So many entries at the end may not be on disk: those of as much log as is synced at once.
_UNSYNCED: Final = 16 * 1024


class SortedFile:
    """Entries of one size in a file, ascending by their first field.

    `count` of them count; what follows is to be written over.
    """

    __slots__ = ("_entry", "_files", "_may_be_longer", "_stem", "_suffix", "_was_opened", "count")

    def __init__(self, files: FileLayer, stem: str, suffix: str, entry: Struct) -> None:
        # Not joined: files beside each other share the stem, and there may be very many.
        self._stem = stem
        self._suffix = suffix
        self._files = files
        self._entry = entry
        self._may_be_longer = True
        self._was_opened = False
        self.count = 0

    @property
    def path(self) -> str:
        return self._stem + self._suffix

    def load(self) -> None:
        """Count the entries; those that Kafka has allocated and not used are zeros."""
        self.count = 0
        try:
            descriptor = self._open(self._files)
        except FileNotFoundError:
            return
        try:
            size, end = self._entry.size, self._files.fstat(descriptor).st_size
            end -= end % size
            while end:
                start = max(0, end - size * 8 * _BLOCK)
                data = read_exactly(self._files, descriptor, end - start, start).rstrip(b"\0")
                if data:
                    self.count = (start + len(data) + size - 1) // size
                    return
                end = start
        finally:
            self._files.close(descriptor)

    def entry(self, number: int) -> tuple[int, int] | None:
        found = self._read(number, 1) if 0 <= number < self.count else []
        return found[0] if found else None

    def _read(self, first: int, count: int) -> list[tuple[int, int]]:
        descriptor = self._open(self._files)
        try:
            return self._entries(self._files, descriptor, first, count)
        finally:
            self._files.close(descriptor)

    def _open(self, files: FileLayer) -> int:
        """Open it; who must not wait only does what was done before: its name is in memory then."""
        if isinstance(files, ResidentFiles) and not self._was_opened:
            raise NotInMemoryError
        descriptor = files.open_read(self.path)
        self._was_opened = True
        return descriptor

    def _entries(
        self, files: FileLayer, descriptor: int, first: int, count: int
    ) -> list[tuple[int, int]]:
        size = self._entry.size
        data = read_exactly(files, descriptor, count * size, first * size)
        return list(self._entry.iter_unpack(data[: len(data) - len(data) % size]))

    def last_not_above(
        self, value: int, field: int = 0, files: FileLayer | None = None
    ) -> tuple[int, tuple[int, int]] | None:
        """Find the last entry whose first field is not above a value: (its number, it).

        Args:
            field: 1 to go by the second field, where that is ascending, too.
            files: reads in place of its own file layer.

        Raises:
            NotInMemoryError: something isn't, and `files` are resident ones.
        """
        if not self.count:
            return None
        files = self._files if files is None else files
        descriptor = self._open(files)
        try:
            # First which block, by the blocks' first entries, then within it.
            low, high = 0, (self.count - 1) // _BLOCK + 1
            while high - low > 1:
                middle = (low + high) // 2
                found = self._entries(files, descriptor, middle * _BLOCK, 1)
                if found and found[0][field] <= value:
                    low = middle
                else:
                    high = middle
            first = low * _BLOCK
            block = self._entries(files, descriptor, first, min(_BLOCK, self.count - first))
        finally:
            files.close(descriptor)
        place = bisect_right(block, value, key=lambda each: each[field]) - 1
        return (first + place, block[place]) if place >= 0 else None

    def append(self, entries: Sequence[tuple[int, int]], *, is_complete: bool) -> None:
        """Write entries behind those that count; none of them counts if that fails.

        `is_complete`: leave nothing behind them, also when there are none.
        """
        if not entries and not is_complete:
            return
        descriptor = self._files.open_append(self.path, create=True)
        self._was_opened = True
        try:
            position = self.count * self._entry.size
            if self._may_be_longer:
                self._files.ftruncate(descriptor, position)
            if entries:
                self._may_be_longer = True
                data = b"".join(self._entry.pack(*each) for each in entries)
                write_all(self._files, descriptor, [data], position)
            self._may_be_longer = False
            self.count += len(entries)
        finally:
            self._files.close(descriptor)

    def sync(self) -> None:
        with suppress(OSError):
            descriptor = self._files.open_append(self.path)
            try:
                self._files.fdatasync(descriptor)
            finally:
                self._files.close(descriptor)

    def ensure(self) -> bool:
        try:
            self._files.lstat(self.path)
        except FileNotFoundError:
            self._files.close(self._files.open_append(self.path, create=True))
            return True
        return False

    def keep(self, count: int) -> None:
        self.count = min(self.count, count)
        self._may_be_longer = True

    def keep_ordered(self) -> None:
        """Let those that a power loss has torn, and what follows them, not count."""
        first = max(0, self.count - _UNSYNCED)
        before = (-(2**63), -(2**63))
        found = self._read(first, self.count - first) if self.count else []
        for number, entry in enumerate(found, first):
            if entry[0] <= before[0] or entry[1] <= before[1]:
                self.keep(number)
                return
            before = entry
        self.keep(first + len(found))
