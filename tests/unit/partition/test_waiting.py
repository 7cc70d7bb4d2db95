"""Fetches that wait: who wakes them, and that nothing of them stays behind."""

import gc
import tracemalloc
from typing import Any

import pytest
from broker_bench import CountingClock, log_lines
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure

from hermes.partition.waiting import WaitingFetches, key_of
from hermes.protocol import FetchRequest, WaitingFetchRequest
from hermes.server.clients import UNKNOWN_CLIENT, Client
from hermes.server.fairness import QUANTUM_ENTRIES, FairScheduler
from hermes.v0_7.long_polls import LongPolls


def request(*partitions: int, max_wait_ms: int = 1000, min_bytes: int = 1) -> WaitingFetchRequest:
    fetches = tuple(FetchRequest("t", partition, 0, 100) for partition in partitions)
    return WaitingFetchRequest(max_wait_ms, min_bytes, fetches)


class Bench(LongPolls):
    """What carries out the waiting fetches of 0.7's protocol.

    Attributes:
        bytes_there: what there is of a partition, None for an error.
    """

    def __init__(self, limit_bytes: int = 1 << 20) -> None:
        self.clock = CountingClock()
        self.bytes_there: dict[int, int | None] = {}
        self.looks = 0
        self.waiting = WaitingFetches(self.clock, FairScheduler(self.clock), limit_bytes)
        self._waiting = self.waiting
        self.answered: list[object] = []

    def available(self, topic: str, partition: int, offset: int, max_size: int) -> int | None:
        self.looks += 1
        there = self.bytes_there.get(partition, 0)
        return None if there is None else max(min(there - offset, max_size), 0)

    def respond(self, request: WaitingFetchRequest, client: Client) -> Any:
        return succeed(request)

    def wait(self, request: WaitingFetchRequest) -> "Deferred[Any]":
        """Fires once it is answered, which is noted."""
        answer = self._wait(request, UNKNOWN_CLIENT)
        is_over = isinstance(answer, Deferred)
        waited = succeed(b"at once") if is_over else answer.to_deferred()
        return waited.addBoth(self._note)

    def _note(self, answer: Any) -> Any:
        if isinstance(answer, Failure):
            answer = answer.check(CancelledError)
        self.answered.append(answer)
        return answer

    @property
    def is_idle(self) -> bool:
        """Whether nobody is known to wait, nor to be told of a time that is up."""
        waits = self.waiting._deadlines._waits.values()
        return not (len(self.waiting) or self.waiting.used_bytes or self.waiting._by_key) and (
            not any(waits)
        )

    def append(self, partition: int, there: int | None) -> None:
        self.bytes_there[partition] = there
        self.waiting.changed("t", partition)


def test_ready_is_answered_at_once() -> None:
    bench = Bench()
    bench.bytes_there[0] = 1
    bench.wait(request(0))
    assert bench.answered == [b"at once"]


def test_an_error_is_answered_at_once() -> None:
    bench = Bench()
    bench.bytes_there[1] = None
    bench.wait(request(0, 1))
    assert bench.answered == [b"at once"]


MANY = 5 * QUANTUM_ENTRIES


def turn(bench: Bench) -> None:
    """One turn of the reactor; a test's clock would take all that follow from it as well."""
    call = bench.clock.calls.pop(0)
    call.called = 1
    call.func(*call.args, **call.kw)


def test_one_that_waits_for_very_many_partitions_is_armed_in_turns() -> None:
    bench = Bench()
    asked = request(*range(MANY), min_bytes=10 * MANY)
    bench.wait(asked)
    assert bench.looks <= QUANTUM_ENTRIES
    there = 0
    while bench.looks < MANY:  # some partitions change before they are looked at, some after
        there += 1
        for partition in range(0, MANY, 100):
            bench.append(partition, there)
        before = bench.looks
        turn(bench)
        assert bench.looks <= before + QUANTUM_ENTRIES
    assert there > MANY // QUANTUM_ENTRIES
    (waiter,) = bench.waiting._wide
    assert waiter.lacking_bytes == 10 * MANY - there * len(range(0, MANY, 100))
    assert bench.answered == []
    bench.append(7, None)
    assert bench.answered == [asked]
    while bench.clock.calls:
        turn(bench)
    assert (len(bench.waiting), bench.waiting.used_bytes) == (0, 0)
    assert not bench.waiting._by_key


