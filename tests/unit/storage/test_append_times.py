"""When ranges were appended: what the time index knows, and what it must not claim to know."""

import os
from errno import EIO, EMFILE
from pathlib import Path

import pytest
from storage_fakes import FaultyFiles, UnsyncedFiles, WatchedFiles
from storage_logs import append, message, open_log, settings, write_segments

from hermes.errors import LogOfflineError, OffsetOutOfRangeError, StorageError
from hermes.storage import FileLayer, Log, append_times
from hermes.storage.index_entries import ENTRY_BYTES

#: The start of an hour in 2026.
HOUR_MS = 3_600_000
NOON = 1_780_012_800_000
assert NOON % HOUR_MS == 0

ONE = message("x")  # 11 bytes
SIZE = len(ONE)
END = 1 << 62

Runs = list[tuple[int, int | None]]


def times(log: Log, interval_ms: int = 1, start: int | None = None, end: int = END) -> Runs:
    """All runs of a range, that the answer says it is whole included."""
    stop, runs = log.append_times(log.earliest if start is None else start, end, interval_ms)
    assert stop == min(end, log.high_watermark)
    assert not runs or runs[-1].end_offset == stop
    return [tuple(run) for run in runs]


def filled(directory: Path, *when: int, files: FileLayer | None = None) -> Log:
    """A log with one message of 11 bytes for each time, flushed one by one."""
    log = open_log(directory, files)
    for time_ms in when:
        append(log, ONE, now_ms=time_ms)
        log.flush()
    return log


def index_path(directory: Path, base: int = 0) -> Path:
    return directory / f"{base:020d}.timeindex"


def damage(path: Path, *numbers: int) -> None:
    data = bytearray(path.read_bytes())
    for number in numbers:
        data[number * ENTRY_BYTES] ^= 0x40
    path.write_bytes(data)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "clicks-0"


# -- what is known ------------------------------------------------------------------------------


def test_each_append_has_its_ms(directory: Path) -> None:
    log = filled(directory, NOON, NOON + 1, NOON + 7)
    assert times(log) == [(11, NOON), (22, NOON + 1), (33, NOON + 7)]


def test_appends_of_one_flush_have_their_own_times(directory: Path) -> None:
    log = open_log(directory)
    for time_ms in (NOON, NOON, NOON + 1, NOON + 2):
        append(log, ONE, now_ms=time_ms)
    log.flush()
    assert times(log) == [(22, NOON), (33, NOON + 1), (44, NOON + 2)]


def test_times_are_rounded_down_and_neighbours_merged(directory: Path) -> None:
    log = filled(directory, NOON - 1, NOON, NOON + 1, NOON + HOUR_MS - 1, NOON + 3 * HOUR_MS)
    hours = [(11, NOON - HOUR_MS), (44, NOON), (55, NOON + 3 * HOUR_MS)]
    assert times(log, HOUR_MS) == hours
    assert times(log, 1 << 60) == [(55, 0)]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 11, [(11, NOON)]),
        (11, 22, [(22, NOON + 1)]),
        (5, 6, [(6, NOON)]),
        (5, 12, [(11, NOON), (12, NOON + 1)]),
        (22, END, [(33, NOON + 2)]),
        (33, END, []),
        (33, 33, []),
        (11, 11, []),
    ],
)
def test_ranges_begin_and_end_anywhere(
    directory: Path, start: int, end: int, expected: Runs
) -> None:
    log = filled(directory, NOON, NOON + 1, NOON + 2)
    assert times(log, 1, start, end) == expected


def test_an_end_before_the_start_is_an_empty_range(directory: Path) -> None:
    log = filled(directory, NOON, NOON + 1)
    assert log.append_times(11, 3, 1) == (11, [])
    assert log.append_times(11, -1, 1) == (11, [])


def test_what_is_not_flushed_is_not_told(directory: Path) -> None:
    log = filled(directory, NOON)
    append(log, ONE, now_ms=NOON + 1)
    assert times(log) == [(11, NOON)]
    log.flush()
    assert times(log) == [(11, NOON), (22, NOON + 1)]


def test_starts_outside_the_log_are_refused(directory: Path) -> None:
    log = open_log(directory, log_settings=settings(20))
    for number in range(4):
        append(log, ONE, now_ms=NOON + number)
    log.flush()
    log.delete_oldest(1)
    append(log, ONE, now_ms=NOON + 9)
    assert times(log) == [(33, NOON + 2), (44, NOON + 3)]
    for start in (-1, 0, 21, 45, 55):
        with pytest.raises(OffsetOutOfRangeError):
            log.append_times(start, END, 1)


