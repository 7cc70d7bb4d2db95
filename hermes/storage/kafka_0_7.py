"""Kafka 0.7's format: which bytes of a segment are messages, and what they say of the next ones.

`scan_messages` walks a range of a segment message by message: the size must fit, the magic must be
known, the CRC must be right. It is what 0.7 checks, with two differences. It starts where the
caller says, so that what is known to be good isn't read again. And a bad message isn't the end:
when a valid one follows, the bytes between are a *bad range*, reported and left alone; only bytes
that no valid message follows are a *bad tail*, which recovery cuts off.

Where the next valid message starts after a bad one is for `hermes.protocol.damage` to say.

Memory is bounded by a few times `max_message_bytes`, work by the length of the range. Nothing here
writes, and nothing is remembered: scanning twice gives the same answer.
"""

from collections.abc import Sequence
from struct import Struct
from zlib import crc32

from hermes.protocol import core
from hermes.protocol.damage import next_valid, valid_length
from hermes.protocol.messages import HEADER_BYTES, SIZE
from hermes.storage.files import FileLayer, read_exactly
from hermes.storage.log_format import (
    LogFormat,
    NamedSegment,
    OpenSegment,
    ScanReport,
)
from hermes.storage.time_index import TimeIndex

#: What Kafka 0.7 calls its segments.
SEGMENT_SUFFIX = ".kafka"

#: What the time index beside one is called.
INDEX_SUFFIX = ".timeindex"

#: A search for a boundary notes where it is after this many bytes: what is kept is one int per
#: 4 MiB of log, at most.
NOTE_EVERY_BYTES = 4 * 1024 * 1024

_CHUNK_BYTES = 256 * 1024
_HEADERS_CHUNK_BYTES = 64 * 1024

# size | magic; then for magic 0 the CRC, for magic 1 attributes and CRC
_SIZE_AND_MAGIC = Struct(">ib")
_SIZE_BYTES = SIZE.size
_CREDIT_BYTES = 64 * 1024 * 1024


class Kafka07Format:
    name = "0.7"
    suffix = SEGMENT_SUFFIX
    index_suffix = INDEX_SUFFIX
    counts_messages = False
    is_dense = True
    has_topic_ids = False
    has_timestamps = False
    keeps_beyond_damage = True
    first_names: Sequence[str] = ()
    last_names: Sequence[str] = ()
    draft_suffixes: tuple[str, ...] = ()

    def new_index(self, files: FileLayer, path: str, base_offset: int) -> TimeIndex:
        return TimeIndex(files, path, base_offset)

    def locate(
        self, segment: NamedSegment, files: FileLayer, descriptor: int, start: int, end: int
    ) -> tuple[int, int]:
        """The start needn't be where a message starts."""
        return start - segment.base_offset, end - start

    def whole_bytes(
        self,
        segment: NamedSegment,
        files: FileLayer,
        descriptor: int,
        position: int,
        max_bytes: int,
        whole_first: bool,
    ) -> int:
        """But for the first message, a range is cut anywhere."""
        if not whole_first:
            return max_bytes
        start = read_exactly(files, descriptor, _SIZE_BYTES, position)
        return max(max_bytes, _SIZE_BYTES + int.from_bytes(start, "big"))

    def end_of(self, files: FileLayer, segment: NamedSegment, size_bytes: int) -> int:
        """Every byte counts, valid or not."""
        return segment.base_offset + size_bytes

    def reach(self, opened: OpenSegment, offset: int) -> tuple[int, int]:
        size = opened.files.fstat(opened.descriptor).st_size
        position = min(offset - opened.segment.base_offset, size)
        return opened.segment.base_offset + position, position

    def scan(
        self, opened: OpenSegment, place: tuple[int, int], size_bytes: int, max_message_bytes: int
    ) -> ScanReport:
        base = opened.segment.base_offset
        reader = SegmentReader(opened.files, opened.descriptor, base, base + size_bytes)
        return scan_messages(reader, place[0], max_message_bytes)

    def search_boundary(
        self, opened: OpenSegment, start: int, offset: int, end: int, max_message_bytes: int
    ) -> tuple[int, bool]:
        """Payloads are skipped, not read."""
        base = opened.segment.base_offset
        reader = SegmentReader(opened.files, opened.descriptor, base, end)
        position = start
        while position < offset and position - start < NOTE_EVERY_BYTES:
            following: int | None = _walk_headers(reader, position, offset)
            if following == position:
                following = _step(reader, position, max_message_bytes)
            if following is None or following > offset:
                return position, True
            position = following
        return position, position == offset


