"""DeleteRecords: a partition's log begins later from now on."""

from typing import Any, Final

from hermes.errors import HermesError
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.protocol.kafka_errors import Code, KafkaError, code_of
from hermes.security import Operation
from hermes.storage import Log

#: Instead of an offset: all that is visible.
_HIGH_WATERMARK: Final = -1

_INVALID: Final = -1


async def delete_records(request: Any, call: Call) -> Any:
    make = call.make
    call.is_large = sum(len(each.partitions) for each in request.topics) > LARGE_ENTRIES
    topics = []
    for topic in request.topics:
        is_permitted = call.permits_topic(Operation.DELETE, topic.name)
        results = []
        for part in topic.partitions:
            await call.after_entry()
            code, low = Code.TOPIC_AUTHORIZATION_FAILED, _INVALID
            if is_permitted:
                code, low = await _delete(topic.name, part.partition_index, part.offset, call)
            results.append(
                make.DeleteRecordsPartitionResult(
                    partition_index=part.partition_index, low_watermark=low, error_code=code
                )
            )
        topics.append(make.DeleteRecordsTopicResult(name=topic.name, partitions=tuple(results)))
    return make.DeleteRecordsResponse(topics=tuple(topics))


async def _delete(topic: str, number: int, offset: int, call: Call) -> tuple[Code, int]:
    try:
        log: Log = call.server.topics.log(topic, number)
        if log.format.name != "kafka":
            raise KafkaError(
                Code.POLICY_VIOLATION, "Of a topic of Kafka 0.7's format whole segments go only."
            )
        if offset == _HIGH_WATERMARK or offset > log.high_watermark:
            # In Kafka the high watermark of the only replica covers what acks=1 has answered.
            await call.server.shared.flusher.flush_now(log)
            offset = log.high_watermark if offset == _HIGH_WATERMARK else offset
        if offset < 0:
            raise KafkaError(Code.OFFSET_OUT_OF_RANGE)
        begins: int = await call.server.in_thread(log.delete_records, offset)
        call.server.shared.waiting.changed(log.topic, log.partition)
        return Code.NONE, begins
    except HermesError as error:
        return code_of(error), _INVALID