def test_runs_go_on_over_segments(directory: Path) -> None:
    log = open_log(directory, log_settings=settings(20))
    for number in range(7):
        append(log, ONE, now_ms=NOON + number // 3)
    log.flush()
    assert len(log.segment_infos()) == 4
    assert times(log) == [(33, NOON), (66, NOON + 1), (77, NOON + 2)]
    assert times(log, HOUR_MS) == [(77, NOON)]
    assert times(log, 1, 30, 60) == [(33, NOON), (60, NOON + 1)]


def test_a_clock_that_is_set_back_keeps_the_later_time(directory: Path) -> None:
    log = filled(directory, NOON, NOON - 5, NOON + 1)
    assert times(log) == [(22, NOON), (33, NOON + 1)]


def test_times_survive_a_restart_and_go_on(directory: Path) -> None:
    filled(directory, NOON, NOON + 1).close()
    log = open_log(directory, clean=True)
    assert times(log) == [(11, NOON), (22, NOON + 1)]
    append(log, ONE, now_ms=NOON + 2)
    log.flush()
    assert times(log) == [(11, NOON), (22, NOON + 1), (33, NOON + 2)]


# -- bounds on the work -------------------------------------------------------------------------


def test_an_answer_ends_after_so_many_runs_and_the_next_goes_on(directory: Path) -> None:
    log = filled(directory, *(NOON + number // 2 for number in range(20)))
    found: Runs = []
    start = 0
    while start < log.high_watermark:
        end, runs = log.append_times(start, END, 1, max_runs=3)
        assert (end, len(runs)) == (220, 3 if len(found) < 9 else 1)
        found += [tuple(run) for run in runs]
        start = runs[-1].end_offset
    assert found == times(log)
    assert len(found) == 10


def test_an_answer_ends_after_so_many_segments(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_times, "MAX_SEGMENTS", 2)
    write_segments(directory, [ONE * 2] * 5)
    log = open_log(directory, clean=True)
    assert log.append_times(0, END, 1) == (110, [(44, None)])
    assert log.append_times(44, END, 1) == (110, [(88, None)])
    assert log.append_times(88, END, 1) == (110, [(110, None)])


def test_long_runs_are_not_read_through(directory: Path) -> None:
    files = WatchedFiles()
    log = open_log(directory, files)
    for number in range(50):
        for step in range(1000):
            append(log, b"0123456789", now_ms=NOON + number * 1000 + step)
        log.flush()
    files.calls.clear()
    assert times(log, 25_000) == [(250_000, NOON), (500_000, NOON + 25_000)]
    assert files.calls.count("pread") <= 40


# -- what is not known --------------------------------------------------------------------------


def test_nothing_is_known_of_what_kafka_wrote(directory: Path) -> None:
    write_segments(directory, [ONE * 2, ONE, ONE * 3])
    log = open_log(directory, clean=True)
    assert times(log) == [(66, None)]
    assert times(log, HOUR_MS, 5, 40) == [(40, None)]


@pytest.mark.parametrize("clean", [True, False])
def test_an_index_begun_behind_kafkas_bytes_says_nothing_of_them(
    directory: Path, clean: bool
) -> None:
    write_segments(directory, [ONE * 2, ONE * 3])
    log = open_log(directory, clean=clean, now_ms=NOON)
    for number in range(3):
        append(log, ONE, now_ms=NOON + number)
        log.flush()
    expected = [(55, None), (66, NOON), (77, NOON + 1), (88, NOON + 2)]
    assert times(log) == expected
    assert times(log, HOUR_MS) == [(55, None), (88, NOON)]
    log.close()
    again = open_log(directory, clean=True)
    assert times(again) == expected
    assert times(again, 1, 60, 70) == [(66, NOON), (70, NOON + 1)]


def test_what_kafka_appended_between_is_not_ours(directory: Path) -> None:
    filled(directory, NOON, NOON + 1).close()
    with (directory / f"{0:020d}.kafka").open("ab") as segment:
        segment.write(ONE * 2)
    log = open_log(directory, clean=True)
    assert times(log) == [(11, NOON), (22, NOON + 1), (44, None)]
    append(log, ONE, now_ms=NOON + 9)
    log.flush()
    assert times(log) == [(11, NOON), (22, NOON + 1), (44, None), (55, NOON + 9)]
    # Whoever wrote between NOON + 1 and NOON + 9: it was in that hour.
    assert times(log, HOUR_MS) == [(55, NOON)]
    # But which half of these 10 ms it was is not known.
    assert times(log, 5) == [(22, NOON), (44, None), (55, NOON + 5)]


def test_what_a_crash_came_in_upon_is_known_as_far_as_its_bounds_tell(directory: Path) -> None:
    log = filled(directory, NOON, NOON + 1)
    append(log, ONE * 2, now_ms=NOON + 2)
    path = directory / f"{0:020d}.kafka"
    os.utime(path, ns=((NOON + 3) * 10**6,) * 2)
    log = open_log(directory, clean=False, now_ms=NOON + 2 * HOUR_MS)
    append(log, ONE, now_ms=NOON + 2 * HOUR_MS)
    log.flush()
    late = NOON + 2 * HOUR_MS
    assert times(log) == [(11, NOON), (22, NOON + 1), (44, None), (55, late)]
    assert times(log, HOUR_MS) == [(44, NOON), (55, late)]


def test_times_are_known_of_what_a_reopened_log_kept(directory: Path) -> None:
    files = FaultyFiles(1, EIO, only=("fdatasync",))
    log = filled(directory, NOON, files=files)
    append(log, ONE, now_ms=NOON + 1)
    append(log, ONE, now_ms=NOON + 2)
    with pytest.raises(LogOfflineError):
        log.flush()
    log.reopen(NOON + 9)
    assert times(log) == [(11, NOON), (22, NOON + 1), (33, NOON + 2)]


def test_entries_that_could_not_be_written_leave_a_gap(directory: Path) -> None:
    files = FaultyFiles(1, EIO, only=("pwritev",), path_part=".timeindex")
    log = filled(directory, NOON, NOON + 1, NOON + 2, files=files)
    assert log.index_failures == 1
    assert times(log) == [(11, NOON), (22, None), (33, NOON + 2)]


def test_a_lost_index_leaves_its_segment_unknown(directory: Path) -> None:
    log = open_log(directory, log_settings=settings(20))
    for number in range(6):
        append(log, ONE, now_ms=NOON + number)
    log.flush()
    index_path(directory, 22).unlink()
    expected = [(11, NOON), (22, NOON + 1), (44, None), (55, NOON + 4), (66, NOON + 5)]
    assert times(log) == expected
    log.close()
    assert times(open_log(directory, clean=True)) == expected


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0,), [(22, None), (33, 2), (44, 10), (55, 11)]),
        ((1,), [(11, 0), (33, None), (44, 10), (55, 11)]),
        ((1, 2), [(11, 0), (44, None), (55, 11)]),
        ((3, 4), [(11, 0), (22, 1), (33, 2), (55, None)]),
        ((4,), [(11, 0), (22, 1), (33, 2), (44, 10), (55, None)]),
        ((0, 1, 2, 3, 4), [(55, None)]),
    ],
)
@pytest.mark.parametrize("when", ["while running", "before a start"])
def test_damaged_entries_are_gaps(
    directory: Path, numbers: tuple[int, ...], expected: Runs, when: str
) -> None:
    log = filled(directory, *(NOON + after for after in (0, 1, 2, 10, 11)))
    damage(index_path(directory), *numbers)
    if when == "before a start":
        log.close()
        log = open_log(directory, clean=True)
    absolute = [(end, None if after is None else NOON + after) for end, after in expected]
    assert times(log) == absolute


