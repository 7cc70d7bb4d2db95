"""Things that many want at once are done together: the next gather while some are under way."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

_Item = TypeVar("_Item")


class Gathered(Generic[_Item]):
    """Lives in the reactor's thread.

    Args:
        do: does it for some items, and returns what became of each, a Failure where it failed; for
            the first ones at least: the others come again.
        most: how many at a time.
    """

    def __init__(
        self, do: Callable[[Sequence[_Item]], Awaitable[Sequence[Any]]], most: int
    ) -> None:
        self._do = do
        self._most = most
        self._waiting: list[tuple[_Item, Deferred[Any]]] = []
        self._is_running = False

    def add(self, item: _Item) -> "Deferred[Any]":
        """Fires with what became of it."""
        done: Deferred[Any] = Deferred()
        self._waiting.append((item, done))
        if not self._is_running:
            self._is_running = True
            Deferred.fromCoroutine(self._run())
        return done

    async def _run(self) -> None:
        while self._waiting:
            some = self._waiting[: self._most]
            try:
                results = await self._do([item for item, _ in some])
            except Exception:
                results = [Failure()] * len(some)  # type: ignore[no-untyped-call]
            del self._waiting[: len(results)]
            for (_, done), result in zip(some, results, strict=False):
                if not done.called:
                    done.callback(result)
        self._is_running = False