@pytest.mark.parametrize("there", [1, None])
def test_what_comes_while_it_is_armed_wakes_it_once(there: int | None) -> None:
    for partition in (0, MANY - 1):
        bench = Bench()
        asked = request(*range(MANY))
        bench.wait(asked)
        for _ in range(8):  # in the middle of it
            turn(bench)
        assert bench.answered == []
        bench.append(partition, there)
        bench.clock.advance(0)
        assert bench.answered == [asked]
        assert not bench.waiting._by_key
        assert bench.is_idle


def test_who_leaves_while_it_is_armed_leaves_nothing() -> None:
    bench = Bench()
    waited = bench.wait(request(*range(MANY)))
    while not bench.looks:
        turn(bench)
    waited.cancel()
    bench.clock.advance(0)
    assert bench.looks <= QUANTUM_ENTRIES
    assert (len(bench.waiting), bench.waiting.used_bytes) == (0, 0)
    assert not bench.waiting._by_key
    assert bench.is_idle


def test_a_flush_of_one_of_its_partitions_wakes_it_when_there_is_enough() -> None:
    bench = Bench()
    asked = request(0, 1, min_bytes=30)
    bench.wait(asked)
    bench.append(1, 10)
    bench.append(2, 100)
    bench.append(1, 20)
    assert bench.answered == []
    bench.append(0, 10)
    assert bench.answered == [asked]
    assert len(bench.waiting) == 0
    assert bench.waiting.used_bytes == 0
    assert bench.is_idle


def test_a_partition_that_comes_twice_counts_twice() -> None:
    bench = Bench()
    asked = request(0, 0, min_bytes=30)
    bench.wait(asked)
    bench.append(0, 14)
    assert bench.answered == []
    bench.append(0, 15)
    assert bench.answered == [asked]


def test_no_more_than_the_largest_size_counts() -> None:
    bench = Bench()
    bench.wait(request(0, min_bytes=101))
    bench.append(0, 1000)
    assert bench.answered == []


@pytest.mark.parametrize("there", [None, 0])
def test_a_deleted_partition_is_counted_anew(there: int | None) -> None:
    bench = Bench()
    asked = request(0, 1, min_bytes=30)
    bench.wait(asked)
    bench.append(0, 20)
    bench.append(0, there)
    bench.append(1, 20)
    assert bench.answered == ([asked] if there is None else [])


def test_a_flush_looks_at_one_partition_of_each() -> None:
    bench = Bench(limit_bytes=1 << 30)
    for _ in range(10):
        bench.wait(request(*range(1000), min_bytes=1 << 30))
    while bench.looks < 10 * 1000:
        bench.clock.advance(0)
    bench.looks = 0
    bench.append(7, 1)
    assert bench.looks == 10


def test_a_flush_that_wakes_thousands_takes_turns() -> None:
    bench = Bench(limit_bytes=1 << 30)
    for _ in range(1000):
        bench.wait(request(0))
    bench.bytes_there[0] = 1
    bench.waiting.changed("t", 0)
    assert len(bench.answered) == QUANTUM_ENTRIES
    bench.waiting.changed("t", 0)
    assert len(bench.answered) == QUANTUM_ENTRIES, "its turn comes"
    bench.clock.advance(0)
    assert len(bench.answered) == 1000
    assert bench.clock.put_off == 1 + 1000 // QUANTUM_ENTRIES, "one timer is for all"


def test_what_changes_between_two_turns_is_not_missed() -> None:
    bench = Bench(limit_bytes=1 << 30)
    for _ in range(QUANTUM_ENTRIES + 1):
        bench.wait(request(0, min_bytes=20))
    bench.append(0, 10)
    bench.append(0, 20)
    bench.clock.advance(0)
    assert len(bench.answered) == QUANTUM_ENTRIES + 1


class Broken:
    """One that waits, and can't be told."""

    is_waiting = True

    def changed(self, key: int, topic: str, partition: int) -> None:
        raise ValueError("a fault")