def test_damage_within_a_run_costs_nothing(directory: Path) -> None:
    log = filled(directory, *(NOON + after for after in (0, 1, 2, 10, 11)))
    damage(index_path(directory), 1, 2)
    assert times(log, HOUR_MS) == [(55, NOON)]
    damage(index_path(directory), 0)
    assert times(log, HOUR_MS) == [(44, None), (55, NOON)]


def test_a_read_error_in_the_index_is_like_damage(directory: Path) -> None:
    filled(directory, NOON, NOON + 1).close()
    files = FaultyFiles(0, EIO, only=("pread",), path_part=".timeindex", stays=True)
    log = open_log(directory, files, clean=True)
    assert times(log) == [(22, None)]


def test_an_index_that_can_not_be_opened_now_is_an_error_and_no_answer(directory: Path) -> None:
    filled(directory, NOON, NOON + 1).close()
    files = FaultyFiles(0, EMFILE, only=("open_read",), path_part=".timeindex")
    log = open_log(directory, files, clean=True)
    with pytest.raises(StorageError, match=r"read .*Too many open files"):
        log.append_times(0, 22, 1)
    assert times(log) == [(11, NOON), (22, NOON + 1)]


def test_a_closed_log_says_nothing(directory: Path) -> None:
    log = filled(directory, NOON)
    log.close()
    with pytest.raises(LogOfflineError, match="closed"):
        log.append_times(0, 11, 1)
    with pytest.raises(LogOfflineError):
        Log("t", 0, str(directory), settings(), UnsyncedFiles()).append_times(0, 0, 1)


def test_a_segment_deleted_meanwhile_is_out_of_range(directory: Path) -> None:
    class Deleting(UnsyncedFiles):
        """Deletes the log's first segment when its index is opened."""

        def open_read(self, path: str) -> int:
            if path == str(index_path(directory)) and log.earliest == 0:
                log.delete_oldest(1)
            return super().open_read(path)

    log = open_log(directory, Deleting(), log_settings=settings(20))
    for number in range(4):
        append(log, ONE, now_ms=NOON + number)
    log.flush()
    with pytest.raises(OffsetOutOfRangeError):
        log.append_times(0, END, 1)
    assert times(log) == [(33, NOON + 2), (44, NOON + 3)]
