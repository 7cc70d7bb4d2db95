"""Finding a message boundary near an offset, to split a log into pieces of whole messages.

Messages carry no marks: boundaries are found by walking from a known one, header by header. The
walk begins at the nearest of: the segment's start, an entry of the time index (appends end at
boundaries), a boundary that an earlier walk noted. Payloads are skipped, not read.

A segment that Kafka wrote has no index: one of 1 GiB in 20-byte messages is five seconds of walking
(one in 100-byte messages, one second). That is done `NOTE_EVERY_BYTES` at a time, each time under
the segment's lock for it, and from where the searches before have come to. So it is done once,
however many ask at once and however often. Every chunk that is read lets other threads run.

Blocks on the disk; for worker threads.
"""

from bisect import bisect_right
from struct import Struct
from threading import Lock

from hermes.storage.recovery import SegmentReader, next_valid
from hermes.storage.time_index import TimeIndex

__all__ = ["Boundaries"]

#: A walk notes a boundary after so many bytes: what is kept is one int per 4 MiB of log, at most.
NOTE_EVERY_BYTES = 4 * 1024 * 1024

_CHUNK_BYTES = 64 * 1024
_SIZE = Struct(">i")
_SMALLEST_MESSAGE = 5


class Boundaries:
    """The message boundaries of one segment that searches have found so far.

    Args:
        base_offset: where the segment starts: the first boundary.

    Attributes:
        noted: offsets of a few of the others, ascending.
    """

    __slots__ = ("_base_offset", "_lock", "noted")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        # Held while some MiB are searched for more, so that searches share their work.
        self._lock = Lock()
        self.noted: list[int] = []

    def last_before(
        self, offset: int, index: TimeIndex, reader: SegmentReader, max_message_bytes: int
    ) -> int:
        """Find the largest message boundary that is not after an offset.

        Args:
            offset: from the segment's base to the reader's end.
            index: the segment's time index, loaded.
            reader: reads the segment, up to the visible end.
            max_message_bytes: the largest payload to believe in where bytes are damaged.

        Returns:
            The boundary. Where bytes are damaged: where the damage begins.

        Raises:
            OSError: the segment can't be read.
        """
        entry = index.at_offset(offset)
        start = self._base_offset if entry is None else entry.end_offset
        while True:
            with self._lock:
                place = bisect_right(self.noted, offset)
                if place:
                    start = max(start, self.noted[place - 1])
                position, is_found = _search(reader, start, offset, max_message_bytes)
                if is_found:
                    return position
                self.noted.insert(place, position)


def _search(reader: SegmentReader, start: int, offset: int, limit: int) -> tuple[int, bool]:
    """Walk a while from a boundary on: (the boundary it came to, whether it is the one)."""
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
