"""Produces of mirrors: in order, appended while earlier ones wait for a flush, answered once."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_bench import BrokerBench, answers
from twisted.internet.defer import Deferred

from hermes.errors import DiskFullError
from hermes.protocol import (
    Codec,
    MirroredEntry,
    MirroredProduceRequest,
    MirroredSet,
    SourceFlags,
    SourcePositionsRequest,
    decode_mirrored_produce_response,
    decode_source_positions_response,
    encode_message_set,
)
from hermes.storage import Log
from hermes.storage.log_sources import LogSources

FLUSHED, WRITTEN = 2, 1


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BrokerBench]:
    bench = BrokerBench(tmp_path / "logs")
    yield bench
    bench.close()


def copied(begin: int, data: bytes, acks: int = FLUSHED) -> bytes:
    flags = SourceFlags.VERBATIM | (SourceFlags.FOLLOWS if begin else SourceFlags.NONE)
    each = MirroredSet("clicks", 0, "u/t/0-0", begin, begin + len(data), flags, data)
    return MirroredProduceRequest(acks, 0, (each,)).encode()


def entries(answer: bytes) -> list[MirroredEntry]:
    return decode_mirrored_produce_response(answer)


class Flushes:
    """Flushes that wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: list[tuple[Deferred[int], Log]] = []
        self.done = 0
        self._flush = Log.flush

        def hold(log: Log) -> "Deferred[int]":
            flushed: Deferred[int] = Deferred()
            self.held.append((flushed, log))
            return flushed

        monkeypatch.setattr(Log, "flush", hold)

    def __call__(self, log: Log) -> int:
        return self._flush(log)

    def let_go(self) -> None:
        while self.held:
            flushed, log = self.held.pop(0)
            self.done += 1
            flushed.callback(self(log))


PLAIN = encode_message_set([b"x" * 100])
COMPRESSED = encode_message_set([os.urandom(20_000)], Codec.GZIP)  # checked in a thread


@pytest.mark.parametrize("data", [PLAIN, COMPRESSED], ids=["plain", "checked in a thread"])
def test_those_that_wait_for_a_flush_hold_up_none(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(copied(0, data))
    bench.turns()
    answers(transport)
    flushes = Flushes(monkeypatch)
    size = len(data)
    connection.dataReceived(b"".join(copied(n * size, data) for n in range(1, 20)))
    for _ in range(40):
        bench.turns()
    log = bench.directory.get("clicks", 0)
    assert log is not None
    assert log.end_offset == 20 * size
    assert answers(transport) == []
    flushes.let_go()
    bench.turns()
    found = [entries(each) for each in answers(transport)]
    assert found == [[(0, n * size, (n + 1) * size)] for n in range(1, 20)]
    assert flushes.done <= 2
    monkeypatch.undo()


def test_a_range_that_is_there_waits_for_its_flush_as_well(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(copied(0, PLAIN))
    bench.turns()
    flushes = Flushes(monkeypatch)
    connection.dataReceived(copied(len(PLAIN), PLAIN, WRITTEN))
    bench.turns()
    assert len(answers(transport)) == 2
    again, second = bench.connect()
    again.dataReceived(copied(len(PLAIN), PLAIN))
    bench.turns()
    assert answers(second) == []
    flushes.let_go()
    assert [entries(each) for each in answers(second)] == [[(0, -1, 2 * len(PLAIN))]]
    monkeypatch.undo()


def test_positions_are_told_when_they_are_on_disk(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(copied(0, PLAIN))
    bench.turns()
    flushes = Flushes(monkeypatch)
    connection.dataReceived(copied(len(PLAIN), PLAIN, WRITTEN))
    bench.turns()
    answers(transport)
    connection.dataReceived(SourcePositionsRequest("clicks", -1, False, 0).encode())
    bench.turns()
    assert answers(transport) == []
    connection.dataReceived(copied(2 * len(PLAIN), PLAIN, WRITTEN))
    flushes.let_go()
    bench.turns()
    told, *_ = answers(transport)
    ((partition, earliest, end, sources),) = decode_source_positions_response(told).partitions
    assert (partition, earliest, end) == (0, 0, 2 * len(PLAIN))
    assert sources == [(0, 2 * len(PLAIN), "u/t/0-0")]
    flushes.let_go()
    monkeypatch.undo()


def test_a_disk_that_has_no_room_for_the_file_refuses(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(sources: LogSources) -> None:
        raise DiskFullError("no room")

    connection, transport = bench.connect()
    with monkeypatch.context() as patch:
        patch.setattr(LogSources, "begin", refuse)
        connection.dataReceived(copied(0, PLAIN))
        bench.turns()
        (answer,) = answers(transport)
        assert entries(answer) == [(67, -1, -1)]
    connection.dataReceived(copied(0, PLAIN))
    bench.turns()
    (answer,) = answers(transport)
    assert entries(answer) == [(0, 0, len(PLAIN))]


def test_unknown_acks_and_too_many_sets_are_refused(bench: BrokerBench) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(copied(0, PLAIN, acks=7))
    assert answers(transport) == [struct.pack(">h", 68)]
    each = MirroredSet("clicks", 0, "s", 0, 9, 0, b"")
    connection.dataReceived(MirroredProduceRequest(FLUSHED, 0, (each,) * 65).encode())
    assert transport.disconnecting
