"""Fetches that wait: who wakes them, and that nothing of them stays behind."""

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock

from hermes.broker.waiting import WaitingFetches
from hermes.protocol import FetchRequest, WaitingFetchRequest


def request(*partitions: int, max_wait_ms: int = 1000) -> WaitingFetchRequest:
    fetches = tuple(FetchRequest("t", partition, 0, 100) for partition in partitions)
    return WaitingFetchRequest(max_wait_ms, 1, fetches)


class Bench:
    def __init__(self) -> None:
        self.clock = Clock()
        self.ready = False
        self.waiting = WaitingFetches(self.clock, lambda request: self.ready)
        self.answered: list[object] = []

    def wait(self, request: WaitingFetchRequest) -> None:
        self.waiting.wait(request).addBoth(self.answered.append)


def test_ready_is_answered_at_once() -> None:
    bench = Bench()
    bench.ready = True
    bench.wait(request(0))
    assert bench.answered == [None]


def test_a_flush_of_one_of_its_partitions_wakes_it_when_there_is_enough() -> None:
    bench = Bench()
    bench.wait(request(0, 1))
    bench.waiting.changed("t", 1)
    assert bench.answered == []
    bench.ready = True
    bench.waiting.changed("t", 2)
    assert bench.answered == []
    bench.waiting.changed("t", 1)
    assert bench.answered == [None]
    assert len(bench.waiting) == 0
    assert not bench.clock.getDelayedCalls()


def test_time_is_up() -> None:
    bench = Bench()
    bench.wait(request(0))
    bench.clock.advance(0.999)
    assert bench.answered == []
    bench.clock.advance(0.001)
    assert bench.answered == [None]
    assert len(bench.waiting) == 0


def test_no_wait_at_all() -> None:
    bench = Bench()
    bench.wait(request(0, max_wait_ms=0))
    assert bench.answered == [None]


def test_a_lost_connection_cancels_and_leaves_nothing() -> None:
    bench = Bench()
    waited = bench.waiting.wait(request(0, 1))
    waited.addErrback(lambda failure: bench.answered.append(failure.check(CancelledError)))
    waited.cancel()
    assert bench.answered == [CancelledError]
    assert len(bench.waiting) == 0
    assert not bench.clock.getDelayedCalls()


def test_a_stopping_broker_answers_all() -> None:
    bench = Bench()
    for partition in range(3):
        bench.wait(request(partition))
    bench.waiting.wake_all()
    assert bench.answered == [None] * 3
    assert not bench.clock.getDelayedCalls()
