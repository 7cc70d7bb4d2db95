"""Calls in worker threads, a few at a time: what they cost is bounded, whoever asks and leaves."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore, maybeDeferred


class Turns:
    """Lets at most so many calls run at a time; the others wait for their turn, in order.

    Who cancels waits no more. A thread can't be stopped: a call that has begun keeps its turn until
    it ends.
    """

    def __init__(self, most: int) -> None:
        self._semaphore = DeferredSemaphore(most)

    @property
    def waiting(self) -> int:
        """How many calls wait for their turn."""
        return len(self._semaphore.waiting)

    def run(self, call: "Callable[..., Deferred[Any]]", *args: Any) -> "Deferred[Any]":
        turn: Deferred[Any] = self._semaphore.acquire()
        result: Deferred[Any] = Deferred(lambda _: turn.cancel())

        def begin(_: Any) -> None:
            maybeDeferred(call, *args).addBoth(end)

        def end(found: Any) -> None:
            self._semaphore.release()
            if not result.called:
                result.callback(found)

        turn.addCallbacks(begin, lambda _: None)
        return result
