"""Who may become a partition's leader, and when. Wrong suspicion costs a change, never a message.

What makes it safe is elsewhere: only an in-sync replica can, in an epoch of its own, by a change
that fails when another was quicker. So no rule here needs to be certain that a leader is dead.
"""

from collections.abc import Mapping

from hermes.protocol import NOBODY
from hermes.replication.state import PartitionState

#: Between one in-sync replica's turn and the next one's, so that as a rule only one tries.
TURN_SECONDS = 0.15

#: Within which two refused connections are of a process that is gone, and not of one restarting.
REFUSALS_SECONDS = 0.3


class Refusals:
    """Whose address refuses connections: a process that was killed. A timeout says nothing."""

    def __init__(self) -> None:
        self._refused: dict[int, list[float]] = {}

    def refused(self, broker_id: int, now: float) -> None:
        self._refused[broker_id] = [*self._refused.get(broker_id, ())[-1:], now]

    def answered(self, broker_id: int) -> None:
        self._refused.pop(broker_id, None)

    def is_gone(self, broker_id: int, since: float) -> bool:
        """Whether it refuses, and did nothing from `since` on that shows that it lives."""
        times = self._refused.get(broker_id, ())
        return len(times) == 2 and since <= times[0] and times[1] - times[0] <= REFUSALS_SECONDS


class Electing:
    """When a replica's turn to lead has come."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._seen = (NOBODY, -1)
        self._seen_at = 0.0
        self._since: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether its turn comes as time goes by."""
        return self._since is not None

    def due_at(
        self, state: PartitionState, lives: Mapping[int, int], refusals: Refusals, now: float
    ) -> float | None:
        """When this replica is to make itself leader; None while it isn't to.

        `lives`: the sessions of the brokers that are registered, this one's among them.
        """
        if self._seen != (state.leader, state.epoch):
            # Who has begun an epoch lives: two that suspect each other would go on for ever.
            self._seen, self._seen_at, self._since = (state.leader, state.epoch), now, None
        if not self._may_lead(state, lives, refusals):
            self._since = None
            return None
        if self._since is None:
            self._since = now
        live = [each for each in state.replicas if each in state.isr and each in lives]
        candidates = [each for each in live if each != state.leader]
        return self._since + TURN_SECONDS * candidates.index(self._broker_id)

    def _may_lead(
        self, state: PartitionState, lives: Mapping[int, int], refusals: Refusals
    ) -> bool:
        if not self._is_in_sync(state) or self._broker_id not in lives:
            return False
        if state.leader in (NOBODY, self._broker_id):
            return state.leader == NOBODY
        return state.leader not in lives or refusals.is_gone(state.leader, self._seen_at)

    def _is_in_sync(self, state: PartitionState) -> bool:
        return self._broker_id in state.isr
