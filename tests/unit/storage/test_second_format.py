"""The log's machinery on a format whose offsets count messages: roll, flush, recovery, retention.

That format is Kafka's. Nothing in `hermes.storage` but the formats may know what a byte of a
segment means, and what is tried here fails where something does.
"""

import os
from errno import EIO, ENOSPC
from pathlib import Path

import pytest
from kafka_logs import TOPIC_ID, raw_batch, raw_batches
from storage_fakes import WRITES, FaultyFiles, UnsyncedFiles, WatchedFiles
from storage_logs import NOW_MS, settings
from zope.interface import implementer

from hermes.errors import DiskFullError, LogOfflineError, OffsetOutOfRangeError
from hermes.interfaces import IRetentionPolicy
from hermes.storage import FileLayer, Log, RecoveryReport, apply_retention
from hermes.storage.kafka_format import KAFKA

#: A batch of this body takes 71 bytes.
BODY = b"0123456789"
SIZE = 71


def open_batches(
    path: Path,
    files: FileLayer | None = None,
    segment_bytes: int = 2 * SIZE,
    *,
    clean: bool = False,
) -> tuple[Log, RecoveryReport | None]:
    path.mkdir(exist_ok=True)
    files = UnsyncedFiles() if files is None else files
    log = Log(
        "b", 0, str(path), settings(segment_bytes), files, log_format=KAFKA, topic_id=TOPIC_ID
    )
    return log, log.open(clean=clean, now_ms=NOW_MS)


def append(log: Log, count: int, now_ms: int = NOW_MS) -> int:
    data = raw_batch(log.end_offset, count, BODY)
    assert len(data) == SIZE
    return log.append([data], len(data), count, now_ms)


def bases(log: Log) -> list[int]:
    """The base offsets of all visible batches, read from the earliest on as a consumer does."""
    offset, found = log.earliest, []
    while offset < log.high_watermark:
        with log.read(offset, 1 << 20) as part:
            data = os.pread(part.fileno(), part.length, part.position)
        read = list(raw_batches(data, offset))
        assert read[0].position == 0
        assert read[-1].end_position == len(data)
        found += [each.base_offset for each in read]
        offset = read[-1].end_offset
    assert offset == log.high_watermark
    return found


def names(path: Path, suffix: str = "") -> list[str]:
    return sorted(each.name.lstrip("0") for each in path.iterdir() if each.name.endswith(suffix))


def test_offsets_count_messages_and_segments_are_named_by_them(tmp_path: Path) -> None:
    log, _ = open_batches(tmp_path / "b-0")
    assert [append(log, count) for count in (3, 1, 5, 2, 4)] == [0, 3, 4, 9, 11]
    assert (log.end_offset, log.high_watermark, log.state.tail.messages) == (15, 0, 15)
    assert (log.state.tail.unflushed_bytes, log.size_bytes) == (5 * SIZE, 5 * SIZE)
    assert names(tmp_path / "b-0", "ed") == ["9.unflushed"]
    assert log.flush() == 15
    assert (log.state.tail.unflushed_bytes, log.size_bytes) == (0, 5 * SIZE)
    beside = [".appends", ".index", ".log", ".timeindex"]
    assert names(tmp_path / "b-0") == sorted(
        [
            *beside,
            *(f"9{each}" for each in beside),
            "9.snapshot",
            "leader-epoch-checkpoint",
            "partition.hermes",
        ]
    )
    assert bases(log) == [0, 3, 4, 9, 11]
    assert [(each.base_offset, each.size_bytes) for each in log.segment_infos()] == [
        (0, 3 * SIZE),
        (9, 2 * SIZE),
    ]
    log.close()


def test_a_read_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log, _ = open_batches(tmp_path / "b-0")
    for count in (3, 1, 5, 2):
        append(log, count)
    log.flush()
    append(log, 7)
    starts = {}
    for offset in range(11):
        with log.read(offset, 1 << 20) as part:
            starts[offset] = part.position, part.length
    assert {offset for offset, at in starts.items() if at == (0, 3 * SIZE)} == {0, 1, 2}
    assert starts[3] == (SIZE, 2 * SIZE)
    assert {offset for offset, at in starts.items() if at == (2 * SIZE, SIZE)} == {4, 5, 6, 7, 8}
    assert starts[9] == starts[10] == (0, SIZE)
    with log.read(11, 100) as part:
        assert part.length == 0
    with pytest.raises(OffsetOutOfRangeError):
        log.read(12, 100)
    assert [log.boundary_before(offset) for offset in (0, 2, 3, 8, 9, 10, 11, 99)] == [
        *(0, 0, 3, 4, 9, 9, 11, 11)
    ]
    log.close()


