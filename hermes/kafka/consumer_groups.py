"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the requests of consumer groups (KIP-848)."""

from collections.abc import Awaitable, Iterable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from hermes.groups.consumer_values import (
    JOINS,
    LEAVES,
    STATIC_LEAVE,
    ConsumerHeartbeat,
    DescribedConsumer,
    DescribedConsumers,
    HeartbeatResponse,
    TopicIdPartition,
)
from hermes.kafka.classic_groups import LONGEST_ID, may_use, milliseconds
from hermes.kafka.dispatching import LARGE_ENTRIES, NOT_ASKED, Call
from hermes.kafka.group_admin import group_operations
from hermes.kafka.matched_topics import LONGEST_REGEX
from hermes.protocol.kafka_errors import Code, KafkaError, invalid_request
from hermes.security import Operation, Resource

#: From this version on members give themselves an id.
_NAMES_ITSELF: Final = 1
#: What a member of a consumer group is, as ConsumerGroupDescribe has it; 0 is one of a mixed group.
_MEMBER_TYPE: Final = 1
#: More topics and partitions than any member has.
_MOST_TOPICS: Final = 10_000
_MOST_PARTITIONS: Final = 50_000


# -- heartbeats ---------------------------------------------------------------------------------


def heartbeat(request: Any, call: Call) -> Any:
    try:
        code = may_use(call, request.group_id)
        if code is not Code.NONE:
            raise KafkaError(code)
        _check(request, call)
        beat = _heartbeat_of(request, call)
        if not request.subscribed_topic_names:
            answer = call.server.groups.consumer_heartbeat_now(request.group_id, beat)
            if isinstance(answer, HeartbeatResponse):
                return _answer(answer, call)
            if answer is not None:
                return _later(answer, call)
    except KafkaError as error:
        return _refusal(error, call)
    return _later(_take(request, beat, call), call)


async def _later(answer: Awaitable[HeartbeatResponse], call: Call) -> Any:
    try:
        return _answer(await answer, call)
    except KafkaError as error:
        return _refusal(error, call)


async def _take(request: Any, beat: ConsumerHeartbeat, call: Call) -> HeartbeatResponse:
    await _check_topics(request, call)
    server, client = call.server, call.client
    return await server.groups.consumer_heartbeat(
        request.group_id, beat, lambda regex: server.matched_topics.find(regex, client)
    )


def _refusal(error: KafkaError, call: Call) -> Any:
    return call.make.ConsumerGroupHeartbeatResponse(
        error_code=error.code,
        error_message=_text_of(error),
        member_epoch=0,
        heartbeat_interval=timedelta(0),
    )


def _answer(response: HeartbeatResponse, call: Call) -> Any:
    make, assignment = call.make, None
    if response.assignment is not None:
        call.is_large = len(response.assignment) > LARGE_ENTRIES
        topics = tuple(
            make.TopicPartitions(topic_id=topic_id, partitions=tuple(numbers))
            for topic_id, numbers in _by_topic(response.assignment).items()
        )
        assignment = make.Assignment(topic_partitions=topics)
    return make.ConsumerGroupHeartbeatResponse(
        error_code=Code.NONE,
        member_id=response.member_id,
        member_epoch=response.member_epoch,
        heartbeat_interval=timedelta(milliseconds=response.heartbeat_ms),
        assignment=assignment,
    )


def _text_of(error: KafkaError) -> str | None:
    return str(error) if str(error) != error.code.name else None


def _check(request: Any, call: Call) -> None:
    """Refuse what makes no sense, with a KafkaError; in Kafka's order, and with its words."""
    epoch, regex = request.member_epoch, getattr(request, "subscribed_topic_regex", None)
    needs_id = call.version >= _NAMES_ITSELF or epoch != JOINS
    given = (
        ("MemberId", request.member_id if needs_id else None),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    )
    for what, text in given:
        if text is not None and not text.strip():
            raise _invalid(f"{what} can't be empty.")
        if len(text or "") > LONGEST_ID and what != "GroupId":
            raise _invalid(f"{what} is longer than {LONGEST_ID} characters.")
    subscribes = request.subscribed_topic_names is not None or regex is not None
    owned = request.topic_partitions
    if epoch == JOINS:
        if milliseconds(request.rebalance_timeout) == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if owned is None or owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if not subscribes:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == STATIC_LEAVE and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE:
        raise _invalid("MemberEpoch is invalid.")
    has_too_much = len(request.subscribed_topic_names or ()) > _MOST_TOPICS
    has_too_much |= sum(len(each.partitions) for each in owned or ()) > _MOST_PARTITIONS
    if has_too_much or len(regex or "") > LONGEST_REGEX:
        raise _invalid("A member can't have so much.")
    if epoch not in (LEAVES, STATIC_LEAVE):
        _check_assignor(request, call)