@pytest.mark.parametrize("others", [0, 1, QUANTUM_ENTRIES])
def test_a_fault_in_one_of_them_keeps_nothing_from_the_others(others: int) -> None:
    bench, key = Bench(), key_of("t", 0)
    for _ in range(others):
        bench.wait(request(0, min_bytes=20))
    broken = Broken()
    with log_lines() as lines:
        bench.waiting.listen(broken, key)
        bench.append(0, 10)
        bench.append(0, 20)
        bench.clock.advance(0)
    assert len(bench.answered) == others
    assert any("a fault" in line for line in lines)
    bench.waiting.forget(broken, key)


def test_time_is_up() -> None:
    bench = Bench()
    asked = request(0)
    bench.wait(asked)
    bench.clock.advance(0.999)
    assert bench.answered == []
    bench.clock.advance(0.001)
    assert bench.answered == [asked]
    assert len(bench.waiting) == 0


def test_no_wait_at_all() -> None:
    bench = Bench()
    bench.wait(request(0, max_wait_ms=0))
    assert bench.answered == [b"at once"]


def test_beyond_the_budget_the_widest_is_answered_early_then_the_oldest() -> None:
    bench = Bench(limit_bytes=200_000)
    first, second = request(1), request(2)
    wide = request(*range(700))
    for each in (first, wide, second):
        bench.wait(each)
    assert bench.answered == []
    another = request(*range(3, 800))
    bench.wait(another)
    bench.clock.advance(0)
    assert bench.answered == [wide]
    for partition in range(100):
        bench.wait(request(partition))
    bench.clock.advance(0)
    assert bench.answered[:4] == [wide, another, first, second]
    assert bench.waiting.used_bytes <= 200_000


def test_who_asks_again_when_answered_early_is_answered_in_another_turn() -> None:
    """Each answer makes room for the connection's next fetch: that must not go deeper each time."""
    bench = Bench(limit_bytes=200_000)
    left, depth, deepest = 1000, 0, 0

    def ask_again(_: object = None) -> None:
        nonlocal left, depth, deepest
        left, depth = left - 1, depth + 1
        deepest = max(deepest, depth)
        if left > 0:
            bench.wait(request(left)).addCallback(ask_again)
        depth -= 1

    for _ in range(100):
        ask_again()
    while left > 0:
        before = left
        bench.clock.advance(0)
        assert left < before
    assert deepest == 1
    assert bench.waiting.used_bytes <= 200_000


def test_one_answered_early_may_be_cancelled_before() -> None:
    bench = Bench(limit_bytes=1)
    waited = bench.wait(request(0))
    waited.cancel()
    bench.clock.advance(0)
    assert bench.answered == [CancelledError]
    assert (len(bench.waiting), bench.waiting.used_bytes) == (0, 0)


def test_a_thousand_wide_ones_stay_within_the_budget() -> None:
    """What is counted is what they hold, about."""
    bench = Bench(limit_bytes=4 << 20)
    gc.collect()
    tracemalloc.start()
    for connection in range(50):
        fetches = tuple(FetchRequest(f"w{connection}-{n}", 0, 0, 100) for n in range(1024))
        bench.wait(WaitingFetchRequest(300_000, 1, fetches))
        bench.clock.advance(0)
    bench.answered.clear()
    del fetches
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(bench.waiting) > 15
    assert held < 1.3 * bench.waiting.limit_bytes


def test_a_lost_connection_cancels_and_leaves_nothing() -> None:
    bench = Bench()
    waited = bench.wait(request(0, 1))
    waited.cancel()
    assert bench.answered == [CancelledError]
    assert len(bench.waiting) == 0
    assert bench.is_idle


def test_a_stopping_broker_answers_all() -> None:
    bench = Bench()
    asked = [request(partition) for partition in range(3)]
    for each in asked:
        bench.wait(each)
    bench.waiting.wake_all()
    assert bench.answered == asked
    assert bench.is_idle
    bench.answered.clear()
    bench.wait(request(0))
    assert bench.answered == [b"at once"], "nobody begins to wait"
