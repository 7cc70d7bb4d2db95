"""In which order logs are flushed when more of them are due than threads can take.

What a small request waits for must not queue behind thousands of topics that are only due. So there
are two queues: that, and everything else (due by policy, or part of a request of very many logs),
which gets every fourth place, so that neither can hold up the other.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hermes.errors import StorageError
from hermes.storage import Log

#: While both queues wait, one place in so many is for what nobody in particular waits for.
_PLACES = 4

#: Who waits until a log is committed up to an offset, or only flushed; told None, or why it won't
#: be.
FlushWaiter: TypeAlias = tuple[int, Callable[[StorageError | None], None], bool]


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """Flush when so many messages are unflushed, or the oldest of them is this old."""

    messages: int
    interval_ms: int


@dataclass(slots=True, eq=False)
class FlushState:
    """What the scheduler knows of one log.

    Attributes:
        running: whether its flush has begun, or is in a queue.
        queue: the queue that it is in, or that its flush came from.
        urgent: whether a small request waits for it.
        again: whether something was appended since its flush began.
        oldest: when the first append was made that no flush has begun to cover.
        covered: the same of the flush that runs, which was due at `last_start`.
        waiting: who waits, in the order of the offsets.
        uncommitted: for whom it is flushed, and not committed.
        over: why nobody needs to wait for a commit: this broker has led it, and does no more.
    """

    log: Log
    policy: FlushPolicy
    running: bool = False
    queue: "FlushQueue | None" = None
    queued: bool = False
    urgent: bool = False
    again: bool = False
    oldest: float = 0.0
    covered: float = 0.0
    last_start: float = float("-inf")
    timer: Any = None
    timer_due: float = 0.0
    waiting: list[FlushWaiter] = field(default_factory=list)
    uncommitted: list[FlushWaiter] = field(default_factory=list)
    over: StorageError | None = None

    def ready(self, flushed_end: int, mark: int) -> list[FlushWaiter]:
        """Take out who need not wait any longer."""
        flushed = [waiter for waiter in self.waiting if waiter[0] <= flushed_end]
        self.waiting = [waiter for waiter in self.waiting if waiter[0] > flushed_end]
        self.uncommitted += [each for each in flushed if not each[2] and each[0] > mark]
        return [waiter for waiter in flushed if waiter[2] or waiter[0] <= mark]

    def cancel_timer(self) -> None:
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()


class FlushQueue:
    """Logs that wait for their flush; `most` are flushed at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.running = 0
        # In the order in which they came. No log is in twice, so that one which goes before others,
        # or to another queue, leaves nothing behind here.
        self.urgent: OrderedDict[FlushState, None] = OrderedDict()
        self.others: OrderedDict[FlushState, None] = OrderedDict()
        self._place = 0

    def __len__(self) -> int:
        return len(self.urgent) + len(self.others)

    def add(self, state: FlushState) -> bool:
        """Whether it may be flushed now; otherwise it waits."""
        state.queue = self
        if self.running < self.most and not self.urgent and not self.others:
            self.running += 1
            return True
        state.queued = True
        (self.urgent if state.urgent else self.others)[state] = None
        return False

    def promote(self, state: FlushState) -> None:
        """A small request waits for a log that is in, and has not been urgent."""
        state.urgent = True
        del self.others[state]
        self.urgent[state] = None

    def take(self) -> FlushState | None:
        """What is to be flushed next; None when nothing is, or enough are."""
        first, second = self.urgent, self.others
        if not (first or second) or self.running >= self.most:
            return None
        self._place = (self._place + 1) % _PLACES
        if not self._place:
            first, second = second, first
        state, _ = (first or second).popitem(last=False)
        state.queued = False
        self.running += 1
        return state
