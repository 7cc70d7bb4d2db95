"""What producers ask about their transactions, and brokers of each other.

In older versions a fenced producer hears INVALID_PRODUCER_EPOCH, as Kafka has it.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred

from hermes.config.kinds import FORMAT_KAFKA
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.kafka.group_offsets import OffsetCommitting
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.protocol.transaction_markers import Marker
from hermes.security import CLUSTER, Operation, Resource
from hermes.transactions.deciding import EPOCH_GROWS, Producer
from hermes.transactions.state import Place, group_at, group_place

#: The first versions in which a fenced producer is told so; in which brokers ask for several
#: transactions at once; in which its epoch grows with each end; in which its offsets' group joins
#: its transaction by itself; and in which markers say the version of transactions.
_FENCED: Final = 2
_BATCHED: Final = 4
_EPOCH_GROWS: Final = 5
_KNOWS_ABORTABLE: Final = 4
_JOINS: Final = 5
_SAYS_VERSION: Final = 2

#: So many entries of a request are served at once.
_TOGETHER: Final = 64

#: How long one that asks for markers waits for a partition that can't commit its own: it gets the
#: answers about all others.
_MARKERS_SECONDS: Final = 5.0


def _permits(call: Call, transactional_id: str) -> bool:
    return call.permits(Operation.PRODUCE, Resource.transaction(transactional_id))


def _told(call: Call, code: Code) -> Code:
    if code is Code.PRODUCER_FENCED and call.version < _FENCED:
        return Code.INVALID_PRODUCER_EPOCH
    return code


# -- partitions ---------------------------------------------------------------------------------


async def add_partitions(request: Any, call: Call) -> Any:
    """AddPartitionsToTxn: of clients, for one transaction; of brokers, for several."""
    make = call.make
    if call.version < _BATCHED:
        name = request.v3_and_below_transactional_id
        producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        places = _places(request.v3_and_below_topics)
        codes: Mapping[Place, Code] = await _add(call, name, producer, places)
        call.is_large = len(places) > LARGE_ENTRIES
        topics = _topic_results(call, request.v3_and_below_topics, codes)
        return make.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    if not call.permits(Operation.REPLICATE, CLUSTER):
        return make.AddPartitionsToTxnResponse(
            error_code=Code.CLUSTER_AUTHORIZATION_FAILED, results_by_transaction=()
        )

    count = 0

    async def add(each: Any) -> Any:
        nonlocal count
        producer, places = Producer(each.producer_id, each.producer_epoch), _places(each.topics)
        count += len(places)
        codes: Mapping[Place, Code] = await _all_or_none(call, places, _unknown)
        if not codes:
            how = {"adds": not each.verify_only, "patience_seconds": 0}
            codes = await call.server.transactions.join_here(
                each.transactional_id, producer, places, **how
            )
        return make.AddPartitionsToTxnResult(
            transactional_id=each.transactional_id,
            topic_results=_topic_results(call, each.topics, codes),
        )

    results = await _together(call, request.transactions, add)
    call.is_large = count > LARGE_ENTRIES
    return make.AddPartitionsToTxnResponse(error_code=Code.NONE, results_by_transaction=results)


async def _together(
    call: Call, entries: Sequence[Any], serve: Callable[[Any], Coroutine[Any, Any, Any]]
) -> tuple[Any, ...]:
    """Serve entries of a request, some at a time: what they store is flushed together."""
    served: list[Any] = []
    for first in range(0, len(entries), _TOGETHER):
        some = entries[first : first + _TOGETHER]
        for each in [Deferred.fromCoroutine(serve(entry)) for entry in some]:
            served.append(await each)
        await call.after_entry(len(some))
    return tuple(served)


async def _add(
    call: Call, name: str, producer: Producer, places: Sequence[Place]
) -> dict[Place, Code]:
    """What becomes of each partition: all are added, or none is."""
    if not _permits(call, name):
        return dict.fromkeys(places, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = await _all_or_none(call, places, _refusal)
    if refused:
        return refused
    try:
        await call.server.transactions.coordinator.join(name, producer, places, 0)
    except KafkaError as error:
        return dict.fromkeys(places, _told(call, error.code))
    return dict.fromkeys(places, Code.NONE)


async def _all_or_none(
    call: Call, places: Sequence[Place], refusal: Callable[[Call, Place], Code]
) -> dict[Place, Code]:
    """What is answered where one of them is refused; empty where none is."""
    refused: dict[Place, Code] = {}
    for place in places:
        code = refusal(call, place)
        if code is not Code.NONE:
            refused[place] = code
        await call.after_entry()
    if not refused:
        return {}
    return {each: refused.get(each, Code.OPERATION_NOT_ATTEMPTED) for each in places}


def _refusal(call: Call, place: Place) -> Code:
    if not call.permits_topic(Operation.PRODUCE, place[0]):
        return Code.TOPIC_AUTHORIZATION_FAILED
    return _unknown(call, place)


def _unknown(call: Call, place: Place) -> Code:
    name, number = place
    if group_at(place) is not None:
        return Code.NONE
    topic = call.server.topics.get(name)
    if topic is None or not 0 <= number < len(topic.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return Code.NONE if topic.format == FORMAT_KAFKA else Code.UNSUPPORTED_FOR_MESSAGE_FORMAT


def _places(topics: Any) -> list[Place]:
    return list(dict.fromkeys((each.name, number) for each in topics for number in each.partitions))


def _topic_results(call: Call, topics: Any, codes: Any) -> tuple[Any, ...]:
    make = call.make
    return tuple(
        make.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                make.AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[topic.name, number]
                )
                for number in dict.fromkeys(topic.partitions)
            ),
        )
        for topic in topics
    )


# -- offsets ------------------------------------------------------------------------------------


async def add_offsets(request: Any, call: Call) -> Any:
    """AddOffsetsToTxn: a group's offsets are to be part of it."""
    name, group = request.transactional_id, request.group_id
    producer = Producer(request.producer_id, request.producer_epoch)
    code = Code.NONE
    if not _permits(call, name):
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not call.permits(Operation.GROUP, Resource.group(group)):
        code = Code.GROUP_AUTHORIZATION_FAILED
    else:
        try:
            await call.server.transactions.coordinator.join(name, producer, [group_place(group)], 0)
        except KafkaError as error:
            code = _told(call, error.code)
    return call.make.AddOffsetsToTxnResponse(error_code=code)


