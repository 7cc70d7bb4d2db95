"""What clients are told of a partition that could not be opened: never that nothing is there."""

from pathlib import Path

import pytest
from kafka_bench import KafkaBench
from kafka_logs import append_batch, sent
from kafka_raw import parts

KAFKA_STORAGE_ERROR = 56
SETTINGS = {"t": {"format": "kafka"}}


def committed(bench: KafkaBench) -> tuple[int, int]:
    """(the group's offset, the partition's error code)."""
    make = parts("OffsetFetch", 7)
    topics = (make.OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),)
    answer = bench.ask("OffsetFetch", 7, group_id="g", topics=topics, require_stable=False)
    assert answer.error_code == 0
    (found,) = answer.topics[0].partitions
    return found.committed_offset, found.error_code


def commit(bench: KafkaBench, offset: int) -> int:
    make = parts("OffsetCommit", 7)
    part = make.OffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=-1,
        committed_metadata=None,
    )
    topics = (make.OffsetCommitRequestTopic(name="t", partitions=(part,)),)
    answer = bench.ask(
        "OffsetCommit",
        7,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=topics,
    )
    return int(answer.topics[0].partitions[0].error_code)


def listed(bench: KafkaBench, time_ms: int) -> tuple[int, int]:
    """(the offset, the error code)."""
    make = parts("ListOffsets", 4)
    part = make.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=time_ms)
    topics = (make.ListOffsetsTopic(name="t", partitions=(part,)),)
    answer = bench.ask("ListOffsets", 4, replica_id=-1, isolation_level=0, topics=topics)
    (found,) = answer.topics[0].partitions
    return found.offset, found.error_code


def end_of_epoch(bench: KafkaBench) -> int:
    make = parts("OffsetForLeaderEpoch", 3)
    part = make.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=1)
    topics = (make.OffsetForLeaderTopic(topic="t", partitions=(part,)),)
    answer = bench.ask("OffsetForLeaderEpoch", 3, replica_id=-1, topics=topics)
    return int(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A data directory with a topic whose group has come to 2 of 3 messages."""
    bench = KafkaBench(tmp_path, topics=SETTINGS)
    bench.shared.topics.create_declared("t")
    log = bench.directory.logs["t", 0]
    append_batch(log, sent([b"a", b"b", b"c"]))
    log.flush()
    assert commit(bench, 2) == 0
    assert committed(bench) == (2, 0)
    bench.close()
    return tmp_path


def test_offsets_are_not_taken_for_none(stopped: Path) -> None:
    segment = stopped / "t-0" / f"{0:020d}.log"
    segment.rename(stopped / "away")
    segment.mkdir()  # no file of a log
    bench = KafkaBench(stopped, topics=SETTINGS)
    assert bench.directory.logs["t", 0].is_offline
    for time_ms in (-1, -2, 0):
        assert listed(bench, time_ms) == (-1, KAFKA_STORAGE_ERROR)
    assert end_of_epoch(bench) == KAFKA_STORAGE_ERROR
    assert committed(bench) == (2, 0), "as Kafka, whose groups don't depend on it"
    assert commit(bench, 1) == 0
    segment.rmdir()
    (stopped / "away").rename(segment)
    log = bench.directory.logs["t", 0]
    bench.directory.reopen(log, 0)
    bench.shared.topics.reopened(log)
    assert listed(bench, -1) == (3, 0)
    assert committed(bench) == (1, 0), "committed while the topic's id could not be read"
    bench.close()
