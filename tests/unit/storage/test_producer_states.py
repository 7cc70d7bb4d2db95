"""What a log knows of producers: what Kafka's model says nothing of."""

import pytest

from hermes.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from hermes.protocol.record_batches import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from hermes.storage.producer_states import (
    EXPIRATION_MS,
    ProducerState,
    ProducerStates,
    keep_together,
)


def batch(producer=7, epoch=0, sequence=0, count=1, time_ms=1000, attributes=0):
    return BatchHeader(
        0, 99, 0, 0, attributes, count - 1, 0, time_ms, producer, epoch, sequence, count
    )


@pytest.fixture
def states():
    return ProducerStates("clicks-0", most=3)


def test_a_refusal_names_the_producer_the_place_and_both_numbers(states):
    states.note([batch(sequence=0, count=5)], 100)

    with pytest.raises(OutOfOrderSequenceError) as gap:
        states.check([batch(sequence=9)], 105)
    with pytest.raises(OutOfOrderSequenceError) as begun:
        states.check([batch(epoch=1, sequence=3)], 105)
    states.note([batch(epoch=2)], 105)
    with pytest.raises(InvalidProducerEpochError) as old:
        states.check([batch(epoch=1)], 106)

    assert str(gap.value) == (
        "producer 7 at offset 105 of clicks-0: its sequence number is 9, but the last one was 4"
    )
    assert "its epoch 1 begins with sequence number 3; the current epoch is 0" in str(begun.value)
    assert "its epoch is 1, but there is one with epoch 2 already" in str(old.value)


def test_of_too_many_producers_the_longest_silent_are_forgotten(states):
    for producer in range(3):
        states.note([batch(producer)], producer)
    states.note([batch(0, sequence=1)], 3)

    states.note([batch(9)], 4)

    assert set(states.states) == {0, 2, 9}
    assert len(states) == 3
    assert states.check([batch(1, sequence=40)], 5) is None, "a producer that nobody knows"


def test_expiry_is_looked_for_every_ten_minutes_only(states):
    states.expire(0)
    states.note([batch(1, time_ms=-EXPIRATION_MS)], 0)

    states.expire(599_999)
    assert len(states) == 1
    states.expire(600_000)
    assert len(states) == 0


def test_a_marker_that_kafkas_transactions_have_left_begins_its_epoch(states):
    states.note([batch(sequence=0, count=4)], 0)
    states.note([batch(sequence=-1, attributes=CONTROL_BIT)], 4)
    assert states.states[7].last_sequence == 3, "of the same epoch the batches stay"

    states.note([batch(epoch=1, sequence=-1, attributes=CONTROL_BIT, time_ms=2000)], 5)

    assert states.states[7] == ProducerState(1, (), 2000)
    assert states.check([batch(epoch=1, sequence=0)], 6) is None
    with pytest.raises(OutOfOrderSequenceError):
        states.check([batch(epoch=1, sequence=1)], 6)


def test_what_came_before_the_remembered_batches_is_known_by_its_rows(states):
    """Of the last four: where another producer's messages are between, there is a new one."""
    places, offset = [], 0
    for number in range(100):
        if number in (20, 40, 50, 60):
            offset += 1
        places.append(offset)
        states.note([batch(sequence=3 * number, count=3)], offset)
        offset += 3

    def found(sequence: int, count: int = 3) -> int | None:
        stored = states.check([batch(sequence=sequence, count=count)], offset)
        return None if stored is None else stored.base_offset

    assert [found(3 * number) for number in range(20, 100)] == places[20:]
    assert found(3 * 25, 6) == places[25], "as two that were sent one by one"
    for sequence, count in ((3 * 19, 3), (3 * 39, 6), (3 * 89, 6), (3 * 95, 6), (301, 1)):
        with pytest.raises(OutOfOrderSequenceError):
            found(sequence, count)
    assert found(300) is None

    states.forget({places[99]})
    assert states.states[7].last_sequence == 3 * 98 + 2
    with pytest.raises(OutOfOrderSequenceError):
        found(3 * 50)


def test_numbers_begin_again_within_a_row(states):
    last = 2**31 - 1
    for number in range(20):
        states.note([batch(sequence=(last - 9 + number) & last)], number)

    assert [
        states.check([batch(sequence=(last - 9 + n) & last)], 20).base_offset for n in range(20)
    ] == [*range(20)]


def test_numbers_of_a_transaction_that_has_ended_are_never_taken_for_stored(states):
    first, second = (batch(sequence=n, attributes=TRANSACTIONAL_BIT) for n in (0, 1))
    states.note([first], 0)
    assert states.check([first], 1) is not None, "sent again while it is under way"

    states.note([batch(sequence=-1, attributes=CONTROL_BIT | TRANSACTIONAL_BIT)], 1)
    with pytest.raises(
        OutOfOrderSequenceError, match="in a transaction in clicks-0 that has ended"
    ):
        states.check([first], 2)

    states.note([second], 2)
    with pytest.raises(OutOfOrderSequenceError):
        states.check([first], 3)
    assert states.check([second], 3) is not None


def test_a_capture_is_the_state_of_its_moment_and_taken_once_flushed(states):
    states.note([batch(sequence=0)], 0)
    states.capture(1)
    states.capture(1)
    states.note([batch(sequence=1)], 1)
    states.capture(2)

    assert states.take_captures(0) == []
    ((offset, known),) = states.take_captures(1)
    assert (offset, known[7].last_sequence) == (1, 0)
    assert [each.offset for each in states.take_captures(9)] == [2]
    assert states.take_captures(9) == []


@pytest.mark.parametrize(
    ("sizes", "most", "kept"),
    [
        ((5, 5, 5), 15, [5, 5, 5]),
        ((1, 9, 9), 15, [1, 7, 7]),
        ((9, 2, 40, 9), 20, [6, 2, 6, 6]),
        ((3, 3, 3), 2, [1, 1, 1]),
        ((0, 30, 0), 10, [0, 10, 0]),
        ((), 1, []),
    ],
)
def test_logs_share_what_a_broker_remembers(sizes, most, kept):
    logs = [ProducerStates(f"clicks-{number}") for number in range(len(sizes))]
    for log, size in zip(logs, sizes, strict=True):
        for producer in range(size):
            log.note([batch(producer)], producer)
    keep_together(logs, most)
    assert [len(log) for log in logs] == kept
    for log, size, count in zip(logs, sizes, kept, strict=True):
        assert list(log.states) == list(range(size - count, size)), "the longest silent go first"


def test_what_is_on_disk_is_known_with_all_that_came_before(states):
    for number in range(11):
        states.note([batch(sequence=2 * number, count=2)], 2 * number)

    on_disk = [states.has_flushed(batch(sequence=each, count=2), 10) for each in (0, 2, 8, 20)]

    assert on_disk == [True, True, True, False]
    assert not states.has_flushed(batch(sequence=0, count=2), 2), "it isn't among the last ten"
    assert states.has_flushed(batch(epoch=-1), 0), "it never comes again"
    assert not states.has_flushed(batch(epoch=1), 99)
    assert not states.has_flushed(batch(producer=8), 99)


def test_numbers_that_began_anew_are_on_disk_after_those_before(states):
    states.note([batch(sequence=2**31 - 1, count=2)], 0)
    assert states.has_flushed(batch(sequence=2**31 - 3), 2)
    assert not states.has_flushed(batch(sequence=1), 2)
