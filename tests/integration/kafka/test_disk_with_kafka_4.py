"""One partition's files under Hermes and Kafka 4 in turn, and read by Kafka's DumpLogSegments."""

import os
import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from kafka_4 import KafkaProcess, run_tool
from kafka_disk_rounds import SharedDirectory
from kafka_loads import TOPIC
from kafka_logs import append_batch, read_records, record, sent
from kafka_raw import KafkaConversation, topics_of
from server_process import DEADLINE_SECONDS
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, settings

from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import encode_batch
from hermes.storage import DataDirectory, Log
from hermes.storage.compaction import CompactionReport, compaction

#: Words that DumpLogSegments prints only about what is wrong.
FAULTS = ("ismatch", "out of order", "Found ", "isvalid: false", "not found", "rror", "xception")


def opened(path: Path) -> DataDirectory:
    directory = DataDirectory(path, lambda topic: settings(200_000), UnsyncedFiles())
    report = directory.open(NOW_MS)
    assert report.offline == {}
    return directory


def values(log: Log) -> list[bytes | None]:
    return [each.value for each in read_records(log)]


def dumped(files: list[Path], *options: str) -> str:
    text = run_tool("kafka-dump-log", "--files", ",".join(map(str, files)), *options)
    for line in text.splitlines():
        assert not any(fault in line for fault in FAULTS), line
    return text


def fill(log: Log, seed: int) -> int:
    """Append batches of all kinds and sizes, flush now and then; how many messages."""
    chance = random.Random(seed)
    before = log.end_offset
    for number in range(400):
        some = [
            record(
                chance.randbytes(chance.choice((0, 10, 500, 3000))),
                key=b"%d" % (number if seed > 1 else number % 90),
                timestamp_ms=NOW_MS + chance.randrange(100_000),
            )
            for _ in range(chance.choice((1, 1, 2, 9)))
        ]
        append_batch(log, sent(some, RecordCodec(number % 5)), NOW_MS + number)
        if number % 7 == 0:
            log.flush()
    log.flush()
    return log.end_offset - before


def test_kafkas_own_tool_finds_nothing_wrong(tmp_path: Path) -> None:
    """Nor after the process was killed, and the log recovered."""
    directory = DataDirectory(
        tmp_path / "logs é", lambda topic: settings(200_000, format="kafka"), UnsyncedFiles()
    )
    directory.open(NOW_MS)
    log = directory.create("k", 0)
    count = fill(log, 1)
    log.delete_records(20)
    report = CompactionReport()
    for _ in compaction(log, 0, NOW_MS, 0, report):
        pass
    directory.close()
    directory = opened(tmp_path / "logs é")
    log = directory.logs["k", 0]
    count += fill(log, 2)
    by_producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    append_batch(log, encode_batch([record(b"once")], **by_producer))
    log.flush()
    # As a kill leaves it: nothing is closed, and no marker is written.
    directory._lock.release()  # type: ignore[union-attr]
    again = opened(tmp_path / "logs é")
    assert again.logs["k", 0].end_offset == count + 1
    fill(again.logs["k", 0], 3)
    kept = len(read_records(again.logs["k", 0]))
    again.close()
    partition = tmp_path / "logs é" / "k-0"
    segments = sorted(partition.glob("*.log"))
    assert len(segments) > 3
    text = dumped(segments, "--deep-iteration", "--print-data-log")
    assert text.count("| offset:") >= kept > 2000
    indexes = [*sorted(partition.glob("*.index")), *sorted(partition.glob("*.timeindex"))]
    assert len(indexes) == 2 * len(segments)
    assert sum(each.stat().st_size > 0 for each in indexes) > 4
    dumped(indexes, "--verify-index-only")
    text = dumped(indexes, "--index-sanity-check")
    snapshots = sorted(partition.glob("*.snapshot"))
    assert "producerId: 7 " in dumped(snapshots), "what was read out of the log"
    # What compaction has emptied has no entries.
    assert text.count("passed sanity check.") + text.count(" is empty.") == len(indexes)


