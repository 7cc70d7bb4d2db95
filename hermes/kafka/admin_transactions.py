"""DescribeProducers; ListTransactions and DescribeTransactions, of which there are none."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hermes.errors import HermesError
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.kafka.matched_topics import LONGEST_REGEX
from hermes.protocol.kafka_errors import Code, KafkaError, code_of
from hermes.regex import JavaPattern
from hermes.security import Operation

#: An answer has no more producers than a log may know: each takes memory until it is sent.
_MOST_PRODUCERS: Final = 20_000

#: The states by which transactions can be looked for.
_STATES: Final = frozenset(
    {
        *("Ongoing", "PrepareAbort", "PrepareCommit", "Empty"),
        *("CompleteAbort", "CompleteCommit", "Dead", "PrepareEpochFence"),
    }
)


async def describe_producers(request: Any, call: Call) -> Any:
    make, topics, count, entry = call.make, [], 0, 0
    wanted: dict[str, dict[int, None]] = {}
    for each in request.topics:
        wanted.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
    for name, numbers in wanted.items():
        is_permitted = call.permits_topic(Operation.CONSUME, name)
        partitions = []
        for number in numbers:
            await call.after_entry(entry)
            entry += 1
            code, text, found = Code.TOPIC_AUTHORIZATION_FAILED, None, ()
            if is_permitted:
                try:
                    code, found = Code.NONE, _producers(call, name, number)
                    if count + len(found) > _MOST_PRODUCERS and count:
                        raise KafkaError(Code.POLICY_VIOLATION, "Ask for fewer partitions at once.")
                    count += len(found)
                except HermesError as error:
                    code, text, found = code_of(error), str(error), ()
            partitions.append(
                make.PartitionResponse(
                    partition_index=number,
                    error_code=code,
                    error_message=text,
                    active_producers=found,
                )
            )
        topics.append(make.TopicResponse(name=name, partitions=tuple(partitions)))
    call.is_large = entry + count > LARGE_ENTRIES
    return make.DescribeProducersResponse(topics=tuple(topics))


def _producers(call: Call, topic: str, number: int) -> tuple[Any, ...]:
    producers = call.server.topics.log(topic, number).producers
    if producers is None:  # one of 0.7's format
        return ()
    return tuple(
        call.make.ProducerState(
            producer_id=producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp_ms,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=state.transaction_start,
        )
        for producer_id, state in producers.states.items()
    )


async def list_transactions(request: Any, call: Call) -> Any:
    code = Code.NONE
    pattern = getattr(request, "transactional_id_pattern", None)
    if pattern:
        try:
            if len(pattern) > LONGEST_REGEX:
                raise ValueError(f"it has more than {LONGEST_REGEX} characters")
            await call.server.look_up(JavaPattern, pattern)
        except ValueError:
            code = Code.INVALID_REGULAR_EXPRESSION
    unknown = [each for each in dict.fromkeys(request.state_filters) if each not in _STATES]
    call.is_large = len(unknown) > LARGE_ENTRIES
    return call.make.ListTransactionsResponse(
        error_code=code,
        unknown_state_filters=tuple(unknown) if code is Code.NONE else (),
        transaction_states=(),
    )


async def describe_transactions(request: Any, call: Call) -> Any:
    states = []
    for number, name in enumerate(dict.fromkeys(request.transactional_ids)):
        await call.after_entry(number)
        states.append(
            call.make.TransactionState(
                error_code=Code.TRANSACTIONAL_ID_NOT_FOUND,
                transactional_id=name,
                transaction_state="",
                transaction_timeout=timedelta(0),
                transaction_start_time=datetime.fromtimestamp(0, UTC),
                producer_id=0,
                producer_epoch=0,
                topics=(),
            )
        )
    call.is_large = len(states) > LARGE_ENTRIES
    return call.make.DescribeTransactionsResponse(transaction_states=tuple(states))
