"""Private reactors: only the composition root imports Twisted's global one."""

import threading
from contextlib import suppress
from typing import Any


def make_reactor() -> Any:
    """A new reactor; call `release_reactor` when it has ended."""
    try:
        from twisted.internet.epollreactor import EPollReactor
    except ImportError:
        from twisted.internet.selectreactor import SelectReactor

        reactor: Any = SelectReactor()
    else:
        reactor = EPollReactor()  # type: ignore[no-untyped-call]
    reactor.wakeUp = _WakeUp(reactor.waker)
    return reactor


def release_reactor(reactor: Any) -> None:
    """Close what a reactor holds. Twisted doesn't, as its global reactor lives until the exit.

    Any thread may call `callFromThread` meanwhile, and afterwards: it has no effect then.
    """
    waker = reactor.waker
    with suppress(Exception):
        reactor._internalReaders.discard(waker)
        reactor.removeReader(waker)
    reactor.wakeUp.release()
    poller = getattr(reactor, "_poller", None)
    if poller is not None:
        poller.close()


class _WakeUp:
    """A reactor's `wakeUp`, until the reactor is released.

    Twisted's waker writes to a pipe's descriptor from whatever thread wakes the reactor. A thread
    that is held up right before the write may come when the reactor has ended: the descriptor is
    closed by then, or somebody else's file. So the pipe is closed by whoever uses it last.
    """

    def __init__(self, waker: Any) -> None:
        self._waker = waker
        # Reentrant: a signal's handler may want to wake the reactor while its thread is doing so.
        self._lock = threading.RLock()
        self._users = 1  # the reactor

    def __call__(self) -> None:
        with self._lock:
            if not self._users:
                return
            self._users += 1
        try:
            self._waker.wakeUp()
        finally:
            self.release()

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            is_last = not self._users
        if is_last:
            self._waker.connectionLost(None)
