"""Leading a partition for one epoch: what each follower has, and what is committed by that.

All of it is of one epoch, and gone with it: nothing that an earlier leader counted, or this broker
in an earlier epoch, says what a copy has now.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from hermes.protocol.kafka_errors import Code
from hermes.replication.messages import (
    Diverging,
    LogEnds,
    LogEpochs,
    Records,
    Refused,
    ReplicaFetch,
    StartsLater,
)
from hermes.replication.state import PartitionState, expanded, shrunk


class LeaderSettings(NamedTuple):
    """How a partition is led.

    Attributes:
        min_insync: how many in-sync replicas there must be, the leader one of them, for anything to
            be committed; at most all are asked for.
        lag_seconds: for how long a follower may lack something before it isn't in sync.
        trust_seconds: for how long a follower that answered to something as a follower shows that
            nobody else leads.
        preferred_seconds: for how long the first of the replicas has been in sync before leadership
            goes back to it.
    """

    min_insync: int = 1
    lag_seconds: float = 10.0
    trust_seconds: float = 4.0
    preferred_seconds: float = 60.0


@dataclass(slots=True)
class Progress:
    """What a follower has, of one life.

    Attributes:
        end: up to where its log is on its disk, the same as the leader's.
        fetched_at: when it last said so.
        caught_up_at: when it last had all that the leader had.
        leader_end: where the leader's log ended at its last fetch.
        follows_since: it followed this leader at that time, or later, for certain.
        earliest: its log's first offset, when it last fetched.
    """

    life: int
    end: int
    fetched_at: float
    caught_up_at: float
    leader_end: int
    follows_since: float = -inf
    earliest: int = 0


class Leading:
    """One epoch of a partition's leader.

    Args:
        broker_id: the leader's.
        start: where its log ended when the epoch began.
        high_watermark: what it knew to be committed then.

    Attributes:
        state: what is known to stand in coordination; what was proposed may stand there instead.
        followers: what each has that has fetched in this epoch.
        high_watermark: what is committed; it never goes back.
        began_at: when this broker began to lead.
    """

    def __init__(
        self,
        broker_id: int,
        state: PartitionState,
        start: int,
        high_watermark: int,
        settings: LeaderSettings,
        now: float,
    ) -> None:
        self.broker_id = broker_id
        self.state = state
        self.epoch = state.epoch
        self.start = start
        self.high_watermark = high_watermark
        self.settings = settings
        self.followers: dict[int, Progress] = {}
        self.began_at = now
        self._proposed: frozenset[int] | None = None

    # -- fetches ----------------------------------------------------------------------------------

    def judge(
        self, fetch: ReplicaFetch, life: int | None, ends: LogEnds, epochs: LogEpochs
    ) -> Refused | Diverging | StartsLater | None:
        """Say what keeps a follower from getting what comes next; None: nothing.

        `life`: of the follower's registration; None without one.
        """
        refusal = self._refusal_of(fetch, life)
        if refusal is not None:
            return Refused(refusal)
        is_same = fetch.last_epoch in (-1, epochs.epoch_before(fetch.offset))
        # Of what was before its start it can't tell whether it is the same: none of it is wanted.
        if fetch.offset < ends.start or (fetch.offset == ends.start and not is_same):
            return StartsLater(ends.start)
        if fetch.offset <= ends.end and is_same:
            return None
        return Diverging(*epochs.end_of_epoch(fetch.last_epoch), ends.start)

    def _refusal_of(self, fetch: ReplicaFetch, life: int | None) -> Code | None:
        if fetch.epoch != self.epoch:
            is_old = fetch.epoch < self.epoch
            return Code.FENCED_LEADER_EPOCH if is_old else Code.UNKNOWN_LEADER_EPOCH
        if fetch.broker_id not in self.state.replicas:
            return Code.NOT_LEADER_OR_FOLLOWER
        return None if fetch.life == life else Code.STALE_BROKER_EPOCH

    def fetched(self, fetch: ReplicaFetch, end: int, now: float, answered_at: float = -inf) -> None:
        """Count what a follower has: it may fetch, and it asks for what comes after that.

        Args:
            end: where the leader's log ends.
            answered_at: when the fetch before it was answered, in this epoch and on the same
                connection: this one was sent after that.
        """
        known = self.followers.get(fetch.broker_id)
        if known is None or known.life != fetch.life:
            known = Progress(fetch.life, fetch.offset, now, self.began_at, end)
            self.followers[fetch.broker_id] = known
        if fetch.offset >= end:
            known.caught_up_at = now
        elif fetch.offset >= known.leader_end:
            known.caught_up_at = max(known.caught_up_at, known.fetched_at)
        known.end, known.earliest = max(known.end, fetch.offset), fetch.earliest
        known.fetched_at, known.leader_end = now, end
        known.follows_since = max(known.follows_since, answered_at)

    def heard_at(self, follower: int) -> float:
        """When a follower last fetched in this epoch; else when that began."""
        known = self.followers.get(follower)
        return self.began_at if known is None else known.fetched_at

    def records(self, start: int) -> Records:
        """What is said beside the batches; `start`: the log's."""
        return Records(self.high_watermark, start)

    # -- what is committed ------------------------------------------------------------------------

    @property
    def largest_isr(self) -> AbstractSet[int]:
        """Who may be in sync, as long as the outcome of a change isn't known."""
        return self.state.isr if self._proposed is None else self.state.isr | self._proposed

    @property
    def is_end_known(self) -> bool:
        """Whether what earlier epochs have committed is: else nobody is told of an end."""
        return self.high_watermark >= self.start

    @property
    def has_enough(self) -> bool:
        """Whether enough replicas are in sync for anything to be committed.

        While a move adds some, as many are asked for as there were: it may take hours.
        """
        return len(self.state.isr) >= min(self.settings.min_insync, len(self.state.had))

    def advance(self, flushed_end: int, lives: Mapping[int, int], now: float) -> int:
        """Find what is committed by now.

        Args:
            flushed_end: of the leader's own log.
            lives: the sessions of the brokers that are registered.
        """
        if self.has_enough:
            ends = [self._end_of(each) for each in self.largest_isr if each != self.broker_id]
            ends += [each.end for each in self._joining(lives, now)]
            self.high_watermark = max(self.high_watermark, min([flushed_end, *ends]))
        return self.high_watermark

    def _end_of(self, follower: int) -> int:
        known = self.followers.get(follower)
        return 0 if known is None else known.end

    def _joining(self, lives: Mapping[int, int], now: float) -> list[Progress]:
        # What is committed waits for those about to get in sync: under load they never would be.
        return [
            known
            for follower, known in self.followers.items()
            if follower not in self.largest_isr
            and lives.get(follower) == known.life
            and known.caught_up_at > self.began_at
            and now - known.caught_up_at <= self.settings.lag_seconds
        ]

    def low_watermark(self, earliest: int) -> int:
        """Before which offset nobody who may lead next has anything; `earliest`: the own log's."""
        others = [self.followers.get(each) for each in self.largest_isr if each != self.broker_id]
        return min([earliest, *(0 if each is None else each.earliest for each in others)])

    # -- who is in sync ---------------------------------------------------------------------------

    def due_change(
        self, lives: Mapping[int, int], now: float, earliest: int = 0
    ) -> PartitionState | None:
        """The state that is to be written, since replicas fall behind or have caught up.

        `earliest`: the own log's first offset.
        """
        if self._proposed is not None:
            return None
        gone = {
            each
            for each in self.state.isr
            if each != self.broker_id and self._is_gone(each, lives, now)
        }
        if gone:
            return shrunk(self.state, self.broker_id, gone)
        joined = {
            each
            for each in self.state.replicas
            if each not in self.state.isr and self._may_join(each, lives, now, earliest)
        }
        return expanded(self.state, self.broker_id, joined) if joined else None

    def rests(self, lives: Mapping[int, int], now: float) -> bool:
        """Whether all is as it should be, so that nothing is due as time goes by."""
        state = self.state
        return (
            self._proposed is None
            and len(state.isr) == len(state.replicas)
            and state.replicas[0] == self.broker_id
            and not (state.adding or state.removing)
            and not any(
                self._is_gone(each, lives, now) for each in state.isr if each != self.broker_id
            )
        )

    def _is_gone(self, follower: int, lives: Mapping[int, int], now: float) -> bool:
        known = self.followers.get(follower)
        caught_up_at = self.began_at if known is None else known.caught_up_at
        # What is committed all had. Who lacks it now has lost it, and can't tell.
        has_lost = known is not None and known.end < self.high_watermark
        return has_lost or follower not in lives or now - caught_up_at > self.settings.lag_seconds

    def _may_join(self, follower: int, lives: Mapping[int, int], now: float, earliest: int) -> bool:
        if not self.has_all(follower, lives):
            return False
        # Somebody may have been told that what is before the first offset is deleted.
        is_same = self.followers[follower].earliest >= earliest
        # Who would have to go again at once isn't taken in.
        return is_same and not self._is_gone(follower, lives, now)

    def has_all(self, follower: int, lives: Mapping[int, int]) -> bool:
        """Whether a follower has said in this epoch, in its life, that it has what is committed."""
        known = self.followers.get(follower)
        if known is None or lives.get(follower) != known.life:
            return False
        return self._has_all_committed(known)

    def _has_all_committed(self, known: Progress) -> bool:
        # What earlier leaders have committed is at most all that this epoch began with.
        return known.end >= max(self.high_watermark, self.start)

    def proposed(self, isr: AbstractSet[int]) -> None:
        """A change is being written; until `settled` nobody knows whether it holds."""
        self._proposed = frozenset(isr)

    def settled(self, state: PartitionState) -> None:
        """What stands in coordination is known for certain, and of this epoch."""
        self.state = state
        self._proposed = None

    def learned(self, state: PartitionState) -> None:
        """Somebody else has changed it: a replica has left, or a move begins.

        Who has left isn't taken in again for what it had, but once it fetches again.
        """
        for each in self.state.isr - state.isr:
            self.followers.pop(each, None)
        self.state = state

    # -- whether it leads still -------------------------------------------------------------------

    def is_confirmed(self, now: float, *, has_lease: bool) -> bool:
        """Whether nobody else can have become leader, as far as can be told without asking.

        `has_lease`: whether the session in which it leads lives for certain. Who becomes leader was
        in sync, and fetches from nobody any more. Ask before each answer that only a leader may
        give.
        """
        if has_lease:
            return True
        # By when a follower fetched, not by when that came: a leader that has slept finds fetches
        # of long ago.
        others = self.largest_isr - {self.broker_id}
        return all(
            each in self.followers
            and now - self.followers[each].follows_since <= self.settings.trust_seconds
            for each in others
        )

    def led_at(self, time: float) -> bool:
        """Whether nobody else had become leader at a time: followers' fetches say so, no lease.

        A producer is told that it is out of step only once this is so of when it asked: it begins a
        new epoch for that, and who has a successor already would have it write twice.
        """
        others = self.largest_isr - {self.broker_id}
        return all(
            each in self.followers and self.followers[each].follows_since >= time for each in others
        )
