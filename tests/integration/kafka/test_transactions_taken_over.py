"""A directory of Kafka 4's with transactions, committed, aborted and open, taken over by Hermes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_4 import run_tool
from kafka_disk_rounds import SharedDirectory
from kafka_logs import batches_in, open_kafka_log
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, settings
from transacted_logs import Writer

from hermes.protocol.transaction_markers import encode_marker, marker_in
from hermes.storage import DataDirectory
from hermes.storage.producer_snapshots import decode_snapshot, encode_snapshot

TOPIC = "paid"


def transacted(address: str, name: str, parts: bytes, *, ending: str) -> Producer:
    """Send messages in a transaction, `<name><part>` each, and end it or leave it open."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    for part in parts:
        producer.produce(TOPIC, b"%s%c" % (name.encode(), part), partition=0)
    assert producer.flush(60) == 0
    if ending == "commit":
        producer.commit_transaction(60)
    elif ending == "abort":
        producer.abort_transaction(60)
    return producer


def read(address: str, level: str) -> list[bytes]:
    """All that a consumer gets up to the end that it is told."""
    settings = {
        "bootstrap.servers": address,
        "group.id": "readers",
        "isolation.level": level,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer, found = Consumer(settings), []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while True:
            message = consumer.poll(60)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return found
            found.append(message.value())
    finally:
        consumer.close()


def fill(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(60)
    for number in range(6):
        transacted(address, f"p{number}", b"abc", ending="abort" if number % 3 == 1 else "commit")
    plain = Producer({"bootstrap.servers": address})
    plain.produce(TOPIC, b"plain", partition=0)
    assert plain.flush(60) == 0


COMMITTED = [b"p%d%c" % (n, part) for n in range(6) if n % 3 != 1 for part in b"abc"] + [b"plain"]
ALL = [b"p%d%c" % (n, part) for n in range(6) for part in b"abc"] + [b"plain"]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedDirectory]:
    shared = SharedDirectory(tmp_path)
    yield shared
    shared.end()


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_committed_readers_get_what_was_committed(shared: SharedDirectory, is_killed: bool) -> None:
    shared.start_kafka()
    fill(shared.address)
    left = transacted(shared.address, "open", b"xyz", ending="")
    plain = Producer({"bootstrap.servers": shared.address})
    plain.produce(TOPIC, b"later", partition=0)
    assert plain.flush(60) == 0
    assert read(shared.address, "read_committed") == COMMITTED
    shared.end_kafka(is_killed=is_killed)
    shared.start_hermes()
    assert read(shared.address, "read_committed") == COMMITTED
    assert read(shared.address, "read_uncommitted") == [
        *ALL,
        b"openx",
        b"openy",
        b"openz",
        b"later",
    ]
    del left


def test_what_hermes_makes_of_the_batches_is_what_kafka_wrote(
    shared: SharedDirectory, tmp_path: Path
) -> None:
    """Markers, the index of what was aborted, and the snapshot of producers, byte by byte."""
    shared.start_kafka()
    fill(shared.address)
    left = transacted(shared.address, "open", b"xyz", ending="")
    shared.end_kafka(is_killed=False)
    partition = shared.data / f"{TOPIC}-0"
    segment, index = (partition / f"{'0' * 20}{each}" for each in (".log", ".txnindex"))
    is_marked = 0
    for header, batch in batches_in(segment.read_bytes()):
        marker = marker_in(header, batch) if header.is_control else None
        if marker is not None:
            place = header.base_offset, header.leader_epoch, header.max_timestamp_ms
            assert encode_marker(marker, *place)[1] == batch
            is_marked += 1
    assert is_marked == 6
    (snapshot,) = partition.glob("*.snapshot")
    copy = tmp_path / f"{TOPIC}-0"
    copy.mkdir()
    shutil.copy(segment, copy)
    log, _ = open_kafka_log(copy)
    assert (copy / index.name).read_bytes() == index.read_bytes()
    states, kafkas = dict(log.producers.states), decode_snapshot(snapshot.read_bytes())
    assert [each.transaction_start for each in kafkas.values()].count(-1) == len(kafkas) - 1
    assert encode_snapshot({each: states[each] for each in kafkas}) == snapshot.read_bytes()
    del left


def test_kafka_goes_on_with_what_hermes_wrote(shared: SharedDirectory) -> None:
    shared.start_kafka()
    fill(shared.address)
    shared.end_kafka(is_killed=False)
    files = UnsyncedFiles()
    directory = DataDirectory(shared.data, lambda topic: settings(1 << 20), files)
    assert not directory.open(NOW_MS).offline
    log = directory.logs[TOPIC, 0]
    writer = Writer(log)
    for producer, is_commit in ((9001, True), (9002, False), (9003, True), (9002, False)):
        writer.send(producer)
        writer.end(producer, commit=is_commit)
    writer.send(9004)
    log.flush()
    directory.close()
    partition = shared.data / f"{TOPIC}-0"
    aborted = sorted(partition.glob("*.txnindex"))
    text = run_tool("kafka-dump-log", "--files", ",".join(map(str, aborted)))
    assert text.count("producerId: 9002 ") == 2
    snapshots = sorted(partition.glob("*.snapshot"))
    text = run_tool("kafka-dump-log", "--files", str(snapshots[-1]))
    assert "producerId: 9004 " in text
    assert f"Offset: OptionalLong[{log.end_offset - 1}]" in text
    segments = sorted(partition.glob("*.log"))
    text = run_tool("kafka-dump-log", "--deep-iteration", "--files", ",".join(map(str, segments)))
    assert text.count("endTxnMarker: ABORT") == 4
    shared.start_kafka()
    assert read(shared.address, "read_committed") == [*COMMITTED, b"9001.0", b"9003.0"]
    assert read(shared.address, "read_uncommitted")[-1] == b"9004.0"
