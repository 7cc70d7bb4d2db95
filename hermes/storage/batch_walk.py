"""Walking through a segment of record batches, by their headers or byte by byte.

`walk` finds an offset's place: it looks at headers only, and ends where none can be. `scan_batches`
is recovery's: it checks every CRC, and finds the next batch behind damage. What follows a bad batch
is judged by evidence, in this order:

1. Its header is plausible, and its size leads to a valid batch: only its messages are damaged.
2. Its header is plausible, and its size leads to the end or beyond it: a torn append, a bad tail;
   unless it is one of those that are known to have been on disk.
3. Nothing is to be believed: the next place where a valid batch starts, byte by byte.

Nothing is looked for inside a batch whose header can be believed: a message may hold whole batches.

Memory is bounded by a few hundred KiB, whatever a damaged length says.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from hermes.errors import InvalidBatchError
from hermes.protocol.record_batches import HEADER_BYTES, BatchHeader, decode_header
from hermes.storage.files import FileLayer, read_exactly
from hermes.storage.log_format import ScanReport

#: How far apart the offsets in one segment may be: what an index's int32 can say.
LARGEST_RELATIVE: Final = 2**31 - 1

#: How many more bytes than a segment has a scan may look at again, in search of a valid batch.
_CREDIT_BYTES: Final = 64 * 1024 * 1024

_HEADERS_BYTES: Final = 4096
_CHUNK_BYTES: Final = 256 * 1024
_MAGIC_AT: Final = 16
_MAGIC: Final = b"\x02"
_COVERED_FROM: Final = 21
_MAX_STEPS: Final = 16


class Place(NamedTuple):
    position: int
    header: BatchHeader

    @property
    def end_position(self) -> int:
        return self.position + self.header.size_bytes


class BatchReader:
    """Reads a segment by positions, never at or beyond `end`."""

    def __init__(self, files: FileLayer, descriptor: int, base_offset: int, end: int) -> None:
        self._files = files
        self._descriptor = descriptor
        self.base_offset = base_offset
        self.end = end
        self._chunk = b""
        self._chunk_at = 0

    def read(self, position: int, length: int) -> bytes:
        return read_exactly(
            self._files, self._descriptor, max(0, min(length, self.end - position)), position
        )

    def header_at(self, position: int, expected: int) -> BatchHeader | None:
        """The header of the whole batch that may be at a position; its base is >= `expected`."""
        start = position - self._chunk_at
        if start < 0 or start + HEADER_BYTES > len(self._chunk):
            self._chunk, self._chunk_at, start = self.read(position, _HEADERS_BYTES), position, 0
        header = plausible(self._chunk, start, expected, self.base_offset)
        return header if header and position + header.size_bytes <= self.end else None

    def is_overlapped(self, place: Place, offset: int) -> bool:
        """Whether a batch is damaged that seems to hold an offset, as the next one begins first."""
        following = self.header_at(place.end_position, place.header.base_offset + 1)
        is_first = following is not None and following.base_offset <= offset
        return is_first and not self.is_intact(place)

    def is_intact(self, place: Place) -> bool:
        position, crc = place.position + _COVERED_FROM, 0
        while position < place.end_position:
            data = self.read(position, min(_CHUNK_BYTES, place.end_position - position))
            if not data:
                return False
            crc = crc32c(data, crc)
            position += len(data)
        return crc == place.header.crc


def plausible(data: bytes, start: int, expected: int, base_offset: int) -> BatchHeader | None:
    """The header in a buffer at a position, if its offsets can follow; else None."""
    try:
        header = decode_header(data, start)
    except InvalidBatchError:
        return None
    if header.base_offset < expected or header.last_offset - base_offset > LARGEST_RELATIVE:
        return None
    return header


def walk(
    reader: BatchReader, position: int, expected: int, *, known_end: int | None = None
) -> Iterator[Place]:
    """Yield the batches from a position on, as long as whole ones can be there; no CRC is checked.

    Args:
        position: where a batch starts.
        expected: the smallest base offset that it may have.
        known_end: go on with the next valid batch where no header can be. All before this offset
            was on disk, so none of that was torn; 0 if that isn't known of any.
    """
    last: Place | None = None
    while position < reader.end:
        header = reader.header_at(position, expected)
        if header is None:
            if known_end is None:
                return
            found = _Search(reader, known_end).after(last, position, expected)
            if found is None:
                return
            position, header = found
        last = Place(position, header)
        position += header.size_bytes
        expected = header.next_offset
        wanted = known_end or 0
        if header.base_offset < wanted < expected and reader.is_overlapped(last, wanted):
            expected = header.base_offset + 1
        else:
            yield last


def intact(
    reader: BatchReader, position: int, expected: int, known_end: int = 0
) -> Iterator[Place]:
    """As `walk`, but go over batches, too, whose CRC is wrong."""
    search = _Search(reader, known_end)
    found: Place | None = None
    while True:
        for place in walk(reader, position, expected):
            if place != found and not reader.is_intact(place):
                break
            yield place
            position, expected = place.end_position, place.header.next_offset
        found = search.next_valid(position, expected) if position < reader.end else None
        if found is None:
            return
        position, expected = found.position, found.header.base_offset


def scan_batches(reader: BatchReader, position: int, offset: int) -> ScanReport:
    """Check every batch in a range of a segment.

    Args:
        position: where to begin, the end of a batch or of the segment's beginning.
        offset: the smallest offset that may lie there.
    """
    messages = 0
    bad_ranges: list[tuple[int, int]] = []
    for place in intact(reader, position, offset):
        if place.position != position:
            bad_ranges.append((offset, place.header.base_offset))
        messages += place.header.record_count
        position, offset = place.end_position, place.header.next_offset
    return ScanReport(offset, position, messages, bad_ranges)


def next_valid(reader: BatchReader, position: int, expected: int) -> Place | None:
    """Find the first valid batch behind a bad one at `position`; see the module for what counts.

    `expected`: the smallest offset that may follow.
    """
    return _Search(reader).next_valid(position, expected)


class _Search:
    def __init__(self, reader: BatchReader, known_end: int = 0) -> None:
        self._reader = reader
        self._known_end = known_end
        self._credit = _CREDIT_BYTES + reader.end

    def after(self, last: Place | None, position: int, expected: int) -> Place | None:
        """As `next_valid`; `last`: what ends at the position, by its header.

        If that is damaged, its last offset may be wrong, or its size.
        """
        if last is not None and not self._reader.is_intact(last):
            header = self._reader.header_at(position, last.header.base_offset + 1)
            if header is not None:
                return Place(position, header)
            found = self._anywhere(last.position + 1, expected)
            if found is not None and found.header.base_offset == expected:
                return found
        return self.next_valid(position, expected)

    def next_valid(self, position: int, expected: int) -> Place | None:
        reader = self._reader
        at, least = position, expected
        for _ in range(_MAX_STEPS):
            data = reader.read(at, HEADER_BYTES)
            header = plausible(data, 0, least, reader.base_offset)
            # In a log that nothing was compacted in, it follows the batch before exactly.
            if header is None or (at == position and header.base_offset != expected):
                break
            place = Place(at, header)
            if at != position and place.end_position <= reader.end and self._is_valid(place):
                return place
            if place.end_position >= reader.end:
                if header.base_offset >= self._known_end:
                    return None
                break
            at, least = place.end_position, header.next_offset
        return self._anywhere(position + 1, expected)

    def _is_valid(self, place: Place) -> bool:
        self._credit -= place.header.size_bytes
        return self._credit > 0 and self._reader.is_intact(place)

    def _anywhere(self, position: int, expected: int) -> Place | None:
        reader = self._reader
        while position + HEADER_BYTES <= reader.end and self._credit > 0:
            data = reader.read(position, _CHUNK_BYTES)
            at = data.find(_MAGIC, _MAGIC_AT)
            while at >= 0:
                start = at - _MAGIC_AT
                if len(data) - start < HEADER_BYTES:
                    break
                header = plausible(data, start, expected, reader.base_offset)
                if header is not None and position + start + header.size_bytes <= reader.end:
                    place = Place(position + start, header)
                    if self._is_valid(place):
                        return place
                at = data.find(_MAGIC, at + 1)
            if position + len(data) >= reader.end:
                return None
            position += len(data) - HEADER_BYTES + 1
        return None
