"""What a request, or time, makes of a transaction: functions from what was to what is to be stored.

Whoever calls them stores what they give before anybody hears of it, one change of an id at a time.
What they give back unchanged was done before, and needs no storing. KafkaError says why not.

With version 2 (KIP-890) the epoch grows with the end of each transaction, so that nothing of an
earlier one can come late. A repeated end is known by its epoch, which is one behind:

                      abort                    commit
                      repeated    in step      repeated    in step
    EMPTY             fenced      aborts       fenced      refused
    COMPLETE_ABORT    done        aborts       refused     refused
    COMPLETE_COMMIT   refused     aborts       done        refused

Without it nothing tells a repeated end from a new one: each state takes the end that led to it.

Rules: Kafka 4's `TransactionCoordinator` and `TransactionMetadata`.
"""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.transactions.state import (
    BEFORE,
    EXHAUSTED_EPOCH,
    NO_EPOCH,
    NO_ID,
    NO_TIME,
    Place,
    State,
    Transaction,
)

#: The first version in which a producer takes a new epoch from each end.
EPOCH_GROWS: Final = 2

_LAST_EPOCH: Final = EXHAUSTED_EPOCH + 1

_PREPARED: Final = {True: State.PREPARE_COMMIT, False: State.PREPARE_ABORT}
_COMPLETE: Final = {
    State.PREPARE_COMMIT: State.COMPLETE_COMMIT,
    State.PREPARE_ABORT: State.COMPLETE_ABORT,
}


class Producer(NamedTuple):
    """Who asks, as the request says."""

    id: int
    epoch: int


class ProducerIdNeededError(Exception):
    """Ask again, with a producer id that nobody has had."""


def initialized(
    known: Transaction | None,
    expected: Producer | None,
    timeout_ms: int,
    now_ms: int,
    new_id: int | None = None,
) -> Transaction:
    """Give a producer its id and epoch, which fences those before it.

    An ongoing transaction is aborted first: that is what is given then, and the producer is to ask
    again, once that has ended.

    Args:
        expected: what a producer that goes on after an error had; None for one that begins.
        new_id: a producer id, where one was needed.
    """
    if known is None:
        first = Transaction(_needed(new_id), 0, timeout_ms, State.EMPTY, updated_ms=now_ms)
        return first._replace(previous_id=first.producer_id)
    _check_not_ending(known)
    if expected is not None and expected.id != known.producer_id:
        is_repeated = expected.id == known.previous_id and expected.epoch >= EXHAUSTED_EPOCH
        if not is_repeated:
            raise KafkaError(Code.PRODUCER_FENCED)
    if known.state is State.ONGOING:
        return fenced(known, now_ms)
    last = NO_EPOCH if expected is None else known.epoch
    producer_id, epoch = known.producer_id, known.epoch + 1
    if expected is not None and expected.epoch != known.epoch:
        if expected.epoch != known.last_epoch:
            raise KafkaError(Code.PRODUCER_FENCED)
        epoch, last = known.epoch, known.last_epoch  # it hasn't heard the answer
    elif known.is_exhausted:
        producer_id, epoch = _needed(new_id), 0
    return _changed(
        known,
        State.EMPTY,
        now_ms,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last,
        timeout_ms=timeout_ms,
        places=frozenset(),
        started_ms=NO_TIME,
    )


def joined(
    known: Transaction | None,
    producer: Producer,
    places: Collection[Place],
    version: int,
    now_ms: int,
) -> Transaction:
    """Take partitions into the transaction, which begins with the first."""
    _check_not_ending(known)
    known = _open_to(known, producer)
    is_ongoing = known.state is State.ONGOING
    if is_ongoing and known.places.issuperset(places):
        return known
    return _changed(
        known,
        State.ONGOING,
        now_ms,
        places=known.places.union(places),
        started_ms=known.started_ms if is_ongoing else now_ms,
        version=version,
    )


def found_joined(
    known: Transaction | None, producer: Producer, places: Collection[Place]
) -> dict[Place, Code]:
    """Say of each place whether it is in the producer's transaction."""
    known = _open_to(known, producer)
    return {
        each: Code.NONE if each in known.places else Code.TRANSACTION_ABORTABLE for each in places
    }


