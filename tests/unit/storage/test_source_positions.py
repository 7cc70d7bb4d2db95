"""The positions of sources: what is accepted, what is remembered, and the file's life."""

from collections.abc import Iterator
from errno import EIO, ENOSPC
from itertools import count
from pathlib import Path

import pytest
from mirrored_logs import SIZE, MirroredLog, SourceCopy
from storage_fakes import FaultyFiles, UnsyncedFiles, WatchedFiles
from storage_logs import NOW_MS, append, message, read_all, settings

from hermes.errors import (
    DiskFullError,
    InvalidSourceError,
    LogOfflineError,
    SourceGapError,
    SourceOverlapError,
    StorageError,
)
from hermes.protocol import SourceFlags, SourceSpan
from hermes.storage import DataDirectory, SourceRange
from hermes.storage.source_spans import MAX_SOURCES, MAX_SPANS, SourceSpans

V = int(SourceFlags.VERBATIM)


def spans_of(*noted: tuple[int, int, int, int, int, int]) -> SourceSpans:
    spans = SourceSpans()
    for name in "abc":
        spans.add(name)
    for each in noted:
        spans.note(SourceSpan(*each))
    return spans


# -- spans ----------------------------------------------------------------------------------------


def test_verbatim_ranges_that_follow_each_other_are_one_span() -> None:
    spans = spans_of((0, V, 5, 9, 100, 104), (0, V, 9, 19, 104, 114), (0, V, 19, 20, 114, 115))
    assert list(spans.spans()) == [(0, V, 5, 20, 100, 115)]
    assert spans.positions == [20, -1, -1]


@pytest.mark.parametrize(
    "second",
    [
        (0, V, 10, 14, 104, 108),
        (0, V, 9, 13, 105, 109),
        (1, V, 9, 13, 104, 108),
        (0, 0, 9, 13, 104, 108),
    ],
    ids=["a gap in the source", "a gap in the log", "another source", "not verbatim"],
)
def test_others_are_not(second: tuple[int, int, int, int, int, int]) -> None:
    assert len(spans_of((0, V, 5, 9, 100, 104), second)) == 2


def test_a_range_without_bytes_moves_the_position_only() -> None:
    spans = spans_of((0, V, 5, 9, 100, 104), (0, 0, 9, 50, 104, 104))
    assert spans.positions[0] == 50
    assert len(spans) == 1


def test_what_may_be_appended() -> None:
    spans = spans_of((0, V, 5, 9, 100, 104))
    assert spans.is_done(SourceRange("a", 5, 9, V), 4)
    assert spans.is_done(SourceRange("a", 0, 3, 0), 4)
    assert not spans.is_done(SourceRange("a", 9, 13, V | SourceFlags.FOLLOWS), 4)
    assert not spans.is_done(SourceRange("a", 90, 94, V), 4)
    assert not spans.is_done(SourceRange("new", 0, 4, V), 4)
    with pytest.raises(SourceOverlapError, match="here up to 9"):
        spans.is_done(SourceRange("a", 8, 12, V), 4)
    with pytest.raises(SourceGapError, match="up to 9; 10 is beyond"):
        spans.is_done(SourceRange("a", 10, 14, V | SourceFlags.FOLLOWS), 4)
    with pytest.raises(SourceGapError):
        spans.is_done(SourceRange("new", 0, 4, V | SourceFlags.FOLLOWS), 4)
    for number in range(MAX_SOURCES - 3):
        spans.add(f"source {number}")
    with pytest.raises(InvalidSourceError, match="1024 sources already"):
        spans.is_done(SourceRange("new", 0, 4, V), 4)
    assert not spans.is_done(SourceRange("source 7", 0, 4, V), 4)


