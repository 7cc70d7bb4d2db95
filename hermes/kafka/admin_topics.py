"""CreateTopics, DeleteTopics and CreatePartitions: each change is answered.

Everything is checked as Kafka checks it, with its errors.
"""

from collections import Counter
from collections.abc import Container
from typing import Any, Final
from uuid import UUID

from twisted.internet.defer import Deferred, DeferredList

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.cluster.replica_placing import DEFAULT, Assignment, copies_of
from hermes.config.broker import BrokerConfig
from hermes.config.loading import parse_topic_settings
from hermes.errors import HermesError
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.kafka.topic_configs import TOPIC_CONFIGS, topic_configs, topic_setting
from hermes.protocol import check_kafka_topic_name
from hermes.protocol.kafka_errors import (
    Code,
    KafkaError,
    error_fields,
    invalid_request,
    unknown_topic,
)
from hermes.security import Operation
from hermes.transactions.state import STATE_TOPIC

#: Kafka's bound of what one request may create.
_MOST_PARTITIONS: Final = 10_000


# -- CreateTopics -------------------------------------------------------------------------------


async def create_topics(request: Any, call: Call) -> Any:
    counts = Counter(each.name for each in request.topics)
    call.is_large = len(request.topics) * len(TOPIC_CONFIGS) > LARGE_ENTRIES
    results = []
    for name, asked in {each.name: each for each in request.topics}.items():
        await call.after_entry()
        try:
            if counts[name] > 1:
                raise invalid_request("Duplicate topic name.")
            if not call.permits_topic(Operation.CREATE, name):
                raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            results.append(await _create(asked, request.validate_only, call))
        except HermesError as error:
            results.append(_not_created(call, name, error))
    return call.make.CreateTopicsResponse(topics=tuple(results))


async def _create(asked: Any, is_check: bool, call: Call) -> Any:
    name = asked.name
    check_kafka_topic_name(name)
    count, copies, assignment = _wanted_partitions(asked)
    settings: dict[str, str] = {}
    for each in asked.configs:
        settings |= topic_setting(each.name, each.value)
    changes, shared = call.server.topic_changes, call.server.shared
    if is_check:
        count, placed = changes.check_new(name, count, settings, copies, assignment)
        altered = {**shared.config.altered, name: parse_topic_settings(settings)}
        would_be = shared.config.with_altered(altered)
        return _created(call, would_be, name, None, count, len(placed[0]))
    made = await changes.create(name, count, settings, call.client, copies, assignment)
    about = made.id, len(made.partitions), copies_of(made)[0]
    return _created(call, shared.config, name, *about)


def _wanted_partitions(asked: Any) -> tuple[int, int, Assignment | None]:
    """How many partitions a topic shall have, how many copies, or on which brokers these are.

    Raises KafkaError: there can't be such a topic.
    """
    count, replicas = asked.num_partitions, asked.replication_factor
    if asked.assignments:
        if count != DEFAULT:
            raise invalid_request(
                "A manual partition assignment was specified, but numPartitions was not set to -1."
            )
        if replicas != DEFAULT:
            raise invalid_request(
                "A manual partition assignment was specified, but replicationFactor was not set "
                "to -1."
            )
        by_number = {each.partition_index: each.broker_ids for each in asked.assignments}
        if sorted(by_number) != list(range(len(asked.assignments))):
            raise KafkaError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return len(by_number), DEFAULT, [by_number[number] for number in sorted(by_number)]
    if count != DEFAULT and count <= 0:
        raise KafkaError(
            Code.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if count > _MOST_PARTITIONS:
        raise KafkaError(
            Code.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {count}.",
        )
    if replicas != DEFAULT and replicas <= 0:
        raise KafkaError(
            Code.INVALID_REPLICATION_FACTOR,
            "Replication factor was set to an invalid non-positive value.",
        )
    return count, replicas, None


def _created(
    call: Call, config: BrokerConfig, name: str, topic_id: UUID | None, count: int, copies: int
) -> Any:
    make = call.make
    configs: tuple[Any, ...] | None = None
    is_shown = call.version >= 5 and call.server.shows(call.client, name)
    if is_shown:
        configs = tuple(
            make.CreatableTopicConfigs(
                name=each.row.name,
                value=each.value,
                read_only=False,
                config_source=each.source,
                is_sensitive=False,
            )
            for each in topic_configs(config, name, copies)
        )
    return make.CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        **error_fields(),
        topic_config_error_code=0 if is_shown else Code.TOPIC_AUTHORIZATION_FAILED,
        num_partitions=count if is_shown else DEFAULT,
        replication_factor=copies if is_shown else DEFAULT,
        configs=configs,
    )


