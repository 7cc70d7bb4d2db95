"""Changes of partitions' states, each until its outcome is certain; one transaction at a time.

What comes while one is being written goes together into the next: a broker that dies has thousands
of partitions changed. A change whose answer is lost may have been made or not, until coordination
was read again; while that is out of reach, it is asked again and again.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from twisted.internet.defer import Deferred

from hermes.coordination.replicas import ReplicaTree, StateChange
from hermes.errors import CoordinationError, InvalidNodeError
from hermes.replication.replica import Change
from hermes.replication.state import PartitionState, TopicReplicas

#: The pause before coordination is asked again.
_RETRY_SECONDS: Final = 0.2

#: How many changes are handed over at once, of which as many are written as fit.
_MOST_AT_ONCE: Final = 200


class Changed(Protocol):
    """Whose state is changed."""

    topic: str
    topic_id: UUID
    number: int

    @property
    def known(self) -> tuple[PartitionState | None, int]:
        """The state that was read last, and the version of the node that has it."""

    def change_ended(
        self, state: PartitionState | None, version: int, *, is_done: bool
    ) -> None: ...


class _Outcome(NamedTuple):
    state: PartitionState | None
    version: int
    is_done: bool


class _Asked(NamedTuple):
    copy: Changed
    change: Change

    @property
    def is_wanted(self) -> bool:
        """Whether the state wasn't read to be another one, while this waited."""
        return self.change.of is None or self.copy.known[0] in (None, self.change.of)


class Changes:
    """Lives in the reactor's thread.

    Args:
        tree: coordination's; raises CoordinationUnavailableError before it was reached.
        in_thread: calls a function in a worker thread and returns its Deferred.
        clock: the reactor.
    """

    def __init__(
        self,
        tree: Callable[[], ReplicaTree],
        in_thread: "Callable[..., Deferred[Any]]",
        clock: Any,
    ) -> None:
        self._tree = tree
        self._in_thread = in_thread
        self._clock = clock
        self._waiting: deque[_Asked] = deque()
        self._unknown: list[_Asked] = []  # whose outcomes are
        self._is_busy = self._is_stopped = False

    def change(self, copy: Changed, change: Change) -> None:
        self._waiting.append(_Asked(copy, change))
        self._go_on()

    def stop(self) -> None:
        """Begin no further one."""
        self._is_stopped = True
        self._waiting.clear()

    def _go_on(self) -> None:
        if self._is_busy or self._is_stopped:
            return
        some: list[_Asked] = []
        outdated: list[_Asked] = []
        while self._waiting and len(some) < _MOST_AT_ONCE:
            asked = self._waiting.popleft()
            (some if asked.is_wanted else outdated).append(asked)
        if some:
            self._is_busy = True
            self._in_thread(self._write, some).addCallback(self._written, some)
        for copy, _ in outdated:
            copy.change_ended(*copy.known, is_done=False)

    def _written(self, outcomes: Sequence[_Outcome | None], some: Sequence[_Asked]) -> None:
        self._is_busy = False
        if not self._is_stopped:
            self._waiting.extendleft(reversed(some[len(outcomes) :]))
        self._ended(outcomes, some)
        self._go_on()

    def _ended(self, outcomes: Sequence[_Outcome | None], some: Sequence[_Asked]) -> None:
        for asked, outcome in zip(some, outcomes, strict=False):
            if outcome is not None:
                asked.copy.change_ended(outcome.state, outcome.version, is_done=outcome.is_done)
                continue
            if not self._unknown and not self._is_stopped:
                self._clock.callLater(_RETRY_SECONDS, self._look)
            self._unknown.append(asked)

    def _look(self) -> None:
        unknown, self._unknown = self._unknown, []
        if not self._is_stopped:
            self._in_thread(self._read, unknown).addCallback(self._ended, unknown)

    # -- in a thread ------------------------------------------------------------------------------

    def _write(self, some: Sequence[_Asked]) -> list[_Outcome | None]:
        """Of the first ones, as many as fit into a transaction, the outcomes; None: unknown."""
        try:
            wanted = [StateChange(copy.topic, copy.number, each.make) for copy, each in some]
            done = self._tree().change_some(wanted)
        except CoordinationError:
            return self._read(some)
        wrong = [
            each for each, after in zip(some, done, strict=False) if isinstance(after, Exception)
        ]
        read = iter(self._read(wrong))
        return [
            next(read) if isinstance(each, Exception) else _Outcome(*each, True) for each in done
        ]

    def _read(self, some: Sequence[_Asked]) -> list[_Outcome | None]:
        """What stands there now; None where it can't be read."""
        try:
            topics = list(dict.fromkeys(copy.topic for copy, _ in some))
            nodes = self._tree().read_all_certainly(topics) if topics else {}
        except CoordinationError:
            return [None] * len(some)
        return [_outcome_of(copy, nodes[copy.topic]) for copy, _ in some]


def _outcome_of(copy: Changed, node: TopicReplicas | InvalidNodeError | None) -> _Outcome | None:
    if isinstance(node, InvalidNodeError):
        return None
    if node is None or node.id != copy.topic_id:
        return _Outcome(None, -1, False)
    return _Outcome(node.state_of(copy.number), node.version, False)
