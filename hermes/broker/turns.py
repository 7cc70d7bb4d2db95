"""Requests with very many entries, served a part at a time, so that others have their turn."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

__all__ = ["TURN_ENTRIES", "in_turns"]

#: How many entries of one request are served before other connections have their turn.
TURN_ENTRIES = 256


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
        The results; a Deferred of them when there are more than `TURN_ENTRIES`. It fails with
        what `serve` raised, and can be cancelled.
    """
    if len(items) > TURN_ENTRIES:
        return _Turns(clock, items, serve, discard).finished
    results: list[Any] = []
    try:
        for item in items:
            results.append(serve(item))
    except BaseException:
        for result in results:
            discard(result)
        raise
    return results


class _Turns:
    def __init__(
        self,
        clock: IReactorTime,
        items: Sequence[Any],
        serve: Callable[[Any], Any],
        discard: Callable[[Any], None],
    ) -> None:
        self.finished: Deferred[list[Any]] = Deferred(lambda _: self._end_early())
        self._clock = clock
        self._count = len(items)
        self._items = iter(items)
        self._serve = serve
        self._discard = discard
        self._results: list[Any] = []
        self._next = clock.callLater(0, self._turn)

    def _turn(self) -> None:
        try:
            for item in islice(self._items, TURN_ENTRIES):
                self._results.append(self._serve(item))
        except Exception:
            self._end_early()
            self.finished.errback()
            return
        if len(self._results) == self._count:
            self.finished.callback(self._results)
        else:
            self._next = self._clock.callLater(0, self._turn)

    def _end_early(self) -> None:
        if self._next.active():
            self._next.cancel()
        for result in self._results:
            self._discard(result)
