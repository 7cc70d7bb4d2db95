"""Several wait for one result, each with a Deferred of its own."""

from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

__all__ = ["Announcement"]

_Result = TypeVar("_Result")


class Announcement(Generic[_Result]):
    """Who cancels, or fires a Deferred by itself, stops nobody else. `len` says how many wait."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Deferred[_Result]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self) -> "Deferred[_Result]":
        """Fires once with the next result."""
        waiter: Deferred[_Result] = Deferred()
        self._waiting.append(waiter)
        return waiter

    def tell(self, result: "_Result | Failure") -> None:
        """Tell all who wait by now; who begins to wait meanwhile waits for the next time."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.called:
                each.callback(result)
