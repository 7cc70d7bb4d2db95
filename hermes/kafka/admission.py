"""Bounds the large requests that are carried out at a time, by their bytes, whoever they are from.

Decoded, a request of 2 MiB takes up to thirty times that, and so may the parts of its response. So
large requests wait for their turn as the bytes that they came as, which the budget of requests
counts; once one is admitted, its bytes are let go.

A request that waits for something else leaves, so that a disk that stands still holds up none that
doesn't need it. A Fetch keeps little then; a Produce keeps much, and has a second budget, until it
is answered.
"""

from collections import deque
from typing import Final

from twisted.internet.defer import Deferred

#: How many bytes of large requests are in hand together, unless there is but one.
LIMIT_BYTES: Final = 2 << 20


class Admission:
    """The large requests that are carried out. Lives in the reactor's thread.

    `used_bytes`: how large they were together.
    """

    def __init__(self) -> None:
        self.used_bytes = 0
        self._queue: deque[tuple[Deferred[None], int]] = deque()

    async def enter(self, size_bytes: int) -> int:
        """Wait until there is room for one more, in order; `leave` follows. Can be cancelled.

        Returns its size, for `Call.admitted_bytes`.
        """
        if self._queue or not self._fits(size_bytes):
            turn: Deferred[None] = Deferred()
            entry = turn, size_bytes
            self._queue.append(entry)
            try:
                await turn
            except BaseException:
                if entry in self._queue:
                    self._queue.remove(entry)
                else:  # it had its turn in this very moment
                    self.leave(size_bytes)
                raise
        else:
            self.used_bytes += size_bytes
        return size_bytes

    def leave(self, size_bytes: int) -> None:
        """One is done, or only waits for something."""
        self.used_bytes -= size_bytes
        while self._queue and self._fits(self._queue[0][1]):
            turn, size = self._queue.popleft()
            self.used_bytes += size
            turn.callback(None)

    def _fits(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= LIMIT_BYTES
