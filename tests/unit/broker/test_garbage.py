"""A connection that is gone leaves nothing to a collection of garbage."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_bench import BrokerBench
from hermes_testkit import fetch, frame, message, produce, produce_acknowledged, waiting_fetch
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

REQUESTS = {
    "nothing": b"",
    "half a frame": b"\0\0\1\0half",
    "a produce": produce("t", 0, message(b"x")),
    "an acknowledged produce": produce_acknowledged(("t", 0, message(b"x"))),
    "a fetch": fetch("t", 0, 0),
    "a fetch that waits": waiting_fetch(("t", 0, 1000, 1 << 20), max_wait_ms=10_000),
    "a frame that is none": b"\xff\xff\xff\xff",
    "an unknown type": frame(b"\x27\x0f"),
}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BrokerBench]:
    made = BrokerBench(tmp_path / "data")
    yield made
    made.close()


@pytest.mark.parametrize("data", REQUESTS.values(), ids=REQUESTS)
def test_a_connection_that_is_gone_is_freed_at_once(bench: BrokerBench, data: bytes) -> None:
    connection, transport = bench.connect()
    gc.disable()
    try:
        connection.dataReceived(data)
        bench.turns(transport)
        connection.connectionLost(Failure(ConnectionDone()))
        bench.turns()
        gone = weakref.ref(connection)
        del connection, transport
        assert gone() is None, gc.get_referrers(gone())
    finally:
        gc.enable()
