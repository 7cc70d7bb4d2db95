"""A group's members through its generations: who is in, whose share is stored, who is late.

A state machine without I/O and without a clock: every call says what time it is. What it does in
which state, and each error, is Kafka 4's (`GroupMetadataManager`, `ClassicGroup`):

    Empty --join--> PreparingRebalance --all have joined, or time is up--> CompletingRebalance
      ^                  ^   |                                                |
      |                  |   +-- nobody is left --> Empty                     | the leader's sync,
      +-- (expired)      +--------- join, leave, a member dies ----- Stable <-+ once it is stored

Answers to requests that have to wait are callables that came with them; each is called once. What
must be on disk before members may act on it (who has what in a generation, and under which id)
goes to `store`, with what to call then. `group` has the requests.
"""

from collections.abc import Callable

from hermes.groups.members import Member, Members
from hermes.groups.membership import Membership
from hermes.groups.subscriptions import subscribed_topics
from hermes.groups.values import (
    CONSUMER,
    GroupSettings,
    Joined,
    JoinedMember,
    State,
    Synced,
)
from hermes.protocol.kafka_errors import Code

#: Called once something is on disk, or can't be, with what members are told and the time.
Stored = Callable[[Code, float], None]


class Rebalances:
    """The members of one group.

    Args:
        name: what clients call it.
        settings: tells what bounds it now.
        store: called with the group when a generation has an assignment, or no members, or a
            static member another id; whoever keeps it then calls what is given, too.
        new_id: a part of a member's id that nobody can guess.
        generation, protocol_type: what is known of it from before; see `restore`.

    Attributes:
        name: as given.
        state: where it is in its life.
        generation: counts rebalances; what is of an earlier one is refused.
        protocol_type: what it is for; None while nobody has joined.
        protocol_name: how its members share in this generation.
        members: its members.
        pending: when those are forgotten that have got an id and not come back, by id.
        topics: which topics its members subscribe to; None where that isn't known.
    """

    def __init__(
        self,
        name: str,
        settings: Callable[[], GroupSettings],
        store: Callable[["Rebalances", Stored], None],
        new_id: Callable[[], str],
        *,
        generation: int = 0,
        protocol_type: str | None = None,
    ) -> None:
        self.name = name
        self.state = State.EMPTY
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol_name: str | None = None
        self.members = Members()
        self.pending: dict[str, float] = {}
        self.topics: frozenset[str] | None = (
            frozenset() if generation and protocol_type == CONSUMER else None
        )
        self._settings = settings
        self._store = store
        self._new_id = new_id
        self._leader: str | None = None
        self._is_first = False  # whether this rebalance began with an empty group
        self._has_newcomer = False
        self._unsynced: set[str] = set()
        self._join_end: float | None = None
        self._first_delay = self._first_remaining = 0.0
        self._sync_end: float | None = None
        self._storing: dict[str, bytes] | None = None  # the assignment that is being stored

    def restore(self, membership: Membership | None, now: float) -> None:
        """Be what was kept: a stable generation with its members, if there were any."""
        self.members.known_until = self.generation
        if membership is None:
            return
        self.members.restore(membership, now)
        self.state = State.STABLE
        self.protocol_name = membership.protocol_name
        first = next(iter(self.members.by_id))
        self._leader = membership.leader if membership.leader in self.members.by_id else first
        self.topics = self._subscribed()

    @property
    def membership(self) -> Membership | None:
        """Who is in this generation and has what; None while nobody is, or it is not decided."""
        shares = self._storing
        if not self.members or not (self.state is State.STABLE or shares is not None):
            return None
        members = self.members.by_id.values()
        return Membership(
            self.protocol_name or "",
            self._leader or "",
            tuple(
                each.as_kept(each.assignment if shares is None else shares.get(each.member_id, b""))
                for each in members
            ),
        )

    # -- generations ------------------------------------------------------------------------------

    def _joined(self, member: Member) -> Joined:
        """The answer to a member of this generation."""
        members: tuple[JoinedMember, ...] = ()
        if member.member_id == self._leader:
            name = self.protocol_name or ""
            members = tuple(each.as_joined(name) for each in self.members.by_id.values())
        return Joined(
            Code.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self._leader or "",
            False,
            members,
        )

    def _synced(self, member: Member) -> Synced:
        return Synced(Code.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _rebalance_or_complete(self, now: float) -> None:
        if self.state is State.PREPARING:
            self._complete_if_all_joined(now)
        else:
            self._prepare(now)

    def _prepare(self, now: float) -> None:
        """Begin a rebalance: everybody has to join again."""
        if self.state is State.COMPLETING:
            self._refuse_syncs(Code.REBALANCE_IN_PROGRESS)
        self._unsynced.clear()
        self._sync_end = None
        self._is_first = self.state is State.EMPTY
        self.state = State.PREPARING
        if self._is_first:
            delay = self._settings().initial_delay_seconds
            self._first_delay = delay
            self._first_remaining = max(self.members.rebalance_seconds() - delay, 0.0)
            self._join_end = now + delay
        elif self._all_have_joined():
            self._complete(now)
        else:
            self._join_end = now + self.members.rebalance_seconds()

    def _all_have_joined(self) -> bool:
        return len(self.members) == self.members.joining and not self.pending

    def _complete_if_all_joined(self, now: float) -> None:
        if self.state is State.PREPARING and not self._is_first and self._all_have_joined():
            self._complete(now)

    def _first_wait_is_over(self, now: float) -> None:
        if not (self._has_newcomer and self._first_remaining):
            self._complete(now)
            return
        self._has_newcomer = False
        delay = min(self._settings().initial_delay_seconds, self._first_remaining)
        self._first_remaining = max(self._first_remaining - self._first_delay, 0.0)
        self._first_delay = delay
        self._join_end = now + delay

    def _complete(self, now: float) -> None:
        """All have joined that will: a generation begins."""
        self._join_end = None
        late = [each for each in self.members.by_id.values() if each.joining is None]
        for member in late:
            if member.instance_id is None:
                self._remove(member.member_id)
        if self.members and not self._elect():
            # Only static members are left, and none is there: their sessions decide.
            self._join_end = now + self.members.rebalance_seconds()
            return
        self.generation += 1
        self._has_newcomer = self._is_first = False
        self._unsynced.clear()
        self._storing = None
        if not self.members:
            self.protocol_name = None
            self.topics = self._subscribed()
            self.state = State.EMPTY
            self._store(self, lambda _code, _now: None)
            return
        self.protocol_name = self.members.protocol()
        self.topics = self._subscribed()
        self.state = State.COMPLETING
        self._sync_end = now + self.members.rebalance_seconds()
        members = list(self.members.by_id.values())
        self._unsynced.update(each.member_id for each in members)
        for member in members:
            member.is_new = False
            member.heard(now)
        for member in members:
            self.members.answer_join(member, self._joined(member))

    def _elect(self) -> bool:
        """Let one lead that has joined; returns whether there is one."""
        leader = self.members.by_id.get(self._leader or "")
        if leader is not None and leader.joining is not None:
            return True
        for member in self.members.by_id.values():
            if member.joining is not None:
                self._leader = member.member_id
                return True
        return False

    def _subscribed(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        name = self.protocol_name or ""
        return subscribed_topics(each.metadata(name) for each in self.members.by_id.values())

    def _stored(self, generation: int, code: Code, now: float) -> None:
        """Hear that a generation is on disk, or why it isn't; of an earlier one nothing follows."""
        assignment = self._storing
        if self.state is not State.COMPLETING or generation != self.generation:
            return
        if assignment is None:
            return
        self._storing = None
        if code is not Code.NONE:
            self._refuse_syncs(code)
            self._prepare(now)
            return
        self.state = State.STABLE
        members = list(self.members.by_id.values())
        for member in members:
            member.assignment = assignment.get(member.member_id, b"")
        for member in members:
            if self.members.answer_sync(member, self._synced(member)):
                member.heard(now)

    def _refuse_syncs(self, code: Code) -> None:
        self._storing = None
        for member in list(self.members.by_id.values()):
            member.assignment = b""
            self.members.answer_sync(member, Synced(code))

    def _dismiss(self, member: Member) -> None:
        self.members.answer_join(member, Joined(Code.UNKNOWN_MEMBER_ID, ""))
        self.members.answer_sync(member, Synced(Code.UNKNOWN_MEMBER_ID))
        self._remove(member.member_id)

    def _remove(self, member_id: str) -> None:
        self.members.remove(member_id)
        if self._leader == member_id:
            self._leader = next(iter(self.members.by_id), None)
        self.pending.pop(member_id, None)
        self._unsynced.discard(member_id)

    # -- time, and the end ------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `advance` has something to do at the earliest; None for never."""
        times = [self._join_end, self._sync_end, *self.pending.values()]
        times += [each.deadline for each in self.members.by_id.values()]
        return min((each for each in times if each is not None), default=None)

    def advance(self, now: float) -> None:
        """Do what is due: members die, a rebalance goes on without those who are late."""
        pending = [(end, 0, each) for each, end in self.pending.items() if end <= now]
        due = [
            (each.deadline, 1, each.member_id)
            for each in self.members.by_id.values()
            if each.deadline is not None and each.deadline <= now
        ]
        for _, kind, member_id in sorted(pending + due):
            if kind == 0:
                self._forget_pending(member_id, now)
            else:
                self._expire(member_id, now)
        if self._join_end is not None and self._join_end <= now:
            if self._is_first:
                self._first_wait_is_over(now)
            else:
                self._complete(now)
        if self._sync_end is not None and self._sync_end <= now:
            self._dismiss_unsynced(now)

    def _forget_pending(self, member_id: str, now: float) -> None:
        if self.pending.pop(member_id, None) is not None:
            self._go_on_without(now)

    def _expire(self, member_id: str, now: float) -> None:
        member = self.members.by_id.get(member_id)
        if member is None or member.deadline is None or member.deadline > now:
            return
        member.deadline = None
        if member.is_satisfied:
            return  # it gets another session's time with its answer
        self._dismiss(member)
        if self.state in (State.STABLE, State.COMPLETING):
            self._prepare(now)
        else:
            self._go_on_without(now)

    def _go_on_without(self, now: float) -> None:
        """Somebody is dead for whom a rebalance may have waited, the first one too."""
        if self.state is State.PREPARING and self._all_have_joined():
            self._complete(now)

    def _dismiss_unsynced(self, now: float) -> None:
        self._sync_end = None
        for member_id in list(self._unsynced):
            member = self.members.by_id.get(member_id)
            if member is not None:
                self._dismiss(member)
        self._prepare(now)

    def end(self, code: Code) -> None:
        """Let it be dead: it is deleted, or coordinated elsewhere.

        Args:
            code: what those are told who wait.
        """
        self.state = State.DEAD
        self.pending.clear()
        self._join_end = self._sync_end = None
        for member in list(self.members.by_id.values()):
            self.members.answer_join(member, Joined(code, member.member_id))
            self.members.answer_sync(member, Synced(code))
        self.members = Members()
