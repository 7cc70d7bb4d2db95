"""The entries of a time index: their bytes, and reading them in order.

An entry has 24 bytes, big-endian:

    position  length  type    meaning
    0         8       int64   time_ms: ms since 1970, never smaller than in the entry before
    8         8       int64   end_offset: absolute, never smaller than in the entry before
    16        4       uint32  tail_crc: CRC-32 of the segment's last 64 bytes before end_offset
                                (of all of them, where there are fewer)
    20        4       uint32  CRC-32 of the 20 bytes before; in a gap entry all its bits inverted

A reader sees the entries that counted when it was made, and those never change: it takes no lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EMFILE, ENFILE, ENOMEM
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from hermes.storage.files import FileLayer, read_exactly

#: The size of an entry.
ENTRY_BYTES = 24

_BODY = Struct(">qqI")
_CRC = Struct(">I")
_GAP_BITS = 0xFFFFFFFF
_ENTRIES_A_BLOCK = 64
# Of the blocks that bisecting touches these are the ones that it comes back to.
_MAX_BLOCKS = 32
_FOR_NOW = frozenset({EMFILE, ENFILE, ENOMEM})


class IndexEntry(NamedTuple):
    """When `time_ms` had passed its appends, the log ended at `end_offset` (and that is synced).

    With `is_gap` the bytes since the entry before may have been appended at any time until then.
    """

    time_ms: int
    end_offset: int
    tail_crc: int
    is_gap: bool = False


def encode_entry(entry: IndexEntry) -> bytes:
    body = _BODY.pack(entry.time_ms, entry.end_offset, entry.tail_crc)
    return body + _CRC.pack(crc32(body) ^ (_GAP_BITS if entry.is_gap else 0))


def decode_entry(data: bytes, position: int = 0) -> IndexEntry | None:
    """The entry at a position; None when its own CRC says that it was torn or damaged."""
    body = data[position : position + _BODY.size]
    difference = crc32(body) ^ _CRC.unpack_from(data, position + _BODY.size)[0]
    if difference not in (0, _GAP_BITS):
        return None
    time_ms, end_offset, tail_crc = _BODY.unpack(body)
    return IndexEntry(time_ms, end_offset, tail_crc, difference == _GAP_BITS)


@contextmanager
def unreadable_is_empty() -> Iterator[None]:
    """Continue after what the disk refuses for good: losing an index loses no message.

    Raises OSError: of what is refused only for now (no descriptor, no memory); try again later.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FOR_NOW:
            raise


class IndexReader:
    """The entries of an index, by number.

    Args:
        descriptor: the index's file, open for reading as long as this is used; None with count 0.
        count: how many entries count.
    """

    def __init__(self, files: FileLayer, descriptor: int | None, count: int) -> None:
        self._files = files
        self._descriptor = descriptor
        self._blocks: dict[int, bytes] = {}
        self.count = count

    def entry(self, number: int) -> IndexEntry | None:
        """An entry by its number; None when it is damaged or can't be read."""
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
        """The first undamaged entry from a number on: (its number, it); None at the end."""
        for candidate in range(number, self.count):
            if (entry := self.entry(candidate)) is not None:
                return candidate, entry
        return None

    def good_at_or_before(self, number: int, low: int = 0) -> tuple[int, IndexEntry] | None:
        """The last undamaged entry up to a number, not before `low`; None if there is none."""
        for candidate in range(number, low - 1, -1):
            if (entry := self.entry(candidate)) is not None:
                return candidate, entry
        return None

    def last_not_above(self, field: int, value: int, low: int = 0) -> tuple[int, IndexEntry] | None:
        """Find the last entry whose time (field 0) or end offset (field 1) is not above a value.

        Looks at entries near `low` first: the cost is the logarithm of how far away the answer is.

        Args:
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
