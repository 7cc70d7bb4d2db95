"""From the files of a partition to a log: segments rolled but not flushed, and oddities."""

from pathlib import Path

import pytest
from storage_fakes import WatchedFiles
from storage_logs import (
    NOW_MS,
    all_files,
    append,
    kafka_files,
    message,
    open_log,
    read_all,
    settings,
    write_segments,
)

from hermes.errors import CorruptLogError, LogOfflineError, StorageError
from hermes.storage import Log, LogSlice, RecoveryReport, segment_name
from hermes.storage.segment import UNFLUSHED_SUFFIX

X, Y, Z = (message(text) for text in ("x1", "y2", "z3"))
SIZE = len(X)


def lay(directory: Path, *segments: bytes, unflushed: tuple[bytes, ...] = ()) -> None:
    """`.kafka` segments, and `.unflushed` ones behind them."""
    write_segments(directory, segments)
    base = sum(map(len, segments))
    for data in unflushed:
        (directory / segment_name(base, UNFLUSHED_SUFFIX)).write_bytes(data)
        base += len(data)


def opened(directory: Path, clean: bool = False) -> tuple[Log, RecoveryReport | None]:
    log = Log("clicks", 0, str(directory), settings(), WatchedFiles())
    return log, log.open(clean=clean, now_ms=NOW_MS)


@pytest.mark.parametrize("clean", [False, True])
def test_segments_that_were_not_flushed_are_kept_when_they_fit(tmp_path: Path, clean: bool) -> None:
    lay(tmp_path / "clicks-0", X, Y, unflushed=(Z + X, Y))
    log, report = opened(tmp_path / "clicks-0", clean)
    assert report is not None
    assert report.dropped_bytes == 0
    assert log.high_watermark == 5 * SIZE
    assert list(kafka_files(tmp_path / "clicks-0").values()) == [X, Y, Z + X, Y]
    assert not list((tmp_path / "clicks-0").glob("*.unflushed"))


def test_a_torn_last_one_is_cut(tmp_path: Path) -> None:
    lay(tmp_path / "clicks-0", X, unflushed=(Y, Z + X[:-1]))
    _, report = opened(tmp_path / "clicks-0")
    assert report == RecoveryReport(0, 3 * SIZE, 3, (), SIZE - 1)
    assert list(kafka_files(tmp_path / "clicks-0").values()) == [X, Y, Z]


@pytest.mark.parametrize("unflushed", [(b"",), (X[:5],), (bytes(40),), (X[:5], b"")])
def test_one_that_holds_nothing_is_removed(tmp_path: Path, unflushed: tuple[bytes, ...]) -> None:
    lay(tmp_path / "clicks-0", X, unflushed=unflushed)
    log, report = opened(tmp_path / "clicks-0")
    assert report == RecoveryReport(0, SIZE, 1, (), sum(map(len, unflushed)))
    assert list(kafka_files(tmp_path / "clicks-0").values()) == [X]
    assert append(log, Y) == SIZE


def test_what_a_gap_cuts_off_was_never_visible_and_goes(tmp_path: Path) -> None:
    """The flush of the first one had not ended, or its name would not be missing behind it."""
    lay(tmp_path / "clicks-0", X + Y, unflushed=(Z, X))
    (tmp_path / "clicks-0" / segment_name(0)).write_bytes((X + Y)[:-1])
    _, report = opened(tmp_path / "clicks-0")
    assert report == RecoveryReport(0, SIZE, 1, (), SIZE - 1 + 2 * SIZE)
    assert list(kafka_files(tmp_path / "clicks-0").values()) == [X]
    assert not list((tmp_path / "clicks-0").glob("*.unflushed"))


def test_damage_before_a_later_segment_is_damage_in_the_middle(tmp_path: Path) -> None:
    lay(tmp_path / "clicks-0", X + bytes(30), unflushed=(Y[:-1] + b"?", Z))
    log, report = opened(tmp_path / "clicks-0")
    middle = SIZE + 30
    assert report is not None
    assert report.bad_ranges == ((SIZE, middle), (middle, middle + SIZE))
    assert report.dropped_bytes == 0
    assert read_all(log) == X + bytes(30) + Y[:-1] + b"?" + Z


@pytest.mark.parametrize("clean", [False, True])
def test_a_name_that_was_left_behind_between_final_ones_is_put_right(
    tmp_path: Path, clean: bool
) -> None:
    """Only some of several renames reached the disk."""
    write_segments(tmp_path / "clicks-0", [X, Y, Z])
    middle = tmp_path / "clicks-0" / segment_name(SIZE)
    middle.rename(middle.with_suffix(UNFLUSHED_SUFFIX))
    log, _ = opened(tmp_path / "clicks-0", clean)
    assert read_all(log) == X + Y + Z
    assert list(kafka_files(tmp_path / "clicks-0").values()) == [X, Y, Z]


def test_without_the_first_name_nothing_was_ever_flushed(tmp_path: Path) -> None:
    write_segments(tmp_path / "clicks-0", [])
    (tmp_path / "clicks-0" / segment_name(SIZE, UNFLUSHED_SUFFIX)).write_bytes(Y)
    log, report = opened(tmp_path / "clicks-0")
    assert report == RecoveryReport(0, 0, dropped_bytes=SIZE)
    assert (log.earliest, log.high_watermark) == (0, 0)
    assert list(all_files(tmp_path / "clicks-0")) == [segment_name(0)]