def _not_created(call: Call, name: str, error: HermesError) -> Any:
    return call.make.CreatableTopicResult(
        name=name,
        topic_id=None,
        **error_fields(error),
        topic_config_error_code=0,
        num_partitions=DEFAULT,
        replication_factor=DEFAULT,
        configs=(),
    )


# -- DeleteTopics -------------------------------------------------------------------------------


async def delete_topics(request: Any, call: Call) -> Any:
    make = call.make
    asked: list[tuple[str | None, UUID | None]]
    if hasattr(request, "topic_names"):
        asked = [(name, None) for name in request.topic_names]
    else:
        asked = [(each.name, each.topic_id) for each in request.topics]
    call.is_large = len(asked) > LARGE_ENTRIES
    counts = Counter(asked)
    found: dict[UUID, ClusterTopic] = {}
    refused: dict[tuple[str | None, UUID | None], dict[str, Any]] = {}
    deletions: list[Deferred[None]] = []  # all of them at once, so that they are done together
    for each in counts:
        await call.after_entry()
        try:
            if counts[each] > 1:
                raise invalid_request("Duplicate topic name.")
            topic = _to_delete(*each, call, found)
            found[topic.id] = topic
            delete = call.server.topic_changes.delete(topic, call.client)
            deletions.append(Deferred.fromCoroutine(delete))
        except HermesError as error:
            refused[each] = error_fields(error)
    ended: list[tuple[bool, Any]] = await DeferredList(deletions, consumeErrors=True)
    deleted = zip(found.values(), ended, strict=True)
    results = []
    for each in counts:
        await call.after_entry()
        (name, topic_id), fields = each, refused.get(each)
        if fields is None:
            topic, (is_gone, failure) = next(deleted)
            name, topic_id = topic.name, topic.id
            if not is_gone:
                failure.trap(HermesError)
            fields = error_fields(None if is_gone else failure.value)
        results.append(make.DeletableTopicResult(name=name, topic_id=topic_id, **fields))
    return make.DeleteTopicsResponse(responses=tuple(results))


def _to_delete(
    name: str | None, topic_id: UUID | None, call: Call, gone: Container[UUID]
) -> ClusterTopic:
    """Find a topic that the client may delete; KafkaError if there is none, or it goes already."""
    topics = call.server.topics
    if name is not None and topic_id is not None:
        raise invalid_request("You may not specify both topic name and topic id.")
    if name is not None:
        if not call.permits_topic(Operation.DELETE, name):
            raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        found = topics.get(name)
        if found is None or found.id in gone:
            raise unknown_topic()
        return found
    if topic_id is None:
        raise invalid_request("Neither topic name nor id were specified.")
    found = topics.by_id(topic_id)
    if found is None or found.id in gone or not call.server.shows(call.client, found.name):
        raise KafkaError(Code.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if not call.permits_topic(Operation.DELETE, found.name):
        raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    return found


# -- CreatePartitions ---------------------------------------------------------------------------


async def create_partitions(request: Any, call: Call) -> Any:
    make = call.make
    counts = Counter(each.name for each in request.topics)
    call.is_large = len(request.topics) > LARGE_ENTRIES
    results = []
    for name, asked in {each.name: each for each in request.topics}.items():
        await call.after_entry()
        fields = error_fields()
        try:
            if counts[name] > 1:
                raise invalid_request("Duplicate topic name.")
            await _grow(asked, request.validate_only, call)
        except HermesError as error:
            fields = error_fields(error)
        results.append(make.CreatePartitionsTopicResult(name=name, **fields))
    return make.CreatePartitionsResponse(results=tuple(results))


async def _grow(asked: Any, is_check: bool, call: Call) -> None:
    name = asked.name
    if not call.permits_topic(Operation.ADMIN, name):
        raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    found = call.server.topics.get(name)
    if found is None:
        raise unknown_topic()
    now = len(found.partitions)
    if asked.count == now:
        raise KafkaError(Code.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
    if asked.count < now:
        raise KafkaError(
            Code.INVALID_PARTITIONS,
            f"The topic {name} currently has {now} partition(s); {asked.count} would not be an "
            "increase.",
        )
    if name == STATE_TOPIC:
        raise KafkaError(
            Code.INVALID_PARTITIONS,
            "Transactional ids would be looked for in other partitions than those that have them.",
        )
    assignment = None
    if asked.assignments is not None:
        assignment = [each.broker_ids for each in asked.assignments]
    if is_check:
        call.server.topic_changes.check_grow(found, asked.count, assignment)
    else:
        await call.server.topic_changes.grow(found, asked.count, call.client, assignment)
