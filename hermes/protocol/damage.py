"""The way on behind damage: where the next valid message starts after a bad one.

No message carries a marker of its start, so this is a matter of evidence. In a segment, which ends
where writing stopped, it counts in this order:

1. The CRC in the bad message's header fits the bytes up to some later valid message: only its
   size is damaged, and that is where it ended.
2. Its size leads to a valid message, perhaps over further bad ones: only its payload is damaged.
3. Its size leads to the end of the segment or beyond it: a torn append, so a bad tail.
4. Nothing is to be believed: the next place where a valid message starts, byte by byte.

Nothing is looked for *inside* a message whose header can be believed: the payload of a compressed
set may hold whole messages in plain sight (Snappy stores short ones literally), and nobody ever
sent those by themselves.

A fetched set ends anywhere, mostly within a message. So there, instead of 3, a message that reaches
beyond the set is incomplete, unless its magic is unknown or, for the first one, its CRC fits the
bytes up to an earlier place. The next fetch, which starts at that message, shows more.

`hermes.protocol.search` finds messages among bytes that nothing is known of.
"""

from typing import Final, Protocol
from zlib import crc32

from hermes.protocol.messages import HEADER_BYTES, SIZE
from hermes.protocol.search import find_after_damaged_length, find_valid_message
from hermes.protocol.wire import Buffer

_SIZE_BYTES: Final = SIZE.size
_MAGICS: Final = range(len(HEADER_BYTES))
_SIZE_AND_MAGIC_BYTES: Final = _SIZE_BYTES + 1
_LONGEST_START: Final = _SIZE_BYTES + max(HEADER_BYTES)
_CHUNK_BYTES: Final = 256 * 1024
_SEARCH_BYTES: Final = 1024 * 1024
# Bounds on how far evidence is followed, so that a long run of damage costs linear work.
_MAX_CANDIDATES: Final = 16
_MAX_STEPS: Final = 16


# -- in a segment -------------------------------------------------------------------------------


