"""DescribeProducers, ListTransactions, DescribeTransactions."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hermes.errors import HermesError
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.kafka.matched_topics import LONGEST_REGEX, matching
from hermes.protocol.kafka_errors import Code, KafkaError, error_fields
from hermes.security import Operation, Resource
from hermes.transactions.state import State, Transaction, group_at

#: An answer has no more producers than a log may know: each takes memory until it is sent.
_MOST_PRODUCERS: Final = 20_000

_EPOCH: Final = datetime.fromtimestamp(0, UTC)

#: The states by which transactions can be looked for.
_STATES: Final = frozenset({*(each.label for each in State), "PrepareEpochFence"})

_REFUSED: Final = {"error_code": Code.TOPIC_AUTHORIZATION_FAILED}

_NO_TRANSACTION: Final = Transaction(0, 0, 0, State.EMPTY, started_ms=0)


async def describe_producers(request: Any, call: Call) -> Any:
    make, topics, count = call.make, [], 0
    wanted: dict[str, dict[int, None]] = {}
    for each in request.topics:
        wanted.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
    for name, numbers in wanted.items():
        is_permitted = call.permits_topic(Operation.CONSUME, name)
        partitions = []
        for number in numbers:
            await call.after_entry()
            fields, found = error_fields() | _REFUSED, ()
            if is_permitted:
                try:
                    fields, found = error_fields(), _producers(call, name, number)
                    if count + len(found) > _MOST_PRODUCERS and count:
                        raise KafkaError(Code.POLICY_VIOLATION, "Ask for fewer partitions at once.")
                    count += len(found)
                except HermesError as error:
                    fields, found = error_fields(error), ()
            partitions.append(
                make.PartitionResponse(partition_index=number, active_producers=found, **fields)
            )
        topics.append(make.TopicResponse(name=name, partitions=tuple(partitions)))
    call.is_large = call.entries + count > LARGE_ENTRIES
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
    code, found = Code.NONE, list[Any]()
    states = dict.fromkeys(request.state_filters)
    unknown = tuple(each for each in states if each not in _STATES)
    try:
        found = await _listed(request, call)
    except ValueError:
        code, unknown = Code.INVALID_REGULAR_EXPRESSION, ()
    except KafkaError as error:
        code = error.code
    call.is_large = len(found) + len(unknown) > LARGE_ENTRIES
    return call.make.ListTransactionsResponse(
        error_code=code, unknown_state_filters=unknown, transaction_states=tuple(found)
    )


async def _listed(request: Any, call: Call) -> list[Any]:
    """Find transactions; raises ValueError, KafkaError: not by that expression, or not now."""
    pattern = getattr(request, "transactional_id_pattern", None)
    if len(pattern or "") > LONGEST_REGEX:
        raise ValueError(f"it has more than {LONGEST_REGEX} characters")
    states, ids = set(request.state_filters), set(request.producer_id_filters)
    longer_ms = getattr(request, "duration_filter", -1)
    now_ms = call.server.shared.now_ms()
    found = {}
    for name, each in await call.server.transactions.coordinator.all():
        await call.after_entry()
        if (
            (not states or each.state.label in states)
            and (not ids or each.producer_id in ids)
            and (longer_ms < 0 or (each.is_open and now_ms - each.started_ms >= longer_ms))
            and call.may(Operation.DESCRIBE, Resource.transaction(name))
        ):
            found[name] = call.make.TransactionState(
                transactional_id=name,
                producer_id=each.producer_id,
                transaction_state=each.state.label,
            )
    if not pattern:
        return list(found.values())
    names = await call.server.look_up(matching, pattern, list(found))
    return [found[each] for each in names]


async def describe_transactions(request: Any, call: Call) -> Any:
    states, count = [], 0
    for name in dict.fromkeys(request.transactional_ids):
        await call.after_entry()
        code, found = Code.NONE, _NO_TRANSACTION
        if not call.permits(Operation.DESCRIBE, Resource.transaction(name)):
            code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        else:
            try:
                found = await call.server.transactions.coordinator.describe(name)
            except KafkaError as error:
                code = error.code
        topics = _shown_topics(found, call)
        count += 1 + sum(len(each.partitions) for each in topics)
        states.append(
            call.make.TransactionState(
                error_code=code,
                transactional_id=name,
                transaction_state=found.state.label if code is Code.NONE else "",
                transaction_timeout=timedelta(milliseconds=found.timeout_ms),
                transaction_start_time=_EPOCH + timedelta(milliseconds=found.started_ms),
                producer_id=found.producer_id,
                producer_epoch=found.epoch,
                topics=topics,
            )
        )
    call.is_large = count > LARGE_ENTRIES
    return call.make.DescribeTransactionsResponse(transaction_states=tuple(states))


def _shown_topics(found: Transaction, call: Call) -> tuple[Any, ...]:
    by_topic: dict[str, list[int]] = {}
    for name, partition in sorted(found.places):
        if group_at((name, partition)) is not None or call.server.shows(call.client, name):
            by_topic.setdefault(name, []).append(partition)
    return tuple(
        call.make.TopicData(topic=name, partitions=tuple(numbers))
        for name, numbers in by_topic.items()
    )
