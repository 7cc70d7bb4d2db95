"""Turns: who has much to do does it a part at a time, so that others are served in between.

`in_turns` does so with the entries of one request, a connection with the requests that have
arrived. Their further turns are `SharedTurns`: a thousand share what one may have.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

__all__ = ["TURN_BYTES", "TURN_ENTRIES", "TURN_SECONDS", "SharedTurns", "in_turns"]

#: How many bytes one connection may send at once before others have their turn.
TURN_BYTES = 2 * 1024 * 1024

#: How many entries of one request are served before other connections have their turn.
TURN_ENTRIES = 256

#: How long a connection or a request is served at once before others have their turn, where nobody
#: waits. Most entries take microseconds; one that creates a partition's files takes a hundred times
#: that.
TURN_SECONDS = 0.005

#: How long all together go on that had their turn and have more to do; then the reactor looks who
#: else has come.
_SHARED_SECONDS = 0.010

#: How long a further turn is while others wait for theirs, and how long those of all of them are
#: together, however many there are.
_CROWDED_SECONDS = 0.001
_ALL_SECONDS = 0.250

#: The same while others wait.
_CROWDED_BYTES = 256 * 1024

#: Time for one request, or one entry of it.
_LEAST_SECONDS = 0.000_02


class SharedTurns:
    """The next turns of connections and requests; lives in the reactor's thread.

    A round of the reactor serves everybody from whom something has arrived, and they may be a
    thousand. So who comes while others wait is served the shorter the more they are, and once the
    round has taken long, with one request or one entry of it: those with more to do soon wait as
    well, and those with little are through.

    Args:
        clock: the reactor, or a test's `Clock`.

    Attributes:
        now: the clock's time, in seconds.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._running = False
        self._spent_seconds = 0.0  # since a round was last known to be over
        self.now = clock.seconds

    @property
    def seconds(self) -> float:
        """How long a turn that begins now may be."""
        others = len(self._waiting)
        if self._running and others:
            return min(_CROWDED_SECONDS, _ALL_SECONDS / others)
        if self._spent_seconds >= _SHARED_SECONDS:
            return _LEAST_SECONDS
        return TURN_SECONDS / (1 + others)

    @property
    def size_bytes(self) -> int:
        """How much a connection may send in a turn that begins now."""
        return _CROWDED_BYTES if self.crowded else TURN_BYTES

    @property
    def crowded(self) -> bool:
        """Whether who has much to send should `wait`: others do, or the round has taken long."""
        return bool(self._waiting) or self._spent_seconds >= _SHARED_SECONDS

    def spent(self, began: float) -> None:
        """Count a turn that began at `began` and is over."""
        self._spent_seconds += self.now() - began
        if self._spent_seconds >= _SHARED_SECONDS:
            self._schedule()  # where this round ends

    def wait(self, turn: Callable[[], None]) -> None:
        """Have `turn` called when its time has come: after those who wait already."""
        self._waiting.append(turn)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._run)

    def _run(self) -> None:
        self._scheduled, self._running, self._spent_seconds = False, True, 0.0
        ends = self.now() + _SHARED_SECONDS
        try:
            for _ in range(len(self._waiting)):  # who waits again does so for the next time
                self._waiting.popleft()()
                if self.now() >= ends:
                    break
        finally:
            self._running, self._spent_seconds = False, 0.0
            if self._waiting:
                self._schedule()


def in_turns(
    turns: SharedTurns,
    items: Sequence[Any],
    serve: Callable[[Any], Any],
    discard: Callable[[Any], None] = lambda result: None,
) -> "list[Any] | Deferred[list[Any]]":
    """Serve the entries of a request in their order.

    Args:
        turns: whom further turns are shared with.
        items: the entries.
        serve: called with each; what it raises ends the request.
        discard: called with the results there are when the request ends early.

    Returns:
        The results; a Deferred of them when they took more than one turn. It fails with what
        `serve` raised, and can be cancelled.
    """
    parts = _Parts(turns, items, serve, discard)
    return parts.results if parts.serve_some() else parts.finished()


class _Parts:
    def __init__(
        self,
        turns: SharedTurns,
        items: Sequence[Any],
        serve: Callable[[Any], Any],
        discard: Callable[[Any], None],
    ) -> None:
        self.results: list[Any] = []
        self._turns = turns
        self._ended = False
        self._items = items
        self._serve = serve
        self._discard = discard

    def serve_some(self) -> bool:
        """Serve for one turn; whether that was all."""
        results, items = self.results, self._items
        now = self._turns.now
        last = min(len(items), len(results) + TURN_ENTRIES)
        ends = now() + self._turns.seconds
        try:
            while len(results) < last:
                results.append(self._serve(items[len(results)]))
                if now() >= ends:
                    break
        except BaseException:
            self._discard_all()
            raise
        return len(results) == len(items)

    def finished(self) -> "Deferred[list[Any]]":
        """Go on in further turns."""
        self._finished: Deferred[list[Any]] = Deferred(self._cancelled)
        self._turns.wait(self._turn)
        return self._finished

    def _turn(self) -> None:
        if self._ended:
            return
        try:
            if not self.serve_some():
                self._turns.wait(self._turn)
                return
        except Exception:
            self._finished.errback()
            return
        self._finished.callback(self.results)

    def _cancelled(self, _: object) -> None:
        self._ended = True
        self._discard_all()

    def _discard_all(self) -> None:
        for result in self.results:
            self._discard(result)
        self.results = []
