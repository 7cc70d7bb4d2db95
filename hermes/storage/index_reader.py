"""Reading a time index in order: its entries by number, a block at a time.

For walks that need many entries or their neighbours; single lookups are methods of `TimeIndex`. A
reader sees the entries that counted when it was made, and those never change: it takes no lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EMFILE, ENFILE, ENOMEM

from hermes.storage.files import FileLayer, read_exactly
from hermes.storage.time_index import ENTRY_BYTES, IndexEntry, TimeIndex, decode_entry

__all__ = ["IndexReader", "opened_index", "unreadable_is_empty"]

_ENTRIES_A_BLOCK = 256
# Of the blocks that bisecting touches these are the ones that it comes back to.
_MAX_BLOCKS = 32
_FOR_NOW = frozenset({EMFILE, ENFILE, ENOMEM})


@contextmanager
def unreadable_is_empty() -> Iterator[None]:
    """Go on after what the disk refuses for good: an index is a comfort, and its loss none.

    Raises:
        OSError: of what is refused only for now (no descriptor, no memory); try again later.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FOR_NOW:
            raise


@contextmanager
def opened_index(index: TimeIndex, files: FileLayer) -> Iterator["IndexReader"]:
    """Open an index for reading; one that is missing or unreadable looks empty.

    Args:
        index: a loaded index.
        files: the file layer.

    Yields:
        Its entries, as of now.

    Raises:
        OSError: there is no descriptor (or memory) for it now; try again.
    """
    descriptor = None
    with unreadable_is_empty():
        descriptor = files.open_read(index.path)
    try:
        yield IndexReader(files, descriptor, index.count if descriptor is not None else 0)
    finally:
        if descriptor is not None:
            files.close(descriptor)


class IndexReader:
    """The entries of an index, by number.

    Args:
        files: the file layer.
        descriptor: the index's file, open for reading as long as this is used; None with count 0.
        count: how many entries count.
    """

    def __init__(self, files: FileLayer, descriptor: int | None, count: int) -> None:
        self._files = files
        self._descriptor = descriptor
        self._blocks: dict[int, bytes] = {}
        self.count = count

    def entry(self, number: int) -> IndexEntry | None:
        """Read an entry.

        Args:
            number: from 0 to count - 1.

        Returns:
            The entry; None when it is damaged or can't be read.
        """
        block, place = divmod(number, _ENTRIES_A_BLOCK)
        data = self._blocks.get(block)
        if data is None:
            data = self._read(block)
        position = place * ENTRY_BYTES
        return decode_entry(data, position) if position + ENTRY_BYTES <= len(data) else None

    def _read(self, block: int) -> bytes:
        size = _ENTRIES_A_BLOCK * ENTRY_BYTES
        data = b""
        if self._descriptor is not None:
            with unreadable_is_empty():
                data = read_exactly(self._files, self._descriptor, size, block * size)
        if len(self._blocks) >= _MAX_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        self._blocks[block] = data
        return data

    def good_at_or_after(self, number: int) -> tuple[int, IndexEntry] | None:
        """Find the first undamaged entry from a number on: (its number, it); None at the end."""
        for candidate in range(number, self.count):
            if (entry := self.entry(candidate)) is not None:
                return candidate, entry
        return None

    def good_at_or_before(self, number: int, low: int = 0) -> tuple[int, IndexEntry] | None:
        """Find the last undamaged entry up to a number, not before `low`; None if there is none."""
        for candidate in range(number, low - 1, -1):
            if (entry := self.entry(candidate)) is not None:
                return candidate, entry
        return None

    def last_not_above(self, field: int, value: int, low: int = 0) -> tuple[int, IndexEntry] | None:
        """Find the last entry whose time (field 0) or end offset (field 1) is not above a value.

        Looks at entries near `low` first: the cost is the logarithm of how far away the answer is.

        Args:
            field: 0 or 1.
            value: what the field is compared with.
            low: where to begin; what comes before is not looked at.

        Returns:
            (its number, the entry); None when all undamaged entries from `low` on are above.
        """
        found = None
        step = 1
        high = self.count
        while low < high:
            # First in strides that double, then, once `high` has come down, by halves.
            middle = min(low + step - 1, (low + high) // 2)
            step *= 2
            near = self.good_at_or_before(middle, low)
            if near is not None and near[1][field] > value:
                high = near[0]
            else:
                found = near or found
                low = middle + 1
        return found
