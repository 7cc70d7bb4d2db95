"""Finding a message boundary near an offset, to split a log into pieces of whole messages.

Messages carry no marks: boundaries are found by walking from a known one, header by header. The
walk begins at the nearest of: the segment's start, an entry of the time index (appends end at
boundaries), a boundary that an earlier walk noted. Payloads are skipped, not read.

A segment that Kafka wrote has no index: one of 1 GiB in 20-byte messages is five seconds of walking
(one in 100-byte messages, one second). That is done in turns of `NOTE_EVERY_BYTES`, each under the
log's lock for it, and each begins where the turns before came to, whoever had them. So it is done
once, however many ask at once and however often. Every chunk that is read lets other threads run.

Blocks on the disk; for worker threads.
"""

from bisect import bisect_right
from struct import Struct
from threading import Lock

from hermes.storage.recovery import SegmentReader, next_valid
from hermes.storage.segment import Segment

__all__ = ["boundary_in_segment"]

#: A walk notes a boundary after so many bytes: what is kept is one int per 4 MiB of log, at most.
NOTE_EVERY_BYTES = 4 * 1024 * 1024

_CHUNK_BYTES = 64 * 1024
_SIZE = Struct(">i")
_SMALLEST_MESSAGE = 5


def boundary_in_segment(
    segment: Segment, reader: SegmentReader, offset: int, max_message_bytes: int, turn: Lock
) -> int:
    """Find the largest message boundary that is not after an offset.

    Args:
        segment: the segment that holds the offset, its time index loaded.
        reader: reads it, up to the visible end.
        offset: from the segment's base to the reader's end.
        max_message_bytes: the largest payload to believe in where bytes are damaged.
        turn: guards the segment's `boundaries`; held for a turn.

    Returns:
        The boundary. Where bytes are damaged: where the damage begins.

    Raises:
        OSError: the segment can't be read.
    """
    entry = segment.index.at_offset(offset)
    start = segment.base_offset if entry is None else entry.end_offset
    while True:
        with turn:
            place = bisect_right(segment.boundaries, offset)
            if place:
                start = max(start, segment.boundaries[place - 1])
            position, is_found = _search(reader, start, offset, max_message_bytes)
            if is_found:
                return position
            segment.boundaries.insert(place, position)


def _search(reader: SegmentReader, start: int, offset: int, limit: int) -> tuple[int, bool]:
    """Do a turn from a boundary on: (the boundary it came to, whether it is the one)."""
    position = start
    while position < offset and position - start < NOTE_EVERY_BYTES:
        following: int | None = _walk(reader, position, offset)
        if following == position:
            following = _step(reader, position, limit)
        if following is None or following > offset:
            return position, True
        position = following
    return position, position == offset


def _walk(reader: SegmentReader, start: int, stop: int) -> int:
    """The last boundary up to `stop` that the headers in one chunk lead to; `start` if none."""
    chunk = reader.read(start, min(_CHUNK_BYTES, stop - start + _SIZE.size))
    unpack, size_bytes = _SIZE.unpack_from, _SIZE.size
    last = len(chunk) - _SIZE.size
    previous = position = 0
    # The one loop here that runs for every message.
    while position <= last:
        (size,) = unpack(chunk, position)
        if size < _SMALLEST_MESSAGE:
            return start + position
        previous = position
        position += size_bytes + size
    return start + (position if position <= stop - start else previous)


def _step(reader: SegmentReader, position: int, limit: int) -> int | None:
    """The boundary after the message at `position`, however far; None if nothing valid follows."""
    start = reader.read(position, _SIZE.size)
    if len(start) == _SIZE.size:
        size: int = _SIZE.unpack(start)[0]
        following = position + _SIZE.size + size
        if size >= _SMALLEST_MESSAGE and following <= reader.end:
            return following
    return next_valid(reader, position, limit)
