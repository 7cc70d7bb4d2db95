"""Entries served a part at a time."""

from typing import Any

import pytest
from broker_bench import CountingClock, log_lines
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from hermes.server.fairness import QUANTUM_ENTRIES, QUANTUM_SECONDS, FairScheduler, cooperatively


def test_few_entries_are_served_at_once() -> None:
    assert cooperatively(
        FairScheduler(Clock()), list(range(QUANTUM_ENTRIES)), lambda item: -item
    ) == [-item for item in range(QUANTUM_ENTRIES)]


def test_many_take_a_turn_for_each_part() -> None:
    clock, served, results = CountingClock(), [], []
    outcome: Any = cooperatively(
        FairScheduler(clock), list(range(QUANTUM_ENTRIES * 3)), served.append
    )
    outcome.addCallback(results.append)
    assert len(served) == QUANTUM_ENTRIES
    clock.advance(0)
    assert served == list(range(QUANTUM_ENTRIES * 3))
    assert len(results) == 1
    assert clock.put_off == 2


def test_entries_that_take_their_time_end_the_turn() -> None:
    clock, served = Clock(), []

    def slow(item: int) -> None:
        served.append(item)
        clock.rightNow += QUANTUM_SECONDS / 2

    outcome = cooperatively(FairScheduler(clock), list(range(10)), slow)
    assert isinstance(outcome, Deferred)
    assert len(served) == 2


@pytest.mark.parametrize("at", [3, QUANTUM_ENTRIES + 3])
def test_what_fails_discards_the_results_there_are(at: int) -> None:
    clock, discarded, failures = Clock(), [], []

    def serve(item: int) -> int:
        if item == at:
            raise ValueError(item)
        return item

    try:
        outcome: Any = cooperatively(
            FairScheduler(clock), list(range(1000)), serve, discarded.append
        )
        outcome.addErrback(lambda failure: failures.append(failure.type))
        clock.advance(0)
    except ValueError:
        failures.append(ValueError)
    assert failures == [ValueError]
    assert discarded == list(range(at))
    assert not clock.getDelayedCalls()


def test_cancelled_it_discards_and_stops() -> None:
    clock, discarded, failures = Clock(), [], []
    outcome: Any = cooperatively(
        FairScheduler(clock), list(range(1000)), lambda item: item, discarded.append
    )
    outcome.addErrback(lambda failure: failures.append(failure.type))
    outcome.cancel()
    assert failures == [CancelledError]
    clock.advance(0)
    assert discarded == list(range(QUANTUM_ENTRIES))
    assert not clock.getDelayedCalls()


def test_connections_share_what_one_may_have() -> None:
    clock = CountingClock()
    scheduler = FairScheduler(clock)
    served: list[int] = []

    def serve(number: int) -> None:
        served.append(number)
        clock.rightNow += QUANTUM_SECONDS / 2
        scheduler.resume_later(lambda: serve(number))

    assert scheduler.quantum_seconds == QUANTUM_SECONDS
    for number in range(10):
        scheduler.resume_later(lambda number=number: serve(number))
    assert scheduler.quantum_seconds < QUANTUM_SECONDS, "others wait"
    (call,) = clock.getDelayedCalls()
    clock.calls.remove(call)
    call.func()
    assert served == [0, 1, 2, 3], "four have had what two may; then the reactor looks around"
    (call,) = clock.getDelayedCalls()
    clock.calls.remove(call)
    call.func()
    assert served == [0, 1, 2, 3, 4, 5, 6, 7], "all in their order"


def test_a_turn_that_waits_again_waits_for_the_next_time() -> None:
    clock = CountingClock()
    scheduler = FairScheduler(clock)
    served: list[int] = []
    scheduler.resume_later(
        lambda: (served.append(1), scheduler.resume_later(lambda: served.append(2)))[0]
    )
    clock.advance(0)
    assert served == [1, 2]
    assert clock.put_off == 2
    assert scheduler.quantum_seconds == QUANTUM_SECONDS


def test_the_more_wait_the_shorter_is_the_turn_of_who_comes() -> None:
    clock = CountingClock()
    scheduler = FairScheduler(clock)
    used = 0.0
    for _ in range(1000):  # all in one round of the reactor, each with more to do than it may
        used += scheduler.quantum_seconds
        scheduler.resume_later(lambda: None)
    assert used < 10 * QUANTUM_SECONDS


def test_all_who_wait_have_their_turn_soon() -> None:
    clock = CountingClock()
    scheduler = FairScheduler(clock)
    served: list[int] = []

    def serve(number: int) -> None:
        clock.rightNow += scheduler.quantum_seconds
        served.append(number)
        scheduler.resume_later(lambda: serve(number))

    for number in range(1000):
        scheduler.resume_later(lambda number=number: serve(number))
    while len(served) < 1000:
        (call,) = clock.getDelayedCalls()
        clock.calls.remove(call)
        call.func()
    assert served == list(range(1000))
    assert clock.seconds() < 0.3


def test_requests_share_their_turns_as_connections_do() -> None:
    clock = CountingClock()
    scheduler = FairScheduler(clock)
    served: list[int] = []

    def slow(item: int) -> None:
        served.append(item)
        clock.rightNow += QUANTUM_SECONDS

    for request in range(20):
        cooperatively(scheduler, [request] * 3, slow)
    assert served == list(range(20)), "one entry of each at once, at least"
    (call,) = clock.getDelayedCalls()
    clock.calls.remove(call)
    call.func()
    assert served[20:] == [0, 1], "not one of each in every round"


def test_a_turn_that_fails_keeps_no_other_from_its_own() -> None:
    clock = CountingClock()
    scheduler = FairScheduler(clock)
    served: list[int] = []
    scheduler.resume_later(lambda: 1 // 0)
    scheduler.resume_later(lambda: served.append(1))
    with pytest.raises(ZeroDivisionError):
        clock.advance(0)
    clock.advance(0)
    assert served == [1]


def test_what_several_results_ask_for_is_called_once_after_them() -> None:
    scheduler, called = FairScheduler(Clock()), []

    def settle(*results: str) -> None:
        for each in results:
            called.append(each)
            scheduler.after_this(later)
            scheduler.together(scheduler.after_this, broken)

    def later() -> None:
        called.append("later")
        scheduler.after_this(at_once)
        assert called[-1] == "at once"

    def at_once() -> None:
        called.append("at once")

    def broken() -> None:
        raise ValueError("a fault")

    with log_lines() as lines:
        scheduler.together(settle, "a", "b")
        scheduler.after_this(at_once)
    assert called == ["a", "b", "later", "at once", "at once"]
    assert sum("a fault" in line for line in lines) == 1
