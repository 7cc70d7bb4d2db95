"""DeleteRecords: a partition's log begins later from now on, and so do its in-sync copies.

Of a topic that keeps the latest record of each key none goes, as in Kafka.
"""

from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred

from hermes.errors import HermesError, UnknownTopicError
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.protocol.kafka_errors import Code, KafkaError, code_of
from hermes.security import Operation
from hermes.storage import Log
from hermes.transactions.state import STATE_TOPIC

#: Instead of an offset: all that is visible.
_HIGH_WATERMARK: Final = -1

_INVALID: Final = -1


class _Begun(NamedTuple):
    """A deletion that was done here, or wasn't.

    Attributes:
        low: where the partition begins.
        everywhere: fires with that, once all in-sync copies do; None where there are none.
    """

    code: Code
    low: int = _INVALID
    everywhere: "Deferred[int] | None" = None


async def delete_records(request: Any, call: Call) -> Any:
    make = call.make
    call.is_large = sum(len(each.partitions) for each in request.topics) > LARGE_ENTRIES
    seconds = max(request.timeout.total_seconds(), 0.0)
    begun = []
    for topic in request.topics:
        is_permitted = call.permits_topic(Operation.DELETE, topic.name)
        for part in topic.partitions:
            await call.after_entry()
            if is_permitted:
                begun.append(
                    await _begin(topic.name, part.partition_index, part.offset, seconds, call)
                )
            else:
                begun.append(_Begun(Code.TOPIC_AUTHORIZATION_FAILED))
    call.step_aside()
    ended = iter([await _end(each) for each in begun])
    topics = []
    for topic in request.topics:
        results = []
        for part in topic.partitions:
            code, low = next(ended)
            results.append(
                make.DeleteRecordsPartitionResult(
                    partition_index=part.partition_index, low_watermark=low, error_code=code
                )
            )
        topics.append(make.DeleteRecordsTopicResult(name=topic.name, partitions=tuple(results)))
    return make.DeleteRecordsResponse(topics=tuple(topics))


async def _begin(topic: str, number: int, offset: int, seconds: float, call: Call) -> _Begun:
    """Delete in the leader's log; `seconds`: how long that may take in the others."""
    shared = call.server.shared
    try:
        log: Log = call.server.topics.log(topic, number)
        _check_policy(log, call)
        if offset == _HIGH_WATERMARK or offset > log.high_watermark:
            # In Kafka the high watermark of the only replica covers what acks=1 has answered.
            await shared.flusher.flush_now(log)
            if call.server.topics.partition(topic, number).log is not log:
                raise UnknownTopicError(f"{log.name} was deleted meanwhile")
            offset = log.high_watermark if offset == _HIGH_WATERMARK else offset
        if offset < 0:
            raise KafkaError(Code.OFFSET_OUT_OF_RANGE)
        begins: int = await call.server.in_thread(log.delete_records, offset)
        shared.waiting.changed(log.topic, log.partition)
    except HermesError as error:
        return _Begun(code_of(error))
    leadership = shared.partitions.of(log).leadership
    if leadership is None:
        return _Begun(Code.NONE, begins)
    everywhere = leadership.when_deleted(offset).addTimeout(seconds, shared.clock, _late)
    return _Begun(Code.NONE, begins, everywhere)


def _check_policy(log: Log, call: Call) -> None:
    """Raise KafkaError where nothing may be deleted before an offset."""
    if log.format.name != "kafka":
        raise KafkaError(
            Code.POLICY_VIOLATION, "Of a topic of Kafka 0.7's format whole segments go only."
        )
    if log.topic == STATE_TOPIC:
        raise KafkaError(Code.INVALID_TOPIC_EXCEPTION, "The topic is the brokers' own.")
    if call.server.shared.config.topic(log.topic).is_only_compacted:
        raise KafkaError(
            Code.POLICY_VIOLATION, "A compacted topic keeps the latest message of each key."
        )


def _late(_: object, __: float) -> int:
    raise KafkaError(Code.REQUEST_TIMED_OUT)


async def _end(begun: _Begun) -> tuple[Code, int]:
    if begun.everywhere is None:
        return begun.code, begun.low
    try:
        return Code.NONE, await begun.everywhere
    except HermesError as error:
        return code_of(error), _INVALID
