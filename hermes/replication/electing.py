"""Who may become a partition's leader, and when. Wrong suspicion costs a change, never a message.

What makes it safe is elsewhere: only an in-sync replica can, in an epoch of its own, by a change
that fails when another was quicker. So no rule here needs to be certain that a leader is dead.
"""

from collections.abc import Mapping

from hermes.replication.state import NOBODY, PartitionState

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

    def is_gone(self, broker_id: int) -> bool:
        times = self._refused.get(broker_id, ())
        return len(times) == 2 and times[1] - times[0] <= REFUSALS_SECONDS


class Electing:
    """When a replica's turn to lead has come."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._since: tuple[int, int, float] | None = None

    def due_at(
        self, state: PartitionState, lives: Mapping[int, int], refusals: Refusals, now: float
    ) -> float | None:
        """When this replica is to make itself leader; None while it isn't to.

        `lives`: the sessions of the brokers that are registered, this one's among them.
        """
        if not self.may_lead(state, lives, refusals):
            self._since = None
            return None
        if self._since is None or self._since[:2] != (state.leader, state.epoch):
            self._since = (state.leader, state.epoch, now)
        live = [each for each in state.replicas if each in state.isr and each in lives]
        candidates = [each for each in live if each != state.leader]
        return self._since[2] + TURN_SECONDS * candidates.index(self._broker_id)

    def may_lead(self, state: PartitionState, lives: Mapping[int, int], refusals: Refusals) -> bool:
        if not self._is_in_sync(state) or self._broker_id not in lives:
            return False
        if state.leader in (NOBODY, self._broker_id):
            return state.leader == NOBODY
        return state.leader not in lives or refusals.is_gone(state.leader)

    def _is_in_sync(self, state: PartitionState) -> bool:
        return self._broker_id in state.isr
