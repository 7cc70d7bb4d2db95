"""Finding a message boundary near an offset, to split a log into pieces of whole messages.

Messages carry no marks: boundaries are found by walking from a known one, header by header. The
walk begins at the nearest of: the segment's start, an entry of the time index (appends end at
boundaries), a boundary that an earlier walk noted. Payloads are skipped, not read.

Blocks on the disk; for worker threads. Two walks of one segment at a time do no harm.
"""

from bisect import bisect_right
from struct import Struct

from hermes.storage.recovery import SegmentReader, next_valid
from hermes.storage.segment import Segment

__all__ = ["boundary_in_segment"]

#: A walk notes a boundary after so many bytes: what is kept is one int per 4 MiB of log, at most.
NOTE_EVERY_BYTES = 4 * 1024 * 1024

_CHUNK_BYTES = 64 * 1024
_SIZE = Struct(">i")
_SMALLEST_MESSAGE = 5


def boundary_in_segment(
    segment: Segment, reader: SegmentReader, offset: int, max_message_bytes: int
) -> int:
    """Find the largest message boundary that is not after an offset.

    Args:
        segment: the segment that holds the offset, its time index loaded.
        reader: reads it, up to the visible end.
        offset: from the segment's base to the reader's end.
        max_message_bytes: the largest payload to believe in where bytes are damaged.

    Returns:
        The boundary. Where bytes are damaged: where the damage begins.

    Raises:
        OSError: the segment can't be read.
    """
    position = _known_boundary(segment, offset)
    noted = position
    found: list[int] = []
    while position < offset:
        ahead = _walk(reader, position, offset) or _step(reader, position, max_message_bytes)
        if not ahead or ahead[0] > offset:
            break
        for position in ahead:
            if position - noted >= NOTE_EVERY_BYTES:
                noted = position
                found.append(position)
    if found:
        # Replaced as a whole: another walk may be reading it.
        segment.boundaries = sorted({*segment.boundaries, *found})
    return position


def _known_boundary(segment: Segment, offset: int) -> int:
    """The nearest boundary at or before an offset that needs no walk."""
    entry = segment.index.at_offset(offset)
    noted = segment.boundaries
    place = bisect_right(noted, offset)
    return max(
        segment.base_offset,
        segment.base_offset if entry is None else entry.end_offset,
        noted[place - 1] if place else 0,
    )


def _walk(reader: SegmentReader, start: int, stop: int) -> list[int]:
    """Boundaries in (start, stop] as far as headers in one chunk lead."""
    chunk = reader.read(start, min(_CHUNK_BYTES, stop - start + _SIZE.size))
    boundaries = []
    position = 0
    while position + _SIZE.size <= len(chunk):
        (size,) = _SIZE.unpack_from(chunk, position)
        position += _SIZE.size + size
        if size < _SMALLEST_MESSAGE or start + position > stop:
            break
        boundaries.append(start + position)
    return boundaries


def _step(reader: SegmentReader, position: int, limit: int) -> list[int]:
    """The boundary after the message at `position`, however far; none if nothing valid follows."""
    start = reader.read(position, _SIZE.size)
    if len(start) == _SIZE.size:
        size: int = _SIZE.unpack(start)[0]
        following = position + _SIZE.size + size
        if size >= _SMALLEST_MESSAGE and following <= reader.end:
            return [following]
    found = next_valid(reader, position, limit)
    return [] if found is None else [found]
