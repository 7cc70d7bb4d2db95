"""One timer for the deadlines of many: the earliest of each is known, and is cheap to put off."""

import heapq
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime

from hermes.logs import ModuleLogger

#: So many entries that no longer count are kept in any case.
_SPARE: Final = 64


class Deadlines:
    """Calls `due` with a name at its time, then forgets it. Lives in the reactor's thread."""

    _log = ModuleLogger()

    def __init__(self, clock: IReactorTime, due: Callable[[str], None]) -> None:
        self._clock = clock
        self._due = due
        self._times: dict[str, float] = {}
        # Of each name one entry counts, which is due no later than the name; entries that were
        # replaced or given up stay until there are too many of them.
        self._heap: list[tuple[float, str]] = []
        self._entries: dict[str, float] = {}
        self._timer: Any = None
        self._timer_at = float("inf")

    def __len__(self) -> int:
        """How many entries are held, whether they still count or not."""
        return len(self._heap)

    def set(self, name: str, at: float | None) -> None:
        """Have a name due at a time, instead of any other; None for never."""
        if at is None:
            self._times.pop(name, None)
            self._entries.pop(name, None)
            return
        self._times[name] = at
        if at < self._entries.get(name, float("inf")):
            self._push(name, at)
            self._wait()

    def stop(self) -> None:
        self._times.clear()
        self._entries.clear()
        self._heap.clear()
        self._cancel()

    def _push(self, name: str, at: float) -> None:
        self._entries[name] = at
        heapq.heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._entries) + _SPARE:
            self._heap = [(at, name) for name, at in self._entries.items()]
            heapq.heapify(self._heap)

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
            entry, name = heapq.heappop(self._heap)
            if self._entries.get(name) != entry:
                continue
            del self._entries[name]
            at = self._times[name]
            if at <= now:
                del self._times[name]
                try:
                    self._due(name)
                except Exception:  # the others are due all the same
                    self._log.failure("what was due of group {name} failed", name=name)
            else:  # it was put off
                self._push(name, at)
        self._wait()