def ended(
    known: Transaction | None,
    producer: Producer,
    version: int,
    now_ms: int,
    new_id: int | None = None,
    *,
    commits: bool,
) -> Transaction:
    """Decide a transaction; its markers are to be written, and then it is `completed`."""
    grows = version >= EPOCH_GROWS
    if grows:
        _check_not_ending(known)
    known = _of(known, producer, grows=grows)
    state = known.state
    is_repeated = grows and (_is_over(known, producer) or producer.epoch + 1 == known.epoch)
    if known.epoch == _LAST_EPOCH:
        is_repeated = False  # it was aborted late, and its id has no epoch left
    if producer.epoch != known.epoch and not (is_repeated and state in _COMPLETE.values()):
        raise KafkaError(Code.PRODUCER_FENCED)
    _check_not_ending(known)
    if state is State.ONGOING:
        return _prepared(known, version, now_ms, new_id, commits=commits)
    is_same = state is not State.EMPTY and known.is_committed == commits
    if is_same and is_repeated and known.version < EPOCH_GROWS:
        raise KafkaError(Code.PRODUCER_FENCED)  # that end kept the epoch: it was somebody else's
    if is_same and (is_repeated or not grows):
        return known
    if grows and not (commits or is_repeated):
        begun = known._replace(started_ms=now_ms)
        return _prepared(begun, version, now_ms, new_id, commits=False)
    raise KafkaError(Code.INVALID_TXN_STATE)


def fenced(known: Transaction, now_ms: int) -> Transaction:
    """Abort an ongoing transaction whose producer is late, or has a successor."""
    epoch = min(known.epoch + 1, _LAST_EPOCH)
    return _changed(
        known,
        State.PREPARE_ABORT,
        now_ms,
        epoch=min(epoch + 1, _LAST_EPOCH),
        last_epoch=epoch,
        version=EPOCH_GROWS,
    )


def completed(known: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
    producer_id, epoch = next_producer(known)
    return _changed(
        known,
        _COMPLETE[known.state],
        now_ms,
        producer_id=producer_id,
        epoch=epoch,
        next_id=NO_ID,
        places=frozenset(),
    )


def next_producer(known: Transaction) -> Producer:
    """With which id and epoch the producer goes on after the end of a transaction."""
    if known.next_id != NO_ID:
        return Producer(known.next_id, 0)
    return Producer(known.producer_id, known.epoch)


def is_late(known: Transaction, now_ms: int) -> bool:
    """Whether it has been ongoing for longer than its producer wanted."""
    return known.state is State.ONGOING and known.started_ms + known.timeout_ms < now_ms


def has_expired(known: Transaction, retention_ms: int, now_ms: int) -> bool:
    """Whether nobody has used the transactional id for so long that it is to be forgotten."""
    return known.updated_ms + retention_ms <= now_ms and known.state in BEFORE[State.DEAD]


def _of(known: Transaction | None, producer: Producer, *, grows: bool = False) -> Transaction:
    if known is None or (
        producer.id != known.producer_id and not (grows and _is_over(known, producer))
    ):
        raise KafkaError(Code.INVALID_PRODUCER_ID_MAPPING)
    return known


def _open_to(known: Transaction | None, producer: Producer) -> Transaction:
    """The one that the producer is in, or may begin."""
    known = _of(known, producer)
    if producer.epoch != known.epoch:
        raise KafkaError(Code.PRODUCER_FENCED)
    _check_not_ending(known)
    return known


def _check_not_ending(known: Transaction | None) -> None:
    """While markers are written the producer may go by its next id and epoch already."""
    if known is not None and known.state.is_prepared:
        raise KafkaError(Code.CONCURRENT_TRANSACTIONS)


def _is_over(known: Transaction, producer: Producer) -> bool:
    """Whether the end that it asks for was the last one with its producer id."""
    return known.previous_id == producer.id and (producer.epoch, known.epoch) == (
        EXHAUSTED_EPOCH,
        0,
    )


def _prepared(
    known: Transaction, version: int, now_ms: int, new_id: int | None, *, commits: bool
) -> Transaction:
    state = _PREPARED[commits]
    if version < EPOCH_GROWS:
        return _changed(known, state, now_ms, version=version)
    is_last = known.epoch == EXHAUSTED_EPOCH
    return _changed(
        known,
        state,
        now_ms,
        epoch=min(known.epoch + 1, _LAST_EPOCH),
        last_epoch=known.epoch,
        next_id=_needed(new_id) if is_last else NO_ID,
        version=version,
    )


def _changed(known: Transaction, state: State, now_ms: int, **values: Any) -> Transaction:
    assert known.state in BEFORE[state], f"{state.name} never follows {known.state.name}"
    return known._replace(
        state=state,
        previous_id=known.producer_id,
        updated_ms=max(now_ms, known.updated_ms),
        **values,
    )


def _needed(new_id: int | None) -> int:
    if new_id is None:
        raise ProducerIdNeededError
    return new_id
