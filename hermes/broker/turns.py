"""Turns: who has much to do does it a part at a time, so that others are served in between.

`in_turns` does so with the entries of one request. `SharedTurns` does so with connections whose
clients have sent more requests than one turn serves: a thousand of them share what one may have.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

__all__ = ["TURN_ENTRIES", "TURN_SECONDS", "SharedTurns", "in_turns"]

#: How many entries of one request are served before other connections have their turn.
TURN_ENTRIES = 256

#: How long a connection or a request is served before others have their turn. Most entries take
#: microseconds; one that creates a partition's files takes a hundred times that.
TURN_SECONDS = 0.005

#: How long all connections together go on that had their turn and have more to do; then the reactor
#: looks who else has come.
_SHARED_SECONDS = 0.010

#: How long a connection is served while others wait for their next turn.
_CROWDED_SECONDS = 0.001


class SharedTurns:
    """The next turns of connections; lives in the reactor's thread.

    Args:
        clock: the reactor, or a test's `Clock`.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    @property
    def seconds(self) -> float:
        """How long a turn may be now."""
        return _CROWDED_SECONDS if self._waiting else TURN_SECONDS

    def wait(self, turn: Callable[[], None]) -> None:
        """Have `turn` called when its time has come: after those who wait already."""
        self._waiting.append(turn)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._run)

    def _run(self) -> None:
        self._scheduled = False
        ends = self._clock.seconds() + _SHARED_SECONDS
        for _ in range(len(self._waiting)):  # who waits again meanwhile does so for the next time
            self._waiting.popleft()()
            if self._clock.seconds() >= ends:
                break
        if self._waiting:
            self._schedule()


def in_turns(
    clock: IReactorTime,
    items: Sequence[Any],
    serve: Callable[[Any], Any],
    discard: Callable[[Any], None] = lambda result: None,
) -> "list[Any] | Deferred[list[Any]]":
    """Serve the entries of a request in their order.

    Args:
        clock: the reactor, or a test's `Clock`.
        items: the entries.
        serve: called with each; what it raises ends the request.
        discard: called with the results there are when the request ends early.

    Returns:
        The results; a Deferred of them when they took more than one turn. It fails with what
        `serve` raised, and can be cancelled.
    """
    turns = _Turns(clock, items, serve, discard)
    return turns.results if turns.serve_some() else turns.finished()


class _Turns:
    def __init__(
        self,
        clock: IReactorTime,
        items: Sequence[Any],
        serve: Callable[[Any], Any],
        discard: Callable[[Any], None],
    ) -> None:
        self.results: list[Any] = []
        self._clock = clock
        self._items = items
        self._serve = serve
        self._discard = discard

    def serve_some(self) -> bool:
        """Serve for one turn; whether that was all."""
        results, items = self.results, self._items
        seconds = self._clock.seconds
        last = min(len(items), len(results) + TURN_ENTRIES)
        ends = seconds() + TURN_SECONDS
        try:
            while len(results) < last:
                results.append(self._serve(items[len(results)]))
                if seconds() >= ends:
                    break
        except BaseException:
            self._discard_all()
            raise
        return len(results) == len(items)

    def finished(self) -> "Deferred[list[Any]]":
        """Go on in further turns."""
        self._finished: Deferred[list[Any]] = Deferred(self._cancelled)
        self._next = self._clock.callLater(0, self._turn)
        return self._finished

    def _turn(self) -> None:
        try:
            if not self.serve_some():
                self._next = self._clock.callLater(0, self._turn)
                return
        except Exception:
            self._finished.errback()
            return
        self._finished.callback(self.results)

    def _cancelled(self, _: object) -> None:
        if self._next.active():
            self._next.cancel()
        self._discard_all()

    def _discard_all(self) -> None:
        for result in self.results:
            self._discard(result)
        self.results = []
