"""DescribeTopicPartitions: partitions of topics, page by page, for clients that administer.

Topics are told by name, of each its partitions by number. Where a response has as many as it may,
it says with what to go on. Unlike Metadata it makes no topics, and says which replicas may lead
without being in sync: none may here.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.errors import HermesError
from hermes.kafka.dispatching import LARGE_ENTRIES, NOT_ASKED, Call
from hermes.kafka.metadata import described, topic_operations
from hermes.protocol import check_kafka_topic_name
from hermes.protocol.kafka_errors import Code, KafkaError, invalid_request
from hermes.security import Operation
from hermes.server.outcomes import settled
from hermes.transactions.state import STATE_TOPIC

#: Kafka's `max.request.partition.size.limit`.
_MOST_PARTITIONS: Final = 2000


async def describe_topic_partitions(request: Any, call: Call) -> Any:
    make, asked = call.make, dict.fromkeys(each.name for each in request.topics)
    try:
        visible = () if asked else await settled(call.server.visible(call.client))
        names = _names(request, asked, visible)
    except KafkaError as error:
        refused = tuple(_topic(call, name, error.code) for name in asked)
        return make.DescribeTopicPartitionsResponse(topics=refused, next_cursor=None)
    most = left = max(min(request.response_partition_limit, _MOST_PARTITIONS), 1)
    told, hidden, cursor = [], [], None
    for name in names:
        await call.after_entry()
        if asked and not call.permits_topic(Operation.DESCRIBE, name):
            hidden.append(_topic(call, name, Code.TOPIC_AUTHORIZATION_FAILED))
            continue
        if not left:
            cursor = name, 0
            break
        found = call.server.topics.get(name)
        if found is None:
            told += (
                [_topic(call, name, _missing(name), topic_operations(call, name))] if asked else []
            )
            continue
        numbers = _page(request.cursor, found, left)
        told.append(_found(call, found, numbers))
        left -= len(numbers)
        if numbers.stop < len(found.partitions):
            cursor = name, numbers.stop
            break
    call.is_large = len(told) + len(hidden) + most - left > LARGE_ENTRIES
    return make.DescribeTopicPartitionsResponse(
        topics=(*told, *hidden),
        next_cursor=cursor and make.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def _names(request: Any, asked: dict[str, None], visible: Iterable[str]) -> list[str]:
    """The topics to tell of from the cursor on; KafkaError if that can't be one."""
    cursor, names = request.cursor, asked or visible
    if cursor is not None and asked and cursor.topic_name not in asked:
        raise invalid_request("the cursor's topic isn't one of those asked for")
    if cursor is not None and cursor.partition_index < 0:
        raise invalid_request("the cursor's partition is negative")
    return sorted(each for each in names if cursor is None or each >= cursor.topic_name)


def _page(cursor: Any, found: ClusterTopic, most: int) -> range:
    first = 0
    if cursor is not None and cursor.topic_name == found.name:
        first = min(cursor.partition_index, len(found.partitions))
    return range(first, min(first + most, len(found.partitions)))


def _missing(name: str) -> Code:
    try:
        check_kafka_topic_name(name)
    except HermesError:
        return Code.INVALID_TOPIC_EXCEPTION
    return Code.UNKNOWN_TOPIC_OR_PARTITION


def _found(call: Call, found: ClusterTopic, numbers: range) -> Any:
    return _topic(
        call,
        found.name,
        Code.NONE,
        topic_operations(call, found.name),
        topic_id=found.id,
        partitions=tuple(_partitions(call, found, numbers)),
    )


def _partitions(call: Call, found: ClusterTopic, numbers: range) -> Iterator[Any]:
    for each in described(call, found, numbers):
        yield call.make.DescribeTopicPartitionsResponsePartition(
            **each, eligible_leader_replicas=(), last_known_elr=()
        )


def _topic(call: Call, name: str, code: Code, operations: int = NOT_ASKED, **known: Any) -> Any:
    told = {"topic_id": None, "partitions": (), **known}
    return call.make.DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=name == STATE_TOPIC,
        topic_authorized_operations=operations,
        **told,
    )
