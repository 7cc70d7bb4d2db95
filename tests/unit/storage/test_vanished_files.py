"""A data directory, a partition or a file that is taken away or exchanged under a log that runs."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from storage_fakes import UnsyncedFiles, WatchedFiles
from storage_logs import NOW_MS, all_files, append, message, read_all, settings

from hermes.errors import CorruptLogError, LogOfflineError, StorageError
from hermes.storage import CLEAN_SHUTDOWN_MARKER, DataDirectory, FileLayer, Log

FIRST, SECOND = message("first"), message("second")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def begun(log_dir: Path, files: FileLayer | None = None) -> tuple[DataDirectory, Log]:
    """A directory with one partition of one message that is flushed."""
    directory = DataDirectory(log_dir, lambda topic: settings(), files or UnsyncedFiles())
    directory.open(NOW_MS)
    log = directory.create("clicks", 0)
    append(log, FIRST)
    log.flush()
    return directory, log


def segment_of(log_dir: Path) -> Path:
    return log_dir / "clicks-0" / f"{0:020d}.kafka"


def remove_log_dir(log_dir: Path) -> None:
    shutil.rmtree(log_dir)


def move_log_dir(log_dir: Path) -> None:
    log_dir.rename(log_dir.with_name("moved"))


def copy_log_dir(log_dir: Path) -> None:
    move_log_dir(log_dir)
    shutil.copytree(log_dir.with_name("moved"), log_dir)


def empty_log_dir(log_dir: Path) -> None:
    move_log_dir(log_dir)
    log_dir.mkdir()


def remove_partition(log_dir: Path) -> None:
    shutil.rmtree(log_dir / "clicks-0")


def file_as_partition(log_dir: Path) -> None:
    remove_partition(log_dir)
    (log_dir / "clicks-0").touch()


def copy_partition(log_dir: Path) -> None:
    (log_dir / "clicks-0").rename(log_dir / "moved-0")
    shutil.copytree(log_dir / "moved-0", log_dir / "clicks-0")


def remove_segment(log_dir: Path) -> None:
    segment_of(log_dir).unlink()


def copy_segment(log_dir: Path) -> None:
    shutil.copy(segment_of(log_dir), log_dir / "copy")
    (log_dir / "copy").rename(segment_of(log_dir))


EXCHANGES = [
    remove_log_dir,
    move_log_dir,
    copy_log_dir,
    empty_log_dir,
    remove_partition,
    file_as_partition,
    copy_partition,
    remove_segment,
    copy_segment,
]


@pytest.mark.parametrize("is_pinned", [False, True], ids=["at rest", "being written"])
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_it_is_noticed_before_anything_counts_as_flushed(
    log_dir: Path, exchange: Callable[[Path], None], is_pinned: bool
) -> None:
    directory, log = begun(log_dir)
    if is_pinned:
        append(log, SECOND)
    exchange(log_dir)
    if not is_pinned:
        append(log, SECOND)

    with pytest.raises(LogOfflineError, match=r"removed, replaced or unmounted.* restart the"):
        log.flush()

    assert log.is_offline
    assert log.high_watermark == len(FIRST)
    assert read_all(log) == FIRST, "what was opened can still be read"
    assert directory.close() is False
    assert not (log_dir / CLEAN_SHUTDOWN_MARKER).exists()


def test_a_roll_does_not_begin_a_segment_in_another_directory(log_dir: Path) -> None:
    directory = DataDirectory(log_dir, lambda topic: settings(10), UnsyncedFiles())
    directory.open(NOW_MS)
    log = directory.create("clicks", 0)
    append(log, FIRST)
    copy_partition(log_dir)
    before = all_files(log_dir / "clicks-0")

    with pytest.raises(LogOfflineError, match="removed, replaced or unmounted"):
        append(log, SECOND)

    assert all_files(log_dir / "clicks-0") == before
    directory.close()


def test_noticing_costs_a_flush_one_look_at_a_name_and_an_append_none(log_dir: Path) -> None:
    files = WatchedFiles()
    directory, log = begun(log_dir, files)
    append(log, SECOND)
    done = len(files.calls)
    for _ in range(100):
        append(log, SECOND)
    assert set(files.calls[done:]) == {"pwrite"}
    done = len(files.calls)
    log.flush()
    calls = files.calls[done:]
    assert (calls.count("stat"), calls.count("lstat")) == (0, 1)
    directory.close()


# -- coming back --------------------------------------------------------------------------------


def test_what_is_put_back_is_served_again_with_what_was_appended(log_dir: Path) -> None:
    directory, log = begun(log_dir)
    append(log, SECOND)
    move_log_dir(log_dir)
    with pytest.raises(LogOfflineError):
        log.flush()
    with pytest.raises(StorageError, match="removed, replaced or unmounted"):
        directory.reopen(log, NOW_MS)
    log_dir.with_name("moved").rename(log_dir)

    assert directory.reopen(log, NOW_MS).dropped_bytes == 0

    assert read_all(log) == FIRST + SECOND
    append(log, SECOND)
    log.flush()
    assert directory.close() is True


def test_a_copy_of_all_that_was_visible_is_served(log_dir: Path) -> None:
    directory, log = begun(log_dir)
    backup = log_dir.with_name("backup")
    shutil.copytree(log_dir / "clicks-0", backup)
    append(log, SECOND)
    remove_partition(log_dir)
    with pytest.raises(LogOfflineError):
        log.flush()
    shutil.copytree(backup, log_dir / "clicks-0")

    report = directory.reopen(log, NOW_MS)

    assert report.dropped_bytes == len(SECOND)
    assert read_all(log) == FIRST
    append(log, SECOND)
    log.flush()
    assert segment_of(log_dir).read_bytes() == FIRST + SECOND
    assert directory.close() is True


def cut(path: Path) -> None:
    os.truncate(path, len(FIRST) - 1)


def other_messages(path: Path) -> None:
    path.write_bytes(message("firsT"))


def more_messages(path: Path) -> None:
    path.write_bytes(FIRST + SECOND + SECOND)


@pytest.mark.parametrize("spoil", [cut, other_messages, more_messages, os.unlink])
def test_a_copy_that_is_not_of_this_log_is_never_taken(
    log_dir: Path, spoil: Callable[[Path], None]
) -> None:
    directory, log = begun(log_dir)
    append(log, SECOND)
    copy_partition(log_dir)
    spoil(segment_of(log_dir))
    before = all_files(log_dir)
    with pytest.raises(LogOfflineError):
        log.flush()

    for _ in range(3):
        with pytest.raises(CorruptLogError, match="what they have been told of; put back"):
            directory.reopen(log, NOW_MS)

    assert log.is_offline
    assert all_files(log_dir) == before
    assert read_all(log) == FIRST
    directory.close()


@pytest.mark.parametrize("exchange", [remove_partition, remove_segment])
def test_an_empty_log_never_takes_the_place_of_one_that_had_messages(
    log_dir: Path, exchange: Callable[[Path], None]
) -> None:
    directory, log = begun(log_dir)
    append(log, SECOND)
    exchange(log_dir)
    with pytest.raises(LogOfflineError):
        log.flush()
    (log_dir / "clicks-0").mkdir(exist_ok=True)
    with pytest.raises(CorruptLogError, match="is missing"):
        directory.reopen(log, NOW_MS)
    assert not list((log_dir / "clicks-0").glob("*.kafka"))
    assert directory.create("clicks", 0) is log
    directory.close()


def test_a_restart_goes_on_with_what_is_there(log_dir: Path) -> None:
    directory, log = begun(log_dir)
    append(log, SECOND)
    remove_partition(log_dir)
    with pytest.raises(LogOfflineError):
        log.flush()
    directory.close()

    directory, log = begun(log_dir)

    assert read_all(log) == FIRST
    directory.close()


# -- topics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("exchange", [remove_log_dir, copy_log_dir, empty_log_dir])
def test_no_topic_is_created_in_another_directory(
    log_dir: Path, exchange: Callable[[Path], None]
) -> None:
    directory, _ = begun(log_dir)
    exchange(log_dir)
    with pytest.raises(StorageError, match="removed, replaced or unmounted"):
        directory.create("new", 0)
    assert not (log_dir / "new-0").exists()
    directory.close()


def test_a_topic_whose_directory_is_gone_can_be_deleted(log_dir: Path) -> None:
    directory, _ = begun(log_dir)
    remove_partition(log_dir)
    directory.delete_topic("clicks")
    assert dict(directory.logs) == {}
    assert directory.close() is True


def test_a_delete_leaves_the_files_of_another_directory_alone(log_dir: Path) -> None:
    directory, _ = begun(log_dir)
    copy_partition(log_dir)
    with pytest.raises(StorageError, match="not the directory that was opened"):
        directory.delete_topic("clicks")
    assert segment_of(log_dir).read_bytes() == FIRST
    directory.close()


def test_retention_leaves_the_files_of_another_directory_alone(log_dir: Path) -> None:
    directory = DataDirectory(log_dir, lambda topic: settings(10), UnsyncedFiles())
    directory.open(NOW_MS)
    log = directory.create("clicks", 0)
    for _ in range(3):
        append(log, FIRST)
    log.flush()
    copy_partition(log_dir)
    before = all_files(log_dir)
    with pytest.raises(LogOfflineError, match="removed, replaced or unmounted"):
        log.delete_oldest(2)
    assert all_files(log_dir) == before
    assert log.is_offline
    directory.close()


def test_retention_that_meets_a_delete_spares_the_topic_of_that_name_that_follows(
    log_dir: Path,
) -> None:
    """The delete, and the creation, come between its decision and its unlinking."""
    directory = DataDirectory(log_dir, lambda topic: settings(10), UnsyncedFiles())
    directory.open(NOW_MS)
    log = directory.create("clicks", 0)
    for _ in range(3):
        append(log, FIRST)
    log.flush()
    made: list[Log] = []

    class Interrupted:
        """Stands for the lock that deletes are made under, and for a thread that was slow."""

        def __init__(self) -> None:
            self.lock = log.state.directory._delete_lock

        def __enter__(self) -> None:
            log.state.directory._delete_lock = self.lock
            directory.delete_topic("clicks")
            made.append(directory.create("clicks", 0))
            append(made[0], SECOND)
            made[0].flush()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    log.state.directory._delete_lock = Interrupted()  # type: ignore[assignment]
    log.delete_oldest(1)

    assert segment_of(log_dir).read_bytes() == SECOND
    directory.close()
