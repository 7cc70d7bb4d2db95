import os
import threading
from typing import Any

from hermes.reactors import Bell, make_reactor, release_reactor


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