class SegmentBytes(Protocol):
    """A segment's bytes by their offsets, too many to be in memory.

    `credit`: how many more bytes may be looked at twice in search of evidence; spent here.
    """

    credit: int

    @property
    def end(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes: ...


def valid_length(source: SegmentBytes, offset: int) -> int:
    """The length of the message at an offset, its size field included; 0 when it is bad."""
    start = source.read(offset, _LONGEST_START)
    header = _header_bytes(start)
    following = offset + _SIZE_BYTES + _size(start)
    if not header or following < offset + _SIZE_BYTES + header or following > source.end:
        return 0
    position = offset + _SIZE_BYTES + header
    crc = 0
    while position < following:
        piece = source.read(position, min(_CHUNK_BYTES, following - position))
        if not piece:
            return 0
        crc = crc32(piece, crc)
        position += len(piece)
    return following - offset if crc == _stored_crc(start, header) else 0


def next_valid(source: SegmentBytes, bad: int, limit: int) -> int | None:
    """Find where the next valid message starts after a bad one, by the evidence described above.

    Memory is bounded by a few times the limit, work by the length of what is searched.

    Args:
        limit: the largest payload to believe in where a size can't be trusted.

    Returns:
        An offset after `bad`; None when the rest, up to the source's end, is a bad tail.
    """
    for _ in range(_MAX_STEPS):
        resized = _end_by_crc(source, bad, limit)
        if resized is not None:
            return resized if resized < source.end else None
        size = _plausible_size(source, bad, limit)
        claimed = bad + _SIZE_BYTES + size
        if size and claimed >= source.end:
            return None
        if size and valid_length(source, claimed):
            return claimed
        if not size or not _header_bytes(source.read(bad, _LONGEST_START)):
            break
        bad = claimed
    return _find(source, bad + 1, source.end, limit)


def _size(start: bytes) -> int:
    return int(SIZE.unpack_from(start)[0]) if len(start) >= _SIZE_BYTES else 0


def _header_bytes(start: bytes) -> int:
    """How long the header of a message that starts like this is; 0 if its magic is unknown."""
    magic = start[_SIZE_BYTES] if len(start) > _SIZE_BYTES else -1
    return HEADER_BYTES[magic] if magic in _MAGICS else 0


def _stored_crc(start: bytes, header: int) -> int:
    return int.from_bytes(start[header : header + _SIZE_BYTES], "big")


def _plausible_size(source: SegmentBytes, offset: int, limit: int) -> int:
    """The size field of the message at an offset; 0 if no message can have it."""
    start = source.read(offset, _SIZE_AND_MAGIC_BYTES)
    if len(start) < _SIZE_AND_MAGIC_BYTES:
        # Not even a header is left: an append torn right at its start.
        return _SIZE_AND_MAGIC_BYTES
    size = _size(start)
    if not min(HEADER_BYTES) <= size <= limit + max(HEADER_BYTES):
        return 0
    is_torn = offset + _SIZE_BYTES + size > source.end
    return 0 if is_torn and not _header_bytes(start) else size


def _end_by_crc(source: SegmentBytes, bad: int, limit: int) -> int | None:
    """Find the valid message (or the end) up to which the bad one's CRC is right, if any."""
    start = source.read(bad, _LONGEST_START)
    header = _header_bytes(start)
    source.credit -= limit
    if not header or len(start) < _SIZE_BYTES + header or source.credit < 0:
        return None
    stored = _stored_crc(start, header)
    checked = search = bad + _SIZE_BYTES + header
    stop = min(checked + limit, source.end) + 1
    crc = 0
    for _ in range(_MAX_CANDIDATES):
        found = _find(source, search, stop, limit)
        candidate = source.end if found is None else found
        if candidate >= stop:
            return None
        crc = crc32(source.read(checked, candidate - checked), crc)
        if crc == stored:
            return candidate
        if found is None:
            return None
        checked, search = candidate, candidate + valid_length(source, candidate)
    return None


def _find(source: SegmentBytes, start: int, stop: int, limit: int) -> int | None:
    """Find the first valid message that starts in [start, stop), of up to `limit` payload bytes."""
    # What starts in the last `overlap` bytes of a window may be cut off by it: the next one
    # begins there, so that an earlier, longer message wins over one inside it.
    overlap = limit + _LONGEST_START
    while start < stop:
        window = source.read(start, min(max(_SEARCH_BYTES, 4 * overlap), stop - start + overlap))
        is_last = start + len(window) >= source.end
        found = find_valid_message(window, 0, max_message_bytes=limit)
        if found is not None and (is_last or found < len(window) - overlap):
            return start + found if start + found < stop else None
        if is_last:
            return None
        start += len(window) - overlap
    return None


# -- in a fetched set ---------------------------------------------------------------------------


def next_good(data: Buffer) -> int | None:
    """Find the first valid message after the one, bad by any means, that a set begins with."""
    return find_valid_message(data, 1, max_message_bytes=len(data)) if len(data) > 1 else None


def resume_after(data: Buffer, position: int, following: int) -> int | None:
    """Where to resume after a bad message that ends, by its size, at `following` within the set.

    None if nothing in the set shows it.
    """
    found = find_valid_message(data, position, max_message_bytes=len(data))
    if found == position:  # intact by its CRC, only its contents are damaged
        return following
    if found is None and following == len(data):
        # Its length leads exactly to the end of the buffer, so that at least is right.
        return following
    if found is None:
        return find_after_damaged_length(data, position, max_message_bytes=len(data))
    return found


def resume_beyond(data: Buffer, position: int) -> tuple[bool, int | None]:
    """Judge the message at a position that extends beyond the set by its size.

    Nearly always it is the tail of a fetch, or a message larger than the fetch.

    Returns:
        (whether its size is certainly wrong; where to resume then, if that can be seen).
    """
    if data[position + _SIZE_BYTES : position + _SIZE_BYTES + 1] in (b"", b"\0", b"\1"):
        resume = None
        if position == 0:
            resume = find_after_damaged_length(data, 0, max_message_bytes=len(data))
        return resume is not None, resume
    resume = find_valid_message(data, position, max_message_bytes=len(data))
    return resume is not None or position == 0, resume
