"""Large requests are in hand a few at a time, in order, and what leaves lets others in."""

import pytest
from twisted.internet.defer import CancelledError, Deferred

from hermes.kafka.admission import LIMIT_BYTES, RequestsInHand


def taken(in_hand: RequestsInHand, size_bytes: int) -> "Deferred[None]":
    return Deferred.fromCoroutine(in_hand.take(size_bytes))


def test_so_many_bytes_are_in_hand_at_a_time() -> None:
    in_hand, half = RequestsInHand(), LIMIT_BYTES // 2
    first, second, third = (taken(in_hand, half) for _ in range(3))
    small = taken(in_hand, 1)
    assert [each.called for each in (first, second, third, small)] == [True, True, False, False]
    in_hand.leave(half)
    assert third.called
    assert not small.called
    in_hand.leave(half)
    assert small.called
    in_hand.leave(half)
    in_hand.leave(1)
    assert in_hand.used_bytes == 0


def test_one_alone_may_be_larger() -> None:
    in_hand = RequestsInHand()
    assert taken(in_hand, 2 * LIMIT_BYTES).called
    other = taken(in_hand, 1)
    assert not other.called
    in_hand.leave(2 * LIMIT_BYTES)
    assert other.called


def test_who_leaves_while_it_waits_takes_nothing() -> None:
    in_hand = RequestsInHand()
    taken(in_hand, LIMIT_BYTES)
    gone, other = taken(in_hand, 5), taken(in_hand, 7)
    gone.addErrback(lambda failure: failure.trap(CancelledError))
    gone.cancel()
    in_hand.leave(LIMIT_BYTES)
    assert other.called
    assert in_hand.used_bytes == 7


@pytest.mark.parametrize("count", [1, 50])
def test_each_gets_its_turn(count: int) -> None:
    in_hand = RequestsInHand()
    waiting = [taken(in_hand, LIMIT_BYTES) for _ in range(count)]
    for each in waiting:
        assert each.called
        in_hand.leave(LIMIT_BYTES)
    assert in_hand.used_bytes == 0
