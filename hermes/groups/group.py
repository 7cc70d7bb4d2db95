"""What is asked of a group of members, as Kafka's coordinator answers it in each of its states.

Joins, syncs, heartbeats, commits and leaves; `rebalances` says what becomes of the group then, and
what `now` and answers that wait are. It is long because what one refuses stands beside the others.
"""

from collections.abc import Sequence
from functools import partial

from hermes.groups.members import Member, protocols_size
from hermes.groups.rebalances import Rebalances
from hermes.groups.values import (
    CONSUMER,
    DescribedGroup,
    DescribedMember,
    Join,
    JoinAnswer,
    Joined,
    Leaving,
    State,
    Sync,
    SyncAnswer,
    Synced,
)
from hermes.protocol.kafka_errors import Code


class Group(Rebalances):
    """One group, for whoever asks. See `Rebalances`."""

    # -- joining ----------------------------------------------------------------------------------

    def join(self, join: Join, now: float, answer: JoinAnswer) -> None:
        """Take a JoinGroup. The answer may come at once or later."""
        refusal = self._refusal_of(join)
        if refusal is not None:
            answer(Joined(refusal, join.member_id))
        elif not self._has_room_for(join.member_id):
            self._remove(join.member_id)
            answer(Joined(Code.GROUP_MAX_SIZE_REACHED, ""))
        elif self.state is State.DEAD:
            answer(Joined(Code.COORDINATOR_NOT_AVAILABLE, join.member_id))
        elif not self._suits(join):
            answer(Joined(Code.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
        elif not join.member_id:
            self._join_new(join, now, answer)
        else:
            self._join_again(join, now, answer)

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
            # Not the number of members: those who don't come back must not keep others out.
            is_in = member is not None and member.joining is not None
            return is_in or self.members.joining < most
        return member is not None or len(self.members) < most

    def _suits(self, join: Join) -> bool:
        if self.state is State.EMPTY:
            return bool(join.protocol_type and join.protocols)
        same_type = join.protocol_type == self.protocol_type
        return same_type and self.members.can_all_do_one_of(join.protocols)

    def _join_new(self, join: Join, now: float, answer: JoinAnswer) -> None:
        member_id = f"{join.instance_id or join.client_id}-{self._new_id()}"
        if join.instance_id is not None:
            old = self.members.static.get(join.instance_id)
            if old is not None:
                self._replace_static(join, self.members.by_id[old], member_id, now, answer)
                return
        elif join.needs_id:
            if len(self.pending) + len(self.members) >= self._settings().max_members:
                answer(Joined(Code.GROUP_MAX_SIZE_REACHED, ""))
                return
            self.pending[member_id] = now + join.session_timeout_ms / 1000
            answer(Joined(Code.MEMBER_ID_REQUIRED, member_id))
            return
        self._add(join, member_id, now, answer)

    def _join_again(self, join: Join, now: float, answer: JoinAnswer) -> None:
        member_id = join.member_id
        if member_id in self.pending:
            if join.instance_id is not None:  # nobody got an id in this way
                answer(Joined(Code.UNKNOWN_SERVER_ERROR, member_id))
                return
            self._add(join, member_id, now, answer)
            return
        code = self.members.check(member_id, join.instance_id)
        if code is Code.NONE and self.state is State.EMPTY:
            code = Code.UNKNOWN_MEMBER_ID
        if code is not Code.NONE:
            answer(Joined(code, member_id))
            return
        member = self.members.by_id[member_id]
        is_same = member.protocols == join.protocols
        if self.state is State.COMPLETING and is_same:
            answer(self._joined(member))  # it may not have got the first answer
        elif self.state is State.STABLE and is_same and member_id != self._leader:
            answer(self._joined(member))
        else:
            self._update(member, join, answer)
            self._rebalance_or_complete(now)

    def _add(self, join: Join, member_id: str, now: float, answer: JoinAnswer) -> None:
        self.pending.pop(member_id, None)
        member = Member(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.protocols,
            join.session_timeout_ms,
            join.rebalance_timeout_ms,
        )
        if self.state is State.PREPARING and self._is_first:
            self._has_newcomer = True
        if not self.members:
            self.protocol_type = join.protocol_type
        self._leader = self._leader or member_id
        self.members.add(member, answer)
        # A client that has gone can't be noticed while its request waits, and one that retries
        # leaves a member behind each time.
        member.heard(now, self._settings().new_member_seconds)
        self._rebalance_or_complete(now)

    def _update(self, member: Member, join: Join, answer: JoinAnswer) -> None:
        earlier = member.joining
        self.members.update(
            member, join.protocols, join.session_timeout_ms, join.rebalance_timeout_ms, answer
        )
        if earlier is not None:  # its connection is gone, or will take it for an old answer
            earlier(Joined(Code.REBALANCE_IN_PROGRESS, member.member_id))

    def _replace_static(
        self, join: Join, old: Member, member_id: str, now: float, answer: JoinAnswer
    ) -> None:
        """A static member has come back without its id: it gets the place that it had."""
        leader = self._leader
        self.members.answer_join(old, Joined(Code.FENCED_INSTANCE_ID, old.member_id))
        self.members.answer_sync(old, Synced(Code.FENCED_INSTANCE_ID))
        member = self.members.replace_static(old, member_id)
        if leader == old.member_id:
            self._leader = member_id
        if old.member_id in self._unsynced:
            self._unsynced.remove(old.member_id)
            self._unsynced.add(member_id)
        self._update(member, join, answer)
        member.heard(now)
        if self.state is State.STABLE and self.members.protocol() == self.protocol_name:
            # Nothing changes for the others, so there is no rebalance. But after a restart its new
            # id must be the one that is known.
            told = "" if join.can_skip else leader or ""
            self._store(self, partial(self._replaced, member, self.generation, told))
        elif self.state is State.PREPARING:
            self._complete_if_all_joined(now)
        else:
            # The leader may have been told of the old id.
            self._prepare(now)

    def _replaced(
        self, member: Member, generation: int, leader: str, code: Code, now: float
    ) -> None:
        """Answer a static member that has another id, which is on disk now.

        Args:
            member: as it is now.
            generation: in which it has come.
            leader: whom it is told to lead, if it can't be told that it need not share anew.
            code: see `Stored`.
            now: likewise.
        """
        is_in = self.members.by_id.get(member.member_id) is member
        if self.state is not State.STABLE or generation != self.generation or not is_in:
            return  # it is part of the rebalance that has begun, or gone
        if code is not Code.NONE:
            self._prepare(now)
            return
        joined = self._joined(member)._replace(skip_assignment=self._leader == member.member_id)
        if leader:  # it would share anew if it knew that it leads
            joined = joined._replace(leader=leader, skip_assignment=False, members=())
        if self.members.answer_join(member, joined):
            member.heard(now)

    # -- syncing ----------------------------------------------------------------------------------

    def sync(self, sync: Sync, now: float, answer: SyncAnswer) -> None:
        """Take a SyncGroup. The answer may come at once, or when the leader's is stored."""
        code = self._check_sync(sync)
        if code is not Code.NONE:
            answer(Synced(code))
            return
        member = self.members.by_id[sync.member_id]
        self._unsynced.discard(sync.member_id)
        if not self._unsynced:
            self._sync_end = None
        if self.state is State.STABLE:
            answer(self._synced(member))
            return
        earlier, member.syncing = member.syncing, answer
        if earlier is not None:
            earlier(Synced(Code.REBALANCE_IN_PROGRESS))
        if sync.member_id == self._leader and self._storing is None:
            self._storing = {each: sync.assignments.get(each, b"") for each in self.members.by_id}
            self._store(self, partial(self._stored, self.generation))

    def _check_sync(self, sync: Sync) -> Code:
        if self.state is State.DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        if self.state is State.EMPTY:
            return Code.UNKNOWN_MEMBER_ID
        code = self.members.check(sync.member_id, sync.instance_id, sync.generation)
        if code is not Code.NONE:
            return code
        if sync.generation != self.generation:
            return Code.ILLEGAL_GENERATION
        if sync.protocol_type not in (None, self.protocol_type) or sync.protocol_name not in (
            None,
            self.protocol_name,
        ):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        if self.state is State.PREPARING:
            return Code.REBALANCE_IN_PROGRESS
        return Code.NONE

    # -- heartbeats, commits, leaving -------------------------------------------------------------

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> Code:
        """Take a Heartbeat."""
        if self.state is State.DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        code = self.members.check(member_id, instance_id, generation)
        if code is not Code.NONE:
            return code
        if generation != self.generation:
            return Code.ILLEGAL_GENERATION
        self.members.by_id[member_id].heard(now)
        return Code.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else Code.NONE

    def commit(self, member_id: str, instance_id: str | None, generation: int, now: float) -> Code:
        """Say whether somebody may commit offsets, which is a sign of life."""
        if self.state is State.DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            return Code.NONE  # of a tool, or a consumer that shares with nobody
        if generation < 0 and not member_id and instance_id is None:
            return Code.UNKNOWN_MEMBER_ID
        code = self.members.check(member_id, instance_id, generation)
        if code is not Code.NONE:
            return code
        if generation != self.generation:
            return Code.ILLEGAL_GENERATION
        if self.state is State.COMPLETING:
            return Code.REBALANCE_IN_PROGRESS
        self.members.by_id[member_id].heard(now)
        return Code.NONE

    def leave(self, leaving: Sequence[Leaving], now: float) -> list[Code]:
        """Take a LeaveGroup.

        Returns:
            What became of each.
        """
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

    # -- for tools --------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """What its members hold, in bytes."""
        return sum(each.size for each in self.members.by_id.values())

    @property
    def is_of_consumers(self) -> bool:
        """Whether its members are consumers, as far as anybody has said."""
        return self.protocol_type == CONSUMER

    def subscribes_to(self, topic: str) -> bool:
        """Whether its members want a topic; in doubt they do if they are consumers."""
        if self.topics is None:
            return self.protocol_type == CONSUMER
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
                DescribedMember(
                    each.member_id,
                    each.instance_id,
                    each.client_id,
                    each.client_host,
                    each.metadata(name) if is_stable else b"",
                    each.assignment,
                )
                for each in self.members.by_id.values()
            ),
        )
