"""A consumer group (KIP-848): the coordinator says who has what, and members say what they have.

A state machine without I/O and without a clock, as `group` is for classic groups. What it does and
each error are Kafka 4's (`GroupMetadataManager`, `ConsumerGroup`):

    `on_heartbeat`: a heartbeat joins, leaves, or says what has changed
      subscriptions or topics changed, a member is gone  -> the group's epoch grows
    the group's epoch is beyond the target's             -> an assignor makes the target anew
    `answer`: the member isn't where the target has it   -> it takes a step (`consumer_member`)

`revision` grows with all that must be on disk before anybody is answered.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from hermes.groups.assignors import Subscriptions, Target
from hermes.groups.consumer_member import ConsumerMember, next_step, topics_bytes
from hermes.groups.consumer_values import (
    JOINS,
    STATIC_LEAVE,
    ConsumerHeartbeat,
    ConsumerMembership,
    ConsumerSettings,
    DescribedConsumer,
    DescribedConsumers,
    HeartbeatResponse,
    Reconciliation,
    TopicIdPartition,
    TopicLookup,
)
from hermes.groups.offsets import TopicPartition
from hermes.groups.targets import Assignment, SubscribedTopics, TargetAssignment
from hermes.groups.values import CONSUMER, MEMBER_BYTES, Leaving, State
from hermes.protocol.kafka_errors import Code, KafkaError

#: What each topic weighs that a regular expression has found: others have its name, too.
_MATCHED_BYTES: Final = 16


class ConsumerGroup:
    """One consumer group.

    Args:
        epoch: the one that it had before; see `restore`.

    Attributes:
        epoch: grows whenever the target assignment has to be made anew.
        members: its members by id, in the order in which they came.
        revision: changes whenever what is to be stored does.
    """

    #: Nobody waits for a place in it: what a classic group has there is always empty here.
    pending: Mapping[str, float] = {}
    protocol_type = CONSUMER
    is_of_consumers = True

    def __init__(
        self,
        name: str,
        settings: Callable[[], ConsumerSettings],
        topics: TopicLookup,
        *,
        epoch: int = 0,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.members: dict[str, ConsumerMember] = {}
        self.revision = 0
        self.is_dead = False
        self._settings = settings
        self._topics = SubscribedTopics(topics)
        self._target = TargetAssignment(epoch)
        self._owners: dict[TopicIdPartition, str] = {}
        self._static: dict[str, str] = {}  # member ids by instance id
        self._next_check: float | None = None  # no deadline of a member is earlier
        self._size = 0

    @property
    def membership(self) -> ConsumerMembership:
        members = tuple(
            each.to_stored(self._target.share_of(each.member_id)) for each in self.members.values()
        )
        return ConsumerMembership(self._target.epoch, dict(self._topics.sizes), members)

    def restore(self, membership: ConsumerMembership, now: float) -> None:
        """Continue as what was stored; each member has a session's time to be heard of."""
        self._target.epoch = membership.assignment_epoch
        self._topics.sizes = dict(membership.topics)
        end = now + self._settings().session_ms / 1000
        self._check_by(end)
        for stored in membership.members:
            member = self.members[stored.member_id] = ConsumerMember.from_stored(stored, end)
            self._target.shares[stored.member_id] = stored.target
            if stored.instance_id is not None:
                self._static[stored.instance_id] = stored.member_id
            if stored.state is Reconciliation.UNREVOKED and stored.epoch >= 0:
                member.revoke_end = now + stored.rebalance_timeout_ms / 1000
                self._check_by(member.revoke_end)
            self._own(member)
            self._update_size(member)
            self._topics.count_matches(member.matched, 1)
            self._topics.count(member.subscribed, ())
        self._update_is_large()

    @property
    def state(self) -> State:
        if self.is_dead:
            return State.DEAD
        if not self.members:
            return State.EMPTY
        if self.epoch > self._target.epoch:
            return State.ASSIGNING
        if all(each.is_at(self._target.epoch) for each in self.members.values()):
            return State.STABLE
        return State.RECONCILING

    def _new_epoch(self) -> None:
        self.epoch += 1
        self.revision += 1
        self._update_is_large()

    def _update_is_large(self) -> None:
        self._target.is_large = self._topics.weight >= self._settings().large

    # -- heartbeats -------------------------------------------------------------------------------

    def on_heartbeat(
        self, beat: ConsumerHeartbeat, matched: tuple[str, ...] | None, now: float
    ) -> None:
        """Take what a heartbeat says; `answer` follows, after a target that has to be made.

        Args:
            matched: the topics that the member's regular expression finds, sorted; None where it
                has none.

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
        self._check_by(member.session_end)
        has_changed = self._update(member, beat, matched)
        if has_changed:
            self._topics.refresh()
        if has_changed or self._topics.refresh_if_changed():
            self._new_epoch()

    def answer(self, beat: ConsumerHeartbeat, now: float) -> HeartbeatResponse:
        """Let a member whose heartbeat was taken make a step, and tell it where it is.

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
        has_new = self._take_step(member, beat.owned, now)
        is_asked = beat.member_epoch == JOINS or beat.is_full
        return HeartbeatResponse(
            member.member_id,
            member.epoch,
            self._settings().heartbeat_ms,
            frozenset(member.assigned) if is_asked or has_new else None,
        )

    def regex_of(self, beat: ConsumerHeartbeat) -> str | None:
        """The regular expression whose topics a heartbeat needs, if any."""
        if beat.leaves:
            return None
        if beat.regex is not None:
            return beat.regex or None
        member = self.members.get(beat.member_id)
        return None if member is None else member.regex

    def _member_of(self, beat: ConsumerHeartbeat) -> ConsumerMember:
        if beat.instance_id is not None:
            return self._static_member_of(beat)
        member = self.members.get(beat.member_id)
        if member is None:
            if beat.member_epoch != JOINS:
                raise _unknown(beat.member_id)
            return self._join(ConsumerMember(beat.member_id))
        _check_epoch(member, beat)
        return member

    def _static_member_of(self, beat: ConsumerHeartbeat) -> ConsumerMember:
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
            return self._join(ConsumerMember(beat.member_id, instance_id))
        if before.epoch != STATIC_LEAVE:
            raise KafkaError(
                Code.UNRELEASED_INSTANCE_ID,
                f"Static member {beat.member_id} with instance id {instance_id} cannot join the "
                f"group because the instance id is owned by member {before.member_id}.",
            )
        return self._replace(before, beat.member_id)

    def _static_member(self, instance_id: str) -> ConsumerMember | None:
        return self.members.get(self._static.get(instance_id, ""))

    def _checked(self, member: ConsumerMember | None, beat: ConsumerHeartbeat) -> ConsumerMember:
        if member is None:
            raise KafkaError(Code.UNKNOWN_MEMBER_ID, f"Instance id {beat.instance_id} is unknown.")
        if member.member_id != beat.member_id:
            raise KafkaError(
                Code.FENCED_INSTANCE_ID,
                f"Static member {beat.member_id} with instance id {beat.instance_id} was fenced by "
                f"member {member.member_id}.",
            )
        return member

    def _join(self, member: ConsumerMember) -> ConsumerMember:
        most = self._settings().max_members
        if len(self.members) >= most:
            raise KafkaError(
                Code.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )
        return self._insert(member)

    def _insert(self, member: ConsumerMember) -> ConsumerMember:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self.revision += 1
        return member

    def _replace(self, before: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member is back under another id: it keeps all that it had."""
        self._target.rename(before.member_id, member_id)
        del self.members[before.member_id]
        before.member_id = member_id
        before.epoch, before.previous_epoch = JOINS, JOINS
        for partition in before.assigned:
            self._owners[partition] = member_id
        self._update_size(before)
        return self._insert(before)

    def _update(
        self, member: ConsumerMember, beat: ConsumerHeartbeat, matched: tuple[str, ...] | None
    ) -> bool:
        is_new = member.previous_epoch < 0
        topics, found = member.topics, member.matched
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
        changed = member.update(**said)
        if is_new:
            member.previous_epoch = 0
        if changed or is_new:
            self.revision += 1
            self._update_size(member)
        if "matched" in changed:
            self._topics.count_matches(found, -1)
            self._topics.count_matches(member.matched, 1)
        if changed & {"topics", "matched"}:
            subscribed = ConsumerMember("", topics=topics, matched=found).subscribed
            wanted = member.subscribed
            self._topics.count(wanted - subscribed, subscribed - wanted)
            return wanted != subscribed or is_new
        return is_new

    # -- leaving ----------------------------------------------------------------------------------

    def _leave(self, beat: ConsumerHeartbeat) -> None:
        member: ConsumerMember | None
        if beat.instance_id is None:
            member = self.members.get(beat.member_id)
            if member is None:
                raise _unknown(beat.member_id)
        else:
            member = self._checked(self._static_member(beat.instance_id), beat)
        if beat.member_epoch == STATIC_LEAVE:
            for partition in member.revoking:
                del self._owners[partition]
            member.revoking, member.revoke_end = {}, None
            member.epoch = STATIC_LEAVE
            self.revision += 1
            self._update_size(member)
        else:
            self._remove(member)
            self._new_epoch()

    def leave(self, leaving: Sequence[Leaving]) -> list[Code]:
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

    def _remove(self, member: ConsumerMember) -> None:
        self._release(member)
        self._topics.count((), member.subscribed)
        self._topics.count_matches(member.matched, -1)
        self._size -= member.counted
        del self.members[member.member_id]
        self._target.remove(member.member_id)
        self._static.pop(member.instance_id or "", None)

    # -- the target -------------------------------------------------------------------------------

    @property
    def assignment_epoch(self) -> int:
        return self._target.epoch

    @property
    def is_behind(self) -> bool:
        return self.epoch > self._target.epoch and bool(self.members)

    @property
    def is_assigning(self) -> bool:
        return self._target.making is not None

    @property
    def assignment_due(self) -> float | None:
        """When a large group may have its next target made; None where nobody waits for one."""
        if not self.is_behind or self.is_assigning or not self._target.is_large:
            return None
        return self._target.next_at

    def is_assignment_due(self, now: float) -> bool:
        due = self.assignment_due
        return due is not None and due <= now

    def begin_assignment(self, now: float) -> Assignment | None:
        """Begin a new target, if it is time for one; what is made goes to `end_assignment`."""
        if not self.is_behind or self.is_assigning:
            return None
        if self._target.is_large and now < self._target.next_at:
            return None
        self._topics.refresh()
        members = sorted(self.members.values(), key=_assignment_order)
        # Members share what their expressions find, which may be thousands of topics.
        alike = {(id(each.topics), id(each.matched)): each for each in members}
        topics = {each.subscribed for each in alike.values()}
        ids = {each: self._topics.ids_of(each) for each in topics}
        found = {key: ids[each.subscribed] for key, each in alike.items()}
        wanted = Subscriptions(
            {each.member_id: found[id(each.topics), id(each.matched)] for each in members},
            {size.topic_id: size.partitions for size in self._topics.sizes.values()},
        )
        return self._target.begin(self.epoch, self._preferred_assignor(), wanted)

    def end_assignment(self, made: Assignment, target: Target | None, now: float) -> bool:
        """Take the target that was made; None where that has failed.

        Members that came meanwhile get theirs from the next. Returns whether the group has it now.
        """
        self._target.making = None
        if made.is_large:
            self._target.next_at = now + self._settings().assignment_interval_ms / 1000
        if target is None or self.is_dead:
            return False
        self._target.end(made, target, self.members)
        self.revision += 1
        return True

    def _preferred_assignor(self) -> str:
        names = self._settings().assignors
        asked = Counter(e.assignor for e in self.members.values() if e.assignor in names)
        return next((name or names[0] for name, _ in asked.most_common(1)), names[0])

    def _take_step(
        self, member: ConsumerMember, owned: frozenset[TopicIdPartition] | None, now: float
    ) -> bool:
        target = self._target.share_of(member.member_id)
        if self.is_behind:  # then it may have what the member doesn't want any more
            wanted = self._topics.ids_of(member.subscribed)
            target = frozenset(each for each in target if each.topic_id in wanted)
        step = next_step(
            member, self._target.epoch, target, owned, lambda each: each not in self._owners
        )
        if step is None:
            return False
        has_new = step.assigned.keys() != member.assigned.keys()
        is_same = (step.state, step.epoch) == (member.state, member.epoch)
        if not is_same or has_new or step.revoking.keys() != member.revoking.keys():
            self.revision += 1
            member.previous_epoch = member.epoch
        self._release(member)
        member.state, member.epoch = step.state, step.epoch
        member.assigned, member.revoking = dict(step.assigned), dict(step.revoking)
        self._own(member)
        self._update_size(member)
        member.revoke_end = None
        if step.state is Reconciliation.UNREVOKED:
            member.revoke_end = now + member.rebalance_timeout_ms / 1000
            self._check_by(member.revoke_end)
        return has_new

    def _own(self, member: ConsumerMember) -> None:
        for partition in (*member.assigned, *member.revoking):
            self._owners[partition] = member.member_id

    def _release(self, member: ConsumerMember) -> None:
        for partition in (*member.assigned, *member.revoking):
            del self._owners[partition]

    # -- offsets ----------------------------------------------------------------------------------

    def commit(
        self,
        member_id: str,
        epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        knows_epochs: bool = True,
    ) -> Code:
        """Whether a client may commit offsets of some partitions.

        An earlier epoch will do for partitions that the member has had since then.

        Args:
            epoch: of which epoch it thinks it is; below 0 for a tool.
            knows_epochs: whether the client knows member epochs.
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
        for name, number in partitions:
            size = self._topics.sizes.get(name)
            since = None if size is None else had.get(TopicIdPartition(size.topic_id, number))
            if since is None or epoch < since:
                return Code.STALE_MEMBER_EPOCH
        return Code.NONE

    def may_fetch(self, member_id: str | None, epoch: int) -> Code:
        """Whether a client may read offsets; tools give neither id nor epoch."""
        if member_id is None and epoch < 0:
            return Code.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if epoch == member.epoch else Code.STALE_MEMBER_EPOCH

    def subscribes_to(self, topic: str) -> bool:
        return topic in self._topics

    # -- time, and the end ------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `advance` may have something to do at the earliest; None for never."""
        times = (self._next_check if self.members else None, self.assignment_due)
        return min((each for each in times if each is not None), default=None)

    def advance(self, now: float) -> None:
        """Remove members that were not heard of, or have not given up what they had to."""
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
        self._next_check = min(times, default=None)

    def _check_by(self, at: float) -> None:
        """Check deadlines then, at the latest; putting one off needs no other time."""
        self._next_check = at if self._next_check is None else min(self._next_check, at)

    def end(self, _code: Code) -> None:
        self.is_dead = True
        self.members.clear()
        self._size = 0
        self._topics.clear()
        self._owners.clear()
        self._static.clear()

    # -- for tools --------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return self._size + _MATCHED_BYTES * self._topics.shared_matches

    def _update_size(self, member: ConsumerMember) -> None:
        size = member.size
        self._size += size - member.counted
        member.counted = size

    def growth(self, beat: ConsumerHeartbeat, matched: tuple[str, ...] | None) -> int:
        """How many more bytes it would hold after `on_heartbeat`, about; 0 for fewer."""
        member = self.members.get(beat.member_id) or self._static_member(beat.instance_id or "")
        if member is None and beat.member_epoch != JOINS:
            return 0
        grown = 0 if member is not None else MEMBER_BYTES
        held = member or ConsumerMember("")
        if beat.topics is not None:
            grown += topics_bytes(set(beat.topics)) - topics_bytes(held.topics)
        if beat.regex is not None:
            grown += len(beat.regex) - len(held.regex or "")
        if matched is not None and all(each.matched != matched for each in self.members.values()):
            grown += _MATCHED_BYTES * (len(matched) - len(held.matched))
        return max(grown, 0)

    def describe(self) -> DescribedConsumers:
        return DescribedConsumers(
            self.state,
            self.epoch,
            self._target.epoch,
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
                    self._target.share_of(each.member_id),
                )
                for each in self.members.values()
            ),
        )


def _assignment_order(member: ConsumerMember) -> Any:
    return member.instance_id is None, member.instance_id or "", member.member_id


def _check_epoch(member: ConsumerMember, beat: ConsumerHeartbeat) -> None:
    """Refuse another epoch than the member was told; the answer that told it may be lost."""
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