def test_times_lead_to_offsets(tmp_path: Path) -> None:
    log, _ = open_batches(tmp_path / "b-0")
    for number, count in enumerate((3, 1, 5, 2)):
        append(log, count, NOW_MS + 10 * number)
        log.flush()
    later = NOW_MS + 10**6
    assert [log.offsets_before(NOW_MS + ms, 1, later) for ms in (-1, 0, 15, 20, 35)] == [
        *([], [3], [4], [9], [11])
    ]
    assert log.offsets_before(-1, 9, later) == [11, 9, 0]
    end, runs = log.append_times(0, 99, 1)
    assert end == 11
    assert [(run.end_offset, run.time_ms) for run in runs] == [
        *((3, NOW_MS), (4, NOW_MS + 10), (9, NOW_MS + 20), (11, NOW_MS + 30))
    ]
    log.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_finds_everything_and_reads_only_what_is_not_known(
    tmp_path: Path, clean: bool
) -> None:
    log, _ = open_batches(tmp_path / "b-0")
    for count in (3, 1, 5, 2, 4):
        append(log, count)
    log.flush()
    log.close()
    log, report = open_batches(tmp_path / "b-0", clean=clean)
    assert report == (None if clean else RecoveryReport(15, 15))
    assert (log.end_offset, log.high_watermark, log.size_bytes) == (15, 15, 5 * SIZE)
    assert append(log, 2) == 15
    assert append(log, 2) == 17
    log.flush()
    assert bases(log) == [0, 3, 4, 9, 11, 15, 17]
    assert names(tmp_path / "b-0", ".log") == [".log", "17.log", "9.log"]
    log.close()


def test_a_tail_torn_at_every_byte_is_cut_between_batches(tmp_path: Path) -> None:
    data = raw_batch(40, 3, BODY) + raw_batch(43, 2, BODY) + raw_batch(45, 4, BODY)
    for length in range(len(data) + 1):
        path = tmp_path / f"b-{length}"
        path.mkdir()
        (path / f"{40:020d}.log").write_bytes(data[:length])
        log, report = open_batches(path)
        whole = length // SIZE
        assert log.end_offset == (40, 43, 45, 49)[whole]
        assert bases(log) == [40, 43, 45][:whole]
        assert report == RecoveryReport(
            40, log.end_offset, log.end_offset - 40, (), length - whole * SIZE
        )
        assert (path / f"{40:020d}.log").stat().st_size == whole * SIZE
        log.close()


def test_damage_between_good_batches_is_kept_and_named(tmp_path: Path) -> None:
    data = bytearray(raw_batch(0, 3, BODY) + raw_batch(3, 2, BODY) + raw_batch(5, 4, BODY))
    data[SIZE + 65] ^= 1
    (tmp_path / "b-0").mkdir()
    (tmp_path / "b-0" / f"{0:020d}.log").write_bytes(data)
    log, report = open_batches(tmp_path / "b-0")
    assert report == RecoveryReport(0, 9, 7, ((3, 5),), 0)
    assert log.end_offset == 9
    log.close()


def test_unflushed_segments_are_kept_where_they_fit(tmp_path: Path) -> None:
    """A kill after a roll and before the flush; and a power loss that lost the end before it."""
    for lost in (0, 1):
        path = tmp_path / f"b-{lost}"
        log, _ = open_batches(path)
        for count in (3, 1, 5, 2):
            append(log, count)
        log.close()
        assert names(path, ".unflushed") == ["9.unflushed"]
        first = path / f"{0:020d}.log"
        os.truncate(first, 3 * SIZE - lost)
        log, report = open_batches(path)
        assert report is not None
        assert log.end_offset == (4 if lost else 11)
        assert report.dropped_bytes == (SIZE - 1 + SIZE if lost else 0)
        assert names(path, "d") == []
        assert bases(log) == [0, 3] if lost else [0, 3, 4, 9]
        log.close()


