"""Slices outlive the deletion of what they show; descriptors are bounded and come back."""

import os
import threading
from pathlib import Path

import pytest
from storage_fakes import WatchedFiles
from storage_logs import (
    NOW_MS,
    append,
    kafka_files,
    message,
    open_log,
    read_all,
    settings,
    write_segments,
)

from hermes.errors import LogOfflineError, OffsetOutOfRangeError, StorageError
from hermes.storage import DescriptorCache, FileLayer, Log

PARTS = [message(f"{number:02d}") for number in range(10)]
SIZE = len(PARTS[0])


def descriptors_on(directory: Path) -> list[str]:
    """What this process has open below a directory, deleted files too."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the one that listed the directory
        if target.startswith(str(directory)):
            found.append(target)
    return found


def segmented(directory: Path, files: FileLayer | None = None) -> Log:
    """A log with ten segments of one message."""
    log = open_log(directory, files, log_settings=settings(1))
    for number, part in enumerate(PARTS):
        append(log, part, now_ms=NOW_MS + number)
    log.flush()
    return log


@pytest.mark.parametrize("count", [3, 10])
def test_bytes_of_a_deleted_segment_are_readable_until_the_slice_is_released(
    tmp_path: Path, count: int
) -> None:
    directory = tmp_path / "clicks-0"
    log = segmented(directory)
    first, again, third = log.read(0, 100), log.read(0, 5), log.read(2 * SIZE, 100)

    log.delete_oldest(count)

    assert not (directory / "00000000000000000000.kafka").exists()
    for part, expected in ((first, PARTS[0]), (again, PARTS[0][:5]), (third, PARTS[2])):
        assert os.pread(part.fileno(), part.length, part.position) == expected
    deleted = [name for name in descriptors_on(directory) if name.endswith("(deleted)")]
    assert len(deleted) == 2
    first.release()
    first.release()
    assert os.pread(again.fileno(), 5, 0) == PARTS[0][:5]
    again.release()
    third.release()
    assert not [name for name in descriptors_on(directory) if name.endswith("(deleted)")]
    log.close()
    assert descriptors_on(directory) == []


def test_a_released_or_empty_slice_has_no_descriptor(tmp_path: Path) -> None:
    log = segmented(tmp_path / "clicks-0")
    with log.read(0, 10) as part:
        assert part.fileno() >= 0
    empty = log.read(log.high_watermark, 10)
    for slice_ in (part, empty):
        with pytest.raises(ValueError, match="no descriptor"):
            slice_.fileno()
    empty.release()


def test_slices_of_a_closed_log_stay_readable(tmp_path: Path) -> None:
    log = segmented(tmp_path / "clicks-0")
    part = log.read(SIZE, 100)
    log.close()
    assert os.pread(part.fileno(), part.length, part.position) == PARTS[1]
    part.release()
    assert descriptors_on(tmp_path / "clicks-0") == []


# -- deleting -----------------------------------------------------------------------------------


def test_deleting_moves_the_earliest_offset_and_tells_the_bytes(tmp_path: Path) -> None:
    log = segmented(tmp_path / "clicks-0")
    assert log.delete_oldest(0) == 0
    assert log.delete_oldest(-1) == 0
    assert log.delete_oldest(4) == 4 * SIZE
    assert log.earliest == 4 * SIZE
    assert log.high_watermark == log.end_offset == 10 * SIZE
    assert read_all(log) == b"".join(PARTS[4:])
    for offset in (0, 4 * SIZE - 1):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 10)
    assert not list((tmp_path / "clicks-0").glob("00000000000000000000*"))
    log.close()
    assert read_all(open_log(tmp_path / "clicks-0")) == b"".join(PARTS[4:])


@pytest.mark.parametrize("count", [10, 11, 1000])
def test_when_all_segments_go_an_empty_one_stands_in(tmp_path: Path, count: int) -> None:
    log = segmented(tmp_path / "clicks-0")
    assert log.delete_oldest(count) == 10 * SIZE
    assert log.earliest == log.high_watermark == log.end_offset == 10 * SIZE
    assert os.listdir(tmp_path / "clicks-0") == [f"{10 * SIZE:020d}.kafka"]
    assert log.delete_oldest(count) == 0

    assert append(log, PARTS[0]) == 10 * SIZE
    log.flush()
    assert read_all(log) == PARTS[0]
    log.close()
    again = open_log(tmp_path / "clicks-0")
    assert (again.earliest, again.high_watermark) == (10 * SIZE, 11 * SIZE)


def test_the_stand_in_is_there_before_anything_is_deleted(tmp_path: Path) -> None:
    seen = []

    class OrderedFiles(WatchedFiles):
        def before(self, name, arguments):  # type: ignore[no-untyped-def]
            if name == "unlink":
                seen.append(f"{10 * SIZE:020d}.kafka" in os.listdir(tmp_path / "clicks-0"))
            return arguments

    files = OrderedFiles()
    log = segmented(tmp_path / "clicks-0", files)
    done = len(files.calls)
    log.delete_oldest(10)
    assert len(seen) == 20
    assert all(seen)
    calls = [name for name in files.calls[done:] if name in ("unlink", "fsync_directory")]
    assert calls[0] == calls[-1] == "fsync_directory"


def test_unflushed_bytes_are_not_deleted(tmp_path: Path) -> None:
    log = segmented(tmp_path / "clicks-0")
    for part in PARTS[:3]:
        append(log, part)
    assert log.delete_oldest(12) == 10 * SIZE
    assert log.earliest == log.high_watermark == 10 * SIZE
    log.flush()
    assert read_all(log) == b"".join(PARTS[:3])


def test_all_segments_with_unflushed_bytes_are_flushed_first(tmp_path: Path) -> None:
    log = segmented(tmp_path / "clicks-0")
    append(log, PARTS[0])
    assert log.delete_oldest(11) == 11 * SIZE
    assert log.earliest == log.high_watermark == 11 * SIZE


def test_a_log_that_has_grown_since_the_decision_keeps_its_active_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "clicks-0", log_settings=settings(1000))
    append(log, PARTS[0])
    end = log.flush()
    append(log, PARTS[1])
    assert log.delete_oldest(1, up_to=end) == 0
    log.flush()
    assert read_all(log) == PARTS[0] + PARTS[1]


def test_an_append_before_a_stand_in_is_made_keeps_the_active_segment(tmp_path: Path) -> None:
    class RacingFiles(WatchedFiles):
        """Appends when the flush before the exchange has taken what it takes."""

        def after(self, name, arguments, result):  # type: ignore[no-untyped-def]
            if name == "fdatasync" and log.is_ready:
                log.is_ready = False
                append(log, PARTS[1])

    class ReadyLog(Log):
        is_ready = False

    files = RacingFiles()
    (tmp_path / "clicks-0").mkdir()
    log = ReadyLog("clicks", 0, str(tmp_path / "clicks-0"), settings(1000), files)
    log.open(clean=True, now_ms=NOW_MS)
    append(log, PARTS[0])
    log.is_ready = True

    assert log.delete_oldest(1) == 0
    assert not log.is_ready

    log.flush()
    assert read_all(log) == PARTS[0] + PARTS[1]
    assert list(kafka_files(tmp_path / "clicks-0")) == ["00000000000000000000.kafka"]
    log.close()
    assert files.opened == set()


def test_an_offline_log_deletes_nothing(tmp_path: Path) -> None:
    log = segmented(tmp_path / "clicks-0")
    log.close()
    with pytest.raises(LogOfflineError):
        log.delete_oldest(3)
    assert len(kafka_files(tmp_path / "clicks-0")) == 10


def test_deleting_a_log_removes_its_directory_oldest_first(tmp_path: Path) -> None:
    order = []

    class OrderedFiles(WatchedFiles):
        def before(self, name, arguments):  # type: ignore[no-untyped-def]
            if name == "unlink":
                order.append(os.path.basename(arguments[0]))
            return arguments

    log = segmented(tmp_path / "clicks-0", OrderedFiles())
    part = log.read(0, 100)

    assert log.delete() == 10 * SIZE

    assert not (tmp_path / "clicks-0").exists()
    assert order[:4] == [
        f"{offset:020d}.{suffix}" for offset in (0, SIZE) for suffix in ("timeindex", "kafka")
    ]
    assert os.pread(part.fileno(), part.length, 0) == PARTS[0]
    part.release()
    assert descriptors_on(tmp_path) == []
    with pytest.raises(LogOfflineError, match="deleted"):
        append(log, PARTS[0])
    with pytest.raises(LogOfflineError, match="deleted"):
        log.read(0, 10)


def test_deleting_a_log_leaves_files_that_are_not_ours(tmp_path: Path) -> None:
    log = segmented(tmp_path / "clicks-0")
    (tmp_path / "clicks-0" / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="delete"):
        log.delete()
    assert os.listdir(tmp_path / "clicks-0") == ["notes.txt"]


# -- descriptors --------------------------------------------------------------------------------


def test_open_segments_are_bounded_the_idle_ones_closed_longest_first(tmp_path: Path) -> None:
    files = WatchedFiles()
    write_segments(tmp_path / "clicks-0", PARTS)
    cache = DescriptorCache(files, max_open=3)
    log = Log("clicks", 0, str(tmp_path / "clicks-0"), settings(), files, cache)
    log.open(clean=True, now_ms=NOW_MS)
    assert cache.open_count == 0

    for _ in range(2):
        assert read_all(log) == b"".join(PARTS)
        assert cache.open_count == len(files.opened) == 3
    opened = files.calls.count("open_read") + files.calls.count("open_append")
    for _ in range(5):
        read_all(log, 7 * SIZE)
    assert files.calls.count("open_read") + files.calls.count("open_append") == opened
    log.close()
    assert cache.open_count == len(files.opened) == 0


def test_what_is_in_use_is_never_closed(tmp_path: Path) -> None:
    files = WatchedFiles()
    write_segments(tmp_path / "clicks-0", PARTS)
    cache = DescriptorCache(files, max_open=2)
    log = Log("clicks", 0, str(tmp_path / "clicks-0"), settings(), files, cache)
    log.open(clean=True, now_ms=NOW_MS)
    parts = [log.read(number * SIZE, 100) for number in range(10)]
    append(log, PARTS[0])
    assert cache.open_count == 10
    for part, expected in zip(parts, PARTS, strict=True):
        assert os.pread(part.fileno(), part.length, part.position) == expected
        part.release()
    assert cache.open_count == 2
    log.flush()
    log.close()
    assert files.opened == set()


def test_reads_deletes_appends_and_flushes_side_by_side(tmp_path: Path) -> None:
    """Threads as the broker has them. Whatever is read is what was appended at that offset."""
    log = open_log(tmp_path / "clicks-0", log_settings=settings(200))
    total = 3000
    failures: list[BaseException] = []
    done = threading.Event()

    def guarded(work):  # type: ignore[no-untyped-def]
        def run() -> None:
            try:
                while not done.is_set():
                    work()
            except BaseException as error:
                failures.append(error)
                done.set()

        return threading.Thread(target=run)

    def read() -> None:
        earliest = log.earliest
        try:
            with log.read(earliest, 1000) as part:
                data = os.pread(part.fileno(), part.length, part.position) if part.length else b""
        except OffsetOutOfRangeError:
            return
        for start in range(0, len(data) - SIZE + 1, SIZE):
            number = (earliest + start) // SIZE
            assert data[start : start + SIZE] == PARTS[number % 10]

    def delete() -> None:
        count = len(log.segment_infos())
        log.delete_oldest(count if log.end_offset % 7 == 0 else count - 2)

    threads = [guarded(read), guarded(log.flush), guarded(delete)]
    for thread in threads:
        thread.start()
    for number in range(total):
        assert append(log, PARTS[number % 10], now_ms=NOW_MS + number // 10) == number * SIZE
        if done.is_set():
            break
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert log.flush() == total * SIZE
    earliest = log.earliest
    expected = b"".join(PARTS) * (total // 10)
    assert read_all(log) == expected[earliest:]
    log.close()
    assert read_all(open_log(tmp_path / "clicks-0")) == expected[earliest:]
    assert [name for name in descriptors_on(tmp_path) if name.endswith("(deleted)")] == []