def test_a_draft_beside_its_final_file_is_somebody_elses(tmp_path: Path) -> None:
    write_segments(tmp_path / "clicks-0", [X, Y])
    draft = tmp_path / "clicks-0" / segment_name(0, UNFLUSHED_SUFFIX)
    draft.write_bytes(b"what is this")
    log, _ = opened(tmp_path / "clicks-0")
    assert log.strange_files == (draft.name,)
    assert draft.read_bytes() == b"what is this"
    assert read_all(log) == X + Y


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("base", [-7, 5, SIZE - 1, SIZE + 3])
def test_a_leftover_draft_inside_the_log_stands_in_nobodys_way(
    tmp_path: Path, base: int, clean: bool
) -> None:
    """A stand-in for a log that then had grown, and a disk that would not delete it."""
    write_segments(tmp_path / "clicks-0", [X, Y, Z], base_offset=SIZE)
    draft = tmp_path / "clicks-0" / segment_name(SIZE + base, UNFLUSHED_SUFFIX)
    draft.touch()
    log, _ = opened(tmp_path / "clicks-0", clean)
    assert read_all(log) == X + Y + Z
    assert log.strange_files == (draft.name,)
    assert draft.exists()


def test_a_log_that_begins_anywhere(tmp_path: Path) -> None:
    write_segments(tmp_path / "clicks-0", [X, Y], base_offset=10**15)
    log, _ = opened(tmp_path / "clicks-0")
    assert log.earliest == 10**15
    assert read_all(log) == X + Y


def test_recovery_notes_when_the_last_append_was_at_the_latest(tmp_path: Path) -> None:
    """What was found unflushed is dated by the file, and never in the future."""
    write_segments(tmp_path / "clicks-0", [X])
    path = tmp_path / "clicks-0" / segment_name(0)
    modified_ms = path.stat().st_mtime_ns // 10**6
    for now_ms, expected in ((modified_ms + 10**6, modified_ms), (5000, 5000)):
        path.with_suffix(".timeindex").unlink(missing_ok=True)
        log = open_log(tmp_path / "clicks-0", now_ms=now_ms)
        assert [info.last_append_ms for info in log.segment_infos()] == [expected]
        log.close()


def test_what_cannot_be_opened_says_why_and_can_be_tried_again(tmp_path: Path) -> None:
    write_segments(tmp_path / "clicks-0", [X, Y, Z])
    gap = tmp_path / "clicks-0" / segment_name(SIZE)
    gap.rename(tmp_path / "aside")
    log = Log("clicks", 0, str(tmp_path / "clicks-0"), settings(), WatchedFiles())
    with pytest.raises(CorruptLogError):
        log.open(clean=False, now_ms=NOW_MS)
    with pytest.raises(CorruptLogError):
        log.reopen(NOW_MS)
    assert f"the next segment starts at {2 * SIZE}" in str(log.offline_reason)
    (tmp_path / "aside").rename(gap)
    assert log.reopen(NOW_MS).valid_end == 3 * SIZE
    assert not log.is_offline


def test_a_final_name_that_is_taken_when_the_flush_comes_takes_the_log_offline(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "clicks-0", log_settings=settings(1))
    append(log, X)
    append(log, Y)
    foreign = tmp_path / "clicks-0" / segment_name(SIZE)
    foreign.write_bytes(b"somebody's")
    with pytest.raises(LogOfflineError, match="exists already"):
        log.flush()
    assert foreign.read_bytes() == b"somebody's"
    assert log.high_watermark == 0


def test_two_who_open_a_segment_at_once_share_one_descriptor(tmp_path: Path) -> None:
    class RacingFiles(WatchedFiles):
        """Reads the same segment while the first reader opens it."""

        def after(self, name, arguments, result):  # type: ignore[no-untyped-def]
            if name == "open_read" and files.calls.count("open_read") == 1:
                inner.append(log.read(0, 5))

    inner: list[LogSlice] = []
    write_segments(tmp_path / "clicks-0", [X, Y])
    files = RacingFiles()
    log = open_log(tmp_path / "clicks-0", files, clean=True)
    outer = log.read(0, 5)
    assert len(files.opened) == 1
    assert outer.fileno() == inner[0].fileno()
    outer.release()
    inner[0].release()
    log.close()
    assert files.opened == set()


def test_segments_that_vanish_under_us_are_errors_of_ours(tmp_path: Path) -> None:
    write_segments(tmp_path / "clicks-0", [X, Y])
    log = open_log(tmp_path / "clicks-0", clean=True)
    for path in (tmp_path / "clicks-0").iterdir():
        path.unlink()
    with pytest.raises(StorageError, match="describe"):
        log.segment_infos()
    with pytest.raises(StorageError, match=r"read .*\.kafka: No such file"):
        log.read(0, 10)
    with pytest.raises(StorageError, match=r"read .*\.kafka: No such file"):
        log.boundary_before(5)
    with pytest.raises(StorageError):
        append(log, Z)


def test_torn_indexes_of_complete_segments_are_mended_after_a_loss_of_power(tmp_path: Path) -> None:
    """Those before a whole one are whole: they were synced before it was written."""
    directory = tmp_path / "clicks-0"
    log = open_log(directory, log_settings=settings(1))
    for number, data in enumerate((X, Y, Z, X, Y)):
        append(log, data, now_ms=NOW_MS + number)
        log.flush()
    log.close()
    indexes = sorted(directory.glob("*.timeindex"))
    assert len(indexes) == 5
    before = [path.read_bytes() for path in indexes]
    indexes[0].write_bytes(before[0] + bytes(48))
    indexes[2].write_bytes(before[2] + bytes(48))
    indexes[3].write_bytes(bytes(72))
    opened(directory, clean=True)[0].close()
    assert indexes[3].read_bytes() == bytes(72)
    opened(directory)[0].close()
    assert [path.read_bytes() for path in indexes[1:4]] == [before[1], before[2], b""]
    assert indexes[0].read_bytes() == before[0] + bytes(48), "nobody has torn that"
