"""How long a stop waits: for clients a fixed time, for a disk as long as it makes progress."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from hermes.logs import ModuleLogger


class _ShutdownWait:
    """One wait: for what ends it, or for a timer."""

    def __init__(self) -> None:
        self.over: Deferred[bool] = Deferred()  # whether what was awaited has ended
        self.timer: IDelayedCall | None = None

    def end(self, has_ended: bool) -> None:
        if not self.over.called:
            if self.timer is not None and self.timer.active():
                self.timer.cancel()
            self.over.callback(has_ended)


class ShutdownWaits:
    """The waits of one stop, one after the other. Lives in the reactor's thread.

    `is_exhausted`: whether worker threads were given up on.
    """

    _log = ModuleLogger()

    def __init__(self, clock: IReactorTime) -> None:
        self.is_exhausted = False
        self._clock = clock
        self._disk_seconds = 0.0
        self._ends = clock.seconds()
        self._for_client = _ShutdownWait()

    def begin(self, client_seconds: float, disk_seconds: float) -> None:
        """The stop begins now.

        `client_seconds` is for clients and ZooKeeper together, from now on; `disk_seconds` for a
        disk that makes no progress.
        """
        self._ends = self._clock.seconds() + client_seconds
        self._disk_seconds = disk_seconds

    def hurry(self) -> None:
        self._ends = self._clock.seconds()
        self._for_client.end(False)

    def for_clients(self, awaited: "Deferred[Any]") -> "Deferred[bool]":
        """Wait for others; whether it ended in time. A failure is logged, and an end."""
        wait = self._for_client = _ShutdownWait()
        left = max(self._ends - self._clock.seconds(), 0)
        wait.timer = self._clock.callLater(left, wait.end, False)
        self._end_with(awaited, wait)
        return wait.over

    def for_disk(
        self, awaited: "Deferred[Any]", progress: Callable[[], object]
    ) -> "Deferred[bool]":
        """Wait for worker threads; False: they make no progress. A failure as in `for_clients`.

        `progress` gives a value that changes as long as they make some.
        """
        wait = _ShutdownWait()

        def check(before: object) -> None:
            now = progress()
            if now == before:
                self.is_exhausted = True
                wait.end(False)
            else:
                wait.timer = self._clock.callLater(self._disk_seconds, check, now)

        wait.timer = self._clock.callLater(self._disk_seconds, check, progress())
        self._end_with(awaited, wait)
        return wait.over

    def _end_with(self, awaited: "Deferred[Any]", wait: _ShutdownWait) -> None:
        def ended(result: Any) -> Any:
            if isinstance(result, Failure):
                self._log.failure("a part of the broker stopped with an error", result)
                result = None
            wait.end(True)
            return result

        awaited.addBoth(ended)