KAFKA_0_7: LogFormat = Kafka07Format()


def scan_messages(reader: "SegmentReader", start: int, max_message_bytes: int) -> ScanReport:
    """Check every message in a range of a segment.

    Args:
        start: the offset to begin at: a message boundary.
        max_message_bytes: the largest payload to believe in where a size can't be trusted. A
            valid message may be larger.

    Returns:
        What was found. A compressed set counts as one message.
    """
    messages = 0
    bad_ranges: list[tuple[int, int]] = []
    offset = start
    while True:
        count, offset = _walk(reader, offset)
        messages += count
        is_end = offset >= reader.end
        following = None if is_end else next_valid(reader, offset, max_message_bytes)
        if following is None:
            return ScanReport(offset, offset - reader.base_offset, messages, bad_ranges)
        bad_ranges.append((offset, following))
        offset = following


class SegmentReader:
    """Reads a segment by absolute offsets, never beyond `end`.

    `credit`: how many more bytes may be looked at twice in search of evidence.
    """

    def __init__(self, files: FileLayer, descriptor: int, base_offset: int, end: int) -> None:
        self._files = files
        self._descriptor = descriptor
        self.base_offset = base_offset
        self.end = end
        self.credit = _CREDIT_BYTES + end - base_offset

    def read(self, offset: int, length: int) -> bytes:
        """Read a copy of a range; shorter than `length` only at `end`, or where the file ends."""
        length = min(length, self.end - offset)
        return read_exactly(self._files, self._descriptor, length, offset - self.base_offset)


def walk_messages(chunk: bytes) -> tuple[int, int]:
    """Step over the valid messages that a buffer begins with.

    Returns:
        (how many messages, how many bytes). What follows in the chunk is a bad message, or a part.
    """
    last_start = len(chunk) - _SIZE_BYTES - HEADER_BYTES[0]
    view = memoryview(chunk)
    count, position = core.count_uncompressed(view, 0, len(chunk))
    while position <= last_start:
        size, magic = _SIZE_AND_MAGIC.unpack_from(chunk, position)
        header = 6 if magic == 1 else 5 if magic == 0 else -1
        following = position + _SIZE_BYTES + size
        if not 0 < header <= size or following > len(chunk):
            break
        payload = position + _SIZE_BYTES + header
        if crc32(view[payload:following]) != int.from_bytes(view[payload - 4 : payload], "big"):
            break
        more, position = core.count_uncompressed(view, following, len(chunk))
        count += 1 + more
    return count, position


def _walk(reader: SegmentReader, offset: int) -> tuple[int, int]:
    """Step over valid messages: (how many, the offset of the first that isn't one)."""
    count = 0
    while offset < reader.end:
        seen, length = walk_messages(reader.read(offset, _CHUNK_BYTES))
        if not seen:
            # The first one is bad, or larger than a chunk.
            length = valid_length(reader, offset)
            if not length:
                break
            seen = 1
        count += seen
        offset += length
    return count, offset


def _walk_headers(reader: SegmentReader, start: int, stop: int) -> int:
    """The last boundary up to `stop` that the headers in one chunk lead to; `start` if none."""
    chunk = reader.read(start, min(_HEADERS_CHUNK_BYTES, stop - start + _SIZE_BYTES))
    unpack, size_bytes = SIZE.unpack_from, _SIZE_BYTES
    last = len(chunk) - _SIZE_BYTES
    previous = position = 0
    # The one loop here that runs for every message.
    while position <= last:
        (size,) = unpack(chunk, position)
        if size < HEADER_BYTES[0]:
            return start + position
        previous = position
        position += size_bytes + size
    return start + (position if position <= stop - start else previous)


def _step(reader: SegmentReader, position: int, limit: int) -> int | None:
    """The boundary after the message at `position`, however far; None if nothing valid follows."""
    start = reader.read(position, _SIZE_BYTES)
    if len(start) == _SIZE_BYTES:
        size: int = SIZE.unpack(start)[0]
        following = position + _SIZE_BYTES + size
        if size >= HEADER_BYTES[0] and following <= reader.end:
            return following
    return next_valid(reader, position, limit)
