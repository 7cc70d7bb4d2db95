"""A second log format, small: record batches with offsets that count messages, as Kafka has today.

It exists to hold the log's machinery to what `hermes.storage.log_format` says: nothing of it may
know that 0.7's offsets are bytes. Layout of a batch (big-endian):

    position  length  type    meaning
    0         8       int64   base_offset: that of its first message
    8         4       int32   how many bytes the body has
    12        4       int32   how many messages there are
    16        4       uint32  CRC-32 of the count and the body
    20        ...             body
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from hermes.storage.files import FileLayer, read_exactly
from hermes.storage.log_format import NamedSegment, OpenSegment, ScanReport
from hermes.storage.time_index import TAIL_BYTES, TimeIndex

HEADER = Struct(">qiiI")
_COUNT = Struct(">i")


class Batch(NamedTuple):
    """A valid batch, and where it lies."""

    position: int
    end_position: int
    base_offset: int
    end_offset: int


def batch(base_offset: int, count: int, body: bytes = b"body") -> bytes:
    """A batch of `count` messages; who appends it knows the log's end offset."""
    crc = crc32(body, crc32(_COUNT.pack(count)))
    return HEADER.pack(base_offset, len(body), count, crc) + body


def batch_at(data: bytes, position: int, expected: int) -> Batch | None:
    """The batch at a position, when it is whole, its CRC right, and its offset not too small."""
    if len(data) - position < HEADER.size:
        return None
    base, size, count, crc = HEADER.unpack_from(data, position)
    end = position + HEADER.size + size
    if size < 0 or count < 1 or base < expected or end > len(data):
        return None
    if crc32(data[position + HEADER.size : end], crc32(_COUNT.pack(count))) != crc:
        return None
    return Batch(position, end, base, base + count)


def batches(data: bytes, offset: int, position: int = 0) -> Iterator[Batch]:
    """All valid batches from a position on; what is damaged between them is skipped."""
    while position < len(data):
        found = batch_at(data, position, offset)
        if found is None:
            position += 1
        else:
            yield found
            position, offset = found.end_position, found.end_offset


class BatchIndex(TimeIndex):
    """0.7's index, but for where an offset lies."""

    __slots__ = ()

    def tail_crc(self, log_descriptor: int, end_offset: int) -> int:
        data = _content(self._files, log_descriptor)
        position = _position(data, self._base_offset, end_offset)
        return crc32(data[max(0, position - TAIL_BYTES) : position])


class BatchFormat:
    """See `LogFormat`."""

    name = "batches"
    suffix = ".log"
    index_suffix = ".timeindex"
    counts_messages = True
    is_dense = True

    def first_bytes(self, files: FileLayer, descriptor: int, position: int) -> int:
        return (
            HEADER.size + HEADER.unpack(read_exactly(files, descriptor, HEADER.size, position))[1]
        )

    def new_index(self, files: FileLayer, path: str, base_offset: int) -> TimeIndex:
        return BatchIndex(files, path, base_offset)

    def locate(
        self, segment: NamedSegment, files: FileLayer, descriptor: int, start: int, end: int
    ) -> tuple[int, int]:
        data = _content(files, descriptor)
        position = _position(data, segment.base_offset, start)
        return position, _position(data, segment.base_offset, end) - position

    def end_of(self, files: FileLayer, segment: NamedSegment, size_bytes: int) -> int:
        base = segment.base_offset
        descriptor = files.open_read(segment.path)
        try:
            data = read_exactly(files, descriptor, size_bytes, 0)
        finally:
            files.close(descriptor)
        return max((each.end_offset for each in batches(data, base)), default=base)

    def scan(
        self, opened: OpenSegment, start: int, size_bytes: int, max_message_bytes: int
    ) -> ScanReport:
        base = opened.segment.base_offset
        data = read_exactly(opened.files, opened.descriptor, size_bytes, 0)
        valid_bytes, valid_end = _position(data, base, start), start
        messages, bad_ranges = 0, []
        for each in batches(data, start, valid_bytes):
            if each.position > valid_bytes:
                bad_ranges.append((valid_end, each.base_offset))
            messages += each.end_offset - each.base_offset
            valid_bytes, valid_end = each.end_position, each.end_offset
        return ScanReport(valid_end, valid_bytes, messages, bad_ranges)

    def search_boundary(
        self, opened: OpenSegment, start: int, offset: int, end: int, max_message_bytes: int
    ) -> tuple[int, bool]:
        data = _content(opened.files, opened.descriptor)
        for each in batches(data, start, _position(data, opened.segment.base_offset, start)):
            if each.end_offset > offset:
                return each.base_offset, True
        return offset, True


def _content(files: FileLayer, descriptor: int) -> bytes:
    return read_exactly(files, descriptor, files.fstat(descriptor).st_size, 0)


def _position(data: bytes, base_offset: int, offset: int) -> int:
    """Where the batch that holds an offset starts, or the last one before it ends."""
    position = 0
    for each in batches(data, base_offset):
        if each.end_offset > offset:
            return each.position
        position = each.end_position
    return position
