"""The end of connections and of a broker with requests under way, in threads that the test runs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import BrokerBench, answers, log_lines
from hermes_testkit import message, produce, produce_acknowledged, waiting_fetch
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from hermes.protocol import Codec, encode_message_set

SMALL = message(b"small")
# Compressed, and large enough to be checked in a thread.
LARGE = bytes(encode_message_set([bytes([n % 251]) * 60_000 for n in range(20)], Codec.GZIP))
LARGE += bytes(encode_message_set([b"%d" % (n * 7919) for n in range(9_000)], Codec.GZIP))
DAMAGED = LARGE[:-40] + bytes(40)


class Threads:
    """Worker threads that do nothing before the test says so."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def call(self, function: Callable[..., Any], *arguments: Any) -> "Deferred[Any]":
        outcome: Deferred[Any] = Deferred()
        self._calls.append(
            lambda: maybeDeferred(function, *arguments).addBoth(outcome.callback) and None
        )
        return outcome

    def run(self) -> None:
        assert self._calls, "nothing was given to a thread"
        while self._calls:
            self._calls.pop(0)()


class Stoppable(BrokerBench):
    """A broker that drains, and what is known of it."""

    def __init__(self, directory: Path) -> None:
        self.threads = Threads()
        super().__init__(directory, self.threads.call)
        self.is_drained = False

    def drain(self) -> None:
        def drained(_: Any) -> None:
            self.is_drained = True

        self.connections.drain().addCallback(drained)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Stoppable]:
    made = Stoppable(tmp_path)
    yield made
    made.close()


def lose(connection: Any) -> None:
    connection.connectionLost(Failure(ConnectionDone()))  # type: ignore[no-untyped-call]


def end_of(bench: BrokerBench) -> int:
    log = bench.directory.get("t", 0)
    return 0 if log is None else log.end_offset


@pytest.mark.parametrize("message_set", [LARGE, DAMAGED], ids=["good", "failing"])
def test_a_stop_lasts_as_long_as_the_request_in_flight(
    bench: Stoppable, message_set: bytes
) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(produce("t", 0, message_set))
    bench.drain()
    assert not transport.disconnecting, "it may have an answer"
    bench.threads.run()
    assert transport.disconnecting
    assert not bench.is_drained
    lose(connection)
    assert bench.is_drained
    assert end_of(bench) == (len(LARGE) if message_set is LARGE else 0)


def test_a_broker_has_not_drained_while_something_may_still_be_appended(bench: Stoppable) -> None:
    """A producer sends and leaves; its messages are looked at in a thread."""
    connection, _ = bench.connect()
    connection.dataReceived(produce("t", 0, LARGE) + produce("t", 0, SMALL))
    lose(connection)
    bench.drain()
    assert not bench.is_drained
    assert end_of(bench) == 0
    assert bench.connections.memory.used_bytes > len(LARGE), "it is held until it is done"
    bench.threads.run()
    assert bench.is_drained
    assert end_of(bench) == len(LARGE) + len(SMALL)
    assert bench.connections.memory.used_bytes == 0


@pytest.mark.parametrize("partitions", [1, 65])
def test_fetches_that_begin_to_wait_in_a_stop_do_not_hold_it_up(
    bench: Stoppable, partitions: int
) -> None:
    """A client may have sent its next fetch; one of many partitions is decoded in a thread."""
    request = waiting_fetch(*(("t", 0, 0, 100) for _ in range(partitions)))
    connection, transport = bench.connect()
    connection.dataReceived(request * 2)
    bench.drain()
    if partitions > 1:
        bench.threads.run()
    bench.turns(transport)
    assert transport.disconnecting
    lose(connection)
    assert bench.is_drained


def test_what_arrived_behind_a_drain_is_not_taken(bench: Stoppable) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(produce("t", 0, LARGE) + produce("t", 0, SMALL))
    bench.drain()
    bench.threads.run()
    assert transport.disconnecting
    lose(connection)
    assert bench.is_drained
    assert end_of(bench) == len(LARGE)


def test_an_answer_that_waits_for_its_flush_leaves_before_a_stop(bench: Stoppable) -> None:
    connection, transport = bench.connect()
    flushed: list[Any] = []
    bench.flusher.when_committed = (  # type: ignore[method-assign]
        lambda log, notify, urgent: flushed.append(notify)
    )
    connection.dataReceived(produce_acknowledged(("t", 0, SMALL)))
    bench.drain()
    assert not transport.disconnecting
    flushed[0](None)
    assert len(answers(transport)) == 1
    assert transport.disconnecting


def test_a_cut_connection_with_an_outcome_under_way_is_waited_for(bench: Stoppable) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(produce("t", 0, LARGE))
    bench.drain()
    bench.connections.abort_all()
    assert transport.disconnected
    lose(connection)
    assert not bench.is_drained
    bench.threads.run()
    assert bench.is_drained


def test_a_fault_of_ours_ends_the_connection_with_one_line(
    bench: Stoppable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it shows at once, behind other answers, or when its time has come."""
    monkeypatch.setattr(bench.broker.produces, "_append", lambda *_: 1 // 0)
    with log_lines() as lines:
        for _ in range(100):
            for request in (LARGE, encode_message_set([b"x"], Codec.GZIP)):
                connection, transport = bench.connect()
                connection.dataReceived(produce("t", 0, bytes(request)))
                if request is LARGE:
                    bench.threads.run()
                assert transport.disconnecting
                lose(connection)
    assert not any("Unhandled" in line for line in lines)
    assert len(lines) < 20
    bench.drain()
    assert bench.is_drained
