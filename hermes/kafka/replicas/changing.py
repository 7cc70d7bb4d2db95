"""Changes of partitions' states, one after the other, each until its outcome is certain.

A change whose answer is lost may have been made or not, until coordination was read again; while
that is out of reach, it is asked again and again.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from twisted.internet.defer import Deferred

from hermes.coordination.replicas import ReplicaTree
from hermes.errors import CoordinationError, WrongStateError
from hermes.replication.replica import Change
from hermes.replication.state import PartitionState

#: The pause before coordination is asked again.
_RETRY_SECONDS: Final = 0.2


class Changed(Protocol):
    """Whose state is changed."""

    topic: str
    topic_id: UUID
    number: int

    def change_ended(
        self, state: PartitionState | None, version: int, *, is_done: bool
    ) -> None: ...


class _Outcome(NamedTuple):
    state: PartitionState | None
    version: int
    is_done: bool


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
        self._waiting: deque[tuple[Changed, Change]] = deque()
        self._is_busy = self._is_stopped = False

    def change(self, copy: Changed, change: Change) -> None:
        self._waiting.append((copy, change))
        self._go_on()

    def stop(self) -> None:
        """Begin no further one."""
        self._is_stopped = True
        self._waiting.clear()

    def _go_on(self) -> None:
        if self._waiting and not self._is_busy and not self._is_stopped:
            self._is_busy = True
            copy, change = self._waiting.popleft()
            self._try(self._write, copy, change)

    def _try(self, step: Callable[..., _Outcome | None], copy: Changed, change: Change) -> None:
        self._in_thread(step, copy, change).addCallback(self._tried, copy, change)

    def _tried(self, outcome: _Outcome | None, copy: Changed, change: Change) -> None:
        if outcome is None:
            if not self._is_stopped:
                self._clock.callLater(_RETRY_SECONDS, self._try, self._read, copy, change)
            return
        self._is_busy = False
        copy.change_ended(outcome.state, outcome.version, is_done=outcome.is_done)
        self._go_on()

    # -- in a thread ------------------------------------------------------------------------------

    def _write(self, copy: Changed, change: Change) -> _Outcome | None:
        try:
            state, version = self._tree().change(copy.topic, copy.number, change.make)
        except (WrongStateError, CoordinationError):
            return self._read(copy, change)
        return _Outcome(state, version, True)

    def _read(self, copy: Changed, change: Change) -> _Outcome | None:
        """What stands there now; None while coordination can't be asked."""
        try:
            node = self._tree().read_certainly(copy.topic)
        except CoordinationError:
            return None
        if node is None or node.id != copy.topic_id:
            return _Outcome(None, -1, False)
        return _Outcome(node.state_of(copy.number), node.version, False)
