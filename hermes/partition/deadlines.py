"""The deadlines of those that wait for something: one timer for all of them.

Lives in the reactor's thread.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from twisted.internet.interfaces import IReactorTime

from hermes.logs import ModuleLogger
from hermes.server.fairness import FairScheduler

#: How late a wait may hear that its time is up, so that many don't set the timer for each of them.
_LATE_SECONDS: Final = 0.01

#: What a sum of times may lack of them.
_ROUNDING_SECONDS: Final = 1e-6

#: So many ways of waiting that nobody waits in any more are kept.
_UNUSED: Final = 64

_NEVER: Final = float("inf")


class Wait(Protocol):
    """One that waits.

    Attributes:
        deadline: when its time is up.
        among: it waits no longer once it has taken itself out of this.
    """

    deadline: float
    among: "dict[Any, None]"

    def late(self) -> None:
        """The time is up."""


class Deadlines:
    """Tells waits that their time is up. The timer may outlive those that it was set for."""

    _log = ModuleLogger()

    def __init__(self, clock: IReactorTime, scheduler: FairScheduler) -> None:
        self.seconds = clock.seconds
        self._clock = clock
        self._scheduler = scheduler
        # By how long they wait; in the order in which they began, which is that of their deadlines.
        self._waits: dict[float, dict[Wait, None]] = {}
        self._most = _UNUSED
        self._timer: Any = None
        self._fires = _NEVER

    def add(self, wait: Wait, timeout_seconds: float) -> None:
        deadline = wait.deadline = self.seconds() + timeout_seconds
        among = self._waits.get(timeout_seconds)
        if among is None:
            among = self._begin(timeout_seconds)
        wait.among = among
        among[wait] = None
        if deadline < self._fires:
            self._set(deadline)

    def stop(self) -> None:
        """Set no timer before the next one waits."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._fires = None, _NEVER

    def _begin(self, timeout_seconds: float) -> dict[Wait, None]:
        if len(self._waits) >= self._most:
            self._waits = {seconds: among for seconds, among in self._waits.items() if among}
            self._most = 2 * len(self._waits) + _UNUSED
        among = self._waits[timeout_seconds] = {}
        return among

    def _set(self, fires: float) -> None:
        self.stop()
        self._fires = fires
        self._timer = self._clock.callLater(max(fires - self.seconds(), 0), self._fired)

    def _fired(self) -> None:
        self._timer, self._fires = None, _NEVER
        now = self.seconds()
        late: list[Wait] = []
        for among in self._waits.values():
            for wait in among:
                if wait.deadline > now + _ROUNDING_SECONDS:
                    break
                late.append(wait)
        for wait in late:
            del wait.among[wait]
        self._scheduler.together(self._tell, late)
        first = min(
            (next(iter(among)).deadline for among in self._waits.values() if among), default=_NEVER
        )
        if first < self._fires:
            self._set(max(first, now + _LATE_SECONDS))

    def _tell(self, late: Sequence[Wait]) -> None:
        for wait in late:
            try:
                wait.late()
            except Exception:
                self._log.failure("telling who waits failed")
