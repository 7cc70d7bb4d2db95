"""What is to come of one broker's copies: nothing any more after a stop."""

from collections.abc import Callable
from typing import Any


class Timers:
    """Lives in the reactor's thread; `clock`: the reactor."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._once: dict[Callable[[], object], Any] = {}
        self.is_stopped = False

    def now(self) -> float:
        return float(self._clock.seconds())

    def later(self, seconds: float, function: Callable[..., object], *args: Any) -> None:
        if not self.is_stopped:
            self._clock.callLater(seconds, self._unless_stopped, function, *args)

    def _unless_stopped(self, function: Callable[..., object], *args: Any) -> None:
        if not self.is_stopped:
            function(*args)

    def once(self, seconds: float, function: Callable[[], object]) -> None:
        """Call a function after a while; not again while that is to come."""
        if function not in self._once and not self.is_stopped:
            self._once[function] = self._clock.callLater(seconds, self._due, function)

    def _due(self, function: Callable[[], object]) -> None:
        del self._once[function]
        function()

    def stop(self) -> None:
        self.is_stopped = True
        for timer in self._once.values():
            timer.cancel()
        self._once.clear()
