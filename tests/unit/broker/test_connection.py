"""A connection without sockets: who counts as idle, what copies cost, what is held in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import BrokerBench
from hermes_testkit import fetch, message, produce, waiting_fetch

from hermes.partition.waiting import MAX_WAIT_MS
from hermes.protocol import FetchRequest, MultiFetchRequest
from hermes.server.carriers import COPY_BYTES

STORED = message(bytes(190)) * 5000


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BrokerBench]:
    made = BrokerBench(tmp_path)
    connection, _ = made.connect()
    connection.dataReceived(produce("t", 0, STORED))
    made.clock.advance(1)
    yield made
    made.close()


def test_a_reader_that_gets_on_is_not_idle(bench: BrokerBench) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(fetch("t", 0, 0))
    assert not connection.was_idle()
    for _ in range(3):
        transport.producer.resumeProducing()
        assert not connection.was_idle()
    assert connection.was_idle(), "nothing has moved since"


def test_silence_while_an_outcome_is_awaited_is_not_the_peers(bench: BrokerBench) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(waiting_fetch(("t", 0, len(STORED), 100), max_wait_ms=60_000))
    assert [connection.was_idle() for _ in range(3)] == [False] * 3
    bench.clock.advance(60)
    assert transport.value()
    assert [connection.was_idle() for _ in range(2)] == [True] * 2


def test_a_peer_that_asks_to_wait_for_ever_is_answered_in_time(bench: BrokerBench) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(waiting_fetch(("t", 0, len(STORED), 100), max_wait_ms=2**31 - 1))
    bench.clock.advance(MAX_WAIT_MS / 1000)
    assert len(transport.value()) == 22


def test_small_answers_on_a_transport_that_buffers_are_bounded(bench: BrokerBench) -> None:
    """A client over TLS, say, that asks and asks and never reads."""
    connection, transport = bench.connect()
    bad = fetch("t", 7, 0)
    asked = 40_000
    for _ in range(asked // 400):
        connection.dataReceived(bad * 400)
    assert len(transport.value()) <= 2 * COPY_BYTES
    assert transport.producerState == "paused"
    answered = 0
    while transport.producer is not None or transport.value():
        answered += len(transport.value()) // 6
        transport.clear()
        if transport.producer is None:
            break
        transport.producer.resumeProducing()
    assert answered == asked


def test_whole_requests_that_wait_count_against_the_budget(bench: BrokerBench) -> None:
    connection, _ = bench.connect()
    connection.dataReceived(waiting_fetch(("t", 0, len(STORED), 100)))
    connection.dataReceived(fetch("t", 0, 0) * 100)
    assert bench.connections.memory.used_bytes == len(fetch("t", 0, 0)) * 100
    bench.clock.advance(30)
    assert bench.connections.memory.used_bytes == len(fetch("t", 0, 0)) * 99, (
        "the first answer is unread"
    )


def test_a_drained_connection_takes_nothing_more(bench: BrokerBench) -> None:
    connection, transport = bench.connect()
    connection.drain()
    assert transport.disconnecting
    connection.dataReceived(produce("u", 0, STORED))
    assert bench.directory.get("u", 0) is None


@pytest.fixture
def slow_bench(bench: BrokerBench, monkeypatch: pytest.MonkeyPatch) -> BrokerBench:
    """One whose broker takes a tenth of a millisecond for each request."""
    serve = bench.broker.serve

    def slow(request: Any, *client: Any) -> Any:
        bench.clock.rightNow += 0.0001
        return serve(request, *client)

    monkeypatch.setattr(bench.broker, "serve", slow)
    return bench


def test_who_asks_one_thing_at_a_time_is_served_in_a_crowd(slow_bench: BrokerBench) -> None:
    connection, transport = slow_bench.connect()
    for _ in range(1000):
        slow_bench.broker.scheduler.resume_later(lambda: None)
    for count in range(1, 4):
        connection.dataReceived(fetch("t", 7, 0))
        assert len(transport.value()) == 6 * count, "at once, though its turn was over"


def test_what_a_crowd_may_have_in_one_round_is_bounded(slow_bench: BrokerBench) -> None:
    connections = [slow_bench.connect() for _ in range(200)]
    began = slow_bench.clock.seconds()
    for connection, _ in connections:
        connection.dataReceived(fetch("t", 7, 0) * 100)
    assert all(transport.value() for _, transport in connections), "each has something"
    assert slow_bench.clock.seconds() - began < 0.06, "though not a turn each"
    slow_bench.clock.pump([0] * 200)
    assert all(len(transport.value()) == 600 for _, transport in connections)


def test_long_requests_of_a_crowd_are_served_in_parts(
    slow_bench: BrokerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each short enough for one turn, and all of them in one round."""
    request = MultiFetchRequest((FetchRequest("t", 7, 0, 100),) * 60).encode()
    fetch_one = slow_bench.broker.fetches.fetch

    def slow(*request: Any) -> Any:
        slow_bench.clock.rightNow += 0.000_01
        return fetch_one(*request)

    monkeypatch.setattr(slow_bench.broker.fetches, "fetch", slow)
    connections = [slow_bench.connect() for _ in range(200)]
    began = slow_bench.clock.seconds()
    for connection, _ in connections:
        connection.dataReceived(request)
    witness, transport = slow_bench.connect()
    witness.dataReceived(fetch("t", 7, 0))
    assert len(transport.value()) == 6, "at once"
    assert slow_bench.clock.seconds() - began < 0.05
    slow_bench.clock.pump([0] * 200)
    assert all(len(transport.value()) == 366 for _, transport in connections)
