"""The threads that flush: they take logs from one queue, and report to the reactor together.

A thread that has flushed puts the outcome into a list, and wakes the reactor unless a wake-up is on
its way: one report has all that ended until the reactor came to it.
"""

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias

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
        self._due: SimpleQueue[FlushState | None] = SimpleQueue()  # None ends a thread
        self._outcomes: list[FlushOutcome] = []
        self._is_woken = False
        self._unreported = 0
        self._threads: list[Thread] = []
        self._ending: list[Thread] = []

    @property
    def waiting(self) -> int:
        return self._due.qsize()

    @property
    def busy(self) -> int:
        return max(self._unreported - len(self._outcomes) - self.waiting, 0)

    def submit(self, state: FlushState) -> None:
        self._unreported += 1
        if self._unreported > len(self._threads) < self.count:
            self._add_thread()
        self._due.put(state)

    def use(self, count: int) -> None:
        self.count = count
        while len(self._threads) > count:
            self._ending.append(self._threads.pop())
            self._due.put(None)

    def stop(self, waits: bool = True) -> None:
        """End the threads, with what they were given; nothing is reported any more."""
        self.use(0)
        for thread in self._ending if waits else ():
            thread.join()
        self._ending.clear()
        self._bell.close()

    def _add_thread(self) -> None:
        name = f"hermes-flush-{len(self._threads)}"
        thread = Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (state := self._due.get()) is not None:
            try:
                self._outcomes.append((state, state.log.flush(), None))
            except BaseException as error:  # it is told to who waits
                self._outcomes.append((state, None, error))
            del state  # which would keep a deleted log until the next one comes
            # Put there first and asked then, it is in the report that the wake-up brings: that
            # forgets the wake-up first, and takes the outcomes then.
            if not self._is_woken:
                self._is_woken = True
                self._bell.ring()

    def _report(self) -> None:
        self._is_woken = False
        count = len(self._outcomes)
        outcomes = self._outcomes[:count]
        del self._outcomes[:count]
        self._unreported -= count
        self.report(outcomes)
