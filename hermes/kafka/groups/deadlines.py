"""One timer for the deadlines of many: the earliest of each is known, and is cheap to put off."""

import heapq
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReactorTime


class Deadlines:
    """Calls back when something is due. Lives in the reactor's thread.

    Args:
        clock: the reactor, or a test's `Clock`.
        due: called with a name at its time, which is forgotten then.
    """

    def __init__(self, clock: IReactorTime, due: Callable[[str], None]) -> None:
        self._clock = clock
        self._due = due
        self._heap: list[tuple[float, str]] = []
        self._times: dict[str, float] = {}
        self._timer: Any = None
        self._timer_at = float("inf")

    def set(self, name: str, at: float | None) -> None:
        """Have a name be due at a time, instead of any other; None for never."""
        if at is None:
            self._times.pop(name, None)
            return
        before = self._times.get(name)
        self._times[name] = at
        if before is None or at < before:
            heapq.heappush(self._heap, (at, name))
            self._wait()

    def stop(self) -> None:
        """Call nobody any more."""
        self._times.clear()
        self._heap.clear()
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, float("inf")

    def _wait(self) -> None:
        if self._heap and self._heap[0][0] < self._timer_at:
            self._cancel()
            self._timer_at = self._heap[0][0]
            seconds = max(0.0, self._timer_at - self._clock.seconds())
            self._timer = self._clock.callLater(seconds, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        now = self._clock.seconds()
        while self._heap and self._heap[0][0] <= now:
            _, name = heapq.heappop(self._heap)
            at = self._times.get(name)
            if at is None:
                continue
            if at <= now:
                del self._times[name]
                self._due(name)
            else:  # it was put off
                heapq.heappush(self._heap, (at, name))
        self._wait()
