"""Questions about partitions: where offsets begin and end, which one a time has, which an epoch.

What has to be read from the disk is looked up in a worker thread, a few questions at a time.
"""

from collections import Counter
from typing import Any, Final, NamedTuple

from hermes.errors import HermesError
from hermes.kafka import legacy
from hermes.kafka.apis import DEBUGGING_CONSUMER, READ_COMMITTED
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.kafka.epochs import check_epoch, end_of_epoch
from hermes.partition.partition import Partition
from hermes.protocol.kafka_errors import Code, KafkaError, code_of, invalid_request
from hermes.security import Operation
from hermes.storage import Log

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4

#: The first version in which a question is known. The last two are about remote storage, which
#: there is none of; other negative times mean nothing.
_SINCE: Final = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    -5: 9,
    -6: 11,
}

#: What was asked for and isn't there.
_NONE: Final = -1


class _FoundOffset(NamedTuple):
    """The offset for a question; -1 for what there is none of.

    Attributes:
        timestamp_ms: of the message there; -1 where that isn't asked for.
        epoch: of the leader that appended it.
    """

    offset: int
    timestamp_ms: int
    epoch: int


_NOTHING: Final = _FoundOffset(_NONE, _NONE, _NONE)


async def list_offsets(request: Any, call: Call) -> Any:
    make = call.make
    times = Counter(
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    refused: set[tuple[str, int]] = set()
    call.is_large = len(times) > LARGE_ENTRIES
    topics = []
    is_committed = getattr(request, "isolation_level", 0) == READ_COMMITTED
    is_any = request.replica_id == DEBUGGING_CONSUMER
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            await call.after_entry()
            number, code, found = each.partition_index, Code.NONE, _NOTHING
            if (topic.name, number) in refused:
                continue
            try:
                if times[topic.name, number] > 1:
                    refused.add((topic.name, number))
                    raise invalid_request("a partition is named twice")
                time_ms = each.timestamp
                if time_ms < 0 and call.version < _SINCE.get(time_ms, call.version + 1):
                    raise KafkaError(Code.UNSUPPORTED_VERSION, "it asks for a time that is none")
                epoch = getattr(each, "current_leader_epoch", _NONE)
                partition = _partition(call, topic.name, number, epoch, is_any=is_any)
                if time_ms == _LATEST and not is_any:
                    _check_end(partition)
                found = await _offset_for(call, partition.log, time_ms, is_committed)
            except HermesError as error:
                code = code_of(error)
                call.server.shared.metrics.refuse("kafka_list_offsets", code.name.lower())
            partitions.append(
                make.ListOffsetsPartitionResponse(
                    partition_index=number,
                    error_code=code,
                    timestamp=found.timestamp_ms,
                    offset=found.offset,
                    leader_epoch=found.epoch,
                )
            )
        topics.append(make.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return make.ListOffsetsResponse(topics=tuple(topics))


async def _offset_for(call: Call, log: Log, time_ms: int, is_committed: bool) -> _FoundOffset:
    if time_ms == _LATEST:
        end = log.stable_end if is_committed else log.high_watermark
        return _FoundOffset(end, _NONE, log.leader_epoch)
    if time_ms in (_EARLIEST, _EARLIEST_LOCAL):
        return _FoundOffset(log.earliest, _NONE, log.leader_epoch)
    if time_ms < _EARLIEST_LOCAL:
        return _NOTHING
    look_up = call.server.look_up
    if time_ms == _MAX_TIMESTAMP:
        at = await (
            look_up(log.latest_timestamp) if log.counts_messages else look_up(legacy.latest, log)
        )
    elif log.counts_messages:
        at = await look_up(log.offset_at_time, time_ms)
    else:
        now_ms = call.server.shared.now_ms()
        at = await look_up(legacy.offset_at_time, log, time_ms, now_ms)
    if at is None or (is_committed and at[0] >= log.stable_end):
        return _NOTHING
    return _FoundOffset(at[0], at[1], log.leader_epoch)


async def offsets_for_epochs(request: Any, call: Call) -> Any:
    make = call.make
    call.is_large = sum(len(each.partitions) for each in request.topics) > LARGE_ENTRIES
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            await call.after_entry()
            code, epoch, end = Code.NONE, _NONE, _NONE
            try:
                partition = _partition(call, topic.topic, each.partition, each.current_leader_epoch)
                epoch, end = end_of_epoch(partition, each.leader_epoch)
            except HermesError as error:
                code = code_of(error)
            partitions.append(
                make.EpochEndOffset(
                    error_code=code, partition=each.partition, leader_epoch=epoch, end_offset=end
                )
            )
        topics.append(
            make.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(partitions))
        )
    return make.OffsetForLeaderEpochResponse(topics=tuple(topics))


def _partition(
    call: Call, topic: str, number: int, epoch: int, *, is_any: bool = False
) -> Partition:
    """Find a partition that the client may ask about, or raise HermesError.

    `is_any`: whether it is looked for on this broker, whoever leads it.
    """
    if not call.permits_topic(Operation.DESCRIBE, topic):
        raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
    topics = call.server.topics
    partition = topics.any_copy(topic, number) if is_any else topics.partition(topic, number)
    partition.log.check_readable()
    check_epoch(partition, epoch)
    return partition


def _check_end(partition: Partition) -> None:
    """A new leader doesn't know yet what earlier ones have committed (KIP-207)."""
    if partition.leadership is not None and not partition.leadership.is_end_known:
        raise KafkaError(Code.OFFSET_NOT_AVAILABLE)