def _check_assignor(request: Any, call: Call) -> None:
    known = call.server.shared.config.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in known:
        raise KafkaError(
            Code.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(known)}.",
        )


async def _check_topics(request: Any, call: Call) -> None:
    for name in dict.fromkeys(request.subscribed_topic_names or ()):
        await call.after_entry()
        if not call.permits_topic(Operation.DESCRIBE, name):
            raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)


def _heartbeat_of(request: Any, call: Call) -> ConsumerHeartbeat:
    owned = request.topic_partitions
    return ConsumerHeartbeat(
        request.member_id or str(uuid4()),
        request.member_epoch,
        call.client_id,
        f"/{call.client.host}",
        request.instance_id,
        request.rack_id,
        milliseconds(request.rebalance_timeout),
        request.subscribed_topic_names,
        getattr(request, "subscribed_topic_regex", None),
        request.server_assignor,
        None if owned is None else _places(owned),
    )


def _places(topics: Iterable[Any]) -> frozenset[TopicIdPartition]:
    return frozenset(
        TopicIdPartition(each.topic_id or UUID(int=0), number)
        for each in topics
        for number in each.partitions
    )


def _invalid(text: str) -> KafkaError:
    return invalid_request(text)


def _by_topic(places: Iterable[TopicIdPartition]) -> dict[UUID, list[int]]:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(places):
        by_topic.setdefault(topic_id, []).append(number)
    return by_topic


# -- describing ---------------------------------------------------------------------------------


async def describe(request: Any, call: Call) -> Any:
    has_operations = request.include_authorized_operations
    groups = []
    for name in dict.fromkeys(request.group_ids):
        groups.append(await _described(name, call, has_operations))
        await call.after_entry()
    call.is_large = sum(1 + len(each.members) for each in groups) > LARGE_ENTRIES
    return call.make.ConsumerGroupDescribeResponse(groups=tuple(groups))


async def _described(name: str, call: Call, has_operations: bool) -> Any:
    make, found, code, text = call.make, None, Code.NONE, None
    try:
        if not call.permits(Operation.DESCRIBE, Resource.group(name)):
            raise KafkaError(Code.GROUP_AUTHORIZATION_FAILED)
        if not name:
            raise KafkaError(Code.INVALID_GROUP_ID)
        found = await call.server.groups.describe_consumers(name)
        if not _may_see_topics(found, call):
            found = None
            raise KafkaError(
                Code.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
    except KafkaError as error:
        code, text = error.code, _text_of(error)
    may_tell = found is not None and has_operations
    return make.DescribedGroup(
        error_code=code,
        error_message=text,
        group_id=name,
        group_state="" if found is None else str(found.state),
        group_epoch=0 if found is None else found.epoch,
        assignment_epoch=0 if found is None else found.assignment_epoch,
        assignor_name="" if found is None else found.assignor,
        members=() if found is None else tuple(_member(each, call) for each in found.members),
        authorized_operations=group_operations(call, name) if may_tell else NOT_ASKED,
    )


def _may_see_topics(group: DescribedConsumers, call: Call) -> bool:
    topics = call.server.topics
    names = {name for each in group.members for name in each.topics}
    for place in {place for each in group.members for place in (*each.assigned, *each.target)}:
        found = topics.by_id(place.topic_id)
        if found is not None:
            names.add(found.name)
    return all(call.server.shows(call.client, each) for each in names)


def _member(member: DescribedConsumer, call: Call) -> Any:
    make = call.make
    return make.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(member.assigned, call),
        target_assignment=_assignment(member.target, call),
        member_type=_MEMBER_TYPE,
    )


def _assignment(places: Iterable[TopicIdPartition], call: Call) -> Any:
    topics = []
    for topic_id, numbers in _by_topic(places).items():
        found = call.server.topics.by_id(topic_id)
        if found is not None:
            topics.append(
                call.make.TopicPartitions(
                    topic_id=topic_id, topic_name=found.name, partitions=tuple(numbers)
                )
            )
    return call.make.Assignment(topic_partitions=tuple(topics))
