"""Produces of mirrors: in order, appended while earlier ones wait for a flush, answered once."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from batches import NOW_MS
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
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch
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


# -- record batches -----------------------------------------------------------------------------

RECORDS = SourceFlags.RECORDS | SourceFlags.FOLLOWS


def batch(*values: bytes, codec: RecordCodec = RecordCodec.NONE) -> bytes:
    return encode_batch([Record(n, NOW_MS, b"k", each) for n, each in enumerate(values)], codec)


def copied_batch(
    begin: int, end: int, data: bytes, flags: int = RECORDS, topic: str = "records"
) -> bytes:
    each = MirroredSet(topic, 0, "u/t/0-0", begin, end, flags, data)
    return MirroredProduceRequest(FLUSHED, 0, (each,)).encode()


@pytest.fixture
def records(tmp_path: Path) -> Iterator[BrokerBench]:
    bench = BrokerBench(tmp_path / "logs", topics={"records": {"format": "kafka"}})
    bench.shared.topics.create("records")
    bench.shared.topics.create("clicks")
    yield bench
    bench.close()


def answer_to(bench: BrokerBench, *requests: bytes) -> list[MirroredEntry]:
    connection, transport = bench.connect()
    for each in requests:
        connection.dataReceived(each)
        bench.turns()
    return [entry for each in answers(transport) for entry in entries(each)]


def test_batches_are_appended_once_and_their_messages_counted(records: BrokerBench) -> None:
    three, two = batch(b"a", b"b", b"c"), batch(b"d", b"e", codec=RecordCodec.GZIP)
    verbatim = RECORDS | SourceFlags.VERBATIM
    told = answer_to(
        records,
        copied_batch(10, 13, three, RECORDS & ~SourceFlags.FOLLOWS | SourceFlags.VERBATIM),
        copied_batch(10, 13, three, verbatim),
        copied_batch(13, 13 + 2, two, verbatim),
        copied_batch(15, 20, b""),  # nothing of these goes here
        copied_batch(20, 25, two),  # some were compacted away
        copied_batch(20, 25, two),
    )
    assert told == [(0, 0, 13), (0, -1, 13), (0, 3, 15), (0, -1, 20), (0, 5, 25), (0, -1, 25)]
    log = records.directory.get("records", 0)
    assert log is not None
    assert log.end_offset == 7
    assert list(log.sources.spans(0, 9)[1]) == [
        (0, SourceFlags.VERBATIM, 10, 15, 0, 5),
        (0, 0, 20, 25, 5, 7),
    ]


def test_batches_go_one_by_one_where_offsets_are_not_the_sources(records: BrokerBench) -> None:
    two = batch(b"a") + batch(b"b")
    told = answer_to(
        records,
        copied_batch(10, 15, two, RECORDS & ~SourceFlags.FOLLOWS),
        copied_batch(10, 12, two, RECORDS & ~SourceFlags.FOLLOWS | SourceFlags.VERBATIM),
    )
    assert told == [(78, -1, -1), (0, 0, 12)]


def test_batches_and_messages_go_to_topics_of_their_format_only(records: BrokerBench) -> None:
    told = answer_to(
        records,
        copied_batch(0, len(PLAIN), PLAIN, SourceFlags.VERBATIM),
        copied_batch(0, 1, batch(b"a"), topic="clicks"),
        copied_batch(0, 1, PLAIN),
        copied_batch(0, 5, batch(b"a"), RECORDS | SourceFlags.VERBATIM),
    )
    wrong_format, damaged, invalid = 81, 2, 78
    assert [each.error for each in told] == [wrong_format, wrong_format, damaged, invalid]
    assert all(each.offset == -1 for each in told)


def test_unknown_acks_and_too_many_sets_are_refused(bench: BrokerBench) -> None:
    connection, transport = bench.connect()
    connection.dataReceived(copied(0, PLAIN, acks=7))
    assert answers(transport) == [struct.pack(">h", 68)]
    each = MirroredSet("clicks", 0, "s", 0, 9, 0, b"")
    connection.dataReceived(MirroredProduceRequest(FLUSHED, 0, (each,) * 65).encode())
    assert transport.disconnecting
