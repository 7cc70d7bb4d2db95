"""When flushes start, who hears of them, and what a failed one does."""

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from broker_bench import DeferredFlushes, log_lines
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hermes.errors import EpochEndedError, LogOfflineError, StorageError
from hermes.partition.flush_queue import FlushPolicy
from hermes.partition.flush_threads import FlushThreads
from hermes.partition.flushing import GROUP_WINDOW_SECONDS, RETRY_SECONDS, FlushScheduler

pytestmark = pytest.mark.filterwarnings("error")


class FakeLog:
    """As much of a log as the scheduler sees."""

    topic, partition, name = "t", 0, "t-0"
    is_closed = False
    is_sole_copy = True

    def __init__(self) -> None:
        self.end_offset = 0
        self.flushed_end = 0
        self.high_watermark = 0
        self.unflushed_messages = 0
        self.failure: Exception | None = None
        self.offline_reason: str | None = None

    @property
    def state(self) -> "FakeLog":
        return self

    @property
    def view(self) -> "FakeLog":
        return self

    @property
    def tail(self) -> SimpleNamespace:
        return SimpleNamespace(end=self.end_offset, messages=self.unflushed_messages)

    def append(self, size: int, messages: int = 1) -> None:
        self.end_offset += size
        self.unflushed_messages += messages

    def flush(self) -> int:
        if self.failure is not None:
            raise self.failure
        self.flushed_end = self.end_offset
        self.unflushed_messages = 0
        if self.is_sole_copy:
            self.high_watermark = self.flushed_end
        return self.flushed_end

    def commit(self, offset: int) -> int:
        self.high_watermark = max(self.high_watermark, min(offset, self.flushed_end))
        return self.high_watermark


