"""Metadata: the brokers, and of topics where their partitions are.

A topic that is asked for and isn't there is created, where the client and `auto_create_topics` want
that. What a client may not see isn't listed; if it is named, it is answered with an error that
doesn't say whether it exists.
"""

from functools import partial
from typing import Any, Final
from uuid import UUID

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.errors import HermesError
from hermes.kafka.admin_cluster import cluster_operations
from hermes.kafka.dispatching import (
    ENTRIES_AT_A_TIME,
    LARGE_ENTRIES,
    NOT_ASKED,
    Call,
    operation_bits,
)
from hermes.kafka.epochs import told_epoch
from hermes.protocol import NOBODY, check_kafka_topic_name, check_topic_name
from hermes.protocol.kafka_errors import Code, code_of
from hermes.security import Operation
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import settled, then
from hermes.transactions.state import STATE_TOPIC

#: The first version in which a topic may be asked for by its UUID alone.
_UNNAMED_VERSION: Final = 12

#: Kafka's numbers of what a client may do to a topic, by ours.
_OPERATIONS: Final = (
    (Operation.CONSUME, (3,)),
    (Operation.PRODUCE, (4,)),
    (Operation.CREATE, (5,)),
    (Operation.DELETE, (6,)),
    (Operation.ADMIN, (7, 11)),
    (Operation.DESCRIBE, (8, 10)),
)


def metadata(request: Any, call: Call) -> Any:
    topics, asked = call.server.topics, request.topics
    if asked is None or (call.version == 0 and not asked):

        def answer(names: list[str]) -> Any:
            return _answer(request, call, [*filter(None, map(topics.get, names))])

        return then(call.server.visible(call.client), answer)
    # Once each, as Kafka does: a topic may have thousands of partitions.
    wanted = list({(each.name, getattr(each, "topic_id", None)): each for each in asked}.values())
    found: list[Any] = []
    for each in wanted[:ENTRIES_AT_A_TIME]:
        one = _find(each, request, call)
        if one is None:
            break
        found.append(one)
    if len(found) == len(wanted):
        return _answer(request, call, found)
    return _find_rest(request, call, wanted, found)


async def _find_rest(request: Any, call: Call, wanted: list[Any], found: list[Any]) -> Any:
    """Find more topics, creating those that are to be, in turns with others."""
    for number in range(len(found), len(wanted)):
        one = _find(wanted[number], request, call)
        if one is None:
            one = await _create(wanted[number].name, call)
        found.append(one)
        if number % ENTRIES_AT_A_TIME == ENTRIES_AT_A_TIME - 1:
            await call.after_entry(ENTRIES_AT_A_TIME)
    return await settled(_answer(request, call, found))


def _answer(request: Any, call: Call, found: list[Any]) -> Any:
    """The response, or a Deferred of it."""
    has_operations = getattr(request, "include_topic_authorized_operations", False)
    count = len(found)
    for each in found:
        count += len(each.partitions) if isinstance(each, ClusterTopic) else 0
    call.is_large = count > LARGE_ENTRIES
    if not call.is_large:
        return _response(request, call, [_describe(call, has_operations, each) for each in found])
    describe = partial(_describe, call, has_operations)
    done = cooperatively(call.server.shared.scheduler, found, describe)
    return then(done, partial(_response, request, call))


def _response(request: Any, call: Call, found: list[Any]) -> Any:
    topics, make = call.server.topics, call.make
    return make.MetadataResponse(
        brokers=_brokers(call),
        cluster_id=topics.cluster_id or None,
        controller_id=topics.controller_id,
        topics=tuple(found),
        cluster_authorized_operations=cluster_operations(call)
        if getattr(request, "include_cluster_authorized_operations", False)
        else NOT_ASKED,
        error_code=Code.NONE,
    )


def _brokers(call: Call) -> tuple[Any, ...]:
    """What is told of brokers; made anew when that has changed."""
    found = call.server.topics.brokers(call.client.listener)
    told = call.server.told_brokers.get(call.version)
    if told is None or told[0] is not found:
        make = call.make.MetadataResponseBroker
        made = tuple(
            [
                make(node_id=each.id, host=each.host, port=each.port, rack=each.rack or None)
                for each in found
            ]
        )
        told = call.server.told_brokers[call.version] = found, made
    return told[1]


