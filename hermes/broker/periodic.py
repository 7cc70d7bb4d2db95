"""Periodic calls, on whatever clock the service runs."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from hermes.logs import ModuleLogger


class PeriodicTask:
    """Calls a function periodically; each pause begins when the call before has finished.

    Twisted's `LoopingCall` would import the global reactor, which an embedded broker, with a
    reactor of its own, must not. A call that fails is logged, and the next one comes all the same.
    `interval` and `first` are in seconds; `function` may return a Deferred.
    """

    _log = ModuleLogger()

    def __init__(
        self, clock: IReactorTime, function: Callable[[], Any], interval: float, first: float
    ) -> None:
        self._clock = clock
        self._function = function
        self._interval = interval
        self._stopped = False
        self._call = clock.callLater(first, self._run)

    def stop(self) -> None:
        """Don't call again; a call that runs is not interrupted."""
        self._stopped = True
        if self._call.active():
            self._call.cancel()

    def _run(self) -> None:
        maybeDeferred(self._function).addErrback(self._failed).addCallback(self._again)

    def _failed(self, failure: Failure) -> None:
        self._log.failure("a periodic task failed; it will be retried", failure)

    def _again(self, _: Any) -> None:
        if not self._stopped:
            self._call = self._clock.callLater(self._interval, self._run)
