"""What is asked of the groups that a broker coordinates, whatever the version of the request."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.consumer_values import (
    JOINS,
    ConsumerHeartbeat,
    DescribedConsumers,
    HeartbeatResponse,
)
from hermes.groups.expiry import OffsetExpiry
from hermes.groups.group import Group
from hermes.groups.group_entry import GroupEntry
from hermes.groups.local_groups import LocalGroups
from hermes.groups.members import protocols_size
from hermes.groups.offsets import (
    Change,
    Committed,
    TopicPartition,
    offset_bytes,
    pending_place,
)
from hermes.groups.store_queue import Then
from hermes.groups.values import (
    MEMBER_BYTES,
    DescribedGroup,
    Join,
    JoinResponse,
    Leaving,
    State,
    Sync,
    SyncResponse,
)
from hermes.protocol.kafka_errors import Code, KafkaError


class ListedGroup(NamedTuple):
    """A group among others; its kind is `classic` or `consumer`."""

    name: str
    state: State
    protocol_type: str
    kind: str


class GroupCoordinator:
    """The groups of a broker, for its clients. Lives in the reactor's thread."""

    def __init__(self, groups: LocalGroups) -> None:
        self.local = groups
        self.expiry = OffsetExpiry(groups)
        self._clock = groups.clock

    def begin(self) -> None:
        """Look after groups from now on, also after those that nobody asks for."""
        self.local.begin()
        self.expiry.begin()

    def stop(self) -> "Deferred[None]":
        """Answer all that wait, and finish what is being written; fires when that is done."""
        self.expiry.stop()
        return self.local.stop()

    # -- members --------------------------------------------------------------------------------

    async def join(self, name: str, join: Join) -> JoinResponse:
        if not name:
            return JoinResponse(Code.INVALID_GROUP_ID, join.member_id)
        try:
            entry = await self.local.find(name, make=not join.member_id)
            if entry is None:
                return JoinResponse(Code.UNKNOWN_MEMBER_ID, join.member_id)
            if isinstance(entry.group, ConsumerGroup) and entry.group.members:
                return JoinResponse(Code.INCONSISTENT_GROUP_PROTOCOL, join.member_id)
            if isinstance(entry.group, ConsumerGroup) and join.member_id:
                return JoinResponse(Code.UNKNOWN_MEMBER_ID, join.member_id)
            self.local.check_memory(name, _growth(entry.group, join))
        except KafkaError as error:
            return JoinResponse(error.code, join.member_id)
        answer: Deferred[JoinResponse] = Deferred()
        group = entry.group
        if isinstance(group, ConsumerGroup):  # which has no members any more
            group = self.local.become_classic(entry)
        group.join(join, self._clock.seconds(), _once(answer))
        self.local.changed(entry)
        return await answer

    async def sync(self, name: str, sync: Sync) -> SyncResponse:
        if not name:
            return SyncResponse(Code.INVALID_GROUP_ID)
        try:
            entry = await self.local.find(name, make=False)
            if entry is None or isinstance(entry.group, ConsumerGroup):
                return SyncResponse(Code.UNKNOWN_MEMBER_ID)
            held = sum(len(each.assignment) for each in entry.group.members.by_id.values())
            self.local.check_memory(name, sum(map(len, sync.assignments.values())) - held)
        except KafkaError as error:
            return SyncResponse(error.code)
        answer: Deferred[SyncResponse] = Deferred()
        entry.group.sync(sync, self._clock.seconds(), _once(answer))
        del sync  # only the leader's is needed, and it may have to wait for minutes
        self.local.changed(entry)
        return await answer

    async def heartbeat(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> Code:
        try:
            await self.local.find(name, make=False)
        except KafkaError as error:
            return error.code
        code = self.heartbeat_now(name, member_id, instance_id, generation)
        return Code.UNKNOWN_MEMBER_ID if code is None else code

    def heartbeat_now(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> Code | None:
        """The same; None where the group has to be read first."""
        if not name:
            return Code.INVALID_GROUP_ID
        entry = self.local.known(name)
        if entry is None:
            return None
        if isinstance(entry.group, ConsumerGroup):
            return Code.UNKNOWN_MEMBER_ID
        return entry.group.heartbeat(member_id, instance_id, generation, self._clock.seconds())

    async def leave(self, name: str, leaving: Sequence[Leaving]) -> tuple[Code, list[Code]]:
        if not name:
            return Code.INVALID_GROUP_ID, []
        try:
            entry = await self.local.find(name, make=False)
        except KafkaError as error:
            return error.code, []
        if entry is None:
            return Code.NONE, [Code.UNKNOWN_MEMBER_ID for _ in leaving]
        if isinstance(entry.group, ConsumerGroup):
            codes = entry.group.leave(leaving)
            done = self.local.writer.persist(entry, entry.group)
            self.local.changed(entry)
            return await done, codes
        codes = entry.group.leave(leaving, self._clock.seconds())
        self.local.changed(entry)
        return Code.NONE, codes

    # -- members of consumer groups -------------------------------------------------------------

    async def consumer_heartbeat(
        self,
        name: str,
        beat: ConsumerHeartbeat,
        resolve: Callable[[str], Awaitable[tuple[str, ...]]],
    ) -> HeartbeatResponse:
        """Take a ConsumerGroupHeartbeat; the answer comes once all that it tells is on disk.

        `resolve` finds the topics that a regular expression matches, sorted, or raises KafkaError;
        so does this where the heartbeat is refused.
        """
        entry = None
        try:
            entry, group = await self._consumer_group(name, beat)
            regex, matched = group.regex_of(beat), None
            if regex is not None:
                matched = await resolve(regex)
                if entry.group is not group or self.local.entries.get(name) is not entry:
                    raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE)
        except BaseException:
            if entry is not None:
                self.local.changed(entry)
            raise
        answer = self._take_beat(entry, group, beat, matched)
        return answer if isinstance(answer, HeartbeatResponse) else await answer

    def consumer_heartbeat_now(
        self, name: str, beat: ConsumerHeartbeat
    ) -> HeartbeatResponse | Awaitable[HeartbeatResponse] | None:
        """The same; None where the group has to be found, or its topics are."""
        entry = self.local.known(name)
        if entry is None or not isinstance(entry.group, ConsumerGroup):
            return None
        if entry.group.regex_of(beat) is not None:
            return None
        return self._take_beat(entry, entry.group, beat, None)

    def _take_beat(
        self,
        entry: GroupEntry,
        group: ConsumerGroup,
        beat: ConsumerHeartbeat,
        matched: tuple[str, ...] | None,
    ) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
        before = group.revision
        try:
            if more := group.growth(beat, matched):
                self.local.check_memory(group.name, more)
            now = self._clock.seconds()
            group.on_heartbeat(beat, matched, now)
            made = None if beat.leaves else self.local.assigner.catch_up(entry, group)
            if made is not None:
                return self._once_made(made, entry, group, beat)
            response = group.answer(beat, now)
        except BaseException:
            self.local.changed(entry)
            raise
        if group.revision != before:  # else its deadlines are the same, or later
            self.local.changed(entry)
        if group.revision == entry.revision:
            return response
        return self._once_written(entry, group, response)

    async def _once_made(
        self,
        made: "Deferred[None]",
        entry: GroupEntry,
        group: ConsumerGroup,
        beat: ConsumerHeartbeat,
    ) -> HeartbeatResponse:
        try:
            await made
            response = group.answer(beat, self._clock.seconds())
        finally:
            self.local.changed(entry)
        return await self._once_written(entry, group, response)

    async def _once_written(
        self, entry: GroupEntry, group: ConsumerGroup, response: HeartbeatResponse
    ) -> HeartbeatResponse:
        code = await self.local.writer.persist(entry, group)
        if code is not Code.NONE:
            raise KafkaError(code)
        return response

    async def _consumer_group(
        self, name: str, beat: ConsumerHeartbeat
    ) -> tuple[GroupEntry, ConsumerGroup]:
        """The group of a heartbeat; a classic group that nobody is in becomes a consumer group."""
        joins = beat.member_epoch == JOINS
        entry = await self.local.find(name, make=joins)
        if entry is None:
            raise KafkaError(Code.GROUP_ID_NOT_FOUND, f"Consumer group {name} not found.")
        if isinstance(entry.group, Group):
            if not joins or entry.group.state is not State.EMPTY:
                raise KafkaError(Code.GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
            return entry, self.local.become_consumer(entry)
        return entry, entry.group

    async def describe_consumers(self, name: str) -> DescribedConsumers:
        """Describe a consumer group; KafkaError where there is none of this name."""
        entry = await self.local.find(name, make=False)
        if entry is None:
            raise KafkaError(Code.GROUP_ID_NOT_FOUND, f"Group {name} not found.")
        if not isinstance(entry.group, ConsumerGroup):
            raise KafkaError(Code.GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
        return entry.group.describe()

    # -- offsets --------------------------------------------------------------------------------

    async def commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, Committed],
        knows_epochs: bool = True,
    ) -> Code:
        """Store offsets, if the client may.

        Args:
            generation: its generation or member epoch; below 0 for a tool.
            knows_epochs: whether the client knows member epochs.

        Returns:
            `NONE` once they are on disk; `GROUP_ID_NOT_FOUND` where there is no such group and a
            generation was given.
        """
        done: Deferred[Code] = Deferred()
        commit = (member_id, instance_id, generation, offsets, knows_epochs, done.callback)
        if not self.commit_now(name, *commit):
            try:
                entry = await self.local.find(name, make=generation < 0)
            except KafkaError as error:
                return _of_commit(error)
            if entry is None:
                return Code.GROUP_ID_NOT_FOUND
            if not self.commit_now(name, *commit):
                return Code.NOT_COORDINATOR
        return await done

    def commit_now(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, Committed],
        knows_epochs: bool,
        then: Then,
    ) -> bool:
        """The same, where `then` is told; False where the group has to be read first."""
        entry = self.local.known(name)
        if entry is None:
            return False
        group = entry.group
        if isinstance(group, ConsumerGroup):
            code = group.commit(member_id, generation, offsets, knows_epochs=knows_epochs)
        else:
            code = group.commit(member_id, instance_id, generation, self._clock.seconds())
        if code is Code.NONE:
            more = 0
            for partition, each in offsets.items():
                before = entry.offsets.get(partition)
                if before is None or len(each.metadata) > len(before.metadata):
                    more += offset_bytes(partition, each)
            try:
                if more:
                    self.local.check_memory(group.name, more)
            except KafkaError as error:
                then(_of_commit(error))
                return True
        if code is not Code.NONE or not offsets:
            self.local.changed(entry)
            then(code)
            return True
        changes: Mapping[TopicPartition, Committed | None] = offsets
        if entry.pending:  # it is older, and what is committed last counts
            changes = {**offsets, **_forgotten(entry.pending, offsets)}
        self.local.write_then(entry, Change(name, None, changes), then, len(offsets))
        return True

    async def commit_in_transaction(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        producer_id: int,
        offsets: Mapping[TopicPartition, Committed],
        join: Callable[[], Awaitable[Code]],
    ) -> Code:
        """Store offsets that a producer's transaction will commit, if the client may.

        Args:
            generation: as for `commit`; below 0, without a member: a producer that knows of none.
            join: has the group be part of the transaction, or finds out that it is.
        """
        try:
            entry = await self.local.find(name, make=generation < 0)
        except KafkaError as error:
            return _of_commit(error)
        if entry is None:
            return Code.ILLEGAL_GENERATION

        def judge() -> Code:
            if generation < 0 and not member_id:
                return Code.NONE
            group, now = entry.group, self._clock.seconds()
            if isinstance(group, ConsumerGroup):
                code = group.commit(member_id, generation, offsets)
                # Producers know no other one, and for those that they don't know they give up.
                return Code.ILLEGAL_GENERATION if code is Code.STALE_MEMBER_EPOCH else code
            return group.commit(member_id, instance_id, generation, now, is_in_transaction=True)

        entry.busy += 1
        try:
            code, markers = judge(), entry.markers
            if code is Code.NONE:
                code = await join()
            if code is not Code.NONE:
                return code
            if self.local.entries.get(name) is not entry:
                return Code.NOT_COORDINATOR
            if markers != entry.markers:  # the transaction may be the one that has ended
                return Code.COORDINATOR_LOAD_IN_PROGRESS
            code = judge()  # another member may have what it had, and have read what is committed
            if code is not Code.NONE:
                return code
            self.local.check_memory(name, sum(offset_bytes(*each) for each in offsets.items()))
            pending = {pending_place(producer_id, place): each for place, each in offsets.items()}
            code = await self.local.write(entry, Change(name, None, pending))
            if code is not Code.NONE:
                entry.doubtful.setdefault(producer_id, set()).update(offsets)
            return code
        except KafkaError as error:
            return _of_commit(error)
        finally:
            entry.busy -= 1
            self.local.changed(entry)

    async def end_transaction(self, name: str, producer_id: int, *, commits: bool) -> Code:
        """Commit the offsets of a producer's transaction, or forget them; again does nothing."""
        try:
            entry = await self.local.find(name, make=False)
            if entry is not None:
                entry.markers += 1  # nothing more is stored of it from here on
            # And what was to be has been then, so that what is committed after it stays.
            while (entry := await self.local.find_verified(name)) is not None:
                ending = [
                    pending_place(producer_id, each) for each in entry.pending.get(producer_id, ())
                ]
                if len(entry.unchanging(ending)) == len(ending):
                    break
        except KafkaError as error:
            return error.code
        if entry is None:
            return Code.NONE
        # What failed to be stored may be there all the same, and is of no later transaction.
        changes: dict[TopicPartition, Committed | None] = {
            pending_place(producer_id, place): None for place in entry.doubtful.get(producer_id, ())
        }
        for place, committed in entry.pending.get(producer_id, {}).items():
            if commits:
                changes[place] = committed
            changes[pending_place(producer_id, place)] = None
        if not changes:
            return Code.NONE
        code = await self.local.write(entry, Change(name, None, changes))
        if code is Code.NONE:
            entry.doubtful.pop(producer_id, None)
        return code

    def unstable(self, name: str) -> Collection[TopicPartition]:
        """What transactions that haven't ended are about to commit of a group."""
        entry = self.local.entries.get(name)
        if entry is None or not entry.pending:
            return ()
        return {place for each in entry.pending.values() for place in each}

    async def fetch(
        self,
        name: str,
        partitions: Iterable[TopicPartition] | None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[Code, dict[TopicPartition, Committed]]:
        """Look up committed offsets: after all commits that were taken before, here or elsewhere.

        Without partitions all; a member of a consumer group may give its id and epoch.
        """
        try:
            entry = await self.local.find_verified(name)
        except KafkaError as error:
            # The one retriable code that all clients know: aiokafka's consumers end with others.
            passes = error.code is Code.COORDINATOR_NOT_AVAILABLE
            return Code.COORDINATOR_LOAD_IN_PROGRESS if passes else error.code, {}
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            code = entry.group.may_fetch(member_id, member_epoch)
            if code is not Code.NONE:
                return code, {}
        return Code.NONE, {} if entry is None else self.expiry.shown(entry, partitions)

    async def delete_offsets(
        self, name: str, partitions: Sequence[TopicPartition]
    ) -> tuple[Code, dict[TopicPartition, Code]]:
        """Forget offsets of topics to which the group does not subscribe."""
        try:
            entry = await self.local.find_verified(name)
        except KafkaError as error:
            return error.code, {}
        if not name:
            return Code.INVALID_GROUP_ID, {}
        if entry is None:
            return Code.GROUP_ID_NOT_FOUND, {}
        if entry.group.state is not State.EMPTY and not entry.group.is_of_consumers:
            return Code.NON_EMPTY_GROUP, {}
        subscribed = Code.GROUP_SUBSCRIBED_TO_TOPIC
        codes = {
            each: subscribed if entry.group.subscribes_to(each.topic) else Code.NONE
            for each in partitions
        }
        gone = [each for each, code in codes.items() if code is Code.NONE and each in entry.offsets]
        code = Code.NONE
        if gone:
            code = await self.local.write(entry, Change(name, offsets=dict.fromkeys(gone)))
        return code, codes

    # -- for tools ------------------------------------------------------------------------------

    async def list_groups(self) -> list[ListedGroup]:
        """The groups of this broker, by name; KafkaError if they can't be read now."""
        return sorted(
            ListedGroup(
                each.group.name,
                each.group.state,
                each.group.protocol_type or "",
                "consumer" if isinstance(each.group, ConsumerGroup) else "classic",
            )
            for each in await self.local.all()
        )

    async def describe(self, name: str) -> DescribedGroup | Code:
        try:
            entry = await self.local.find(name, make=False)
        except KafkaError as error:
            return error.code
        if entry is None or isinstance(entry.group, ConsumerGroup):
            return Code.GROUP_ID_NOT_FOUND
        return entry.group.describe()

    def is_consumer_group(self, name: str) -> bool:
        entry = self.local.entries.get(name)
        return entry is not None and isinstance(entry.group, ConsumerGroup)

    async def delete(self, name: str) -> Code:
        """Forget a group that has no members, with its offsets; one without a name, too."""
        try:
            entry = await self.local.find_verified(name)
        except KafkaError as error:
            return error.code
        if entry is None:
            return Code.GROUP_ID_NOT_FOUND
        if entry.group.state is not State.EMPTY:
            return Code.NON_EMPTY_GROUP
        return await self.local.delete(entry)


def _forgotten(
    pending: Mapping[int, Collection[TopicPartition]], offsets: Collection[TopicPartition]
) -> dict[TopicPartition, None]:
    """The changes by which nothing is pending of some places any more."""
    return {
        pending_place(producer_id, place): None
        for producer_id, places in pending.items()
        for place in places
        if place in offsets
    }


def _of_commit(error: KafkaError) -> Code:
    too_much = error.code is Code.GROUP_MAX_SIZE_REACHED
    return Code.INVALID_COMMIT_OFFSET_SIZE if too_much else error.code


def _growth(group: Group | ConsumerGroup, join: Join) -> int:
    """How many more bytes a group would hold after a JoinGroup, about; below 0 for fewer.

    A member that joins again because of a rebalance brings what is held already.
    """
    brought = protocols_size(join.protocols)
    if isinstance(group, Group):
        member_id = join.member_id or group.members.static.get(join.instance_id or "", "")
        member = group.members.by_id.get(member_id)
        if member is not None:
            return brought - protocols_size(member.protocols)
    return brought + (0 if join.member_id else MEMBER_BYTES + 2 * len(join.client_id))


def _once(answer: "Deferred[Any]") -> Callable[[Any], None]:
    def give(result: Any) -> None:
        if not answer.called:
            answer.callback(result)

    return give
