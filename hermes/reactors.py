"""Private reactors, what all reactors are spared, and how threads ring a reactor's bell.

Only the composition root imports Twisted's global reactor.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import FileIO
from queue import SimpleQueue
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.threads import deferToThreadPool
from twisted.python import log
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool
from zope.interface import implementer

#: The longest that epoll can wait.
_LONGEST_SECONDS = 2**31 // 1000

_Then: TypeAlias = Callable[[Any], object]
_OwnCall: TypeAlias = tuple[_Then, Callable[..., Any], tuple[Any, ...]]


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
    lighten(reactor)
    return reactor


def lighten(reactor: Any) -> None:
    """Spare an epoll reactor what Twisted calls for each turn and each event to no effect here.

    That is nine Python calls for a log context that nobody reads, and six for what is due by time
    where nothing is.
    """
    if all(hasattr(reactor, name) for name in _PRIVATE):
        reactor.doIteration = partial(_serve_events, reactor)
        reactor.mainLoop = partial(_loop, reactor)


#: What is used of the reactor below. Without it Twisted has changed, and its own way remains.
_PRIVATE = (
    *("_poller", "_selectables", "_doReadOrWrite", "_disconnectSelectable", "_POLL_IN"),
    *("_started", "_justStopped"),
    *("_newTimedCalls", "_pendingTimedCalls", "threadCallQueue"),
)


def _loop(reactor: Any) -> None:
    while reactor._started:
        try:
            _take_turns(reactor)
        except BaseException:  # as Twisted does
            log.err()  # type: ignore[no-untyped-call]
    type(reactor).mainLoop(reactor)  # which ends at once, and logs that


def _take_turns(reactor: Any) -> None:
    seconds = reactor.seconds
    while reactor._started:
        due, now = reactor._pendingTimedCalls, seconds()
        if (
            reactor._newTimedCalls
            or reactor.threadCallQueue
            or (due and due[0].time <= now)
            or reactor._justStopped
        ):
            reactor.runUntilCurrent()
            timeout = reactor.timeout()
        elif due:
            timeout = due[0].time - now
            if timeout > _LONGEST_SECONDS:
                timeout = _LONGEST_SECONDS
        else:
            timeout = None
        _serve_events(reactor, reactor.running and timeout)


def _serve_events(reactor: Any, timeout: float | None) -> None:
    try:
        events = reactor._poller.poll(timeout, len(reactor._selectables))
    except InterruptedError:
        return
    selectables, reading = reactor._selectables, reactor._POLL_IN
    for descriptor, event in events:
        selectable = selectables.get(descriptor)
        if selectable is None:  # somebody closed it meanwhile
            continue
        try:
            if event != reading:
                reactor._doReadOrWrite(selectable, descriptor, event)
                continue
            try:
                why = selectable.doRead()
            except BaseException as error:  # as Twisted does
                why = error
                log.err()  # type: ignore[no-untyped-call]
            if why:
                reactor._disconnectSelectable(selectable, why, True)
        except Exception:
            log.err()  # type: ignore[no-untyped-call]


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


class WorkerThreads(ThreadPool):
    """Worker threads that never keep a process alive: one may hang in a system call."""

    # Since Python 3.14 a bare partial would be called as a method.
    threadFactory = staticmethod(partial(threading.Thread, daemon=True))  # type: ignore[assignment]

    def stop(self) -> None:
        """End them, but for those that could not be made: Twisted would wait for these, too."""
        self.threads = [each for each in self.threads if each.ident is not None]
        super().stop()


def caller_in(reactor: Any, pool: Any) -> "Callable[..., Deferred[Any]]":
    """Make what calls a function in a pool's threads, and has a reactor told what becomes of it.

    Where no more threads may be made, the call fails as if the function had.
    """
    return partial(maybeDeferred, deferToThreadPool, reactor, pool)


@implementer(IReadDescriptor)
class Bell:
    """Has one function called in a reactor's thread when any thread rings, at next to no cost.

    Rings are one call until the reactor comes to it: what was put somewhere before a ring is there
    in that call. To ring a closed one has no effect.
    """

    def __init__(self, reactor: Any, call: Callable[[], None]) -> None:
        self._reactor = reactor
        self._call = call
        self._is_rung = False
        self._lock = threading.Lock()  # else a thread could write to what is somebody else's file
        reader, self._writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(self._writer, False)
        self._reader = FileIO(reader)
        # Twisted calls both for each event: functions in C cost the least.
        self.fileno, self.logPrefix = self._reader.fileno, "-".strip
        reactor.addReader(self)

    def ring(self) -> None:
        if self._is_rung:
            return
        self._is_rung = True
        with self._lock:
            if self._writer >= 0:
                os.write(self._writer, b"!")

    def close(self) -> None:
        with self._lock:
            if self._writer >= 0:
                self._reactor.removeReader(self)
                os.close(self._writer)
                self._reader.close()
                self._writer = -1

    def doRead(self) -> None:
        self._reader.read(64)
        self._is_rung = False  # and only then the call: who comes from now on rings again
        self._call()

    def connectionLost(self, reason: Any) -> None:
        """The reactor lets go of it."""


class OwnThread:
    """A thread of one user's, for calls that follow each other; made when it is first needed.

    A call costs a fraction of what one in a thread of Twisted's pools does. The thread never keeps
    a process alive: it may hang in a system call.
    """

    def __init__(self, reactor: Any, name: str) -> None:
        self._reactor = reactor
        self._name = name
        self._bell: Bell | None = None
        self._thread: threading.Thread | None = None
        self._due: SimpleQueue[_OwnCall | None] = SimpleQueue()  # None ends it
        self._ended: deque[tuple[_Then, Any]] = deque()
        self._is_stopped = False

    def call(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        """Call a function in the thread; fires in the reactor's, and not once this is stopped."""
        result: Deferred[Any] = Deferred()
        self.call_then(result.callback, function, *args)
        return result

    def call_then(self, then: _Then, function: Callable[..., Any], *args: Any) -> None:
        """The same, at less cost: `then` is called with the result, or a Failure."""
        if self._thread is None and not self._is_stopped:
            self._bell = self._bell or Bell(self._reactor, self._report)
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            thread.start()  # raises where no more threads may be made
            self._thread = thread
        self._due.put((then, function, args))

    def stop(self, waits: bool = True) -> None:
        """End the thread, with what it was given; nothing fires any more."""
        self._is_stopped = True
        self._due.put(None)
        if self._thread is not None and waits:
            self._thread.join()
        if self._bell is not None:
            self._bell.close()

    def _work(self) -> None:
        assert self._bell is not None
        while (due := self._due.get()) is not None:
            then, function, args = due
            outcome: Any = None
            try:
                outcome = function(*args)
            except BaseException:
                outcome = Failure()  # type: ignore[no-untyped-call]
            self._ended.append((then, outcome))
            del due, then, function, args, outcome  # none is kept until the next call
            self._bell.ring()

    def _report(self) -> None:
        for _ in range(len(self._ended)):
            then, outcome = self._ended.popleft()
            try:
                then(outcome)
            except Exception:  # else nobody would hear the bell any more
                log.err()  # type: ignore[no-untyped-call]