class FakeThreads:
    """Calls that wait until the test lets them run."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], Deferred[Any]]] = []

    def __call__(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        result: Deferred[Any] = Deferred()
        self.calls.append((function, args, result))
        return result

    def run(self, place: int = 0) -> None:
        function, args, result = self.calls.pop(place)
        try:
            value = function(*args)
        except Exception as error:
            result.errback(error)
        else:
            result.callback(value)


class Bench:
    def __init__(self, messages: int = 1, interval_ms: int = 3000) -> None:
        self.clock = Clock()
        self.threads = FakeThreads()
        self.log: Any = FakeLog()
        self.scheduler = FlushScheduler(
            self.clock,
            DeferredFlushes(self.threads),
            lambda topic: FlushPolicy(messages, interval_ms),
        )
        self.seen: list[int] = []
        self.scheduler.on_committed(lambda log: self.seen.append(log.high_watermark))

    def append(self, size: int = 10, messages: int = 1) -> None:
        self.log.append(size, messages)
        self.scheduler.appended(self.log)


def test_one_message_is_flushed_at_once_by_default() -> None:
    bench = Bench()
    bench.append()
    bench.threads.run()
    assert bench.seen == [10]


def test_only_one_flush_runs_and_the_next_covers_what_came_meanwhile() -> None:
    bench = Bench()
    for _ in range(5):
        bench.append()
    assert len(bench.threads.calls) == 1
    bench.append()
    bench.threads.run()
    assert bench.seen == [60]
    bench.clock.advance(GROUP_WINDOW_SECONDS)
    assert bench.threads.calls == [], "the flush took everything: nothing is left for another"


def test_a_busy_log_is_flushed_once_a_window() -> None:
    bench = Bench()
    bench.append()
    bench.threads.run()
    bench.append()
    assert bench.threads.calls == []
    bench.clock.advance(GROUP_WINDOW_SECONDS)
    bench.threads.run()
    assert bench.seen == [10, 20]


def test_below_the_number_of_messages_the_interval_counts() -> None:
    bench = Bench(messages=3, interval_ms=500)
    bench.append()
    bench.clock.advance(0.3)
    bench.append()
    bench.clock.advance(0.199)
    assert bench.threads.calls == []
    bench.clock.advance(0.001)
    bench.threads.run()
    assert bench.seen == [20]


def test_the_number_of_messages_does_not_wait_for_the_interval() -> None:
    bench = Bench(messages=3, interval_ms=500)
    bench.append()
    bench.append(messages=2)
    bench.threads.run()
    assert bench.seen == [20]
    assert not bench.clock.getDelayedCalls()


def test_an_acknowledgement_starts_a_flush_without_waiting_for_anything() -> None:
    bench = Bench(messages=1000, interval_ms=60_000)
    bench.append()
    flushed: list[int] = []
    bench.scheduler.flush_now(bench.log).addCallback(flushed.append)
    bench.threads.run()
    assert flushed == [10]
    assert not bench.clock.getDelayedCalls()


def test_an_acknowledgement_during_a_flush_is_answered_by_the_next_one() -> None:
    bench = Bench()
    bench.append()
    function, args, result = bench.threads.calls.pop()
    mark = function(*args)  # the thread has flushed 10 bytes, the reactor doesn't know yet
    bench.append()
    flushed: list[int] = []
    bench.scheduler.flush_now(bench.log).addCallback(flushed.append)
    result.callback(mark)
    assert flushed == []
    bench.threads.run()
    assert flushed == [20]


def test_who_waits_has_flushed_what_was_not_announced() -> None:
    bench = Bench()
    bench.clock.advance(1)
    bench.log.append(10)
    told: list[Any] = []
    bench.scheduler.when_committed(bench.log, told.append)
    bench.threads.run()
    assert (told, bench.seen) == ([None], [10])
    assert bench.scheduler.visible_seconds.count == 1
    assert not bench.clock.getDelayedCalls()


def test_a_fault_in_who_is_told_keeps_nothing_from_the_others() -> None:
    bench = Bench()
    told: list[Any] = []

    def broken(error: object) -> None:
        raise ValueError("a fault")

    bench.log.append(10)
    for notify in (told.append, broken, told.append):
        bench.scheduler.when_committed(bench.log, notify)
    with log_lines() as lines:
        bench.threads.run()
    assert told == [None, None]
    assert any("a fault" in line for line in lines)
    stopped: list[None] = []
    bench.scheduler.stop().addCallback(stopped.append)
    assert stopped == [None]


def test_several_outcomes_are_one_report_after_the_next_flushes_have_begun() -> None:
    bench = Bench()
    outcomes: list[Any] = []
    bench.scheduler._threads.report = outcomes.extend
    due = _flushed_logs(4)
    steps: list[Any] = []
    bench.scheduler.together = lambda settle, *args: (
        steps.append(len(bench.threads.calls)),
        settle(*args),
        steps.append("over"),
    )
    for number, log in enumerate(due):
        bench.scheduler.when_committed(log, lambda _, number=number: steps.append(f"told {number}"))
    for _ in range(2):
        bench.threads.run()
    assert steps == []
    bench.scheduler.report(outcomes)
    assert steps == [2, "told 0", "told 1", "over"]


def test_nothing_to_flush_is_answered_at_once() -> None:
    bench = Bench()
    flushed: list[int] = []
    bench.scheduler.flush_now(bench.log).addCallback(flushed.append)
    assert flushed == [0]
    assert bench.threads.calls == []


def test_a_failed_flush_fails_those_who_wait_and_is_not_repeated() -> None:
    bench = Bench()
    bench.append()
    bench.log.failure = LogOfflineError("EIO")
    errors: list[BaseException] = []
    bench.scheduler.flush_now(bench.log).addErrback(lambda failure: errors.append(failure.value))
    bench.threads.run()
    assert [str(error) for error in errors] == ["EIO"]
    assert bench.threads.calls == []
    assert bench.seen == []


def test_a_deleted_log_fails_who_waits_and_its_flush_ends_in_silence() -> None:
    bench = Bench()
    bench.append()
    errors: list[BaseException] = []
    bench.scheduler.flush_now(bench.log).addErrback(lambda failure: errors.append(failure.value))
    bench.scheduler.forget(bench.log)
    bench.log.failure = OSError("closed")
    bench.threads.run()
    assert len(errors) == 1


def test_a_flush_without_a_descriptor_is_tried_again_and_nobody_hears_of_it() -> None:
    bench = Bench()
    bench.append()
    bench.log.failure = StorageError("Too many open files")
    flushed: list[int] = []
    bench.scheduler.flush_now(bench.log).addCallback(flushed.append)
    bench.threads.run()
    for _ in range(3):
        assert (flushed, bench.threads.calls) == ([], [])
        bench.clock.advance(RETRY_SECONDS)
        bench.threads.run()
    bench.log.failure = None
    bench.clock.advance(RETRY_SECONDS)
    bench.threads.run()
    assert flushed == [10]
    assert bench.seen == [10]
    assert not bench.clock.getDelayedCalls()


def test_a_flush_for_which_no_thread_can_be_made_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a broker begins that shares a limit of threads with others: it has none to flush with."""

    def no_more(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    bench, rung = Bench(), SimpleQueue[Callable[[], None]]()
    threads = FlushThreads(1, lambda call: SimpleNamespace(ring=lambda: rung.put(call), close=int))
    scheduler = FlushScheduler(bench.clock, threads, lambda topic: FlushPolicy(1, 3000))
    told: list[Any] = []
    bench.log.append(10)
    with monkeypatch.context() as patch, log_lines() as lines:
        patch.setattr(Thread, "start", no_more)
        scheduler.when_committed(bench.log, told.append)
        rung.get()()
    assert "has to wait, and is tried again: no thread" in lines[0]
    bench.clock.advance(RETRY_SECONDS)
    rung.get(timeout=60)()
    assert (told, bench.log.high_watermark) == ([None], 10)
    threads.stop()


def test_a_flush_without_a_descriptor_does_not_hold_up_the_stop() -> None:
    bench = Bench()
    bench.append()
    bench.log.failure = StorageError("Too many open files")
    errors: list[BaseException] = []
    bench.scheduler.flush_now(bench.log).addErrback(lambda failure: errors.append(failure.value))
    stopped: list[None] = []
    bench.scheduler.stop().addCallback(stopped.append)
    bench.threads.run()
    assert (len(errors), stopped) == (1, [None])
    assert not bench.clock.getDelayedCalls()


def test_which_logs_are_being_flushed_can_be_told() -> None:
    bench = Bench()
    assert bench.scheduler.flushing == []
    bench.append()
    assert bench.scheduler.flushing == [bench.log]
    bench.scheduler.forget(bench.log)
    assert bench.scheduler.flushing == [bench.log], "deleted, and still in a thread's hands"
    bench.threads.run()
    assert bench.scheduler.flushing == []


def test_what_was_appended_to_a_topic_while_it_was_deleted_fails_in_silence() -> None:
    bench = Bench()
    bench.scheduler.forget(bench.log)
    bench.append()  # the delete's thread has not come to this log yet
    bench.log.failure = LogOfflineError("the topic was deleted")
    bench.log.is_closed, bench.log.offline_reason = True, "closed"
    with log_lines() as lines:
        bench.threads.run()
    assert lines == []
    assert bench.threads.calls == []


def test_a_log_that_comes_back_is_told_to_the_observers() -> None:
    bench = Bench()
    bench.log.flushed_end = bench.log.high_watermark = 7
    bench.scheduler.reopened(bench.log)
    assert bench.seen == [7]


def test_stop_waits_for_the_flush_that_runs() -> None:
    bench = Bench()
    bench.append()
    stopped: list[None] = []
    bench.scheduler.stop().addCallback(stopped.append)
    assert stopped == []
    bench.threads.run()
    assert stopped == [None]
    assert not bench.clock.getDelayedCalls()


def test_a_thousand_new_logs_leave_a_thread_to_those_that_are_there() -> None:
    bench = Bench()
    scheduler, threads = bench.scheduler, bench.threads
    new: list[Any] = [FakeLog() for _ in range(1000)]
    for log in new:
        log.append(10)
        scheduler.flush_now(log)
    old: Any = FakeLog()
    old.flushed_end, old.end_offset = 10, 20
    flushed: list[int] = []
    scheduler.flush_now(old).addCallback(flushed.append)
    assert len(threads.calls) == 2, "one new log, and the old one"
    threads.run()
    threads.run()
    assert flushed == [20]
    while threads.calls:
        assert len(threads.calls) == 1
        threads.run()
    assert [log.flushed_end for log in new] == [10] * 1000
    assert not scheduler.flushing


def test_a_first_flush_that_fails_or_is_forgotten_lets_the_next_one_run() -> None:
    bench = Bench()
    scheduler, threads = bench.scheduler, bench.threads
    logs: list[Any] = [FakeLog() for _ in range(3)]
    outcomes: list[Any] = []
    for log in logs:
        log.append(10)
        scheduler.flush_now(log).addBoth(outcomes.append)
    logs[0].failure = LogOfflineError("broken")
    logs[1].failure = LogOfflineError("closed")
    logs[1].is_closed = True
    scheduler.forget(logs[1])
    while threads.calls:
        threads.run()
    assert logs[2].flushed_end == 10
    assert not scheduler.flushing
    assert len(outcomes) == 3
    assert outcomes[-1] == 10


def _flushed_logs(count: int) -> "list[Any]":
    """Logs that have something to flush, not for the first time."""
    logs: list[Any] = [FakeLog() for _ in range(count)]
    for log in logs:
        log.flushed_end = log.end_offset = 10
        log.append(10)
    return logs


def _note(order: list[int], number: int, _: int) -> None:
    order.append(number)


def test_what_a_request_waits_for_passes_what_is_only_due() -> None:
    bench = Bench()
    due = _flushed_logs(1000)
    for log in due:
        bench.scheduler.appended(log)
    waited = _flushed_logs(30)
    order: list[int] = []
    for number, log in enumerate(waited):
        bench.scheduler.flush_now(log).addCallback(partial(_note, order, number))
    runs = 0
    while len(order) < 30:
        bench.threads.run()
        runs += 1
    assert order == sorted(order)
    assert 30 * 4 // 3 <= runs <= 30 * 4 // 3 + 3, "every fourth place is for those that are due"
    while bench.threads.calls:
        bench.threads.run()
    assert all(log.flushed_end == 20 for log in due)
    assert not bench.scheduler.flushing


def test_a_log_that_is_due_is_brought_forward_when_a_request_waits_for_it() -> None:
    bench = Bench()
    due = _flushed_logs(1000)
    for log in due:
        bench.scheduler.appended(log)
    flushed: list[int] = []
    for _ in range(2):
        bench.scheduler.flush_now(due[-1]).addCallback(flushed.append)
    for _ in range(4):
        bench.threads.run()
    assert flushed == [20, 20]
    runs = 4
    while bench.threads.calls:
        bench.threads.run()
        runs += 1
    assert runs == 1000, "each once"


def test_a_request_of_very_many_logs_waits_its_turn() -> None:
    bench = Bench()
    many, one = _flushed_logs(1000), _flushed_logs(1)[0]
    for log in many:
        bench.scheduler.flush_now(log, urgent=False)
    flushed: list[int] = []
    bench.scheduler.flush_now(one).addCallback(flushed.append)
    for _ in range(4):
        bench.threads.run()
    assert flushed == [20]


def test_more_threads_are_used_at_once() -> None:
    bench = Bench()
    for log in _flushed_logs(100):
        bench.scheduler.appended(log)
    assert len(bench.threads.calls) == 2
    bench.scheduler.use_threads(4)
    bench.threads.run()
    assert len(bench.threads.calls) == 8
    bench.scheduler.use_threads(1)
    for _ in range(7):
        bench.threads.run()
    assert len(bench.threads.calls) == 2


def test_a_log_that_was_brought_forward_leaves_nothing_in_the_queue_of_first_flushes() -> None:
    bench = Bench()
    flushed_before, new = _flushed_logs(2), [FakeLog() for _ in range(4)]
    for log in new:
        log.append(10)
        bench.scheduler.appended(log)  # type: ignore[arg-type]
    waits = [bench.scheduler.flush_now(new[2])]  # type: ignore[arg-type]
    bench.threads.run()
    for log in flushed_before:  # as many as are flushed at a time
        waits.append(bench.scheduler.flush_now(log))
    bench.threads.run()
    assert waits[0].called
    new[2].append(10)
    waits.append(bench.scheduler.flush_now(new[2]))  # type: ignore[arg-type]
    bench.threads.run(-1)
    while bench.threads.calls:
        bench.threads.run()
    assert [each.called for each in waits] == [True] * 4
    assert bench.scheduler.running == bench.scheduler.queued == 0
    assert [each.flushed_end for each in new] == [10, 10, 20, 10]


@given(st.lists(st.tuples(st.sampled_from("wrt"), st.integers(0, 7), st.booleans()), max_size=60))
def test_in_whatever_order_everything_is_flushed_and_everybody_answered(
    steps: list[tuple[str, int, bool]],
) -> None:
    bench = Bench()
    logs = [*_flushed_logs(4), *(FakeLog() for _ in range(4))]
    waits = []
    for kind, number, urgent in steps:
        if kind == "r" and bench.threads.calls:
            bench.threads.run(number % len(bench.threads.calls))
        elif kind == "t":
            bench.clock.advance(GROUP_WINDOW_SECONDS / 2)
        elif kind == "w":
            logs[number].append(10)
            bench.scheduler.appended(logs[number])
            waits.append(bench.scheduler.flush_now(logs[number], urgent))
    for log in logs:
        bench.scheduler.appended(log)
    while bench.threads.calls or bench.clock.getDelayedCalls():
        if bench.threads.calls:
            bench.threads.run()
        else:
            bench.clock.advance(GROUP_WINDOW_SECONDS)
    assert all(each.called for each in waits)
    assert all(each.flushed_end == each.end_offset for each in logs)
    assert bench.scheduler.running == bench.scheduler.queued == 0


def test_what_nobody_waits_for_any_more_is_flushed_all_the_same() -> None:
    bench, errors = Bench(), list[Any]()
    log, whole = bench.log, bench.log.flush
    log.is_sole_copy = False
    log.flush = lambda: setattr(log, "flushed_end", 10) or 10
    for _ in range(2):  # the second one comes while a flush runs, which doesn't cover it
        log.append(10)
        bench.scheduler.when_committed(log, errors.append)
    bench.scheduler.end_epoch(log)
    assert len(errors) == 2
    bench.threads.run()
    assert log.flushed_end == 10
    log.flush = whole
    bench.clock.advance(GROUP_WINDOW_SECONDS)
    bench.threads.run()
    assert log.flushed_end == 20


def copied(bench: Bench) -> list[StorageError | None]:
    """Append to a log with other copies, and flush that; what who waits for the commit hears."""
    bench.log.is_sole_copy = False
    bench.append()
    bench.threads.run()
    assert (bench.log.flushed_end, bench.log.high_watermark) == (10, 0)
    return []


def test_who_begins_to_wait_once_the_epoch_is_over_hears_that_it_is() -> None:
    bench = Bench()
    told = copied(bench)
    bench.scheduler.end_epoch(bench.log)
    bench.scheduler.when_committed(bench.log, told.append)
    bench.append()
    bench.scheduler.when_committed(bench.log, told.append)
    assert [type(each) for each in told] == [EpochEndedError] * 2
    bench.clock.advance(GROUP_WINDOW_SECONDS)
    bench.threads.run()
    assert (bench.log.flushed_end, len(told)) == (20, 2)
    bench.scheduler.begin_epoch(bench.log)
    bench.scheduler.when_committed(bench.log, told.append)
    bench.scheduler.commit(bench.log, 20)
    assert told[2:] == [None]


def test_who_begins_to_wait_once_the_log_is_deleted_hears_that_it_is() -> None:
    bench = Bench()
    told = copied(bench)
    bench.scheduler.forget(bench.log)
    bench.log.is_closed, bench.log.offline_reason = True, "deleted"
    bench.scheduler.when_committed(bench.log, told.append)
    assert [type(each) for each in told] == [LogOfflineError]


def test_another_policy_puts_nothing_off_that_is_to_be_tried_again() -> None:
    bench = Bench(messages=1000)
    bench.append()
    bench.log.failure = StorageError("Too many open files")
    flushed: list[int] = []
    bench.scheduler.flush_now(bench.log).addCallback(flushed.append)
    bench.threads.run()
    bench.log.failure = None
    bench.scheduler.policy_changed(bench.log)
    bench.clock.advance(RETRY_SECONDS)
    assert bench.threads.calls
    bench.threads.run()
    assert flushed == [10]