def test_too_many_spans_become_coarser_and_lead_no_further_astray() -> None:
    spans = spans_of()
    for number in range(3 * MAX_SPANS):
        begin = number // 2 * 10
        spans.note(SourceSpan(number % 2, V, begin, begin + 10, number * 10, number * 10 + 10))
    assert len(spans) <= MAX_SPANS
    ends = [0, 0]
    for span in spans.spans():
        assert span.source_begin == ends[span.number]  # without a hole
        ends[span.number] = span.source_end
        where = [span.source_begin // 10 * 20, (span.source_end // 10 - 1) * 20 + 10]
        offset = 10 * span.number
        assert (span.log_begin, span.log_end) == (where[0] + offset, where[1] + offset)
    assert ends == spans.positions[:2] == [15 * MAX_SPANS] * 2


def test_what_is_not_flushed_is_not_made_coarser() -> None:
    spans = spans_of()
    for number in range(2 * MAX_SPANS):
        spans.note(SourceSpan(number % 2, 0, number, number + 1, number, number + 1), flushed=0)
    assert len(spans) == 2 * MAX_SPANS


def test_spans_of_deleted_segments_are_forgotten_and_positions_are_not() -> None:
    spans = spans_of((0, 0, 0, 5, 0, 10), (1, V, 0, 20, 10, 30), (0, 0, 5, 6, 30, 40))
    spans.drop_before(30)
    assert list(spans.spans()) == [(0, 0, 5, 6, 30, 40)]
    assert spans.positions == [6, 20, -1]
    assert list(spans.spans(31)) == []


@pytest.mark.parametrize(
    ("end", "expected_end", "positions", "count"),
    [
        (40, 40, [8, 20, -1], 3),
        (35, 30, [5, 20, -1], 2),
        (30, 30, [5, 20, -1], 2),
        (25, 25, [5, 15, -1], 2),
        (10, 10, [5, 0, -1], 1),
        (9, 0, [0, 0, -1], 0),
    ],
)
def test_a_shorter_log_has_less_of_its_sources(
    end: int, expected_end: int, positions: list[int], count: int
) -> None:
    spans = spans_of(
        (0, 0, 0, 5, 0, 10), (1, V, 0, 20, 10, 30), (0, 0, 5, 6, 30, 40), (0, 0, 6, 8, 40, 40)
    )
    assert spans.fit(end, 0) == expected_end
    assert spans.positions == positions
    assert len(spans) == count


def test_what_cannot_be_cut_is_copied_again() -> None:
    """Flushed bytes are gone: the rest of the batch stays, and its source begins there again."""
    spans = spans_of((0, 0, 0, 5, 0, 10), (1, 0, 0, 20, 10, 30))
    assert spans.fit(25, 20) == 25
    assert spans.positions == [5, 0, -1]


# -- the file -------------------------------------------------------------------------------------


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[MirroredLog]:
    log = opened(tmp_path)
    yield log
    log.log.close()


def opened(path: Path, files: UnsyncedFiles | None = None, **options: bool) -> MirroredLog:
    copies = [SourceCopy("v", is_verbatim=True), SourceCopy("s", is_verbatim=False)]
    log = MirroredLog(path / "clicks-0", files or UnsyncedFiles(), copies)
    log.open(**options)
    return log


def positions(log: MirroredLog) -> dict[str, int]:
    return {each.source: each.position for each in log.log.sources.positions(0, 100)[1]}


def test_a_log_without_mirrors_has_no_file(logs: MirroredLog, tmp_path: Path) -> None:
    logs.produce()
    logs.flush()
    assert not (tmp_path / "clicks-0" / "sources.positions").exists()
    assert not logs.log.sources.has_any
    assert logs.log.sources.positions(0, 10) == (SIZE, [])
    assert logs.log.sources.spans(0, 10) == (SIZE, [])
    with pytest.raises(StorageError, match="not ready"):
        logs.log.sources.append_range(SourceRange("v", 0, 20, V), [bytes(20)], 20, 1, NOW_MS)


def test_nothing_is_forgotten_over_clean_stops(tmp_path: Path) -> None:
    for number in range(3):
        log = opened(tmp_path, clean=number > 0)
        log.copy(log.copies[0])
        log.copy(log.copies[1])
        log.flush()
        log.check()
        assert positions(log) == {"v": 40 * (number + 1), "s": 40 * (number + 1)}
        log.log.close()


def test_a_file_stays_small_however_long_a_mirror_runs(tmp_path: Path) -> None:
    files = WatchedFiles()
    log = MirroredLog(
        tmp_path / "clicks-0", files, [SourceCopy("v", is_verbatim=True)], segment_bytes=1 << 20
    )
    log.open()
    path = tmp_path / "clicks-0" / "sources.positions"
    for number in range(6000):
        log.copy(log.copies[0], 1)
        if number % 100 == 0:
            log.flush()
            assert path.stat().st_size < 80_000
    log.flush()
    log.check()
    assert files.calls.count("rename") >= 5
    log.log.close()
    again = opened(tmp_path, clean=True)
    assert positions(again) == {"v": 6000 * SIZE}
    assert len(again.log.sources.spans(0, 10)[1]) == 1
    again.log.close()
    assert files.opened == set()


def test_a_partition_that_gets_nothing_of_its_sources_stays_small(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.log.sources.begin()
    for number in range(5000):
        wanted = SourceRange(f"source {number % 3}", number, number + 1, 0)
        assert log.log.sources.append_range(wanted, [], 0, 0, NOW_MS) is None
    path = tmp_path / "clicks-0" / "sources.positions"
    expected = {f"source {n % 3}": n + 1 for n in range(4997, 5000)}
    assert positions(log) == expected
    assert path.stat().st_size < 100
    log.produce()
    log.log.flush()
    killed = opened(tmp_path)
    assert positions(killed) == expected
    killed.log.sources.begin()
    killed.log.sources.append_range(SourceRange("source 0", 6000, 6001, 0), [], 0, 0, NOW_MS)
    killed.log.sources.append_range(SourceRange("another", 0, 7, 0), [], 0, 0, NOW_MS)
    killed.log.close()
    again = opened(tmp_path, clean=True)
    assert positions(again) == expected | {"source 0": 6001, "another": 7}
    again.log.close()
    log.log.close()


def test_a_disk_without_room_refuses_and_forgets_nothing(tmp_path: Path) -> None:
    files = FaultyFiles(None, ENOSPC, stays=True, only=("pwrite", "pwritev"))
    log = opened(tmp_path, files)
    log.copy(log.copies[0])
    log.flush()
    log.produce()
    files.fail_at = files.counted
    for _ in range(3):
        with pytest.raises(DiskFullError):
            log.copy(log.copies[0])
        with pytest.raises(DiskFullError, match="positions of sources"):
            log.log.flush()  # a checkpoint is due
    assert not log.log.is_offline
    files.fail_at = None
    log.copy(log.copies[0])
    log.flush()
    log.check()
    assert positions(log) == {"v": 80}
    log.log.close()


@pytest.mark.parametrize("error", [EIO, ENOSPC, None])
@pytest.mark.parametrize("stays", [False, True])
def test_the_nth_call_fails(tmp_path: Path, error: int | None, stays: bool) -> None:
    """Once or until the log is re-opened: what was acknowledged is there, and nothing twice."""
    refusals = 0
    for number in count():
        files = FaultyFiles(number, error, stays=stays, only=FAILING)
        log = MirroredLog(
            tmp_path / f"clicks-{number}",
            files,
            [SourceCopy("v", is_verbatim=True), SourceCopy("s", is_verbatim=False)],
        )
        try:
            log.open()
        except StorageError:
            files.fail_at = None
            log.log.reopen(NOW_MS)
        for step in range(30):
            try:
                if step % 7 == 6:
                    log.flush()
                elif step % 3 == 2:
                    log.produce()
                else:
                    log.copy(log.copies[step % 2], 1 + step % 3)
            except StorageError:
                refusals += 1
                files.fail_at = None
                if log.log.is_offline:
                    log.log.reopen(NOW_MS)
                    log.check()
        files.fail_at = None
        if log.log.is_offline:
            log.log.reopen(NOW_MS)
        log.flush()
        log.check()
        reached = files.counted > number
        log.log.close()
        again = MirroredLog(tmp_path / f"clicks-{number}", UnsyncedFiles(), log.copies)
        again.open(clean=False)
        again.check()
        again.log.close()
        assert files.opened == set(), number
        if not reached:
            break
    assert number > 60
    assert refusals > 20 or error is None


FAILING = (
    "pwrite",
    "pwritev",
    "fdatasync",
    "ftruncate",
    "rename",
    "open_new",
    "open_append",
    "fsync_directory",
)


def test_a_file_that_was_removed_under_a_log_is_noticed_and_written_again(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.copy(log.copies[0])
    log.flush()
    (tmp_path / "clicks-0" / "sources.positions").unlink()
    log.copy(log.copies[0])
    with pytest.raises(LogOfflineError, match=r"sources\.positions was removed or replaced"):
        log.log.flush()
    log.log.reopen(NOW_MS)
    assert positions(log) == {"v": 80}
    log.copy(log.copies[0])
    log.flush()
    log.log.close()
    again = opened(tmp_path, clean=True)
    assert positions(again) == {"v": 120}
    again.log.close()


DAMAGES = {
    "another beginning": lambda data: b"X" + data[1:],
    "a flipped bit": lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:],
    "cut short": lambda data: data[:-3],
    "empty": lambda data: b"",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_set_aside(tmp_path: Path, damage: str) -> None:
    log = opened(tmp_path)
    log.copy(log.copies[0])
    log.flush()
    log.log.close()
    path = tmp_path / "clicks-0" / "sources.positions"
    data = path.read_bytes()
    path.write_bytes(DAMAGES[damage](data))
    log = opened(tmp_path, clean=True)
    assert log.log.strange_files == ("sources.positions.damaged",)
    log.produce()  # producers and readers are served
    assert log.log.flush() == 3 * SIZE
    with pytest.raises(StorageError, match=r"sources\.positions\.damaged is damaged.*remove"):
        log.copy(log.copies[0])
    assert not log.log.is_offline
    path.with_name("sources.positions.damaged").unlink()
    log.copy(log.copies[0])
    assert positions(log) == {"v": 40}
    log.log.close()


def test_records_of_flushed_ranges_that_are_missing_cut_nothing(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    log = opened(tmp_path, files)
    for _ in range(3):
        log.copy(log.copies[0], 5)
        log.flush()
    path = tmp_path / "clicks-0" / "sources.positions"
    data = path.read_bytes()
    path.write_bytes(data[:-60])  # of a process that was killed
    files.boot = "another start"
    again = opened(tmp_path, files)
    assert read_all(again.log) == read_all(log.log)
    assert again.log.strange_files == ("sources.positions.damaged",)
    with pytest.raises(StorageError, match="may be stored again"):
        again.copy(again.copies[0])
    again.log.close()
    log.log.close()


def test_kafka_0_7_may_have_appended_meanwhile(tmp_path: Path) -> None:
    """After a clean stop nothing of what somebody else appended is taken off."""
    files = UnsyncedFiles()
    log = opened(tmp_path, files)
    log.copy(log.copies[0])
    log.flush()
    log.log.close()
    (segment,) = (tmp_path / "clicks-0").glob("*.kafka")
    segment.write_bytes(segment.read_bytes() + message("of Kafka") * 3)
    files.boot = "another start"
    again = opened(tmp_path, files, clean=False)
    assert read_all(again.log).endswith(message("of Kafka") * 3)
    assert positions(again) == {"v": 40}
    again.copy(again.copies[0])
    again.flush()
    again.log.close()


def test_a_kill_takes_nothing_from_producers(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    log = opened(tmp_path, files)
    log.copy(log.copies[0])
    log.flush()
    log.produce()
    log.copy(log.copies[0])
    log.produce()
    again = opened(tmp_path, files)
    assert again.log.end_offset == log.log.end_offset
    assert positions(again) == {"v": 80}
    again.log.close()
    log.log.close()


def test_a_loss_of_power_takes_what_may_lack_a_record(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    log = opened(tmp_path, files)
    log.copy(log.copies[0])
    log.flush()
    log.copy(log.copies[0])
    log.produce()
    files.boot = "another start"
    again = opened(tmp_path, files)
    assert again.log.end_offset == log.log.end_offset - SIZE
    assert positions(again) == {"v": 80}
    again.log.close()
    log.log.close()


def test_an_unknown_start_of_the_machine_counts_as_another(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    files.boot = ""
    log = opened(tmp_path, files)
    log.copy(log.copies[0])
    log.produce()
    again = opened(tmp_path, files)
    assert again.log.end_offset == 2 * SIZE
    again.log.close()
    log.log.close()


def test_the_file_goes_with_its_topic(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "logs", lambda topic: settings(), UnsyncedFiles())
    directory.open(NOW_MS)
    log = directory.create("clicks", 0)
    log.sources.begin()
    data = message("x" * 10)
    log.sources.append_range(SourceRange("v", 0, 20, V), [data], 20, 1, NOW_MS)
    append(log, data)
    log.flush()
    directory.delete_topic("clicks")
    assert not (tmp_path / "logs" / "clicks-0").exists()
    log = directory.create("clicks", 0)
    assert log.sources.position("v") == -1
    assert directory.close()


def test_a_log_that_is_rolled_and_trimmed_keeps_its_positions(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(10):
        log.copy(log.copies[0], 3)
        log.copy(log.copies[1], 3)
        log.flush()
    log.log.delete_oldest(1000)
    log.copy(log.copies[0], 3)
    log.flush()
    log.check()
    spans = log.log.sources.spans(0, 100)[1]
    assert all(span.log_end > log.log.earliest for span in spans)
    log.log.close()
    again = opened(tmp_path, clean=True)
    assert positions(again) == {"v": 11 * 60, "s": 600}
    again.log.close()
