"""Large requests are in hand a few at a time, in order, and what leaves lets others in."""

import pytest
from twisted.internet.defer import CancelledError, Deferred

from hermes.kafka.admission import LIMIT_BYTES, Admission


def entered(admission: Admission, size_bytes: int) -> "Deferred[None]":
    return Deferred.fromCoroutine(admission.enter(size_bytes))


def test_so_many_bytes_are_in_hand_at_a_time() -> None:
    admission, half = Admission(), LIMIT_BYTES // 2
    first, second, third = (entered(admission, half) for _ in range(3))
    small = entered(admission, 1)
    assert [each.called for each in (first, second, third, small)] == [True, True, False, False]
    admission.leave(half)
    assert third.called
    assert not small.called
    admission.leave(half)
    assert small.called
    admission.leave(half)
    admission.leave(1)
    assert admission.used_bytes == 0


def test_one_alone_may_be_larger() -> None:
    admission = Admission()
    assert entered(admission, 2 * LIMIT_BYTES).called
    other = entered(admission, 1)
    assert not other.called
    admission.leave(2 * LIMIT_BYTES)
    assert other.called


def test_who_leaves_while_it_waits_takes_nothing() -> None:
    admission = Admission()
    entered(admission, LIMIT_BYTES)
    gone, other = entered(admission, 5), entered(admission, 7)
    gone.addErrback(lambda failure: failure.trap(CancelledError))
    gone.cancel()
    admission.leave(LIMIT_BYTES)
    assert other.called
    assert admission.used_bytes == 7


@pytest.mark.parametrize("count", [1, 50])
def test_each_gets_its_turn(count: int) -> None:
    admission = Admission()
    waiting = [entered(admission, LIMIT_BYTES) for _ in range(count)]
    for each in waiting:
        assert each.called
        admission.leave(LIMIT_BYTES)
    assert admission.used_bytes == 0