def produced(kafka: KafkaProcess, *lines: str) -> None:
    run_tool(
        "kafka-console-producer",
        *("--bootstrap-server", kafka.address, "--topic", "clicks", "--sync"),
        given="".join(f"{line}\n" for line in lines),
    )


def consumed(kafka: KafkaProcess, count: int) -> list[str]:
    text = run_tool(
        "kafka-console-consumer",
        *("--bootstrap-server", kafka.address, "--topic", "clicks", "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "120000"),
    )
    return text.split()


@pytest.mark.parametrize(
    "is_killed",
    [pytest.param(False, id="stopped", marks=pytest.mark.nightly), pytest.param(True, id="killed")],
)
def test_a_partition_goes_from_kafka_to_hermes_and_back(tmp_path: Path, is_killed: bool) -> None:
    def leave(kafka: KafkaProcess) -> None:
        kafka.kill() if is_killed else kafka.stop()

    kafka = KafkaProcess(tmp_path, settings={"log.segment.bytes": 1_048_576})
    kafka.start()
    try:
        run_tool(
            *("kafka-topics", "--bootstrap-server", kafka.address, "--create"),
            *("--topic", "clicks", "--partitions", "1"),
        )
        produced(kafka, "one", "two")
        leave(kafka)
        directory = opened(tmp_path / "data")
        log = directory.logs["clicks", 0]
        assert log.format.name == "kafka"
        assert values(log) == [b"one", b"two"]
        append_batch(log, sent([b"three", b"four"], RecordCodec.LZ4))
        log.flush()
        for _ in range(300):
            append_batch(log, sent([b"x" * 1000]))
        log.flush()
        assert log.segment_count > 1
        append_batch(log, sent([b"last"]))
        log.flush()
        if is_killed:
            directory._lock.release()  # type: ignore[union-attr]
        else:
            assert directory.close()
        kafka.start()
        found = consumed(kafka, 305)
        assert found[:4] == ["one", "two", "three", "four"]
        assert found[-1] == "last"
        produced(kafka, "five")
        leave(kafka)
        directory = opened(tmp_path / "data")
        log = directory.logs["clicks", 0]
        assert [values(log)[n] for n in (0, 3, 304, 305)] == [b"one", b"four", b"last", b"five"]
        assert log.leader_epoch > 0
        directory.close()
        output = (tmp_path / "output").read_text(encoding="utf-8", errors="replace")
        assert "stray" not in output
        assert not [line for line in output.splitlines() if "ERROR" in line and "clicks" in line]
    finally:
        kafka.kill()
    dumped(sorted((tmp_path / "data" / "clicks-0").glob("*.log")), "--deep-iteration")
    assert os.path.exists(tmp_path / "data" / "clicks-0" / "partition.metadata")


class Told(threading.Thread):
    """Asks again and again who leads a partition, until nobody answers.

    Attributes:
        epochs: what each answer says.
        has_led: set once an answer has named a leader.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self.epochs: list[int] = []
        self.has_led = threading.Event()
        self._address = address

    def run(self) -> None:
        """Ask until the end."""
        with suppress(OSError), KafkaConversation(self._address) as client:
            while True:
                (topic,) = topics_of(client, TOPIC)
                for each in topic.partitions:
                    self.epochs.append(each.leader_epoch)
                    if each.leader_id == 1:
                        self.has_led.set()


def test_clients_are_never_told_of_an_older_leader(tmp_path: Path) -> None:
    """They would turn it down, and wait for the one that they have heard of."""
    shared = SharedDirectory(tmp_path)
    epochs: list[int] = []
    lives = [("kafka", False), ("hermes", True), ("kafka", True), ("hermes", False)]
    try:
        for name, is_killed in [*lives, ("hermes", True), ("kafka", True)]:
            getattr(shared, f"start_{name}")()
            told = Told(shared.address)
            told.start()
            try:
                assert told.has_led.wait(DEADLINE_SECONDS)
                if not epochs:
                    produced(shared.kafka, "one")
            finally:
                getattr(shared, f"end_{name}")(is_killed=is_killed)
                told.join()
            epochs += told.epochs
            assert epochs == sorted(epochs), (name, told.epochs[0], sorted(set(epochs)))
    finally:
        shared.end()
