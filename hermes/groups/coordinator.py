"""What is asked of the groups that a broker coordinates, whatever the version of the request."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from hermes.groups.bounds import RefusedError
from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.consumer_values import (
    JOINS,
    ConsumerHeartbeat,
    DescribedConsumers,
    HeartbeatResponse,
)
from hermes.groups.forgetting import ForgettingGroups
from hermes.groups.group import Group
from hermes.groups.group_entry import GroupEntry
from hermes.groups.members import protocols_size
from hermes.groups.offsets import Change, Committed, TopicPartition, weight
from hermes.groups.values import (
    MEMBER_BYTES,
    DescribedGroup,
    Join,
    Joined,
    Leaving,
    State,
    Sync,
    Synced,
)
from hermes.protocol.kafka_errors import Code, KafkaError


class ListedGroup(NamedTuple):
    """A group among others; its kind is `classic` or `consumer`."""

    name: str
    state: State
    protocol_type: str
    kind: str


class GroupCoordinator(ForgettingGroups):
    """The groups of a broker, for its clients. See `LocalGroups`."""

    # -- members --------------------------------------------------------------------------------

    async def join(self, name: str, join: Join) -> Joined:
        """Take a JoinGroup; see `Group.join`."""
        if not name:
            return Joined(Code.INVALID_GROUP_ID, join.member_id)
        try:
            kept = await self._find(name, make=not join.member_id)
            if kept is None:
                return Joined(Code.UNKNOWN_MEMBER_ID, join.member_id)
            if isinstance(kept.group, ConsumerGroup) and kept.group.members:
                return Joined(Code.INCONSISTENT_GROUP_PROTOCOL, join.member_id)
            if isinstance(kept.group, ConsumerGroup) and join.member_id:
                return Joined(Code.UNKNOWN_MEMBER_ID, join.member_id)
            self._check_memory(name, _growth(kept.group, join))
        except RefusedError as error:
            return Joined(error.code, join.member_id)
        answer: Deferred[Joined] = Deferred()
        if isinstance(kept.group, ConsumerGroup):  # which has nobody any more
            kept.group.end(Code.NOT_COORDINATOR)
            kept.group = self._new_classic_group(name)
        kept.group.join(join, self._clock.seconds(), _once(answer))
        self._changed(kept)
        return await answer

    async def sync(self, name: str, sync: Sync) -> Synced:
        """Take a SyncGroup; see `Group.sync`."""
        if not name:
            return Synced(Code.INVALID_GROUP_ID)
        try:
            kept = await self._find(name, make=False)
            if kept is None or isinstance(kept.group, ConsumerGroup):
                return Synced(Code.UNKNOWN_MEMBER_ID)
            held = sum(len(each.assignment) for each in kept.group.members.by_id.values())
            self._check_memory(name, sum(map(len, sync.assignments.values())) - held)
        except RefusedError as error:
            return Synced(error.code)
        answer: Deferred[Synced] = Deferred()
        kept.group.sync(sync, self._clock.seconds(), _once(answer))
        del sync  # only the leader's is needed, and it may have to wait for minutes
        self._changed(kept)
        return await answer

    async def heartbeat(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> Code:
        """Take a Heartbeat; see `Group.heartbeat`."""
        if not name:
            return Code.INVALID_GROUP_ID
        try:
            kept = await self._find(name, make=False)
        except RefusedError as error:
            return error.code
        if kept is None or isinstance(kept.group, ConsumerGroup):
            return Code.UNKNOWN_MEMBER_ID
        now = self._clock.seconds()
        return kept.group.heartbeat(member_id, instance_id, generation, now)

    async def leave(self, name: str, leaving: Sequence[Leaving]) -> tuple[Code, list[Code]]:
        """Take a LeaveGroup: what became of all, and of each."""
        if not name:
            return Code.INVALID_GROUP_ID, []
        try:
            kept = await self._find(name, make=False)
        except RefusedError as error:
            return error.code, []
        if kept is None:
            return Code.NONE, [Code.UNKNOWN_MEMBER_ID for _ in leaving]
        if isinstance(kept.group, ConsumerGroup):
            codes = kept.group.leave(leaving)
            done = self._keeper.keep(kept, kept.group)
            self._changed(kept)
            return await done, codes
        codes = kept.group.leave(leaving, self._clock.seconds())
        self._changed(kept)
        return Code.NONE, codes

    # -- members of consumer groups -------------------------------------------------------------

    async def consumer_heartbeat(
        self,
        name: str,
        beat: ConsumerHeartbeat,
        resolve: Callable[[str], Awaitable[tuple[str, ...]]],
    ) -> HeartbeatResponse:
        """Take a ConsumerGroupHeartbeat; see `ConsumerGroup.on_heartbeat`.

        Args:
            name: the group.
            beat: the heartbeat.
            resolve: finds the topics that a regular expression matches, sorted, or raises
                KafkaError.

        Returns:
            The answer, once all that it tells is on disk.

        Raises:
            KafkaError: it is refused.
        """
        kept = None
        try:
            kept, group = await self._consumer_group(name, beat)
            regex, matched = group.regex_of(beat), None
            if regex is not None:
                matched = await resolve(regex)
                if kept.group is not group or self.groups.get(name) is not kept:
                    raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE)
            self._check_memory(name, group.growth(beat, matched))
            group.on_heartbeat(beat, matched, self._clock.seconds())
            if not beat.leaves:
                await self._assigner.catch_up(kept, group)
            beaten = group.answer(beat, self._clock.seconds())
        except RefusedError as error:
            raise KafkaError(error.code) from error
        finally:
            if kept is not None:
                self._changed(kept)
        code = await self._keeper.keep(kept, group)
        if code is not Code.NONE:
            raise KafkaError(code)
        return beaten

    async def _consumer_group(
        self, name: str, beat: ConsumerHeartbeat
    ) -> tuple[GroupEntry, ConsumerGroup]:
        """The group of a heartbeat; a classic group that nobody is in becomes a consumer group."""
        joins = beat.member_epoch == JOINS
        kept = await self._find(name, make=joins)
        if kept is None:
            raise KafkaError(Code.GROUP_ID_NOT_FOUND, f"Consumer group {name} not found.")
        if isinstance(kept.group, Group):
            if not joins or kept.group.state is not State.EMPTY:
                raise KafkaError(Code.GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
            kept.group.end(Code.COORDINATOR_NOT_AVAILABLE)
            kept.group, kept.revision = self._new_consumer_group(name), 0
        return kept, kept.group

    async def describe_consumers(self, name: str) -> DescribedConsumers:
        """Describe a consumer group.

        Raises:
            KafkaError: there is none of this name.
        """
        try:
            kept = await self._find(name, make=False)
        except RefusedError as error:
            raise KafkaError(error.code) from error
        if kept is None:
            raise KafkaError(Code.GROUP_ID_NOT_FOUND, f"Group {name} not found.")
        if not isinstance(kept.group, ConsumerGroup):
            raise KafkaError(Code.GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
        return kept.group.describe()

    # -- offsets --------------------------------------------------------------------------------

    async def commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, Committed],
        *,
        knows_epochs: bool = True,
    ) -> Code:
        """Keep offsets, if whoever asks may.

        Args:
            name: the group.
            member_id: who asks.
            instance_id: of a static member.
            generation: of which generation or member epoch it is; below 0 for a tool.
            offsets: what to keep.
            knows_epochs: whether the request's version has member epochs.

        Returns:
            `NONE` once they are on disk; `GROUP_ID_NOT_FOUND` where there is no such group and a
            generation was given.
        """
        try:
            kept = await self._find(name, make=generation < 0)
            if kept is None:
                return Code.GROUP_ID_NOT_FOUND
            if isinstance(kept.group, ConsumerGroup):
                code = kept.group.commit(member_id, generation, offsets, knows_epochs=knows_epochs)
            else:
                now = self._clock.seconds()
                code = kept.group.commit(member_id, instance_id, generation, now)
            if code is not Code.NONE:
                self._changed(kept)
                return code
            more = sum(
                weight(place, each)
                for place, each in offsets.items()
                if place not in kept.offsets or len(each.metadata) > len(kept.offsets[place][2])
            )
            self._check_memory(name, more)
        except RefusedError as error:
            too_much = error.code is Code.GROUP_MAX_SIZE_REACHED
            return Code.INVALID_COMMIT_OFFSET_SIZE if too_much else error.code
        if not offsets:
            self._changed(kept)
            return Code.NONE
        code = await self._write(kept, Change(name, offsets=dict(offsets)))
        if code is Code.NONE:
            self.counts.commits += len(offsets)
        return code

    async def fetch(
        self,
        name: str,
        places: Iterable[TopicPartition] | None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[Code, dict[TopicPartition, Committed]]:
        """Look up committed offsets: after all commits that were taken before, here or elsewhere.

        Args:
            name: the group.
            places: of which partitions; None for all.
            member_id: who asks, if it is a member of a consumer group and says so.
            member_epoch: of which epoch it thinks it is.
        """
        try:
            kept = await self._verified(name)
        except RefusedError as error:
            # No other one that passes is known to all clients: aiokafka's consumers would end.
            passes = error.code is Code.COORDINATOR_NOT_AVAILABLE
            return Code.COORDINATOR_LOAD_IN_PROGRESS if passes else error.code, {}
        if kept is not None and isinstance(kept.group, ConsumerGroup):
            code = kept.group.may_fetch(member_id, member_epoch)
            if code is not Code.NONE:
                return code, {}
        found = {} if kept is None else self._shown(kept)
        if places is None:
            return Code.NONE, found
        return Code.NONE, {each: found[each] for each in places if each in found}

    async def _verified(self, name: str) -> GroupEntry | None:
        """A group that no other broker had taken over when this was asked; None where none is.

        This one may not have noticed yet, or be cut off from coordination: what it has in memory
        would be older than what others have seen already.

        Raises:
            RefusedError: as `_find`.
        """
        while True:
            kept = await self._find(name, make=False)
            if kept is None:
                return None
            code = await self._write(kept, Change(name))
            if code is not Code.NONE:
                raise RefusedError(code)
            if self.groups.get(name) is kept:
                self._changed(kept)
                return kept

    async def delete_offsets(
        self, name: str, places: Sequence[TopicPartition]
    ) -> tuple[Code, dict[TopicPartition, Code]]:
        """Forget offsets of topics to which the group does not subscribe."""
        try:
            kept = await self._verified(name)
        except RefusedError as error:
            return error.code, {}
        if not name:
            return Code.INVALID_GROUP_ID, {}
        if kept is None:
            return Code.GROUP_ID_NOT_FOUND, {}
        if kept.group.state is not State.EMPTY and not kept.group.is_of_consumers:
            return Code.NON_EMPTY_GROUP, {}
        subscribed = Code.GROUP_SUBSCRIBED_TO_TOPIC
        codes = {
            each: subscribed if kept.group.subscribes_to(each.topic) else Code.NONE
            for each in places
        }
        gone = [each for each, code in codes.items() if code is Code.NONE and each in kept.offsets]
        code = Code.NONE
        if gone:
            code = await self._write(kept, Change(name, offsets=dict.fromkeys(gone)))
        return code, codes

    # -- for tools ------------------------------------------------------------------------------

    async def list_groups(self) -> list[ListedGroup]:
        """List the groups of this broker, by name.

        Raises:
            RefusedError: they can't be read now.
        """
        return sorted(
            ListedGroup(
                each.group.name,
                each.group.state,
                each.group.protocol_type or "",
                "consumer" if isinstance(each.group, ConsumerGroup) else "classic",
            )
            for each in await self._all()
        )

    async def describe(self, name: str) -> DescribedGroup | Code:
        """Describe a classic group, or say why not."""
        try:
            kept = await self._find(name, make=False)
        except RefusedError as error:
            return error.code
        if kept is None or isinstance(kept.group, ConsumerGroup):
            return Code.GROUP_ID_NOT_FOUND
        return kept.group.describe()

    def is_consumer_group(self, name: str) -> bool:
        """Whether a group in memory is a consumer group."""
        kept = self.groups.get(name)
        return kept is not None and isinstance(kept.group, ConsumerGroup)

    async def delete(self, name: str) -> Code:
        """Forget a group that has no members, with its offsets; one without a name, too."""
        try:
            kept = await self._verified(name)
        except RefusedError as error:
            return error.code
        if kept is None:
            return Code.GROUP_ID_NOT_FOUND
        if kept.group.state is not State.EMPTY:
            return Code.NON_EMPTY_GROUP
        return await self._delete(kept)


def _growth(group: Group | ConsumerGroup, join: Join) -> int:
    """How many more bytes a group would hold after a JoinGroup, about; below 0 for fewer.

    Who joins again because of a rebalance brings what is held already.
    """
    brought = protocols_size(join.protocols)
    if isinstance(group, Group):
        member_id = join.member_id or group.members.static.get(join.instance_id or "", "")
        member = group.members.by_id.get(member_id)
        if member is not None:
            return brought - protocols_size(member.protocols)
    return brought + (0 if join.member_id else MEMBER_BYTES + 2 * len(join.client_id))


def _once(answer: "Deferred[Any]") -> Callable[[Any], None]:
    """What gives an answer, unless whoever asked has gone."""

    def give(result: Any) -> None:
        if not answer.called:
            answer.callback(result)

    return give