def test_a_failed_flush_ends_in_a_reopening_that_keeps_what_is_valid(tmp_path: Path) -> None:
    files = FaultyFiles(error=EIO, only=("fdatasync",))
    log, _ = open_batches(tmp_path / "b-0", files)
    append(log, 3)
    log.flush()
    for count in (1, 5, 2):
        append(log, count)
    files.fail_at = files.counted
    with pytest.raises(LogOfflineError):
        log.flush()
    os.truncate(tmp_path / "b-0" / f"{9:020d}.unflushed", SIZE - 1)
    report = log.reopen(NOW_MS)
    assert (report.start, report.valid_end, report.messages) == (3, 9, 6)
    assert report.dropped_bytes == SIZE
    assert (log.end_offset, log.high_watermark, log.state.tail.unflushed_bytes) == (9, 9, 0)
    assert append(log, 4) == 9
    log.flush()
    assert bases(log) == [0, 3, 4, 9]
    assert log.size_bytes == 4 * SIZE
    log.close()


def test_nothing_is_kept_after_a_hole_that_a_failed_flush_has_left(tmp_path: Path) -> None:
    """A producer would have to fill it; after a restart more may have been acknowledged."""
    files = FaultyFiles(error=EIO, only=("fdatasync",))
    path = tmp_path / "b-0"
    log = open_batches(path, files, 9 * SIZE)[0]
    append(log, 3)
    log.flush()
    for count in (1, 5, 2):
        append(log, count)
    files.fail_at = files.counted
    with pytest.raises(LogOfflineError):
        log.flush()
    with open(path / f"{0:020d}.log", "r+b") as segment:
        segment.seek(2 * SIZE)
        segment.write(bytes(SIZE))
    report = log.reopen(NOW_MS)
    assert report == RecoveryReport(3, 4, 3, (), 2 * SIZE, has_cut_damage=True)
    assert (log.end_offset, log.high_watermark) == (4, 4)
    assert [append(log, count) for count in (5, 2)] == [4, 9]
    log.flush()
    log.close()
    log, found = open_batches(path)
    assert found is not None
    assert (found.bad_ranges, log.end_offset) == ((), 11)
    log.close()


def test_a_full_disk_takes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles(error=ENOSPC, only=WRITES)
    log, _ = open_batches(tmp_path / "b-0", files)
    append(log, 3)
    files.fail_at = files.counted
    with pytest.raises(DiskFullError):
        append(log, 5)
    assert append(log, 2) == 3
    log.flush()
    assert bases(log) == [0, 3]
    log.close()


def test_segments_are_deleted_by_count_and_all_of_them(tmp_path: Path) -> None:
    files = WatchedFiles()
    log, _ = open_batches(tmp_path / "b-0", files)
    for count in (3, 1, 5, 2, 4):
        append(log, count)
    log.flush()
    assert log.delete_oldest(1) == 3 * SIZE
    assert (log.earliest, log.size_bytes) == (9, 2 * SIZE)
    append(log, 1)
    assert log.delete_oldest(9) == 3 * SIZE
    assert (log.earliest, log.high_watermark, log.size_bytes) == (16, 16, 0)
    assert names(tmp_path / "b-0", ".log") == ["16.log"]
    assert append(log, 2) == 16
    log.flush()
    assert bases(log) == [16]
    assert log.delete() == SIZE
    assert not (tmp_path / "b-0").exists()
    assert files.opened == set()


@implementer(IRetentionPolicy)
class AtMost:
    """Keeps at most so many bytes."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def expired(self, segments, now_ms):  # type: ignore[no-untyped-def]
        left = sum(each.size_bytes for each in segments)
        count = 0
        while left > self.size_bytes:
            left -= segments[count].size_bytes
            count += 1
        return count


def test_retention_sees_bytes(tmp_path: Path) -> None:
    log, _ = open_batches(tmp_path / "b-0")
    for count in (100, 1, 500, 2, 400, 3, 7):
        append(log, count)
    log.flush()
    assert apply_retention(log, AtMost(4 * SIZE), NOW_MS) == 3 * SIZE
    assert log.earliest == 601
    log.close()
