"""Which bytes of a segment are messages: the scan behind recovery and `check-log`.

`scan` walks a range of a segment message by message: the size must fit, the magic must be known,
the CRC must be right. It is what 0.7 checks, with two differences. It starts where the caller says,
so that what is known to be good isn't read again. And a bad message isn't the end: when a valid one
follows, the bytes between are a *bad range*, reported and left alone; only bytes that no valid
message follows are a *bad tail*, which recovery cuts off.

Where the next valid message starts after a bad one is a matter of evidence, in this order:

1. The CRC in the bad message's header fits the bytes up to some later valid message: only its
   size is damaged, and that is where it ended.
2. Its size leads to a valid message, perhaps over further bad ones: only its payload is damaged.
3. Its size leads to the end of the range or beyond it: a torn append, so a bad tail.
4. Nothing is to be believed: the next place where a valid message starts, byte by byte.

Nothing is looked for *inside* a message whose header can be believed: the payload of a compressed
set may hold whole messages in plain sight (Snappy stores short ones literally), and nobody ever
sent those as they stand.

Memory is bounded by a few times `max_message_bytes`, work by the length of the range. Nothing here
writes, and nothing is remembered: scanning twice gives the same answer.
"""

from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from hermes.protocol import find_valid_message
from hermes.storage.files import FileLayer, read_exactly

__all__ = ["RecoveryReport", "SegmentReader", "next_valid", "scan"]

_CHUNK_BYTES = 256 * 1024
_SEARCH_BYTES = 1024 * 1024

