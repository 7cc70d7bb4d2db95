"""Finding a message boundary near an offset, to split a log into pieces of whole messages.

Messages carry no marks: boundaries are found by walking from a known one, header by header. The
walk begins at the nearest of: the segment's start, an entry of the time index (appends end at
boundaries), a boundary that an earlier walk noted. Payloads are skipped, not read.

A segment that Kafka wrote has no index: one of 1 GiB in 20-byte messages is five seconds of walking
(one in 100-byte messages, one second). It is walked `NOTE_EVERY_BYTES` at a time, each under the
segment's lock for it, and on from where earlier searches have come to: once in all, however many
ask at once and however often. Every chunk that is read lets other threads run.

Blocks on the disk; for worker threads.
"""

from bisect import bisect_right
from collections.abc import Callable
from threading import Lock


class Boundaries:
    """The boundaries of one segment that searches have found so far, of which a few are noted."""

    __slots__ = ("_lock", "noted")

    def __init__(self) -> None:
        # Held while some MiB are searched for more, so that searches share their work.
        self._lock = Lock()
        self.noted: list[int] = []

    def last_before(
        self, offset: int, start: int, search: Callable[[int], tuple[int, bool]]
    ) -> int:
        """Find the largest message boundary that is not after an offset.

        Args:
            start: a boundary before it: the segment's base, say.
            search: walks a while from a boundary towards the offset: `LogFormat.search_boundary`.

        Returns:
            The boundary. Where bytes are damaged: where the damage begins.
        """
        while True:
            with self._lock:
                place = bisect_right(self.noted, offset)
                if place:
                    start = max(start, self.noted[place - 1])
                boundary, is_found = search(start)
                if is_found:
                    return boundary
                self.noted.insert(place, boundary)
