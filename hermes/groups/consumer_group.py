"""A consumer group (KIP-848): the coordinator says who has what, and members say what they have.

A state machine without I/O and without a clock, as `rebalances` is for classic groups. What it does
and each error are Kafka 4's (`GroupMetadataManager`, `ConsumerGroup`):

    `on_heartbeat`: a heartbeat joins, leaves, or says what has changed
      subscriptions or topics changed, a member is gone  -> the group's epoch grows
    the group's epoch is beyond the target's             -> an assignor makes the target anew
    `answer`: the member isn't where the target has it   -> it takes a step (`reconciling`)

`revision` grows with all that must be on disk before anybody is answered.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hermes.groups.consumer_values import (
    JOINS,
    STATIC_LEAVE,
    ConsumerHeartbeat,
    DescribedConsumer,
    DescribedConsumers,
    HeartbeatResponse,
    Place,
)
from hermes.groups.offsets import TopicPartition
from hermes.groups.reconciling import Consumer, topics_bytes
from hermes.groups.targets import NO_PLACES, Targets
from hermes.groups.values import CONSUMER, MEMBER_BYTES, Leaving
from hermes.protocol.kafka_errors import Code, KafkaError

#: What each topic weighs that a regular expression has found: others have its name, too.
_MATCHED_BYTES: Final = 16


class ConsumerGroup(Targets):
    """One consumer group, for whoever asks. See `Targets`."""

    #: Nobody waits for a place in it: what a classic group has there is always empty here.
    pending: Mapping[str, float] = {}
    protocol_type = CONSUMER
    is_of_consumers = True

    # -- heartbeats -------------------------------------------------------------------------------

    def on_heartbeat(
        self, beat: ConsumerHeartbeat, matched: tuple[str, ...] | None, now: float
    ) -> None:
        """Take what a heartbeat says; `answer` follows, after a target that has to be made.

        Args:
            beat: the heartbeat.
            matched: the topics that the member's regular expression finds, sorted; None where it
                has none.
            now: the time.

        Raises:
            KafkaError: it is refused, and changes nothing.
        """
        if self.is_dead:
            raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE)
        if beat.leaves:
            self._leave(beat)
            return
        member = self._member_of(beat)
        member.session_end = now + self._settings().session_ms / 1000
        self._look_again_at(member.session_end)
        if self._update(member, beat, matched) or self._have_topics_changed():
            self._topics = self._look_at_topics()
            self._new_epoch()

    def answer(self, beat: ConsumerHeartbeat, now: float) -> HeartbeatResponse:
        """Let the sender of a heartbeat that was heard take a step, and tell it where it is.

        Raises:
            KafkaError: it isn't a member any more, or another heartbeat of it was answered since.
        """
        if beat.leaves:
            return HeartbeatResponse(beat.member_id, beat.member_epoch)
        if self.is_dead:
            raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE)
        member = self.members.get(beat.member_id)
        if member is None:
            raise _unknown(beat.member_id)
        _check_epoch(member, beat)
        has_new = self._advance(member, beat.owned, now)
        is_asked = beat.member_epoch == JOINS or beat.is_full
        return HeartbeatResponse(
            member.member_id,
            member.epoch,
            self._settings().heartbeat_ms,
            frozenset(member.assigned) if is_asked or has_new else None,
        )

    def regex_of(self, beat: ConsumerHeartbeat) -> str | None:
        """The regular expression by which the sender of a heartbeat subscribes; None for none."""
        if beat.regex is not None:
            return beat.regex or None
        member = self.members.get(beat.member_id)
        return None if member is None else member.regex

    def _member_of(self, beat: ConsumerHeartbeat) -> Consumer:
        if beat.instance_id is not None:
            return self._static_member_of(beat)
        member = self.members.get(beat.member_id)
        if member is None:
            if beat.member_epoch != JOINS:
                raise _unknown(beat.member_id)
            return self._join(Consumer(beat.member_id))
        _check_epoch(member, beat)
        return member

    def _static_member_of(self, beat: ConsumerHeartbeat) -> Consumer:
        instance_id = beat.instance_id or ""
        before = self._static_member(instance_id)
        if beat.member_epoch != JOINS:
            member = self._checked(before, beat)
            _check_epoch(member, beat)
            return member
        same = self.members.get(beat.member_id)
        if same is not None and same is not before:
            raise KafkaError(
                Code.FENCED_INSTANCE_ID, f"Member {beat.member_id} isn't instance {instance_id}."
            )
        if before is None:
            return self._join(Consumer(beat.member_id, instance_id))
        if before.epoch != STATIC_LEAVE:
            raise KafkaError(
                Code.UNRELEASED_INSTANCE_ID,
                f"Static member {beat.member_id} with instance id {instance_id} cannot join the "
                f"group because the instance id is owned by member {before.member_id}.",
            )
        return self._replace(before, beat.member_id)

    def _static_member(self, instance_id: str) -> Consumer | None:
        return self.members.get(self._static.get(instance_id, ""))

    def _checked(self, member: Consumer | None, beat: ConsumerHeartbeat) -> Consumer:
        if member is None:
            raise KafkaError(Code.UNKNOWN_MEMBER_ID, f"Instance id {beat.instance_id} is unknown.")
        if member.member_id != beat.member_id:
            raise KafkaError(
                Code.FENCED_INSTANCE_ID,
                f"Static member {beat.member_id} with instance id {beat.instance_id} was fenced by "
                f"member {member.member_id}.",
            )
        return member

    def _join(self, member: Consumer) -> Consumer:
        most = self._settings().max_members
        if len(self.members) >= most:
            raise KafkaError(
                Code.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self.revision += 1
        return member

    def _replace(self, before: Consumer, member_id: str) -> Consumer:
        """Have a static member that is back go on under another id, with all that it had."""
        target = self._target.pop(before.member_id, NO_PLACES)
        if self._making is not None:
            self._making.renamed[before.member_id] = member_id
        del self.members[before.member_id]
        before.member_id = member_id
        before.epoch, before.previous_epoch = JOINS, JOINS
        self._target[member_id] = target
        for place in before.assigned:
            self._owners[place] = member_id
        self._count(before)
        return self._join(before)

    def _update(
        self, member: Consumer, beat: ConsumerHeartbeat, matched: tuple[str, ...] | None
    ) -> bool:
        """Take what a member says of itself; returns whether the target has to be made anew."""
        is_new = member.previous_epoch < 0
        before = Consumer("", topics=member.topics, matched=member.matched)
        said: dict[str, Any] = {"client_id": beat.client_id, "client_host": beat.client_host}
        if beat.rack_id is not None:
            said["rack_id"] = beat.rack_id
        if beat.rebalance_timeout_ms != -1:
            said["rebalance_timeout_ms"] = beat.rebalance_timeout_ms
        if beat.assignor is not None:
            said["assignor"] = beat.assignor
        if beat.topics is not None:
            said["topics"] = tuple(sorted(set(beat.topics)))
        if beat.regex is not None:
            said["regex"] = beat.regex or None
        if matched is not None or not said.get("regex", member.regex):
            said["matched"] = matched or ()
        changed = member.take(**said)
        if is_new:
            member.previous_epoch = 0
        if changed or is_new:
            self.revision += 1
            self._count(member)
        return self._subscribes_anew(member, before, changed) or is_new

    def _subscribes_anew(self, member: Consumer, before: Consumer, changed: set[str]) -> bool:
        """Take what a member subscribes to; returns whether that is something else than before."""
        if "matched" in changed:
            self._share(before.matched, -1)
            self._share(member.matched, 1)
        if not changed & {"topics", "matched"}:
            return False
        wanted, subscribed = member.subscribed, before.subscribed
        if wanted == subscribed:
            return False
        self._want(wanted - subscribed, subscribed - wanted)
        self._seen_revision = None
        return True

    # -- leaving ----------------------------------------------------------------------------------

    def _leave(self, beat: ConsumerHeartbeat) -> None:
        member: Consumer | None
        if beat.instance_id is None:
            member = self.members.get(beat.member_id)
            if member is None:
                raise _unknown(beat.member_id)
        else:
            member = self._checked(self._static_member(beat.instance_id), beat)
        if beat.member_epoch == STATIC_LEAVE:
            for place in member.revoking:
                del self._owners[place]
            member.revoking, member.revoke_end = {}, None
            member.epoch = STATIC_LEAVE
            self.revision += 1
            self._count(member)
        else:
            self._remove(member)
            self._new_epoch()

    def leave(self, leaving: Sequence[Leaving]) -> list[Code]:
        """Take a LeaveGroup, by which tools take members out; what became of each."""
        codes = [self._leave_one(*each) for each in leaving]
        if Code.NONE in codes:
            self._new_epoch()
        return codes

    def _leave_one(self, member_id: str, instance_id: str | None) -> Code:
        member = self.members.get(member_id)
        if instance_id is not None:
            member = self._static_member(instance_id)
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        if member_id and member.member_id != member_id:
            return Code.FENCED_INSTANCE_ID
        self._remove(member)
        return Code.NONE

    def _remove(self, member: Consumer) -> None:
        self._release(member)
        self._want(frozenset(), member.subscribed)
        self._share(member.matched, -1)
        self._size -= member.counted
        del self.members[member.member_id]
        self._target.pop(member.member_id, None)
        self._static.pop(member.instance_id or "", None)

    # -- offsets ----------------------------------------------------------------------------------

    def commit(
        self,
        member_id: str,
        epoch: int,
        places: Iterable[TopicPartition],
        *,
        knows_epochs: bool = True,
    ) -> Code:
        """Say whether somebody may commit offsets.

        An earlier epoch will do for partitions that the member has had since then.

        Args:
            member_id: who it is.
            epoch: of which epoch it thinks it is; below 0 for a tool.
            places: of which partitions.
            knows_epochs: whether the request's version has member epochs (9).
        """
        if self.is_dead:
            return Code.COORDINATOR_NOT_AVAILABLE
        if epoch < 0 and not self.members:
            return Code.NONE
        member = self.members.get(member_id)
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        if not knows_epochs:
            return Code.UNSUPPORTED_VERSION
        if epoch == member.epoch:
            return Code.NONE
        if epoch > member.epoch:
            return Code.STALE_MEMBER_EPOCH
        had = {**member.assigned, **member.revoking}
        for name, number in places:
            size = self._topics.get(name)
            since = None if size is None else had.get(Place(size.topic_id, number))
            if since is None or epoch < since:
                return Code.STALE_MEMBER_EPOCH
        return Code.NONE

    def may_fetch(self, member_id: str | None, epoch: int) -> Code:
        """Say whether somebody may look offsets up, being of some epoch; tools say nothing."""
        if member_id is None and epoch < 0:
            return Code.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if epoch == member.epoch else Code.STALE_MEMBER_EPOCH

    def subscribes_to(self, topic: str) -> bool:
        """Whether any of its members wants a topic."""
        return topic in self._wanted

    # -- time, and the end ------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `advance` may have something to do at the earliest; None for never."""
        times = (self._look_again if self.members else None, self.assignment_due)
        return min((each for each in times if each is not None), default=None)

    def advance(self, now: float) -> None:
        """Do without those who were not heard of, or have not given up what they had to."""
        late = [
            each
            for each in self.members.values()
            if each.session_end <= now or (each.revoke_end is not None and each.revoke_end <= now)
        ]
        for member in late:
            self._remove(member)
        if late:
            self._new_epoch()
        times = [each.session_end for each in self.members.values()]
        times += [e.revoke_end for e in self.members.values() if e.revoke_end is not None]
        self._look_again = min(times, default=None)

    def end(self, _code: Code) -> None:
        """Let it be dead: it is deleted, or coordinated elsewhere."""
        self.is_dead = True
        self.members.clear()
        self._size = 0
        self._wanted.clear()
        self._owners.clear()
        self._static.clear()

    # -- for tools --------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """What its members hold, in bytes."""
        return self._size + _MATCHED_BYTES * self._shared_topics

    def growth(self, beat: ConsumerHeartbeat, matched: tuple[str, ...] | None) -> int:
        """How many more bytes it would hold after a heartbeat, about; 0 for fewer.

        Args:
            beat: the heartbeat.
            matched: see `on_heartbeat`.
        """
        member = self.members.get(beat.member_id) or self._static_member(beat.instance_id or "")
        if member is None and beat.member_epoch != JOINS:
            return 0
        grown = 0 if member is not None else MEMBER_BYTES
        held = member or Consumer("")
        if beat.topics is not None:
            grown += topics_bytes(set(beat.topics)) - topics_bytes(held.topics)
        if beat.regex is not None:
            grown += len(beat.regex) - len(held.regex or "")
        if matched is not None and all(each.matched != matched for each in self.members.values()):
            grown += _MATCHED_BYTES * (len(matched) - len(held.matched))
        return max(grown, 0)

    def describe(self) -> DescribedConsumers:
        """Describe it."""
        return DescribedConsumers(
            self.state,
            self.epoch,
            self.assignment_epoch,
            self._preferred_assignor(),
            tuple(
                DescribedConsumer(
                    each.member_id,
                    each.instance_id,
                    each.rack_id,
                    each.epoch,
                    each.client_id,
                    each.client_host,
                    each.topics,
                    each.regex,
                    frozenset((*each.assigned, *each.revoking)),
                    self._target.get(each.member_id, NO_PLACES),
                )
                for each in self.members.values()
            ),
        )


def _check_epoch(member: Consumer, beat: ConsumerHeartbeat) -> None:
    """Refuse who has another epoch than it was told; the answer that told it may be lost."""
    given = beat.member_epoch
    if given == JOINS or given == member.epoch:
        return
    is_before = given == member.previous_epoch and beat.owned is not None
    if is_before and beat.owned is not None and beat.owned <= member.assigned.keys():
        return
    compared = "greater" if given > member.epoch else "smaller"
    raise KafkaError(
        Code.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {compared} member epoch ({given}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _unknown(member_id: str) -> KafkaError:
    return KafkaError(Code.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of the group.")