_SIZE = Struct(">i")
# size | magic; then for magic 0 the CRC, for magic 1 attributes and CRC
_SIZE_AND_MAGIC = Struct(">ib")
_SIZE_BYTES = 4
_HEADER_BYTES = {0: 5, 1: 6}
_LONGEST_START = _SIZE_BYTES + 6
# Bounds on how far evidence is followed, so that a long run of damage costs linear work.
_MAX_CANDIDATES = 16
_MAX_STEPS = 16
_CREDIT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What a scan found; all positions are offsets in the partition's log.

    Attributes:
        start: where the scan began: everything before was known to be good.
        valid_end: the offset after the last valid message (`start` when there is none).
        messages: how many valid messages were seen (a compressed set counts as one).
        bad_ranges: (start, end) of bytes that are no valid messages but are followed by one.
        dropped_bytes: how many bytes after `valid_end` no valid message follows. `scan` only
            counts them; recovery has cut them off.
    """

    start: int
    valid_end: int
    messages: int = 0
    bad_ranges: tuple[tuple[int, int], ...] = ()
    dropped_bytes: int = 0


def scan(
    files: FileLayer,
    descriptor: int,
    start: int,
    end: int,
    *,
    base_offset: int = 0,
    max_message_bytes: int,
) -> RecoveryReport:
    """Check every message in a range of a segment.

    Args:
        files: the file layer.
        descriptor: the segment's file, open for reading.
        start: the offset to begin at: a message boundary, >= base_offset.
        end: the offset after the last byte to look at, >= start.
        base_offset: the segment's first offset.
        max_message_bytes: the largest payload to believe in where a size can't be trusted. A
            valid message may be larger.

    Returns:
        What was found.

    Raises:
        OSError: the segment can't be read.
    """
    reader = SegmentReader(files, descriptor, base_offset, end)
    messages = 0
    bad_ranges: list[tuple[int, int]] = []
    offset = start
    while True:
        count, offset = _walk(reader, offset)
        messages += count
        following = next_valid(reader, offset, max_message_bytes) if offset < end else None
        if following is None:
            return RecoveryReport(start, offset, messages, tuple(bad_ranges), end - offset)
        bad_ranges.append((offset, following))
        offset = following


class SegmentReader:
    """Reads a segment by absolute offsets, never beyond `end`.

    Attributes:
        end: the offset after the last byte that may be read.
        credit: how many more bytes may be looked at twice in search of evidence.
    """

    def __init__(self, files: FileLayer, descriptor: int, base_offset: int, end: int) -> None:
        self._files = files
        self._descriptor = descriptor
        self._base_offset = base_offset
        self.end = end
        self.credit = _CREDIT_BYTES + end - base_offset

    def read(self, offset: int, length: int) -> bytes:
        """Read a range, cut at `end`.

        Args:
            offset: its first offset, from the segment's base to `end`.
            length: how many bytes, >= 0.

        Returns:
            A copy; shorter than `length` only at `end` (or where the file ends).

        Raises:
            OSError: the segment can't be read.
        """
        length = min(length, self.end - offset)
        return read_exactly(self._files, self._descriptor, length, offset - self._base_offset)


def walk_messages(chunk: bytes) -> tuple[int, int]:
    """Step over the valid messages that a buffer begins with.

    Args:
        chunk: bytes from a message boundary on.

    Returns:
        (how many messages, how many bytes they take). What follows in the chunk is a message
        that is bad or not whole.
    """
    count = position = 0
    last_start = len(chunk) - _SIZE_BYTES - _HEADER_BYTES[0]
    view = memoryview(chunk)
    while position <= last_start:
        size, magic = _SIZE_AND_MAGIC.unpack_from(chunk, position)
        header = 6 if magic == 1 else 5 if magic == 0 else -1
        following = position + _SIZE_BYTES + size
        if not 0 < header <= size or following > len(chunk):
            break
        payload = position + _SIZE_BYTES + header
        if crc32(view[payload:following]) != int.from_bytes(view[payload - 4 : payload], "big"):
            break
        count += 1
        position = following
    return count, position


def _walk(reader: SegmentReader, offset: int) -> tuple[int, int]:
    """Step over valid messages: (how many, the offset of the first that isn't one)."""
    count = 0
    while offset < reader.end:
        seen, length = walk_messages(reader.read(offset, _CHUNK_BYTES))
        if not seen:
            # The first one is bad, or larger than a chunk.
            length = _valid_length(reader, offset)
            if not length:
                break
            seen = 1
        count += seen
        offset += length
    return count, offset


def _valid_length(reader: SegmentReader, offset: int) -> int:
    """Give the length of the message at an offset, its size field included; 0 when it is bad."""
    start = reader.read(offset, _LONGEST_START)
    if len(start) < _SIZE_BYTES + _HEADER_BYTES[0]:
        return 0
    size, magic = _SIZE_AND_MAGIC.unpack_from(start)
    header = _HEADER_BYTES.get(magic, 0)
    if not 0 < header <= size or offset + _SIZE_BYTES + size > reader.end:
        return 0
    position = offset + _SIZE_BYTES + header
    following = offset + _SIZE_BYTES + size
    crc = 0
    while position < following:
        piece = reader.read(position, min(_CHUNK_BYTES, following - position))
        if not piece:
            return 0
        crc = crc32(piece, crc)
        position += len(piece)
    stored = int.from_bytes(start[header : header + _SIZE_BYTES], "big")
    return _SIZE_BYTES + size if crc == stored else 0


def next_valid(reader: SegmentReader, bad: int, limit: int) -> int | None:
    """Find where the next valid message starts after a bad one, by the evidence told above.

    Args:
        reader: reads the segment.
        bad: where the bad message starts, < reader.end.
        limit: the largest payload to believe in.

    Returns:
        An offset after `bad`; None when the rest, up to the reader's end, is a bad tail.

    Raises:
        OSError: the segment can't be read.
    """
    for _ in range(_MAX_STEPS):
        resized = _end_by_crc(reader, bad, limit)
        if resized is not None:
            return resized if resized < reader.end else None
        size = _plausible_size(reader, bad, limit)
        claimed = bad + _SIZE_BYTES + size
        if size and claimed >= reader.end:
            return None
        if size and _valid_length(reader, claimed):
            return claimed
        if not size or not _has_known_magic(reader, bad):
            break
        bad = claimed
    return _find(reader, bad + 1, reader.end, limit)


def _plausible_size(reader: SegmentReader, offset: int, limit: int) -> int:
    """The size field of the message at an offset; 0 if no message can have it."""
    start = reader.read(offset, _SIZE_AND_MAGIC.size)
    if len(start) < _SIZE_AND_MAGIC.size:
        # Not even a header is left: an append torn right at its start.
        return _SIZE_AND_MAGIC.size
    size, magic = _SIZE_AND_MAGIC.unpack(start)
    if not _HEADER_BYTES[0] <= size <= limit + _HEADER_BYTES[1]:
        return 0
    is_torn = offset + _SIZE_BYTES + size > reader.end
    return 0 if is_torn and magic not in _HEADER_BYTES else int(size)


def _has_known_magic(reader: SegmentReader, offset: int) -> bool:
    magic = reader.read(offset + _SIZE_BYTES, 1)
    return bool(magic) and magic[0] in _HEADER_BYTES


def _end_by_crc(reader: SegmentReader, bad: int, limit: int) -> int | None:
    """Find the valid message (or the end) up to which the bad one's CRC is right, if any."""
    start = reader.read(bad, _LONGEST_START)
    header = _HEADER_BYTES.get(start[_SIZE_BYTES], 0) if len(start) > _SIZE_BYTES else 0
    reader.credit -= limit
    if not header or len(start) < _SIZE_BYTES + header or reader.credit < 0:
        return None
    stored = int.from_bytes(start[header : header + _SIZE_BYTES], "big")
    checked = search = bad + _SIZE_BYTES + header
    stop = min(checked + limit, reader.end) + 1
    crc = 0
    for _ in range(_MAX_CANDIDATES):
        found = _find(reader, search, stop, limit)
        candidate = reader.end if found is None else found
        if candidate >= stop:
            return None
        crc = crc32(reader.read(checked, candidate - checked), crc)
        if crc == stored:
            return candidate
        if found is None:
            return None
        checked, search = candidate, candidate + _valid_length(reader, candidate)
    return None


def _find(reader: SegmentReader, start: int, stop: int, limit: int) -> int | None:
    """Find the first valid message that starts in [start, stop), of up to `limit` payload bytes."""
    # What starts in the last `overlap` bytes of a window may be cut off by it: the next one
    # begins there, so that an earlier, longer message wins over one inside it.
    overlap = limit + _LONGEST_START
    while start < stop:
        window = reader.read(start, min(max(_SEARCH_BYTES, 4 * overlap), stop - start + overlap))
        is_last = start + len(window) >= reader.end
        found = find_valid_message(window, 0, max_message_bytes=limit)
        if found is not None and (is_last or found < len(window) - overlap):
            return start + found if start + found < stop else None
        if is_last:
            return None
        start += len(window) - overlap
    return None
