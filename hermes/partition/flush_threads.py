"""The threads that flush: they take logs from one queue, and report to the reactor together.

A thread that has flushed puts the outcome into a list, and wakes the reactor unless a wake-up is on
its way: one report has all that ended until the reactor came to it.

Threads contend for Python's lock, and each that is woken in vain costs several switches. So one
that has flushed counts as idle before it tells so, and the last that became idle is woken first: a
client that waits for each flush has one thread, which is awake or about to sleep.
"""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock, Thread
from typing import Any, TypeAlias

from hermes.errors import StorageError
from hermes.partition.flush_queue import FlushState
from hermes.storage import FlushedEnd

#: What was flushed, up to where, or what its flush raised.
FlushOutcome: TypeAlias = "tuple[FlushState, FlushedEnd | None, BaseException | None]"


class FlushThreads:
    """At most `count` threads, made when they are needed; to be called in the reactor's thread.

    They never keep a process alive: one may hang in a system call. `report` gets the outcomes;
    `bell` makes a `Bell` for what it is given.
    """

    def __init__(self, count: int, bell: Callable[[Callable[[], None]], Any]) -> None:
        self.count = count
        self.report: Callable[[Sequence[FlushOutcome]], None] = lambda outcomes: None
        self._bell = bell(self._report)
        self._due: deque[FlushState | None] = deque()  # None ends a thread
        self._idle: list[Lock] = []  # whoever takes a thread's lock off releases it
        self._outcomes: list[FlushOutcome] = []
        self._threads: list[Thread] = []
        self._ending: list[Thread] = []

    @property
    def waiting(self) -> int:
        return len(self._due)

    def submit(self, state: FlushState | None) -> None:
        self._due.append(state)
        if self._idle:
            try:  # noqa: SIM105 - `suppress` costs more than all of this
                self._idle.pop().release()
            except IndexError:  # it has seen what is due by itself
                pass
        elif len(self._threads) < self.count:
            name = f"hermes-flush-{len(self._threads)}"
            thread = Thread(target=self._work, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no more may be made: those that there are do it
                if not self._threads and state is not None:
                    self._due.pop()
                    self._outcomes.append((state, None, StorageError(f"no thread for it: {error}")))
                    self._bell.ring()
            else:
                self._threads.append(thread)

    def use(self, count: int) -> None:
        self.count = count
        while len(self._threads) > count:
            self._ending.append(self._threads.pop())
            self.submit(None)

    def stop(self, waits: bool = True) -> None:
        """End the threads, with what they were given; nothing is reported any more."""
        self.use(0)
        for thread in self._ending if waits else ():
            thread.join()
        self._ending.clear()
        self._bell.close()

    def _work(self) -> None:
        woken = Lock()
        woken.acquire()
        self._idle.append(woken)
        while (state := self._next(woken)) is not None:
            try:
                outcome: FlushOutcome = state, state.log.flush(), None
            except BaseException as error:  # it is told to who waits
                outcome = state, None, error
            self._idle.append(woken)
            self._outcomes.append(outcome)
            del state, outcome  # which would keep a deleted log until the next one comes
            self._bell.ring()

    def _next(self, woken: Lock) -> FlushState | None:
        """What is due next for a thread that counts as idle, and then doesn't."""
        while True:
            try:
                if self._due:  # perhaps from before it was idle
                    self._idle.remove(woken)
                else:
                    woken.acquire()
            except ValueError:
                woken.acquire()
            try:
                return self._due.popleft()
            except IndexError:  # another one was faster
                self._idle.append(woken)

    def _report(self) -> None:
        count = len(self._outcomes)
        outcomes = self._outcomes[:count]
        del self._outcomes[:count]
        self.report(outcomes)
