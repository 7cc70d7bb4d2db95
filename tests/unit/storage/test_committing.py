"""What is flushed and what is committed: two numbers where a log has other copies."""

from pathlib import Path

import pytest
from kafka_logs import append_values, open_kafka_log
from storage_logs import NOW_MS, append, message, open_log, read_all, settings

from hermes.errors import OffsetOutOfRangeError
from hermes.storage import Log

SIZE = len(message("0"))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """One that has other copies, of ten flushed messages in segments of two."""
    log = open_log(tmp_path / "clicks-0", log_settings=settings(SIZE))
    log.is_sole_copy = False
    for number in range(10):
        append(log, message(str(number)))
    assert log.flush() == log.flushed_end == 10 * SIZE
    return log


def test_the_only_copy_commits_what_it_flushes(tmp_path: Path) -> None:
    log = open_log(tmp_path / "clicks-0")
    append(log, message("a"))
    log.flush()
    assert log.high_watermark == log.flushed_end == log.end_offset == SIZE


def test_nothing_is_visible_before_it_is_committed(log: Log) -> None:
    assert log.high_watermark == 0
    assert read_all(log) == b""
    with pytest.raises(OffsetOutOfRangeError):
        log.read(SIZE, 100)
    assert log.commit(3 * SIZE) == log.high_watermark == 3 * SIZE
    assert read_all(log) == b"".join(message(str(number)) for number in range(3))
    assert log.offsets_before(-1, 1, NOW_MS) == [3 * SIZE]
    assert log.boundary_before(9 * SIZE) == 3 * SIZE


def test_a_commit_goes_neither_back_nor_beyond_what_is_on_disk(log: Log) -> None:
    append(log, message("x"))
    log.commit(4 * SIZE)
    assert log.commit(SIZE) == 4 * SIZE
    assert log.commit(1 << 40) == 10 * SIZE
    log.flush()
    assert (log.high_watermark, log.flushed_end) == (10 * SIZE, 11 * SIZE)
    assert log.state.tail.unflushed_bytes == 0


def test_what_is_not_committed_is_neither_deleted_nor_compacted(log: Log) -> None:
    log.commit(5 * SIZE)
    assert log.complete_end == 4 * SIZE
    assert [each.base_offset for each in log.complete_segments()] == [0, 2 * SIZE]
    log.delete_oldest(5)
    assert log.earliest == 4 * SIZE
    log.commit(10 * SIZE)
    log.delete_oldest(5)
    assert (log.earliest, log.segment_count, log.high_watermark) == (10 * SIZE, 1, 10 * SIZE)


def test_recovery_keeps_what_is_flushed_and_shows_what_was_committed(log: Log) -> None:
    log.commit(3 * SIZE)
    append(log, message("x"))
    log.state.go_offline("the disk failed")
    log.reopen(NOW_MS)
    assert (log.flushed_end, log.high_watermark) == (11 * SIZE, 3 * SIZE)
    log.is_sole_copy = True
    log.flush()
    assert log.high_watermark == 11 * SIZE


def test_records_are_deleted_up_to_what_is_committed(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0")
    log.is_sole_copy = False
    append_values(log, b"a", b"b")
    log.flush()
    log.commit(1)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(2)
    assert log.delete_records(1) == 1