class _TransactionalCommit(OffsetCommitting):
    parts = (
        "TxnOffsetCommitResponse",
        "TxnOffsetCommitResponseTopic",
        "TxnOffsetCommitResponsePartition",
    )


async def commit_offsets(request: Any, call: Call) -> Any:
    """TxnOffsetCommit: answered once the offsets are on disk, to be committed or not."""
    commit = _TransactionalCommit(request, call)
    name, group = request.transactional_id, request.group_id
    if not _permits(call, name):
        commit.refused = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    await commit.check_in_turns()
    if commit.refused is not Code.NONE or not commit.offsets:
        return commit.response()
    producer, place = Producer(request.producer_id, request.producer_epoch), group_place(group)

    async def join() -> Code:
        adds = call.version >= _JOINS
        codes = await call.server.transactions.join(name, producer, [place], adds=adds)
        code: Code = codes[place]
        if code is Code.CONCURRENT_TRANSACTIONS:
            return Code.COORDINATOR_LOAD_IN_PROGRESS  # after which clients ask again
        if code is Code.TRANSACTION_ABORTABLE and call.version < _KNOWS_ABORTABLE:
            return Code.INVALID_TXN_STATE
        return code

    code = await call.server.groups.commit_in_transaction(
        group,
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        getattr(request, "generation_id", -1),
        producer.id,
        commit.offsets,
        join,
    )
    if code is not Code.NONE:
        commit.note(code)
    return commit.response()


# -- ends ---------------------------------------------------------------------------------------


async def end_transaction(request: Any, call: Call) -> Any:
    """EndTxn: answered once it is decided."""
    name, code, after = request.transactional_id, Code.NONE, Producer(-1, -1)
    producer = Producer(request.producer_id, request.producer_epoch)
    grows = call.version >= _EPOCH_GROWS
    if not _permits(call, name):
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    else:
        try:
            after = await call.server.transactions.coordinator.end(
                name, producer, EPOCH_GROWS if grows else 0, commits=request.committed
            )
        except KafkaError as error:
            code = _told(call, error.code)
    return call.make.EndTxnResponse(
        error_code=code, producer_id=after.id, producer_epoch=after.epoch
    )


async def write_markers(request: Any, call: Call) -> Any:
    """WriteTxnMarkers: of a coordinator, or of a tool that ends what hangs."""
    make, count = call.make, 0
    may = call.may(Operation.REPLICATE, CLUSTER) or call.permits(Operation.ADMIN, CLUSTER)

    async def write(each: Any) -> Any:
        nonlocal count
        marker = Marker(
            each.producer_id,
            each.producer_epoch,
            each.transaction_result,
            each.coordinator_epoch,
        )
        places = [(topic.name, index) for topic in each.topics for index in topic.partition_indexes]
        codes: Any = dict.fromkeys(places, Code.CLUSTER_AUTHORIZATION_FAILED)
        if may:
            version = each.transaction_version if call.version >= _SAYS_VERSION else 0
            codes = await call.server.transactions.markers.write(
                marker, version, codes, _MARKERS_SECONDS
            )
        count += len(codes)
        return make.WritableTxnMarkerResult(
            producer_id=each.producer_id,
            topics=tuple(
                make.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=tuple(
                        make.WritableTxnMarkerPartitionResult(
                            partition_index=index, error_code=codes[topic.name, index]
                        )
                        for index in dict.fromkeys(topic.partition_indexes)
                    ),
                )
                for topic in each.topics
            ),
        )

    results = await _together(call, request.markers, write)
    call.is_large = count > LARGE_ENTRIES
    return make.WriteTxnMarkersResponse(markers=results)
