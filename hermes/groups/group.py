"""A classic group: its members, generation by generation, and what it answers in each state.

A state machine without I/O and without a clock: every call says what time it is. What it does in
which state, and each error, is Kafka 4's (`GroupMetadataManager`, `ClassicGroup`):

    Empty --join--> PreparingRebalance --all have joined, or time is up--> CompletingRebalance
      ^                  ^   |                                                |
      |                  |   +-- nobody is left --> Empty                     | the leader's sync,
      +-- (expired)      +--------- join, leave, a member dies ----- Stable <-+ once it is stored

Answers to requests that have to wait are callables that came with them; each is called once. What
must be on disk before members may act on it (who has what in a generation, and under which id)
goes to `store`, with what to call then. It is long because what one state refuses stands beside
what the others do.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from hermes.groups.members import Member, Members, protocols_size
from hermes.groups.membership import ClassicMembership
from hermes.groups.values import (
    CONSUMER,
    DescribedGroup,
    GroupSettings,
    Join,
    JoinAnswer,
    JoinedMember,
    JoinResponse,
    Leaving,
    State,
    Sync,
    SyncAnswer,
    SyncResponse,
)
from hermes.protocol.kafka_errors import Code

#: How often a rebalance is looked at again to which nobody has come, whatever members say.
_LEAST_PAUSE_SECONDS: Final = 1.0

#: How much of what a client calls itself its member's id begins with: as long as an instance's id
#: may be. All of it, and more, need not fit into a response.
_ID_BEGINS: Final = 249

#: Called once something is on disk, or can't be, with what members are told and the time.
Stored = Callable[[Code, float], None]


class Group:
    """One group.

    Args:
        store: called with the group when a generation has an assignment, or no members, or a
            static member another id, and with what to call once that is stored.
        new_id: a part of a member's id that nobody can guess.
        generation, protocol_type: what is known of it from before; see `restore`.

    Attributes:
        generation: counts rebalances; what is of an earlier one is refused.
        protocol_type: what it is for; None while nobody has joined.
        protocol_name: how its members share in this generation.
        pending: when those are forgotten that have got an id and not come back, by id.
        topics: which topics its members subscribe to; None where that isn't known.
    """

    def __init__(
        self,
        name: str,
        settings: Callable[[], GroupSettings],
        store: Callable[["Group", Stored], None],
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

    def restore(self, membership: ClassicMembership | None, now: float) -> None:
        """Continue as what was stored: a stable generation with its members, if there were any."""
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
    def is_dead(self) -> bool:
        return self.state is State.DEAD

    @property
    def membership(self) -> ClassicMembership | None:
        """Who is in this generation and has what; None while nobody is, or it is not decided."""
        shares = self._storing
        if not self.members or not (self.state is State.STABLE or shares is not None):
            return None
        members = self.members.by_id.values()
        return ClassicMembership(
            self.protocol_name or "",
            self._leader or "",
            tuple(
                each.to_stored(
                    each.assignment if shares is None else shares.get(each.member_id, b"")
                )
                for each in members
            ),
        )

    # -- joining ----------------------------------------------------------------------------------

    def join(self, join: Join, now: float, answer: JoinAnswer) -> None:
        """Take a JoinGroup. The answer may come at once or later."""
        refusal = self._refusal_of(join)
        if refusal is not None:
            answer(JoinResponse(refusal, join.member_id))
        elif not self._has_room_for(join.member_id):
            self._remove(join.member_id)
            answer(JoinResponse(Code.GROUP_MAX_SIZE_REACHED, ""))
        elif self.state is State.DEAD:
            answer(JoinResponse(Code.COORDINATOR_NOT_AVAILABLE, join.member_id))
        elif not self._is_compatible(join):
            answer(JoinResponse(Code.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
        elif not join.member_id:
            self._join_new(join, now, answer)
        else:
            self._rejoin(join, now, answer)

    def _refusal_of(self, join: Join) -> Code | None:
        settings = self._settings()
        if not settings.min_session_ms <= join.session_timeout_ms <= settings.max_session_ms:
            return Code.INVALID_SESSION_TIMEOUT
        if protocols_size(join.protocols) > settings.max_member_bytes:
            return Code.INVALID_REQUEST
        return None

    def _has_room_for(self, member_id: str) -> bool:
        most = self._settings().max_members
        if self.state in (State.EMPTY, State.DEAD):
            return member_id in self.pending or len(self.pending) < most
        member = self.members.by_id.get(member_id)
        if self.state is State.PREPARING:
            # Not the number of members: those that don't come back must not keep others out.
            is_in = member is not None and member.joining is not None
            return is_in or self.members.joining < most
        return member is not None or len(self.members) < most

    def _is_compatible(self, join: Join) -> bool:
        if self.state is State.EMPTY:
            return bool(join.protocol_type and join.protocols)
        same_type = join.protocol_type == self.protocol_type
        return same_type and self.members.all_support_one_of(join.protocols)

    def _join_new(self, join: Join, now: float, answer: JoinAnswer) -> None:
        begins = (join.instance_id or join.client_id)[:_ID_BEGINS]
        member_id = f"{begins}-{self._new_id()}"
        if join.instance_id is not None:
            old = self.members.static.get(join.instance_id)
            if old is not None:
                self._replace_static(join, self.members.by_id[old], member_id, now, answer)
                return
        elif join.needs_id:
            if len(self.pending) + len(self.members) >= self._settings().max_members:
                answer(JoinResponse(Code.GROUP_MAX_SIZE_REACHED, ""))
                return
            self.pending[member_id] = now + join.session_timeout_ms / 1000
            answer(JoinResponse(Code.MEMBER_ID_REQUIRED, member_id))
            return
        self._add(join, member_id, now, answer)

    def _rejoin(self, join: Join, now: float, answer: JoinAnswer) -> None:
        member_id = join.member_id
        if member_id in self.pending:
            if join.instance_id is not None:  # no member gets its id in this way
                answer(JoinResponse(Code.UNKNOWN_SERVER_ERROR, member_id))
                return
            self._add(join, member_id, now, answer)
            return
        code = self.members.check(member_id, join.instance_id)
        if code is Code.NONE and self.state is State.EMPTY:
            code = Code.UNKNOWN_MEMBER_ID
        if code is not Code.NONE:
            answer(JoinResponse(code, member_id))
            return
        member = self.members.by_id[member_id]
        is_same = member.protocols == join.protocols
        if self.state is State.COMPLETING and is_same:
            answer(self._join_response(member))  # it may not have got the first answer
        elif self.state is State.STABLE and is_same and member_id != self._leader:
            answer(self._join_response(member))
        else:
            self._update(member, join, answer)
            self._rebalance_or_complete(now)

    def _add(self, join: Join, member_id: str, now: float, answer: JoinAnswer) -> None:
        self.pending.pop(member_id, None)
        member = Member.from_join(member_id, join)
        if self.state is State.PREPARING and self._is_first:
            self._has_newcomer = True
        if not self.members:
            self.protocol_type = join.protocol_type
        self._leader = self._leader or member_id
        self.members.add(member, answer)
        # A client that has gone can't be noticed while its request waits, and one that retries
        # leaves a member behind each time.
        member.extend_session(now, self._settings().new_member_seconds)
        self._rebalance_or_complete(now)

    def _update(self, member: Member, join: Join, answer: JoinAnswer) -> None:
        earlier = member.joining
        self.members.update(member, join, answer)
        if earlier is not None:  # its connection is gone, or will take it for an old answer
            earlier(JoinResponse(Code.REBALANCE_IN_PROGRESS, member.member_id))

    def _replace_static(
        self, join: Join, old: Member, member_id: str, now: float, answer: JoinAnswer
    ) -> None:
        """A static member has come back without its id: it gets the place that it had."""
        leader = self._leader
        self.members.refuse(old, Code.FENCED_INSTANCE_ID, old.member_id)
        member = self.members.replace_static(old, member_id)
        if leader == old.member_id:
            self._leader = member_id
        if old.member_id in self._unsynced:
            self._unsynced.remove(old.member_id)
            self._unsynced.add(member_id)
        self._update(member, join, answer)
        member.extend_session(now)
        if self.state is State.STABLE and self.members.protocol() == self.protocol_name:
            # Nothing changes for the others, so there is no rebalance. But after a restart its new
            # id must be the one that is known.
            told = "" if join.can_skip else leader or ""
            self._store(self, partial(self._on_replaced, member, self.generation, told))
        elif self.state is State.PREPARING:
            self._complete_if_all_joined(now)
        else:
            # The leader may have been told of the old id.
            self._prepare(now)

    def _on_replaced(
        self, member: Member, generation: int, leader: str, code: Code, now: float
    ) -> None:
        """Answer a static member whose other id is on disk now.

        Args:
            generation: in which it has come.
            leader: whom it is told to follow, if it can't be told to leave the assignment alone.
        """
        is_in = self.members.by_id.get(member.member_id) is member
        if self.state is not State.STABLE or generation != self.generation or not is_in:
            return  # it is part of the rebalance that has begun, or gone
        if code is not Code.NONE:
            self._prepare(now)
            return
        response = self._join_response(member)
        response = response._replace(skip_assignment=self._leader == member.member_id)
        if leader:  # it would share anew if it knew that it leads
            response = response._replace(leader=leader, skip_assignment=False, members=())
        if self.members.answer_join(member, response):
            member.extend_session(now)

    def _join_response(self, member: Member) -> JoinResponse:
        members: tuple[JoinedMember, ...] = ()
        if member.member_id == self._leader:
            name = self.protocol_name or ""
            members = tuple(each.as_joined(name) for each in self.members.by_id.values())
        return JoinResponse(
            Code.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self._leader or "",
            False,
            members,
        )

    # -- syncing ----------------------------------------------------------------------------------

    def sync(self, sync: Sync, now: float, answer: SyncAnswer) -> None:
        """Take a SyncGroup. The answer may come at once, or when the leader's is stored."""
        code = self._check_sync(sync)
        if code is not Code.NONE:
            answer(SyncResponse(code))
            return
        member = self.members.by_id[sync.member_id]
        self._unsynced.discard(sync.member_id)
        if not self._unsynced:
            self._sync_end = None
        if self.state is State.STABLE:
            member.extend_session(now)
            answer(self._sync_response(member))
            return
        earlier, member.syncing = member.syncing, answer
        if earlier is not None:
            earlier(SyncResponse(Code.REBALANCE_IN_PROGRESS))
        if sync.member_id == self._leader and self._storing is None:
            self._storing = {each: sync.assignments.get(each, b"") for each in self.members.by_id}
            self._store(self, partial(self._on_stored, self.generation))

    def _check_sync(self, sync: Sync) -> Code:
        if self.state is State.DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        if self.state is State.EMPTY:
            return Code.UNKNOWN_MEMBER_ID
        code = self._check_member(sync.member_id, sync.instance_id, sync.generation)
        if code is not Code.NONE:
            return code
        same_type = sync.protocol_type in (None, self.protocol_type)
        if not (same_type and sync.protocol_name in (None, self.protocol_name)):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        if self.state is State.PREPARING:
            return Code.REBALANCE_IN_PROGRESS
        return Code.NONE

    def _check_member(self, member_id: str, instance_id: str | None, generation: int) -> Code:
        code = self.members.check(member_id, instance_id, generation)
        if code is Code.NONE and generation != self.generation:
            return Code.ILLEGAL_GENERATION
        return code

    def _sync_response(self, member: Member) -> SyncResponse:
        return SyncResponse(Code.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _on_stored(self, generation: int, code: Code, now: float) -> None:
        """Go on once a generation is on disk, or can't be; an earlier one no longer matters."""
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
            if self.members.answer_sync(member, self._sync_response(member)):
                member.extend_session(now)

    def _refuse_syncs(self, code: Code) -> None:
        self._storing = None
        for member in list(self.members.by_id.values()):
            member.assignment = b""
            self.members.answer_sync(member, SyncResponse(code))

    # -- heartbeats, commits, leaving -------------------------------------------------------------

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> Code:
        if self.state is State.DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        code = self._check_member(member_id, instance_id, generation)
        if code is not Code.NONE:
            return code
        self.members.by_id[member_id].extend_session(now)
        return Code.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else Code.NONE

    def commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: float,
        *,
        is_in_transaction: bool = False,
    ) -> Code:
        """Whether a client may commit offsets; a sign of life.

        In a transaction also while a generation is shared: producers can't wait for its end.
        """
        if self.state is State.DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            return Code.NONE  # of a tool, or a consumer without a group's assignment
        if generation < 0 and not member_id and instance_id is None:
            return Code.UNKNOWN_MEMBER_ID
        code = self.members.check(member_id, instance_id, generation)
        if code is not Code.NONE:
            return code
        if generation != self.generation:
            return Code.ILLEGAL_GENERATION
        if self.state is State.COMPLETING and not is_in_transaction:
            return Code.REBALANCE_IN_PROGRESS
        self.members.by_id[member_id].extend_session(now)
        return Code.NONE

    def leave(self, leaving: Sequence[Leaving], now: float) -> list[Code]:
        codes = [self._leave(each) for each in leaving]
        if Code.NONE in codes:
            if self.state in (State.STABLE, State.COMPLETING):
                self._prepare(now)
            else:
                self._complete_if_all_joined(now)
        return codes

    def _leave(self, leaving: Leaving) -> Code:
        if self.state is State.DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        member_id, instance_id = leaving
        if not member_id:
            member_id = self.members.static.get(instance_id or "", "")
            if not member_id:
                return Code.UNKNOWN_MEMBER_ID
        elif member_id in self.pending:
            del self.pending[member_id]
            return Code.NONE
        else:
            code = self.members.check(member_id, instance_id)
            if code is not Code.NONE:
                return code
        self._dismiss(self.members.by_id[member_id])
        return Code.NONE

    def _dismiss(self, member: Member) -> None:
        self.members.refuse(member, Code.UNKNOWN_MEMBER_ID, "")
        self._remove(member.member_id)

    def _remove(self, member_id: str) -> None:
        self.members.remove(member_id)
        if self._leader == member_id:
            self._leader = next(iter(self.members.by_id), None)
        self.pending.pop(member_id, None)
        self._unsynced.discard(member_id)

    # -- generations ------------------------------------------------------------------------------

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

    def _on_first_delay_over(self, now: float) -> None:
        if not (self._has_newcomer and self._first_remaining):
            self._complete(now)
            return
        self._has_newcomer = False
        delay = min(self._settings().initial_delay_seconds, self._first_remaining)
        self._first_remaining = max(self._first_remaining - self._first_delay, 0.0)
        self._first_delay = delay
        self._join_end = now + delay

    def _complete(self, now: float) -> None:
        self._join_end = None
        late = [each for each in self.members.by_id.values() if each.joining is None]
        for member in late:
            if member.instance_id is None:
                self._remove(member.member_id)
        if self.members and not self._elect():
            # Only static members are left, and none is there: their sessions decide.
            self._join_end = now + max(self.members.rebalance_seconds(), _LEAST_PAUSE_SECONDS)
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
            member.extend_session(now)
        for member in members:
            self.members.answer_join(member, self._join_response(member))

    def _elect(self) -> bool:
        leader = self.members.by_id.get(self._leader or "")
        if leader is not None and leader.joining is not None:
            return True
        joined = (each for each in self.members.by_id.values() if each.joining is not None)
        leader = next(joined, None)
        if leader is not None:
            self._leader = leader.member_id
        return leader is not None

    def _subscribed(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        return self.members.subscribed_topics(self.protocol_name or "")

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
            if kind == 1:
                self._expire(member_id, now)
            elif self.pending.pop(member_id, None) is not None:
                self._go_on_without(now)
        if self._join_end is not None and self._join_end <= now:
            if self._is_first:
                self._on_first_delay_over(now)
            else:
                self._complete(now)
        if self._sync_end is not None and self._sync_end <= now:
            self._dismiss_unsynced(now)

    def _expire(self, member_id: str, now: float) -> None:
        member = self.members.by_id.get(member_id)
        if member is None or member.deadline is None or member.deadline > now:
            return
        member.deadline = None
        if member.is_waiting:
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
        """Be dead: deleted, or coordinated elsewhere. Those who wait are told `code`."""
        self.state = State.DEAD
        self.pending.clear()
        self._join_end = self._sync_end = None
        for member in list(self.members.by_id.values()):
            self.members.refuse(member, code, member.member_id)
        self.members = Members()

    # -- for tools --------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return sum(each.size for each in self.members.by_id.values())

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER

    def subscribes_to(self, topic: str) -> bool:
        """Whether its members want a topic; in doubt they do if they are consumers."""
        if self.topics is None:
            return self.is_of_consumers
        return topic in self.topics

    def describe(self) -> DescribedGroup:
        """Describe it; what members say only when it is stable, what they had last in any case."""
        is_stable = self.state is State.STABLE
        name = self.protocol_name or "" if is_stable else ""
        return DescribedGroup(
            self.state,
            self.protocol_type or "",
            name,
            tuple(
                each.describe(each.metadata(name) if is_stable else b"")
                for each in self.members.by_id.values()
            ),
        )
