"""A connection that is gone leaves nothing to a collection of garbage."""

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_bench import BrokerBench
from hermes_testkit import fetch, frame, message, produce, produce_acknowledged, waiting_fetch
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

SUPPORT = Path(__file__).parents[2] / "support"

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


def test_sets_that_are_refused_are_freed_at_once(bench: BrokerBench) -> None:
    connection, transport = bench.connect()
    damaged = bytearray(message(b"x"))
    damaged[-1] ^= 1
    sets = produce_acknowledged(*[("t", 0, bytes(damaged))] * 50)
    gc.collect()
    gc.disable()
    try:
        connection.dataReceived(sets)
        bench.turns(transport)
        assert transport.value()
        assert gc.collect() == 0
    finally:
        gc.enable()


REFUSED = """
import gc, struct, sys
from pathlib import Path
from broker_bench import BrokerBench
from hermes_testkit import frame, message
from hermes.protocol import ProduceRequest
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

directory, entries = Path(sys.argv[1]), int(sys.argv[2])
bench = BrokerBench(directory, max_topics=5)
connection, transport = bench.connect()
data = message(b"")
bodies = (
    struct.pack(">h", len(name)) + name + struct.pack(">ii", 0, len(data)) + data
    for name in (b"new%d" % number for number in range(entries))
)
request = frame(struct.pack(">hh", 3, entries) + b"".join(bodies))
gc.collect()
gc.disable()
connection.dataReceived(request)
for _ in range(50):
    bench.turns(transport)
assert transport.disconnecting
connection.connectionLost(Failure(ConnectionDone()))
bench.turns()
print(sum(isinstance(each, ProduceRequest) for each in gc.get_objects()))
bench.close()
"""


@pytest.mark.parametrize("entries", [20, 2000, 5000])
def test_a_request_that_was_refused_is_freed_at_once(tmp_path: Path, entries: int) -> None:
    """In a process of its own, since pytest keeps frames of what fails."""
    ran = subprocess.run(
        [sys.executable, "-c", REFUSED, str(tmp_path / "data"), str(entries)],
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "0\n"
