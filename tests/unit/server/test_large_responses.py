"""Large answers: one at a time, within their memory, and none for who doesn't read."""

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from hermes.server.large_responses import COUNTED_BYTES, LEAST_READ_BYTES, LargeResponses

LIMIT = 10 * COUNTED_BYTES


class Reader:
    """A connection that was sent an answer."""

    def __init__(self, answers: LargeResponses, size_bytes: int) -> None:
        self.answers = answers
        self.sent = 0
        self.given_up = ""
        answers.hold(self, size_bytes)

    def response_progress(self) -> int:
        return self.sent

    def give_up(self, reason: str) -> None:
        self.given_up = reason
        self.answers.release(self)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def answers(clock: Clock) -> LargeResponses:
    return LargeResponses(LIMIT, clock)


def later(outcomes: list[Any]) -> "Callable[[], Deferred[None]]":
    def function() -> "Deferred[None]":
        outcomes.append(Deferred())
        made: Deferred[None] = outcomes[-1]
        return made

    return function


def test_one_is_made_after_the_other(answers: LargeResponses, clock: Clock) -> None:
    begun: list[Deferred[None]] = []
    done: list[object] = []
    for _ in range(3):
        answers.make(later(begun)).addBoth(done.append)
    assert len(begun) == 1
    begun[0].callback(None)
    clock.advance(0)
    assert (len(begun), len(done)) == (2, 1)
    begun[1].errback(ValueError())
    clock.advance(0)
    assert (len(begun), len(done)) == (3, 2)


def test_a_thousand_that_are_made_at_once_do_not_recurse(
    answers: LargeResponses, clock: Clock
) -> None:
    done: list[object] = []
    for number in range(5000):
        answers.make(lambda number=number: number).addBoth(done.append)
    while clock.getDelayedCalls():
        clock.advance(0)
    assert done == list(range(5000))


def test_a_cancelled_one_gives_its_turn_to_the_next(answers: LargeResponses, clock: Clock) -> None:
    begun: list[Deferred[None]] = []
    ended: list[object] = []
    first, second, third = (answers.make(later(begun)) for _ in range(3))
    for each in (first, second, third):
        each.addErrback(lambda failure: ended.append(failure.check(CancelledError)))
    second.cancel()
    first.cancel()
    clock.advance(0)
    assert ended == [CancelledError, CancelledError]
    assert len(begun) == 2, "the third was begun, the second never was"


def test_none_is_made_while_those_under_way_hold_too_much(
    answers: LargeResponses, clock: Clock
) -> None:
    readers = [Reader(answers, COUNTED_BYTES * 4) for _ in range(3)]
    begun: list[Deferred[None]] = []
    answers.make(later(begun))
    assert not begun
    answers.release(readers[0])
    assert begun
    assert answers.used_bytes == COUNTED_BYTES * 8


def test_who_does_not_read_is_given_up_only_when_others_wait(answers: LargeResponses) -> None:
    reading, stalled, dribbling = (Reader(answers, LIMIT) for _ in range(3))
    for _ in range(5):
        answers.sweep()
    assert not stalled.given_up, "nobody needs the room"
    begun: list[Deferred[None]] = []
    answers.make(later(begun))
    for _ in range(2):
        answers.sweep()
        reading.sent += LEAST_READ_BYTES
        dribbling.sent += 1
    assert stalled.given_up
    assert dribbling.given_up
    assert not reading.given_up
    answers.release(reading)
    assert begun
    assert answers.used_bytes == 0


def test_small_answers_are_not_counted(answers: LargeResponses) -> None:
    Reader(answers, COUNTED_BYTES - 1)
    assert answers.used_bytes == 0
