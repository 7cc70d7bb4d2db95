import os
import threading
from typing import Any

import pytest
from broker_bench import log_lines
from twisted.python.failure import Failure

from hermes.reactors import (
    Bell,
    OwnThread,
    WorkerThreads,
    caller_in,
    make_reactor,
    release_reactor,
)


def _let_wake_ups_be_late(reactor: Any, begun: threading.Event, go: threading.Event) -> None:
    """Hold up who wakes a reactor right before the write, as a busy machine does."""
    waker = reactor.waker

    def wake_up() -> None:
        descriptor = waker.o
        begun.set()
        go.wait(60)
        os.write(descriptor, b"x")

    waker.wakeUp = wake_up


def test_a_reactor_is_released_while_a_thread_wakes_it() -> None:
    reactor = make_reactor()
    begun, go = threading.Event(), threading.Event()
    _let_wake_ups_be_late(reactor, begun, go)
    waker, failures = reactor.waker, []

    def call() -> None:
        try:
            reactor.callFromThread(int)
        except OSError as error:
            failures.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    assert begun.wait(60)
    release_reactor(reactor)
    go.set()
    caller.join()
    assert not failures
    assert not hasattr(waker, "o")  # closed


def test_a_reactor_that_was_released_can_be_called() -> None:
    reactor = make_reactor()
    release_reactor(reactor)
    reactor.callFromThread(int)


def test_a_signal_may_come_while_a_reactor_is_woken() -> None:
    reactor = make_reactor()
    wake_up = reactor.waker.wakeUp
    done = threading.Event()

    def interrupted() -> None:
        reactor.waker.wakeUp = wake_up
        reactor.callFromThread(int)  # as the handler of a signal does
        wake_up()

    def call() -> None:
        reactor.callFromThread(int)
        done.set()

    reactor.waker.wakeUp = interrupted
    threading.Thread(target=call, daemon=True).start()
    assert done.wait(60)
    release_reactor(reactor)


def test_a_bell_is_heard_in_its_reactor_and_not_once_it_is_closed() -> None:
    reactor = make_reactor()
    heard: list[int] = []

    def hear() -> None:
        heard.append(threading.get_ident())
        bell.close()
        reactor.callLater(0, reactor.stop)

    bell = Bell(reactor, hear)
    ringing = [threading.Thread(target=bell.ring) for _ in range(10)]
    for thread in ringing:
        thread.start()
    reactor.run(installSignalHandlers=False)
    for thread in ringing:
        thread.join()
    bell.ring()
    bell.close()
    assert heard == [threading.get_ident()]
    assert bell not in reactor.getReaders()
    release_reactor(reactor)


def test_a_thread_of_ones_own_tells_the_reactor_what_became_of_calls_in_their_order() -> None:
    reactor = make_reactor()
    thread = OwnThread(reactor, "hermes-test-own")
    told: list[Any] = []

    def tell(result: Any) -> None:
        told.append((result, threading.get_ident()))
        if len(told) == 3:
            reactor.stop()

    def failed(failure: Failure) -> None:
        tell(failure.type)

    thread.call(threading.get_ident).addCallback(tell)
    thread.call(divmod, 7, 0).addErrback(failed)
    thread.call(divmod, 7, 2).addCallback(tell)
    reactor.run(installSignalHandlers=False)
    here = threading.get_ident()
    assert told[0][0] != here
    assert told[1:] == [(ZeroDivisionError, here), ((3, 1), here)]
    thread.stop()
    assert "hermes-test-own" not in [each.name for each in threading.enumerate()]
    thread.call(told.append, "late").addCallback(tell)
    assert len(told) == 3
    release_reactor(reactor)


def test_a_thread_of_ones_own_that_could_not_begin_does_with_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No more threads may be made, for as long as others take them all."""

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    reactor = make_reactor()
    readers = len(reactor.getReaders())
    thread = OwnThread(reactor, "hermes-test-own")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(RuntimeError):
            thread.call(int)
    begun = threading.Event()
    thread.call(begun.set)
    assert begun.wait(60)
    assert len(reactor.getReaders()) == readers + 1
    thread.stop()
    release_reactor(reactor)


def test_a_call_for_which_no_thread_can_be_made_fails_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who makes calls waits for what becomes of each, and expects nothing else."""
    reactor, pool = make_reactor(), WorkerThreads(0, 1, "hermes-test-pool")
    pool.start()
    in_thread = caller_in(reactor, pool)
    failures: list[Failure] = []

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        in_thread(int).addErrback(failures.append)
    (failure,) = failures
    assert failure.check(RuntimeError)
    found: list[tuple[int, int]] = []
    in_thread(divmod, 7, 2).addCallback(found.append).addCallback(lambda _: reactor.stop())
    reactor.run(installSignalHandlers=False)
    assert found == [(3, 1)]
    pool.stop()
    release_reactor(reactor)


class Pipe:
    """What a reactor reads from; it may close others when it does."""

    def __init__(self, reactor: Any, *others: "Pipe") -> None:
        self.reader, self.writer = os.pipe()
        self.reactor, self.others = reactor, others
        self.heard: list[object] = []
        reactor.addReader(self)

    def doRead(self) -> None:
        os.read(self.reader, 1)
        self.heard.append("read")
        for each in self.others:
            self.reactor.removeReader(each)
        if self.others:
            raise ValueError("a fault")

    def connectionLost(self, reason: Failure) -> None:
        self.heard.append(reason.type)
        raise KeyError("a second fault")

    def fileno(self) -> int:
        return self.reader

    def logPrefix(self) -> str:
        return "-"

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)


def test_what_fails_in_an_event_ends_its_own_source_alone() -> None:
    reactor = make_reactor()
    removed, well = Pipe(reactor), Pipe(reactor)
    failing = Pipe(reactor, removed)
    for each in (failing, removed, well):
        os.write(each.writer, b"!")
    with log_lines() as lines:
        reactor.doIteration(0)
    assert failing.heard == ["read", ValueError]
    assert (removed.heard, well.heard) == ([], ["read"])
    assert failing not in reactor.getReaders()
    assert well in reactor.getReaders()
    text = "\n".join(lines)
    assert "a fault" in text
    assert "a second fault" in text
    reactor.removeReader(well)
    for each in (removed, failing, well):
        each.close()
    release_reactor(reactor)


def test_a_light_loop_keeps_time_and_hears_threads() -> None:
    reactor = make_reactor()
    heard: list[str] = []
    fault = ValueError("a fault")

    def hear(what: str) -> None:
        heard.append(what)

    def fail() -> None:
        raise fault

    def from_thread() -> None:
        reactor.callFromThread(reactor.callLater, 0, hear, "at once")
        reactor.callFromThread(reactor.callLater, 0.02, hear, "later")
        reactor.callFromThread(reactor.callLater, 0.04, reactor.stop)

    reactor.callLater(0.01, hear, "never").cancel()
    reactor.callLater(0.01, fail)
    put_off = reactor.callLater(0, hear, "put off")
    put_off.delay(0.03)
    thread = threading.Thread(target=from_thread)
    reactor.callWhenRunning(thread.start)
    with log_lines() as lines:
        reactor.run(installSignalHandlers=False)
    thread.join()
    assert heard[0] == "at once"
    assert sorted(heard[1:]) == ["later", "put off"]
    assert any("a fault" in line for line in lines)
    assert any("Main loop terminated" in line for line in lines)
    release_reactor(reactor)
