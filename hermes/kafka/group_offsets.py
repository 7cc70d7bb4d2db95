"""OffsetCommit, OffsetFetch, OffsetDelete: how far a group has come."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from hermes.config.kinds import FORMAT_KAFKA
from hermes.coordination.kafka_groups import parse_pending_name
from hermes.groups.offsets import MAX_METADATA_LENGTH, Committed, TopicPartition
from hermes.kafka.classic_groups import may_use, milliseconds
from hermes.kafka.dispatching import ENTRIES_AT_A_TIME, LARGE_ENTRIES, Call
from hermes.protocol.kafka_errors import Code
from hermes.security import LONGEST_NAME, Operation, Resource
from hermes.server.outcomes import DeferredResponse

#: The first OffsetCommit that can be told that there is no such group.
_KNOWS_NO_GROUP: Final = 9
#: The first OffsetCommit that has a member epoch.
_HAS_MEMBER_EPOCH: Final = 9
#: The first OffsetCommit and OffsetFetch that name topics by their UUIDs.
_BY_ID: Final = 10
#: The first OffsetFetch of several groups, and the first that can fail as a whole.
_BATCHED: Final = 8
_HAS_ERROR: Final = 2

_NO_OFFSET: Final = Committed(-1, -1, "", -1)

# -- committing ---------------------------------------------------------------------------------


def offset_commit(request: Any, call: Call) -> Any:
    """Answered once the offsets are on disk."""
    commit, count = _Commit(request, call), 0
    for asked in request.topics:
        count += len(asked.partitions)
        if count > ENTRIES_AT_A_TIME:
            return commit.in_turns()
    for asked in request.topics:
        commit.check(asked, asked.partitions)
    if commit.offsets and call.server.groups.commit_now(*commit.what, then=commit.end):
        return commit.answer
    return commit.stored()


class OffsetCommitting:
    """An OffsetCommit under way, or a TxnOffsetCommit.

    Attributes:
        refused: why nothing is to be stored.
        offsets: what is to be stored.
    """

    #: The response's messages.
    parts = "OffsetCommitResponse", "OffsetCommitResponseTopic", "OffsetCommitResponsePartition"

    def __init__(self, request: Any, call: Call) -> None:
        self._request = request
        self._call = call
        self.refused = may_use(call, request.group_id)
        self.offsets: dict[TopicPartition, Committed] = {}
        self._found: list[tuple[Any, dict[int, Code]]] = []
        self._now_ms = call.server.shared.now_ms()
        retention = getattr(request, "retention_time", None)
        retention_ms = -1 if retention is None else milliseconds(retention)
        self._expire_ms = self._now_ms + retention_ms if retention_ms >= 0 else -1

    async def check_in_turns(self) -> None:
        """Check all partitions, others having turns meanwhile."""
        for asked in self._request.topics:
            for first in range(0, max(1, len(asked.partitions)), ENTRIES_AT_A_TIME):
                self.check(asked, asked.partitions[first : first + ENTRIES_AT_A_TIME])
                await self._call.after_entry(ENTRIES_AT_A_TIME)

    def check(self, asked: Any, partitions: Sequence[Any]) -> None:
        """Find out what may be stored of these partitions of a topic."""
        call = self._call
        name, refusal = _topic_of(asked, call, Operation.CONSUME)
        topic = call.server.topics.get(name)
        if self.refused is not Code.NONE:
            refusal = self.refused
        elif topic is None and refusal is Code.NONE:
            refusal = Code.UNKNOWN_TOPIC_OR_PARTITION
        elif refusal is Code.NONE and parse_pending_name(name) is not None:
            refusal = Code.INVALID_TOPIC_EXCEPTION
        # Of 0.7's format, directories have no UUID that would outlast all.
        is_kept = topic is not None and topic.format == FORMAT_KAFKA and topic.keeps_id
        topic_id = topic.id if topic is not None and is_kept else None
        if not self._found or self._found[-1][0] is not asked:
            self._found.append((asked, {}))
        codes = self._found[-1][1]
        for each in partitions:
            code, number = refusal, each.partition_index
            metadata = each.committed_metadata or ""
            if code is not Code.NONE:
                pass
            elif topic is None or not 0 <= number < len(topic.partitions):
                code = Code.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) > MAX_METADATA_LENGTH:
                code = Code.OFFSET_METADATA_TOO_LARGE
            else:
                self.offsets[TopicPartition(name, number)] = Committed(
                    each.committed_offset,
                    getattr(each, "committed_leader_epoch", -1),
                    metadata,
                    self._now_ms,
                    self._expire_ms,
                    topic_id,
                )
            codes[number] = code

    def note(self, code: Code) -> None:
        """Say what became of all that was to be stored."""
        if code is Code.GROUP_ID_NOT_FOUND and self._call.version < _KNOWS_NO_GROUP:
            code = Code.ILLEGAL_GENERATION
        for _, codes in self._found:
            codes.update({k: code for k, before in codes.items() if before is Code.NONE})

    def response(self) -> Any:
        make, topics, count = self._call.make, [], 0
        whole, make_topic, make_partition = (getattr(make, each) for each in self.parts)
        for asked, codes in self._found:
            partitions = []
            for number, code in codes.items():
                partitions.append(make_partition(partition_index=number, error_code=code))
            count += len(partitions)
            topics.append(
                make_topic(
                    name=getattr(asked, "name", None),
                    topic_id=getattr(asked, "topic_id", None),
                    partitions=partitions,
                )
            )
        self._call.is_large = count > LARGE_ENTRIES
        return whole(topics=topics)


class _Commit(OffsetCommitting):
    """An OffsetCommit.

    Attributes:
        what: the arguments by which offsets are asked to be stored.
        answer: the response, where it isn't waited for by `stored`.
    """

    def __init__(self, request: Any, call: Call) -> None:
        super().__init__(request, call)
        self.what: tuple[str, str, str | None, int, dict[TopicPartition, Committed], bool] = (
            request.group_id,
            request.member_id,
            getattr(request, "group_instance_id", None),
            request.generation_id_or_member_epoch,
            self.offsets,
            call.version >= _HAS_MEMBER_EPOCH,
        )
        self.answer = DeferredResponse()

    async def in_turns(self) -> Any:
        await self.check_in_turns()
        return await self.stored()

    async def stored(self) -> Any:
        """The response, once what may be stored is."""
        # A request for no partition is the group's to answer, too.
        if self.refused is Code.NONE and (self.offsets or not self._found):
            self.note(await self._call.server.groups.commit(*self.what))
        return self.response()

    def end(self, code: Code) -> None:
        """Answer, by what became of it."""
        if code is not Code.NONE:
            self.note(code)
        self.answer.resolve(self._call.make.response_to(self._call.correlation_id, self.response()))


def _topic_of(
    asked: Any, call: Call, operation: Operation, *, must_exist: bool = False
) -> tuple[str, Code]:
    topics = call.server.topics
    if call.version >= _BY_ID and hasattr(asked, "topic_id"):
        found = None if asked.topic_id is None else topics.by_id(asked.topic_id)
        if found is None:
            return "", Code.UNKNOWN_TOPIC_ID
        name = found.name
    else:
        name = asked.name
    if call.server.authorization.is_on and not call.permits_topic(operation, name):
        return name, Code.TOPIC_AUTHORIZATION_FAILED
    if must_exist and topics.get(name) is None:
        return name, Code.UNKNOWN_TOPIC_OR_PARTITION
    return name, Code.NONE


# -- fetching -----------------------------------------------------------------------------------


async def offset_fetch(request: Any, call: Call) -> Any:
    make, stable = call.make, getattr(request, "require_stable", False)
    if call.version >= _BATCHED:
        groups = []
        # Once each, however often it is named: a group may have megabytes of offsets.
        for each in {each.group_id: each for each in request.groups}.values():
            member = (getattr(each, "member_id", None), getattr(each, "member_epoch", -1))
            code, topics = await _fetch(each.group_id, each.topics, call, stable, *member)
            groups.append(
                make.OffsetFetchResponseGroup(
                    group_id=each.group_id, topics=topics, error_code=code
                )
            )
            await call.after_entry()
        call.is_large = call.is_large or len(groups) > LARGE_ENTRIES
        return make.OffsetFetchResponse(groups=tuple(groups))
    code, topics = await _fetch(request.group_id, request.topics, call, stable)
    if code is not Code.NONE and call.version < _HAS_ERROR:
        topics = _topics(call, _all_with(request.topics, code))
    return make.OffsetFetchResponse(topics=topics, error_code=code)


def _all_with(asked: Any, code: Code) -> Iterator[tuple[Any, list[tuple[int, Committed, Code]]]]:
    for topic in asked:
        yield topic, [(number, _NO_OFFSET, code) for number in topic.partition_indexes]


async def _fetch(
    group: str,
    asked: Any,
    call: Call,
    stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> tuple[Code, tuple[Any, ...]]:
    """Look offsets up. `stable`: none of those that a transaction is about to replace."""
    if len(group) > LONGEST_NAME:
        return Code.INVALID_GROUP_ID, ()
    if not call.permits(Operation.DESCRIBE, Resource.group(group)):
        return Code.GROUP_AUTHORIZATION_FAILED, ()
    named, wanted = [], None
    if asked is not None:
        named = await _named(asked, call)
        wanted = [TopicPartition(name, n) for e, name, _ in named for n in e.partition_indexes]
    code, offsets = await call.server.groups.fetch(group, wanted, member_id, member_epoch)
    if code is not Code.NONE:
        return code, ()
    unstable = call.server.groups.unstable(group) if stable else ()
    if asked is None:
        return code, _topics(call, _all_of(offsets, unstable, call))
    found = []
    for topic, name, refusal in named:
        places = []
        for number in dict.fromkeys(topic.partition_indexes):
            committed, code_of_it, place = _NO_OFFSET, refusal, TopicPartition(name, number)
            if refusal is Code.NONE and place in unstable:
                code_of_it = Code.UNSTABLE_OFFSET_COMMIT
            elif refusal is Code.NONE:
                committed = offsets.get(place, _NO_OFFSET)
            places.append((number, committed, code_of_it))
            await call.after_entry()
        found.append((topic, places))
    return code, _topics(call, found)


async def _named(asked: Any, call: Call) -> list[tuple[Any, str, Code]]:
    """The topics that are asked for, once each, with their names, and why not to tell of them."""
    once = {(getattr(e, "name", None), getattr(e, "topic_id", None)): e for e in asked}
    named = []
    for each in once.values():
        named.append((each, *_topic_of(each, call, Operation.DESCRIBE)))
        await call.after_entry()
    return named


class _NamedTopic:
    """A topic that nobody asked for by name."""

    def __init__(self, name: str, topic_id: Any) -> None:
        self.name = name
        self.topic_id = topic_id


def _all_of(
    offsets: dict[TopicPartition, Committed], unstable: Collection[TopicPartition], call: Call
) -> Iterator[tuple[Any, list[tuple[int, Committed, Code]]]]:
    by_topic: dict[str, list[tuple[int, Committed, Code]]] = {}
    for place, committed in {**offsets, **dict.fromkeys(unstable)}.items():
        code = Code.NONE if committed is not None else Code.UNSTABLE_OFFSET_COMMIT
        found = place.partition, committed or _NO_OFFSET, code
        by_topic.setdefault(place.topic, []).append(found)
    for name, places in by_topic.items():
        places.sort(key=lambda place: place[0])
        topic = call.server.topics.get(name)
        if call.server.shows(call.client, name) and (topic or call.version < _BY_ID):
            yield _NamedTopic(name, topic and topic.id), places


def _topics(call: Call, found: Any) -> tuple[Any, ...]:
    make = call.make
    is_batched = call.version >= _BATCHED
    topic = make.OffsetFetchResponseTopics if is_batched else make.OffsetFetchResponseTopic
    part = make.OffsetFetchResponsePartitions if is_batched else make.OffsetFetchResponsePartition
    topics = tuple(
        topic(
            name=getattr(asked, "name", None),
            topic_id=getattr(asked, "topic_id", None),
            partitions=tuple(
                part(
                    partition_index=number,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=code,
                )
                for number, committed, code in places
            ),
        )
        for asked, places in found
    )
    call.is_large = call.is_large or sum(len(e.partitions) for e in topics) > LARGE_ENTRIES
    return topics


# -- deleting -----------------------------------------------------------------------------------


async def offset_delete(request: Any, call: Call) -> Any:
    make, group = call.make, request.group_id
    refused = may_use(call, group)
    if refused is not Code.NONE:
        return make.OffsetDeleteResponse(error_code=refused, topics=())
    checked = [
        (topic, _topic_of(topic, call, Operation.CONSUME, must_exist=True)[1])
        for topic in request.topics
    ]
    places = [
        TopicPartition(topic.name, each.partition_index)
        for topic, code in checked
        if code is Code.NONE
        for each in topic.partitions
        if _exists(call, topic.name, each.partition_index)
    ]
    code, codes = await call.server.groups.delete_offsets(group, places)
    if code is not Code.NONE:
        return make.OffsetDeleteResponse(error_code=code, topics=())
    return make.OffsetDeleteResponse(
        error_code=code,
        topics=tuple(
            make.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    make.OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get(
                            TopicPartition(topic.name, each.partition_index),
                            result or Code.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for each in topic.partitions
                ),
            )
            for topic, result in checked
        ),
    )


def _exists(call: Call, topic: str, number: int) -> bool:
    found = call.server.topics.get(topic)
    return found is not None and 0 <= number < len(found.partitions)
