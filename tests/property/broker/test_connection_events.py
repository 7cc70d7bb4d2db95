"""Whatever happens to connections, in any order: a broker drains, and nothing is left of them."""

import tempfile
from pathlib import Path
from typing import Any

from broker_bench import BrokerBench, log_lines
from hermes_testkit import fetch, message, produce, produce_acknowledged, waiting_fetch
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from hermes.protocol import Codec, encode_message_set

SMALL = message(b"small")
# Compressed, and large enough to be checked in a thread.
CHECKED = bytes(encode_message_set([b"%d" % (n * 7919) for n in range(9_000)], Codec.GZIP))

PIECES = {
    "produce": produce("t", 0, SMALL),
    "checked": produce("t", 0, CHECKED),
    "damaged": produce("t", 0, CHECKED[:-40] + bytes(40)),
    "acknowledged": produce_acknowledged(("t", 0, SMALL)),
    "fetch": fetch("t", 0, 0),
    "large fetch": fetch("t", 0, 0, 1 << 24),
    "waiting fetch": waiting_fetch(("t", 0, 1 << 40, 100), max_wait_ms=1000),
    "no request": b"\xff" * 10,
    "half a request": produce("t", 0, SMALL)[:20],
}
EVENTS = (*PIECES, "threads", "time", "room", "lose", "give up", "drain", "new")


class Threads:
    """Worker threads that do nothing before the test says so."""

    def __init__(self) -> None:
        self._calls: list[Any] = []

    def call(self, function: Any, *arguments: Any) -> "Deferred[Any]":
        outcome: Deferred[Any] = Deferred()
        self._calls.append((function, arguments, outcome))
        return outcome

    def run(self) -> None:
        while self._calls:
            function, arguments, outcome = self._calls.pop(0)
            maybeDeferred(function, *arguments).addBoth(outcome.callback)


class Client:
    """A connection and what has become of it."""

    def __init__(self, bench: BrokerBench) -> None:
        self.connection, self.transport = bench.connect()
        self.is_lost = False

    def lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            if self.transport.producer is not None:
                self.transport.producer.stopProducing()
            self.connection.connectionLost(Failure(ConnectionDone()))  # type: ignore[no-untyped-call]

    def do(self, event: str) -> None:
        if event in PIECES:
            # As with a socket: what is paused or closed gives nothing.
            if self.transport.producerState == "producing" and not self.transport.disconnecting:
                self.connection.dataReceived(PIECES[event])
        elif event == "room" and self.transport.producer is not None:
            self.transport.producer.resumeProducing()
        elif event == "lose":
            self.lose()
        elif event == "give up":
            self.connection.give_up("the test says so")


@given(st.lists(st.sampled_from(EVENTS), max_size=25))
def test_any_order_of_events_ends_with_nothing_left(events: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory, log_lines() as lines:
        threads = Threads()
        bench = BrokerBench(Path(directory), threads.call)
        drained: list[Any] = []
        clients = [Client(bench)]
        for event in events:
            if event == "threads":
                threads.run()
            elif event == "time":
                bench.clock.advance(1)
            elif event == "drain":
                if not drained:
                    bench.connections.drain().addCallback(drained.append)
            elif event == "new":
                if not drained:
                    clients.append(Client(bench))
            elif not clients[-1].is_lost:
                clients[-1].do(event)
        if not drained:
            bench.connections.drain().addCallback(drained.append)
        for client in clients:
            client.lose()
        for _ in range(30):
            threads.run()
            bench.clock.advance(1)
        assert drained, "something is still waited for"
        assert bench.connections.memory.used_bytes == 0
        assert bench.broker.metrics.connections == 0
        assert bench.directory._descriptors.open_count <= 1, "segments of answers that nobody reads"
        bench.close()
    assert not any("Unhandled" in line or "Traceback" in line for line in lines), lines
