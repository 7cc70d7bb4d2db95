"""Threads that flush what they are given, and one report of what several of them did."""

from collections.abc import Callable, Iterator
from functools import partial
from queue import Queue
from threading import Event, Thread
from threading import enumerate as threads
from typing import Any

import pytest

from hermes.errors import LogOfflineError, StorageError
from hermes.partition.flush_queue import FlushPolicy, FlushState
from hermes.partition.flush_threads import FlushThreads


class HeldLog:
    """A log whose flush lasts until the test lets it end."""

    name = "t-0"

    def __init__(self, end: int = 10, error: BaseException | None = None) -> None:
        self.begun, self.may_end = Event(), Event()
        self.end, self.error = end, error

    def flush(self) -> int:
        self.begun.set()
        self.may_end.wait()
        if self.error is not None:
            raise self.error
        return self.end


class QueuedBell:
    """Rings come to a queue."""

    def __init__(self, rung: "Queue[Any]", call: Callable[[], None]) -> None:
        self.rung, self.call = rung, call

    def ring(self) -> None:
        self.rung.put(self.call)

    def close(self) -> None:
        self.rung.put(None)


class Bench:
    def __init__(self, count: int = 2) -> None:
        self.woken: Queue[Any] = Queue()
        self.reports: list[Any] = []
        self.threads = FlushThreads(count, partial(QueuedBell, self.woken))
        self.threads.report = self.reports.append
        self.logs: list[HeldLog] = []

    def submit(self, log: HeldLog) -> HeldLog:
        self.logs.append(log)
        self.threads.submit(FlushState(log, FlushPolicy(1, 1)))  # type: ignore[arg-type]
        return log

    def next_report(self) -> list[tuple[Any, Any, Any]]:
        """The reactor hears of its next wake-up: (log, flushed end, error) of each outcome."""
        self.woken.get()()
        return [(state.log, end, error) for state, end, error in self.reports.pop()]

    def close(self) -> None:
        for log in self.logs:
            log.may_end.set()
        self.threads.stop()


@pytest.fixture
def bench() -> Iterator[Bench]:
    before = set(threads())
    made = Bench()
    yield made
    made.close()
    assert set(threads()) <= before


def test_a_flush_is_reported_with_its_end_and_a_failed_one_with_what_it_raised(
    bench: Bench,
) -> None:
    log, broken = HeldLog(7), HeldLog(error=LogOfflineError("EIO"))
    for each in (log, broken):
        bench.submit(each).may_end.set()
        assert bench.next_report() == [(each, 7 if each is log else None, each.error)]


def test_what_ends_until_the_reactor_comes_is_one_report(bench: Bench) -> None:
    logs = [bench.submit(HeldLog()) for _ in range(6)]
    for log in logs:
        log.may_end.set()
    last = bench.submit(HeldLog())
    last.begun.wait()  # so some thread has put away what it flushed before
    before = {log for log, _, _ in bench.next_report()}
    assert len(before) >= 5
    last.may_end.set()
    while len(before) < 7:
        before.update(log for log, _, _ in bench.next_report())


def test_a_thread_is_made_when_there_is_work_for_it(bench: Bench) -> None:
    before = len(threads())
    for _ in range(3):
        bench.submit(HeldLog()).may_end.set()
        bench.next_report()
    assert len(threads()) == before + 1, "it is free before it tells so"
    for _ in range(4):
        bench.submit(HeldLog())
    for log in bench.logs[3:5]:
        log.begun.wait()
    assert (len(threads()) - before, bench.threads.waiting) == (2, 2)


def test_a_thread_that_could_not_begin_takes_no_place(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more threads may be made, for as long as others take them all."""

    def no_more(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", no_more)
        for _ in range(bench.threads.count + 1):
            log = bench.submit(HeldLog())
            ((failed, _, error),) = bench.next_report()
            assert (failed, type(error)) == (log, StorageError), "it is tried again"
    assert bench.submit(bench.logs.pop()).begun.wait(60)
    del bench.logs[:-1]
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", no_more)
        bench.submit(HeldLog())  # for the thread that there is
    for log in bench.logs:
        assert log.begun.wait(60)
        log.may_end.set()


def test_no_thread_sleeps_while_something_is_due(bench: Bench) -> None:
    reported = 0
    for size in (1, 2, 3, 5, 8, 1) * 50:
        for _ in range(size):
            bench.submit(HeldLog()).may_end.set()
        while reported < len(bench.logs):
            reported += len(bench.next_report())


def test_fewer_threads_and_then_more(bench: Bench) -> None:
    before = len(threads())
    for _ in range(2):
        bench.submit(HeldLog()).begun.wait()
    bench.threads.use(1)
    for log in bench.logs:
        log.may_end.set()
    reported = 0
    while reported < 2:
        reported += len(bench.next_report())
    waiting = bench.submit(HeldLog())
    waiting.begun.wait()
    bench.threads.use(2)
    bench.submit(HeldLog()).begun.wait()
    assert len(threads()) - before <= 3, "one of them may still end"


def test_a_stop_that_gives_up_leaves_only_what_hangs_until_it_ends() -> None:
    before = set(threads())
    bench = Bench()
    hung, log = bench.submit(HeldLog()), bench.submit(HeldLog())
    hung.begun.wait()
    log.may_end.set()
    bench.next_report()
    mine = set(threads()) - before
    bench.threads.stop(waits=False)
    hung.may_end.set()
    for thread in mine:
        thread.join()
    assert all(thread.daemon for thread in mine), "else one that hangs would keep the process"
