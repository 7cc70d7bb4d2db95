"""Fairness: much work is done a quantum at a time, and the reactor serves others in between.

`cooperatively` divides the entries of one request this way, a connection the requests that have
arrived. `FairScheduler` says how large a quantum is and calls those that have more to do, one after
the other: a thousand of them share what one may have.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hermes.logs import ModuleLogger

#: The quantum in bytes: what one connection may send before others are served.
QUANTUM_BYTES = 2 * 1024 * 1024

#: The quantum in entries of one request.
QUANTUM_ENTRIES = 256

#: The quantum in time, where nobody waits. Most entries take microseconds; one that creates a
#: partition's files takes a hundred times that.
QUANTUM_SECONDS = 0.005

#: How long all those that were called because they have more to do may take together; then the
#: reactor looks for new input.
_SHARED_SECONDS = 0.010

#: A further quantum while others wait, and the further quanta of all of them together, however many
#: there are.
_CROWDED_SECONDS = 0.001
_ALL_SECONDS = 0.250

#: The quantum in bytes while others wait.
CROWDED_BYTES = 256 * 1024

#: So many results together take time that others must hear of.
_MANY = 16

#: The smallest quantum in time: one request, or one entry of it.
_LEAST_SECONDS = 0.000_02


class FairScheduler:
    """Shares the reactor among connections and requests; lives in the reactor's thread.

    A round of the reactor serves every connection with new input, which may be a thousand. So the
    more that wait, the shorter the quantum; and once a round has taken long, a quantum is one
    request or one entry of it: those with much to do soon wait too, and those with little are done.
    """

    _log = ModuleLogger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._running = False
        self._used_seconds = 0.0  # since a round was last known to be over
        self._after: dict[Callable[[], None], None] | None = None  # in the order of the first
        self.now = clock.seconds

    @property
    def quantum_seconds(self) -> float:
        others = len(self._waiting)
        if self._running and others:
            return min(_CROWDED_SECONDS, _ALL_SECONDS / others)
        if self._used_seconds >= _SHARED_SECONDS:
            return _LEAST_SECONDS
        return QUANTUM_SECONDS / (1 + others)

    @property
    def quantum_bytes(self) -> int:
        is_crowded = self._waiting or self._used_seconds >= _SHARED_SECONDS  # as below
        return CROWDED_BYTES if is_crowded else QUANTUM_BYTES

    @property
    def is_crowded(self) -> bool:
        """Whether what has much to send should wait for others."""
        return bool(self._waiting) or self._used_seconds >= _SHARED_SECONDS

    def count_used(self, began: float) -> None:
        self._used_seconds += self.now() - began
        if self._used_seconds >= _SHARED_SECONDS:
            self._schedule()  # where this round ends

    def together(self, call: Callable[..., None], *args: Any) -> None:
        """Call what has many results, then each of what `after_this` was given meanwhile once."""
        if self._after is not None:
            call(*args)
            return
        after = self._after = {}
        try:
            call(*args)
        finally:
            self._after = None
            began = self.now()
            for each in after:
                try:
                    each()
                except Exception:
                    self._log.failure("telling who waits failed")
            if len(after) >= _MANY:  # few of them count what they do, where it is much
                self.count_used(began)

    def after_this(self, call: Callable[[], None]) -> None:
        """Call at the end of the call of `together` that is under way; at once without one."""
        if self._after is None:
            call()
        else:
            self._after[call] = None

    def resume_later(self, resume: Callable[[], None]) -> None:
        """Queue `resume` for the next quantum."""
        self._waiting.append(resume)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._run)

    def _run(self) -> None:
        self._scheduled, self._running, self._used_seconds = False, True, 0.0
        ends = self.now() + _SHARED_SECONDS
        try:
            for _ in range(len(self._waiting)):  # those that wait again do so for the next run
                self._waiting.popleft()()
                if self.now() >= ends:
                    break
        finally:
            self._running, self._used_seconds = False, 0.0
            if self._waiting:
                self._schedule()


_Item = TypeVar("_Item")


def in_slices(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    """Cut what is done so quickly that only every `QUANTUM_ENTRIES` of it are worth a turn."""
    return [items[n : n + QUANTUM_ENTRIES] for n in range(0, len(items), QUANTUM_ENTRIES)]


def cooperatively(
    scheduler: FairScheduler,
    items: Sequence[Any],
    serve: Callable[[Any], Any],
    discard: Callable[[Any], None] = lambda result: None,
) -> "list[Any] | Deferred[list[Any]]":
    """Serve the entries of a request in order, a quantum at a time.

    Returns the results, or a cancellable Deferred of them when they take more than one quantum.
    What `serve` raises ends the request; `discard` then gets each result so far.
    """
    parts = _Cooperation(scheduler, items, serve, discard)
    return parts.results if parts.serve_some() else parts.finished()


class _Cooperation:
    def __init__(
        self,
        scheduler: FairScheduler,
        items: Sequence[Any],
        serve: Callable[[Any], Any],
        discard: Callable[[Any], None],
    ) -> None:
        self.results: list[Any] = []
        self._scheduler = scheduler
        self._ended = False
        self._items = items
        self._serve = serve
        self._discard = discard

    def serve_some(self) -> bool:
        """Serve for one quantum; whether that was all."""
        results, items = self.results, self._items
        now = self._scheduler.now
        last = min(len(items), len(results) + QUANTUM_ENTRIES)
        ends = now() + self._scheduler.quantum_seconds
        try:
            while len(results) < last:
                results.append(self._serve(items[len(results)]))
                if now() >= ends:
                    break
        except BaseException:
            self._discard_all()
            raise
        return len(results) == len(items)

    def finished(self) -> "Deferred[list[Any]]":
        self._finished: Deferred[list[Any]] = Deferred(self._cancelled)
        self._scheduler.resume_later(self._resume)
        return self._finished

    def _resume(self) -> None:
        if self._ended:
            return
        try:
            if not self.serve_some():
                self._scheduler.resume_later(self._resume)
                return
        except Exception:
            self._finished.errback()
            return
        self._finished.callback(self.results)

    def _cancelled(self, _: object) -> None:
        self._ended = True
        self._discard_all()

    def _discard_all(self) -> None:
        for result in self.results:
            self._discard(result)
        self.results = []
