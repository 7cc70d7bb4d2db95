"""What requests and time make of a transaction: Kafka's rules, and what holds whatever comes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.transactions import deciding
from hermes.transactions.deciding import Producer, ProducerIdNeededError
from hermes.transactions.state import (
    EXHAUSTED_EPOCH,
    NO_EPOCH,
    NO_ID,
    State,
    Transaction,
    group_at,
    group_place,
    partition_of,
)

ID = 7
PLACE = ("orders", 0)
NOW = 1000
RESTING = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


def transaction(state: State, epoch: int = 5, **values: Any) -> Transaction:
    places = frozenset({PLACE} if state is State.ONGOING or state in PREPARED else ())
    begun = -1 if state is State.EMPTY else 900
    made = Transaction(ID, epoch, 60_000, state, places, updated_ms=900, started_ms=begun)
    return made._replace(previous_id=ID, **values)


def refusal(call: Callable[..., Any], *args: Any, **values: Any) -> Code:
    with pytest.raises(KafkaError) as raised:
        call(*args, **values)
    return raised.value.code


# -- InitProducerId -----------------------------------------------------------------------------


def test_a_new_id_gets_a_producer() -> None:
    with pytest.raises(ProducerIdNeededError):
        deciding.initialized(None, None, 60_000, NOW)
    made = deciding.initialized(None, Producer(3, 9), 60_000, NOW, 11)
    assert (made.producer_id, made.epoch, made.state) == (11, 0, State.EMPTY)


@pytest.mark.parametrize("state", RESTING)
def test_a_new_producer_fences_the_one_before(state: State) -> None:
    made = deciding.initialized(transaction(state), None, 30_000, NOW)
    assert (made.producer_id, made.epoch, made.last_epoch) == (ID, 6, NO_EPOCH)
    assert (made.state, made.timeout_ms, made.started_ms) == (State.EMPTY, 30_000, -1)


@pytest.mark.parametrize("state", PREPARED)
def test_it_waits_for_the_end_of_a_decided_one(state: State) -> None:
    call = deciding.initialized, transaction(state), None, 30_000, NOW
    assert refusal(*call) is Code.CONCURRENT_TRANSACTIONS


def test_an_ongoing_one_is_aborted_first() -> None:
    made = deciding.initialized(transaction(State.ONGOING), None, 30_000, NOW)
    assert made.state is State.PREPARE_ABORT
    assert made.epoch > 5
    assert made.places == {PLACE}


def test_a_producer_goes_on_after_an_error_with_the_next_epoch() -> None:
    known = transaction(State.COMPLETE_ABORT)
    made = deciding.initialized(known, Producer(ID, 5), 60_000, NOW)
    assert (made.epoch, made.last_epoch) == (6, 5)
    again = deciding.initialized(made, Producer(ID, 5), 60_000, NOW)
    assert (again.epoch, again.last_epoch) == (6, 5), "it hasn't heard the answer"
    assert refusal(deciding.initialized, made, Producer(ID, 4), 60_000, NOW) is Code.PRODUCER_FENCED
    assert refusal(deciding.initialized, made, Producer(8, 6), 60_000, NOW) is Code.PRODUCER_FENCED


def test_an_exhausted_producer_id_is_replaced() -> None:
    known = transaction(State.COMPLETE_COMMIT, EXHAUSTED_EPOCH)
    with pytest.raises(ProducerIdNeededError):
        deciding.initialized(known, None, 60_000, NOW)
    made = deciding.initialized(known, Producer(ID, EXHAUSTED_EPOCH), 60_000, NOW, 11)
    assert (made.producer_id, made.epoch, made.previous_id) == (11, 0, ID)
    again = deciding.initialized(made, Producer(ID, EXHAUSTED_EPOCH), 60_000, NOW)
    assert (again.producer_id, again.epoch) == (11, 0)


# -- partitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", RESTING)
def test_a_transaction_begins_with_its_first_partition(state: State) -> None:
    made = deciding.joined(transaction(state), Producer(ID, 5), [PLACE], 2, NOW)
    assert (made.state, made.places, made.started_ms) == (State.ONGOING, {PLACE}, NOW)
    more = deciding.joined(made, Producer(ID, 5), [("paid", 1), group_place("payers")], 2, NOW + 5)
    assert more.places == {PLACE, ("paid", 1), group_place("payers")}
    assert more.started_ms == NOW
    assert (
        deciding.joined(more, Producer(ID, 5), [PLACE, group_place("payers")], 2, NOW + 9) is more
    )


@pytest.mark.parametrize("check", ["joined", "found_joined"])
def test_who_may_add_partitions(check: str) -> None:
    def call(known: Transaction | None, producer: Producer) -> Code:
        if check == "joined":
            return refusal(deciding.joined, known, producer, [PLACE], 0, NOW)
        return refusal(deciding.found_joined, known, producer, [PLACE])

    ongoing = transaction(State.ONGOING)
    assert call(None, Producer(ID, 5)) is Code.INVALID_PRODUCER_ID_MAPPING
    assert call(ongoing, Producer(8, 5)) is Code.INVALID_PRODUCER_ID_MAPPING
    assert call(ongoing, Producer(ID, 4)) is Code.PRODUCER_FENCED
    for state in PREPARED:
        assert call(transaction(state), Producer(ID, 5)) is Code.CONCURRENT_TRANSACTIONS


def test_a_partition_is_in_it_or_not() -> None:
    other = ("orders", 1)
    found = deciding.found_joined(transaction(State.ONGOING), Producer(ID, 5), [PLACE, other])
    assert found == {PLACE: Code.NONE, other: Code.TRANSACTION_ABORTABLE}


# -- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
def test_an_ongoing_one_ends(commits: bool) -> None:
    known, producer = transaction(State.ONGOING), Producer(ID, 5)
    wanted = State.PREPARE_COMMIT if commits else State.PREPARE_ABORT
    plain = deciding.ended(known, producer, 0, NOW, commits=commits)
    grown = deciding.ended(known, producer, 2, NOW, commits=commits)
    assert (plain.state, plain.epoch) == (wanted, 5)
    assert (grown.state, grown.epoch, grown.last_epoch) == (wanted, 6, 5)
    for each in (plain, grown):
        assert (each.places, each.started_ms) == ({PLACE}, 900)
        done = deciding.completed(each, NOW + 1)
        assert (done.places, done.epoch) == (set(), each.epoch)
        assert done.is_committed == commits


@pytest.mark.parametrize("commits", [True, False])
def test_who_goes_on_before_the_markers_are_written_is_not_fenced(commits: bool) -> None:
    """It has heard of its next id and epoch with the answer to its end."""
    ongoing, last = transaction(State.ONGOING, EXHAUSTED_EPOCH), Producer(ID, EXHAUSTED_EPOCH)
    ending = deciding.ended(ongoing, last, 2, NOW, 11, commits=commits)
    after = deciding.next_producer(ending)
    busy = Code.CONCURRENT_TRANSACTIONS
    assert refusal(deciding.joined, ending, after, [PLACE], 2, NOW) is busy
    assert refusal(deciding.ended, ending, after, 2, NOW, commits=False) is busy
    assert refusal(deciding.initialized, ending, after, 60_000, NOW) is busy


def test_the_last_epoch_of_a_producer_id() -> None:
    known, producer = transaction(State.ONGOING, EXHAUSTED_EPOCH), Producer(ID, EXHAUSTED_EPOCH)
    with pytest.raises(ProducerIdNeededError):
        deciding.ended(known, producer, 2, NOW, commits=True)
    made = deciding.ended(known, producer, 2, NOW, 11, commits=True)
    assert (made.producer_id, made.epoch, made.next_id) == (ID, EXHAUSTED_EPOCH + 1, 11)
    done = deciding.completed(made, NOW)
    assert (done.producer_id, done.epoch, done.next_id) == (11, 0, NO_ID)
    assert deciding.ended(done, producer, 2, NOW, commits=True) is done


_DONE, _ABORTS = "done", "aborts"
_ENDS = {
    (State.EMPTY, 2): (Code.PRODUCER_FENCED, _ABORTS, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE),
    (State.COMPLETE_ABORT, 2): (
        *(_DONE, _ABORTS),
        *(Code.INVALID_TXN_STATE, Code.INVALID_TXN_STATE),
    ),
    (State.COMPLETE_COMMIT, 2): (
        *(Code.INVALID_TXN_STATE, _ABORTS),
        *(_DONE, Code.INVALID_TXN_STATE),
    ),
    (State.PREPARE_COMMIT, 2): (Code.CONCURRENT_TRANSACTIONS,) * 4,
    (State.PREPARE_ABORT, 2): (Code.CONCURRENT_TRANSACTIONS,) * 4,
    (State.EMPTY, 0): (
        *(Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE),
        *(Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE),
    ),
    (State.COMPLETE_ABORT, 0): (
        *(Code.PRODUCER_FENCED, _DONE),
        *(Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE),
    ),
    (State.COMPLETE_COMMIT, 0): (
        *(Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE),
        *(Code.PRODUCER_FENCED, _DONE),
    ),
    (State.PREPARE_COMMIT, 0): (Code.PRODUCER_FENCED, Code.CONCURRENT_TRANSACTIONS) * 2,
    (State.PREPARE_ABORT, 0): (Code.PRODUCER_FENCED, Code.CONCURRENT_TRANSACTIONS) * 2,
}


def _ends() -> Iterator[Any]:
    for (state, version), wanted in _ENDS.items():
        cases = [(False, 4), (False, 5), (True, 4), (True, 5)]
        for (commits, epoch), each in zip(cases, wanted, strict=True):
            yield pytest.param(state, version, commits, epoch, each)


@pytest.mark.parametrize(("state", "version", "commits", "epoch", "wanted"), [*_ends()])
def test_ends_that_come_when_none_is_ongoing(
    state: State, version: int, commits: bool, epoch: int, wanted: Code | str
) -> None:
    known = transaction(state, version=version)
    call = deciding.ended, known, Producer(ID, epoch), version, NOW
    if isinstance(wanted, Code):
        assert refusal(*call, commits=commits) is wanted
        return
    made = call[0](*call[1:], commits=commits)
    if wanted == _DONE:
        assert made is known
    else:
        assert (made.state, made.epoch, made.started_ms) == (State.PREPARE_ABORT, 6, NOW)


def test_no_end_is_repeated_after_one_that_kept_the_epoch() -> None:
    # A producer of an older version has fenced this one, and has ended its own transaction.
    known, producer = transaction(State.COMPLETE_ABORT, version=0), Producer(ID, 4)
    assert refusal(deciding.ended, known, producer, 2, NOW, commits=False) is Code.PRODUCER_FENCED


def test_who_may_end_it() -> None:
    ended, known = deciding.ended, transaction(State.ONGOING)
    for version in (0, 2):
        wrong = Code.INVALID_PRODUCER_ID_MAPPING
        assert refusal(ended, None, Producer(ID, 5), version, NOW, commits=True) is wrong
        assert refusal(ended, known, Producer(8, 5), version, NOW, commits=True) is wrong
        for epoch in (4, 6):
            code = refusal(ended, known, Producer(ID, epoch), version, NOW, commits=True)
            assert code is Code.PRODUCER_FENCED


# -- time ---------------------------------------------------------------------------------------


def test_a_late_transaction_and_an_unused_id() -> None:
    ongoing = transaction(State.ONGOING)
    assert not deciding.is_late(ongoing, 900 + 60_000)
    assert deciding.is_late(ongoing, 900 + 60_001)
    assert not deciding.has_expired(ongoing, 10, NOW)
    for state in RESTING:
        assert not deciding.is_late(transaction(state), 10**9)
        assert deciding.has_expired(transaction(state), 100, NOW)
        assert not deciding.has_expired(transaction(state), 101, NOW)
    for state in PREPARED:
        assert not deciding.has_expired(transaction(state), 0, NOW)


def test_a_fenced_epoch_never_overflows() -> None:
    for epoch in range(EXHAUSTED_EPOCH - 3, EXHAUSTED_EPOCH + 2):
        made = deciding.fenced(transaction(State.ONGOING, epoch), NOW)
        assert epoch < made.epoch <= EXHAUSTED_EPOCH + 1 or epoch == EXHAUSTED_EPOCH + 1
        done = deciding.completed(made, NOW)
        next_one = deciding.initialized(done, None, 60_000, NOW, 11)
        assert (next_one.producer_id, next_one.epoch) > (ID, made.epoch)


# -- names --------------------------------------------------------------------------------------


def test_groups_stand_among_partitions() -> None:
    for name in ("payers", "", "a/b"):
        assert group_at(group_place(name)) == name
    assert group_at(PLACE) is None
    assert group_at(("__consumer_offsets", 3)) is None


def test_ids_are_spread_as_by_kafka() -> None:
    # Of Java: Utils.abs("...".hashCode()) % 50
    assert [partition_of(each, 50) for each in ("", "a", "user-7")] == [0, 47, 29]


# -- whatever comes -----------------------------------------------------------------------------


@dataclass
class Client:
    """A producer, and what it was told last."""

    version: int
    producer: Producer = field(default_factory=lambda: Producer(-1, -1))


class AnyOrder(RuleBasedStateMachine):
    """Several producers of one transactional id: requests, repeated ones, lost answers, time."""

    def __init__(self) -> None:
        super().__init__()
        self.known: Transaction | None = None
        self.now = NOW
        self.next_id = ID
        self.clients = [Client(version) for version in (2, 2, 0)]
        self.latest: Client | None = None
        self.told: set[Producer] = set()
        self.decided: dict[Producer, bool] = {}

    def take(self, decide: Callable[..., Transaction], *args: Any, **values: Any) -> Any:
        """Store what is decided, as a coordinator does; None where it is refused."""
        try:
            try:
                made = decide(self.known, *args, **values)
            except ProducerIdNeededError:
                self.next_id += 1
                made = decide(self.known, *args, **values, new_id=self.next_id)
        except KafkaError:
            return None
        before, self.known = self.known, made
        if before is not None and made is not before:
            grown = made.epoch > before.epoch or made.producer_id > before.producer_id
            assert grown or (made.epoch, made.producer_id) == (before.epoch, before.producer_id)
        return made

    @rule(number=st.integers(0, 2), goes_on=st.booleans(), hears=st.booleans())
    def initialize(self, number: int, goes_on: bool, hears: bool) -> None:
        client = self.clients[number]
        expected = client.producer if goes_on and client.producer.id >= 0 else None
        made = self.take(deciding.initialized, expected, 60_000, self.now)
        if made is None or made.state is not State.EMPTY:
            return
        now = Producer(made.producer_id, made.epoch)
        if expected is None:
            assert now not in self.told, "two producers have the same epoch"
        self.told.add(now)
        if hears:
            client.producer, self.latest = now, client

    @rule(number=st.integers(0, 2), partition=st.integers(0, 1))
    def join(self, number: int, partition: int) -> None:
        client = self.clients[number]
        made = self.take(
            deciding.joined, client.producer, [("orders", partition)], client.version, self.now
        )
        if made is not None:
            assert client.producer == (made.producer_id, made.epoch)

    @rule(number=st.integers(0, 2), commits=st.booleans(), hears=st.booleans())
    def end(self, number: int, commits: bool, hears: bool) -> None:
        client, before = self.clients[number], self.known
        made = self.take(deciding.ended, client.producer, client.version, self.now, commits=commits)
        if made is None:
            return
        if client.version and made is before:
            # An answer that was lost: the decision is the one that was made for that epoch.
            assert self.decided[client.producer] == commits
        self.decided[client.producer] = commits
        if hears and client.version:
            client.producer = deciding.next_producer(made)
            self.told.add(client.producer)

    @rule()
    def complete(self) -> None:
        if self.known is not None and self.known.state.is_prepared:
            self.known = deciding.completed(self.known, self.now)

    @rule(ms=st.integers(0, 90_000))
    def wait(self, ms: int) -> None:
        self.now += ms
        if self.known is not None and deciding.is_late(self.known, self.now):
            self.known = deciding.fenced(self.known, self.now)

    @rule()
    def wear_out(self) -> None:
        """Many transactions later."""
        if self.known is not None and self.known.state in RESTING:
            near = max(self.known.epoch, EXHAUSTED_EPOCH - 2)
            self.known = self.known._replace(epoch=near)

    @invariant()
    def holds(self) -> None:
        known = self.known
        if known is None:
            return
        assert 0 <= known.epoch <= EXHAUSTED_EPOCH + 1
        assert (known.started_ms >= 0) or known.state is State.EMPTY
        assert known.state in (State.ONGOING, *PREPARED) or not known.places
        assert known.next_id == NO_ID or known.state in PREPARED
        for client in self.clients:
            if known.state is State.ONGOING and client.producer.id == known.producer_id:
                assert client.producer.epoch <= known.epoch


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("commits", [True, False])
def test_who_was_aborted_late_in_its_last_epoch_is_fenced(commits: bool) -> None:
    late = deciding.fenced(transaction(State.ONGOING, EXHAUSTED_EPOCH), NOW)
    over = deciding.completed(late, NOW)
    producer = Producer(ID, EXHAUSTED_EPOCH)
    code = refusal(deciding.ended, over, producer, 2, NOW, commits=commits)
    assert code is Code.PRODUCER_FENCED