def _find(asked: Any, request: Any, call: Call) -> "ClusterTopic | tuple[Code, Any, Any] | None":
    """Find a topic of a request; else (error, its name, its UUID); None: it is to be created."""
    name, topic_id = asked.name, getattr(asked, "topic_id", None)
    topics = call.server.topics
    if name is None:
        if call.version < _UNNAMED_VERSION:  # as Kafka answers it
            return Code.INVALID_REQUEST, "", topic_id
        found = None if topic_id is None else topics.by_id(topic_id)
        if found is None or not call.server.shows(call.client, found.name):
            return Code.UNKNOWN_TOPIC_ID, None, topic_id
        return found
    if not call.permits_topic(Operation.DESCRIBE, name):
        return Code.TOPIC_AUTHORIZATION_FAILED, name, None
    found = topics.get(name)
    if found is not None:
        return found
    config = call.server.shared.config
    try:
        check_kafka_topic_name(name)
        check_topic_name(name, config.max_topic_name_length)
    except HermesError as error:
        return code_of(error), name, None
    # Before a client can say so, it wants what isn't there.
    creates = getattr(request, "allow_auto_topic_creation", True)
    if not (creates and config.auto_create_topics) or call.is_moot:
        return Code.UNKNOWN_TOPIC_OR_PARTITION, name, None
    if not call.permits_topic(Operation.CREATE, name):
        return Code.TOPIC_AUTHORIZATION_FAILED, name, None
    return None


async def _create(name: str, call: Call) -> "ClusterTopic | tuple[Code, str, None]":
    if name == STATE_TOPIC:
        found = await call.server.transactions.coordinator.topic()
        return found or (Code.LEADER_NOT_AVAILABLE, name, None)
    try:
        return await call.server.topic_changes.create(name, -1, {}, call.client)
    except HermesError as error:
        return code_of(error), name, None


def _describe(
    call: Call, has_operations: bool, found: "ClusterTopic | tuple[Code, str | None, UUID | None]"
) -> Any:
    make = call.make
    if not isinstance(found, ClusterTopic):
        code, name, topic_id = found
        return make.MetadataResponseTopic(
            error_code=code,
            name=name,
            topic_id=topic_id,
            is_internal=False,
            partitions=(),
            topic_authorized_operations=NOT_ASKED,
        )
    numbers = range(len(found.partitions))
    operations = topic_operations(call, found.name) if has_operations else NOT_ASKED
    return make.MetadataResponseTopic(
        error_code=Code.NONE,
        name=found.name,
        topic_id=found.id,
        is_internal=found.name == STATE_TOPIC,
        partitions=tuple(
            [make.MetadataResponsePartition(**each) for each in described(call, found, numbers)]
        ),
        topic_authorized_operations=operations,
    )


def described(call: Call, topic: ClusterTopic, numbers: range) -> list[dict[str, Any]]:
    """What is told of each of these partitions, by the names of the responses' fields."""
    live, find = call.server.topics.live, call.server.shared.directory.get
    found: list[dict[str, Any]] = []
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    for number in numbers:
        place, state = topic.partitions[number], topic.state(number)
        if state is None:
            leader, epoch = place.broker_id, told_epoch(find(topic.name, place.partition))
            replicas = in_sync = (leader,)
        else:
            leader, epoch, replicas = state.leader, state.epoch, state.replicas
            in_sync = topic.in_sync(number)
        is_led = leader in live
        are_live = is_led if state is None else live.issuperset(replicas)
        found.append(
            {
                "error_code": Code.NONE if is_led else Code.LEADER_NOT_AVAILABLE,
                "partition_index": number,
                "leader_id": leader if is_led else NOBODY,
                "leader_epoch": epoch,
                "replica_nodes": replicas,
                "isr_nodes": in_sync if are_live else _those(in_sync, live),
                "offline_replicas": () if are_live else _others(replicas, live),
            }
        )
    return found


def _those(brokers: tuple[int, ...], live: frozenset[int]) -> tuple[int, ...]:
    return tuple(each for each in brokers if each in live)


def _others(brokers: tuple[int, ...], live: frozenset[int]) -> tuple[int, ...]:
    return tuple(each for each in brokers if each not in live)


def topic_operations(call: Call, topic: str) -> int:
    refusals = call.server.shared.refusals

    def may(operation: Operation) -> bool:
        return not refusals.is_on or refusals.permits_topic(call.client, operation, topic)

    return operation_bits(_OPERATIONS, may)
