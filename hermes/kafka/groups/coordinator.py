"""What is asked of the groups that a broker coordinates, whatever the version of the request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, ensureDeferred

from hermes.kafka.errors import Code
from hermes.kafka.groups.kept import MEMBER_BYTES
from hermes.kafka.groups.offsets import Change, Committed, TopicPartition, weight
from hermes.kafka.groups.own_groups import OwnGroups, RefusedError
from hermes.kafka.groups.values import (
    DescribedGroup,
    Join,
    Joined,
    Leaving,
    State,
    Sync,
    Synced,
)


class ListedGroup(NamedTuple):
    """A group among others."""

    name: str
    state: State
    protocol_type: str


class GroupCoordinator(OwnGroups):
    """The groups of a broker, for its clients. See `OwnGroups`."""

    # -- members --------------------------------------------------------------------------------

    async def join(self, name: str, join: Join) -> Joined:
        """Take a JoinGroup; see `Group.join`."""
        if not name:
            return Joined(Code.INVALID_GROUP_ID, join.member_id)
        try:
            kept = await self._find(name, make=not join.member_id)
            if kept is None:
                return Joined(Code.UNKNOWN_MEMBER_ID, join.member_id)
            more = sum(len(each.metadata) for each in join.protocols)
            if not join.member_id:
                more += MEMBER_BYTES + 2 * len(join.client_id)
            self._check_memory(name, more)
        except RefusedError as error:
            return Joined(error.code, join.member_id)
        answer: Deferred[Joined] = Deferred()
        kept.group.join(join, self._clock.seconds(), _once(answer))
        self._changed(kept)
        return await answer

    async def sync(self, name: str, sync: Sync) -> Synced:
        """Take a SyncGroup; see `Group.sync`."""
        if not name:
            return Synced(Code.INVALID_GROUP_ID)
        try:
            kept = await self._find(name, make=False)
            self._check_memory(name, sum(map(len, sync.assignments.values())))
        except RefusedError as error:
            return Synced(error.code)
        if kept is None:
            return Synced(Code.UNKNOWN_MEMBER_ID)
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
        if kept is None:
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
        codes = kept.group.leave(leaving, self._clock.seconds())
        self._changed(kept)
        return Code.NONE, codes

    # -- offsets --------------------------------------------------------------------------------

    async def commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, Committed],
    ) -> Code:
        """Keep offsets, if whoever asks may.

        Returns:
            `NONE` once they are on disk; `GROUP_ID_NOT_FOUND` where there is no such group and a
            generation was given.
        """
        try:
            kept = await self._find(name, make=generation < 0)
            if kept is None:
                return Code.GROUP_ID_NOT_FOUND
            code = kept.group.commit(member_id, instance_id, generation, self._clock.seconds())
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
        self, name: str, places: Iterable[TopicPartition] | None
    ) -> tuple[Code, dict[TopicPartition, Committed]]:
        """Look up committed offsets: after all commits that were taken before.

        Args:
            name: the group.
            places: of which partitions; None for all.
        """
        try:
            kept = await self._find(name, make=False)
            if kept is not None and kept.busy:
                await self._queue.settled()
                kept = await self._find(name, make=False)
        except RefusedError as error:
            return error.code, {}
        found = {} if kept is None else self._shown(kept)
        if places is None:
            return Code.NONE, found
        return Code.NONE, {each: found[each] for each in places if each in found}

    async def delete_offsets(
        self, name: str, places: Sequence[TopicPartition]
    ) -> tuple[Code, dict[TopicPartition, Code]]:
        """Forget offsets of topics to which the group does not subscribe."""
        try:
            kept = await self._find(name, make=False)
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

    def topic_gone(self, topic: str) -> None:
        """Forget all groups' offsets of a topic that is deleted, soon."""
        gone_ms = self._now_ms()

        def failed(failure: Any) -> None:
            if failure.check(RefusedError) is None:
                self._log.failure("forgetting the offsets of {topic} failed", failure, topic=topic)

        ensureDeferred(self.forget_topic(topic, gone_ms)).addErrback(failed)

    async def forget_topic(self, topic: str, gone_ms: int) -> None:
        """Forget all groups' offsets of a topic that are from up to some time.

        Args:
            topic: its name; another one may have it by now.
            gone_ms: when it was deleted, in ms since 1970.

        Raises:
            RefusedError: groups can't be read now.
        """
        for kept in await self._all():
            gone = [
                place
                for place, committed in kept.offsets.items()
                if place.topic == topic and committed.commit_ms <= gone_ms
            ]
            if gone:
                await self._write(kept, Change(kept.group.name, offsets=dict.fromkeys(gone)))

    # -- for tools ------------------------------------------------------------------------------

    async def list_groups(self) -> list[ListedGroup]:
        """List the groups of this broker, by name.

        Raises:
            RefusedError: they can't be read now.
        """
        return sorted(
            ListedGroup(each.group.name, each.group.state, each.group.protocol_type or "")
            for each in await self._all()
        )

    async def describe(self, name: str) -> DescribedGroup | Code:
        """Describe a group, or say why not."""
        try:
            kept = await self._find(name, make=False)
        except RefusedError as error:
            return error.code
        return Code.GROUP_ID_NOT_FOUND if kept is None else kept.group.describe()

    async def delete(self, name: str) -> Code:
        """Forget a group that has no members, with its offsets; one without a name, too."""
        try:
            kept = await self._find(name, make=False)
        except RefusedError as error:
            return error.code
        if kept is None:
            return Code.GROUP_ID_NOT_FOUND
        if kept.group.state is not State.EMPTY:
            return Code.NON_EMPTY_GROUP
        return await self._delete(kept)


def _once(answer: "Deferred[Any]") -> Callable[[Any], None]:
    """What gives an answer, unless whoever asked has gone."""

    def give(result: Any) -> None:
        if not answer.called:
            answer.callback(result)

    return give
