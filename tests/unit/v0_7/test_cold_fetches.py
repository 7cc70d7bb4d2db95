"""Hermes' own fetches wait for no disk in the reactor's thread, whatever isn't in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import BrokerBench, answers
from cold_disk import ColdDisk
from hermes_testkit import fetch, message, waiting_fetch
from kafka_logs import append_values
from twisted.internet.defer import Deferred

from hermes.protocol import (
    FetchRequest,
    MultiFetchRequest,
    RecordFetchRequest,
)

SETTINGS = {
    "segment_bytes": 4096,
    "topics": {"new": {"format": "kafka", "partitions": 2}, "old": {"partitions": 2}},
}
MESSAGE = message(b"x" * 1000)


@pytest.fixture
def cold_disk(monkeypatch: pytest.MonkeyPatch) -> ColdDisk:
    return ColdDisk(monkeypatch)


@pytest.fixture
def bench(tmp_path: Path, cold_disk: ColdDisk) -> Iterator[BrokerBench]:
    """One that has just started, with two partitions of each format, of several segments."""
    written = BrokerBench(tmp_path, **SETTINGS)
    for topic in ("new", "old"):
        written.shared.topics.create_declared(topic)
        for partition in (0, 1):
            log = written.shared.topics.for_produce(topic, partition)
            for number in range(20):
                if topic == "new":
                    append_values(log, b"%d" % number + bytes(1000))
                else:
                    log.append([MESSAGE], len(MESSAGE), 1, 0)
            log.flush()
            assert log.segment_count > 2
    written.close()
    bench = BrokerBench(tmp_path, cold_disk.in_thread, **SETTINGS)
    yield bench
    bench.close()


@pytest.mark.parametrize(
    ("asked", "per_answer"),
    [
        (fetch("old", 0, len(MESSAGE), len(MESSAGE)), 1),
        (
            MultiFetchRequest(
                tuple(FetchRequest("old", n, 2 * len(MESSAGE), len(MESSAGE)) for n in (0, 1))
            ).encode(),
            2,
        ),
        (waiting_fetch(*(("old", n, 0, len(MESSAGE)) for n in (0, 1))), 2),
    ],
    ids=["fetch", "multifetch", "waiting fetch"],
)
def test_a_segment_of_0_7_is_opened_in_a_thread(
    bench: BrokerBench, cold_disk: ColdDisk, asked: bytes, per_answer: int
) -> None:
    connection, transport = bench.connect()
    with cold_disk.watched():
        connection.dataReceived(asked)
        bench.turns(transport)
    (answer,) = answers(transport)
    assert answer.count(MESSAGE) == per_answer
    assert bench.broker.metrics.fetches == per_answer
    assert len(cold_disk.opened) == per_answer
    assert cold_disk.waited == []
    connection.connectionLost()


def test_where_record_batches_lie_is_looked_up_in_a_thread(
    bench: BrokerBench, cold_disk: ColdDisk
) -> None:
    fetches = tuple(FetchRequest("new", n, offset, 1500) for n, offset in ((0, 9), (1, 2)))
    connection, transport = bench.connect()
    with cold_disk.watched():
        connection.dataReceived(RecordFetchRequest(1000, 1, fetches).encode())
        bench.turns(transport)
    (answer,) = answers(transport)
    assert b"9" + bytes(1000) in answer
    assert b"2" + bytes(1000) in answer
    assert cold_disk.read_count > 0
    assert len(cold_disk.opened) >= 2
    assert cold_disk.waited == []
    connection.connectionLost()


def test_who_leaves_while_a_thread_looks_holds_no_file(
    bench: BrokerBench, cold_disk: ColdDisk
) -> None:
    calls: list[Callable[[], object]] = []

    def in_thread(function: Any, *args: Any) -> "Deferred[Any]":
        waiting: Deferred[Any] = Deferred()
        calls.append(lambda: cold_disk.in_thread(function, *args).chainDeferred(waiting))
        return waiting

    bench.shared.reader._in_thread = in_thread
    log = bench.shared.topics.for_produce("old", 0)
    is_open = FetchRequest("old", 0, log.high_watermark - len(MESSAGE), len(MESSAGE))
    isnt = FetchRequest("old", 1, 0, len(MESSAGE))
    log.read(is_open.offset, 1).release()
    connection, transport = bench.connect()
    connection.dataReceived(MultiFetchRequest((is_open, isnt)).encode())
    assert len(calls) == 1
    assert answers(transport) == []
    connection.connectionLost()
    calls.pop()()
    descriptors = bench.directory._descriptors
    descriptors.close_idle()
    assert descriptors.open_count == 0
