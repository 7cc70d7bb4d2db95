"""Refreshes many values a few at a time, so that no page takes long and no broker works hard."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

_T = TypeVar("_T")

# How long a look at a page spends on looking further; it goes on with the next.
_SECONDS: Final = 0.01


class RollingRefresh(Generic[_T]):
    """The last known value of each of many things. Thread-safe.

    `look`: reads one of them, by name; must not raise. `every_seconds`: how old a value may get.
    """

    def __init__(
        self,
        look: Callable[[str], _T],
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._every = every_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[str, tuple[float, _T]] = {}

    def refresh(
        self, names: Sequence[str], first: Sequence[str] = (), seconds: float = _SECONDS
    ) -> list[tuple[str, _T]]:
        """Refresh a few more values, the oldest first.

        Args:
            first: those about to be shown, refreshed before the others.
            seconds: the time limit for `first`.
        """
        if not self._lock.acquire(blocking=False):  # somebody is looking: what is known will do
            found = self._found
            return [(name, found[name][1]) for name in names if name in found]
        try:
            self._found = found = self._look_further(names, first, seconds)
        finally:
            self._lock.release()
        return [(name, found[name][1]) for name in names if name in found]

    def _look_further(
        self, names: Sequence[str], first: Sequence[str], seconds: float
    ) -> dict[str, tuple[float, _T]]:
        before = self._found
        found = {name: before[name] for name in names if name in before}
        began = self._clock()
        for some, most_seconds in ((first, seconds), (names, _SECONDS)):
            for at, name in sorted(
                (found[name][0] if name in found else -math.inf, name) for name in some
            ):
                now = self._clock()
                if began - at < self._every or now - began >= most_seconds:
                    break
                found[name] = now, self._look(name)
        return found
