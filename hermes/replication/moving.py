"""Moving copies and leadership to other brokers, as the leader carries it out.

A move is done in one change once all that are to get a copy are in sync; until then nothing is
taken from those that have one. Leadership is handed over only to who has all that was appended, and
once that is committed, so that its producers hear of it; or when that was waited for in vain.
"""

from collections.abc import Mapping

from hermes.protocol import NOBODY
from hermes.replication.leading import Leading
from hermes.replication.state import PartitionState, moved

#: For how long a successor is waited for, while nothing new is taken.
HAND_OVER_SECONDS = 1.0


def finished_move(leading: Leading, lives: Mapping[int, int]) -> PartitionState | None:
    """The state after a move, once it can end; None while it can't, or there is none."""
    state = leading.state
    if not (state.adding or state.removing) or not state.adding <= state.isr:
        return None
    target = state.target
    if leading.broker_id in target:
        return moved(state, leading.broker_id)
    # The others' copies go. Of who was in sync before this epoch the disk may have been lost since.
    heirs = [each for each in target if each in state.isr and leading.has_all(each, lives)]
    if not heirs:
        return None
    return moved(state, leading.broker_id, heirs[0], lives[heirs[0]])


def successor(leading: Leading, lives: Mapping[int, int]) -> int:
    """Who is to lead when this leader stops: in sync, registered, with the most; or `NOBODY`."""
    state = leading.state
    heirs = [
        each
        for each in state.replicas
        if each in state.isr and each in lives and each != leading.broker_id
    ]
    followers = leading.followers
    return max(
        heirs, key=lambda each: followers[each].end if each in followers else -1, default=NOBODY
    )


class PreferredLeader:
    """When leadership goes back to the first of the replicas."""

    def __init__(self) -> None:
        self._since: tuple[int, float] | None = None

    def due(self, leading: Leading, lives: Mapping[int, int], now: float) -> int:
        """Who is to lead by now; `NOBODY` for whoever does."""
        state = leading.state
        first = state.target[0] if state.target else NOBODY
        if first == leading.broker_id or first not in state.isr or first not in lives:
            self._since = None
            return NOBODY
        if self._since is None or self._since[0] != lives[first]:
            self._since = lives[first], now
        is_due = now - self._since[1] >= leading.settings.preferred_seconds
        return first if is_due else NOBODY


class HandOver:
    """Giving leadership to a successor: until that has all, the leader takes nothing new.

    Args:
        must: whether the leader goes in any case, as at a stop; else it stays when the successor
            doesn't come up in time.
    """

    def __init__(self, to: int, now: float, *, must: bool) -> None:
        self.to = to
        self._began_at = now
        self._must = must

    def is_due(self, leading: Leading, end: int, now: float) -> bool:
        """Whether it is to be written now; `end`: where the leader's log ends."""
        known = leading.followers.get(self.to)
        has_all = known is not None and known.end >= end
        has_all &= leading.high_watermark >= end or not leading.has_enough
        return has_all or (self._must and self._is_late(now))

    def is_over(self, now: float) -> bool:
        """Whether it has come to nothing, and the leader goes on."""
        return self._is_late(now) and not self._must

    def _is_late(self, now: float) -> bool:
        return now - self._began_at >= HAND_OVER_SECONDS
