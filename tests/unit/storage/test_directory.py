"""The data directory: what is loaded, left alone, created, deleted, and said about a stop."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from errno import EIO, ENOSPC
from pathlib import Path
from uuid import uuid4

import pytest
from kafka_logs import append_values, read_records
from memory_files import MemoryFiles
from storage_fakes import FaultyFiles, ForgetfulFiles, UnsyncedFiles, WatchedFiles
from storage_logs import NOW_MS, all_files, append, message, read_all, settings, write_segments

from hermes.errors import (
    DataDirectoryLockedError,
    DiskFullError,
    LogOfflineError,
    StorageError,
)
from hermes.storage import (
    CLEAN_SHUTDOWN_MARKER,
    DataDirectory,
    FileLayer,
    LogSettings,
    OpenReport,
    parse_partition_directory,
    partition_directory,
)
from hermes.storage.checkpoints import METADATA_NAME
from hermes.storage.damage import Damage
from hermes.storage.kafka_format import KAFKA
from hermes.storage.layout import LARGEST_PARTITION


def made(path: Path, files: FileLayer | None = None, segment_bytes: int = 1 << 30) -> DataDirectory:
    return DataDirectory(path, lambda topic: settings(segment_bytes), files)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    path.mkdir()
    return path


# -- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("clicks-0", ("clicks", 0)),
        ("page-views-12", ("page-views", 12)),
        ("a--1", ("a-", 1)),
        ("dash--0", ("dash-", 0)),
        ("Größe-3", ("Größe", 3)),
        ("t-100000", ("t", LARGEST_PARTITION)),
        ("t-100001", None),
        ("backup-1763715600", None),
        ("new\nline-3", None),
        ("caf\udce9-0", None),
        ("..-0", None),
        ("t-00", None),
        ("t-01", None),
        ("t-", None),
        ("-0", None),
        ("t", None),
        ("t-1x", None),
        ("t-\u0663", None),
        ("", None),
    ],
)
def test_names_of_partitions(name: str, parsed: tuple[str, int] | None) -> None:
    assert parse_partition_directory(name) == parsed
    if parsed is not None:
        assert partition_directory(*parsed) == name


# -- opening ------------------------------------------------------------------------------------


def test_a_missing_directory_is_made_with_its_parents_and_they_are_synced(tmp_path: Path) -> None:
    files = WatchedFiles()
    directory = made(tmp_path / "a" / "b", files)
    assert directory.open(NOW_MS) == OpenReport(was_clean=False)
    changes = [call for call in files.calls if call != "stat"]
    assert changes[:5] == ["fsync_directory", *["mkdir", "fsync_directory"] * 2]
    assert dict(directory.logs) == {}
    directory.close()


def test_what_is_not_a_log_is_reported_and_left_alone(log_dir: Path) -> None:
    write_segments(log_dir / "clicks-0", [message("x")])
    for name in ("lost+found", "clicks", "t-01", ".hermes_deleted-x", "backup-7", "a\x07-0"):
        (log_dir / name).mkdir()
        (log_dir / name / "inside").write_text("precious")
    for name in ("README", "clicks-1", ".lock"):
        (log_dir / name).write_text("precious")
    (log_dir / "broken-0").symlink_to(log_dir / "nowhere")
    odd = ("x.kafka", "1.kafka", "99999999999999999999.kafka", "00000000000000000000.kafka.bak")
    for name in odd:
        (log_dir / "clicks-0" / name).write_text("precious")
    for name in ("backup-1763715600", os.fsdecode(b"caf\xe9-0")):
        (log_dir / name).mkdir()
    (log_dir / "clicks-0" / os.fsdecode(b"\xe9t\xc3\xa9")).write_text("precious")
    before = all_files(log_dir)

    directory = made(log_dir)
    report = directory.open(NOW_MS)

    assert set(report.strange) == {
        "lost+found",
        "clicks",
        "t-01",
        ".hermes_deleted-x",
        "backup-7",
        "a\x07-0",
        "backup-1763715600",
        "caf\udce9-0",
        "clicks-0/\udce9té",
        "README",
        "clicks-1",
        ".lock",
        "broken-0",
        *(f"clicks-0/{name}" for name in odd),
    }
    assert list(directory.logs) == [("clicks", 0)]
    assert read_all(directory.logs["clicks", 0]) == message("x")
    directory.close()
    after = all_files(log_dir)
    assert {name: after[name] for name in before} == before
    assert not list(log_dir.glob("backup-1763715600/*"))


@pytest.mark.parametrize("leftover", [None, "00000000000000000000.timeindex"])
def test_a_directory_of_a_plausible_partition_is_one(log_dir: Path, leftover: str | None) -> None:
    (log_dir / "wide-0").mkdir()
    if leftover is not None:
        (log_dir / "wide-0" / leftover).touch()
    directory = made(log_dir)
    assert directory.open(NOW_MS).strange == ()
    assert list(directory.logs) == [("wide", 0)]
    assert (log_dir / "wide-0" / "00000000000000000000.kafka").exists()
    directory.close()


def test_a_partition_that_the_next_start_would_not_find_is_not_made(log_dir: Path) -> None:
    directory = made(log_dir)
    directory.open(NOW_MS)
    directory.create("wide", LARGEST_PARTITION)
    with pytest.raises(StorageError, match="partition 100001 of wide: 100000 is the last"):
        directory.create("wide", LARGEST_PARTITION + 1)
    directory.close()
    assert sorted(path.name for path in log_dir.glob("wide*")) == ["wide-100000"]


def test_a_partition_directory_may_be_a_link_to_another_disk(log_dir: Path, tmp_path: Path) -> None:
    write_segments(tmp_path / "elsewhere", [message("x")])
    (log_dir / "clicks-0").symlink_to(tmp_path / "elsewhere")
    directory = made(log_dir)
    directory.open(NOW_MS)
    assert read_all(directory.logs["clicks", 0]) == message("x")
    directory.close()


def corrupt_gap(partition: Path) -> None:
    (partition / "00000000000000000011.kafka").unlink()


def corrupt_overlap(partition: Path) -> None:
    with (partition / "00000000000000000000.kafka").open("ab") as file:
        file.write(message("y"))


def corrupt_cut(partition: Path) -> None:
    os.truncate(partition / "00000000000000000011.kafka", 5)


def corrupt_directory(partition: Path) -> None:
    (partition / "00000000000000000033.kafka").mkdir()


@pytest.mark.parametrize("corrupt", [corrupt_gap, corrupt_overlap, corrupt_cut, corrupt_directory])
@pytest.mark.parametrize("was_clean", [False, True])
def test_files_that_do_not_fit_are_one_partitions_trouble_and_stay_as_they_are(
    log_dir: Path, corrupt: Callable[[Path], None], was_clean: bool
) -> None:
    write_segments(log_dir / "bad-0", [message("x")] * 3)
    write_segments(log_dir / "good-0", [message("x")] * 3)
    if was_clean:
        (log_dir / CLEAN_SHUTDOWN_MARKER).touch()
    corrupt(log_dir / "bad-0")
    before = all_files(log_dir / "bad-0")

    directory = made(log_dir)
    report = directory.open(NOW_MS)

    assert list(report.offline) == [("bad", 0)]
    assert "bad-0" in report.offline["bad", 0]
    bad, good = directory.logs["bad", 0], directory.logs["good", 0]
    for call in (lambda: append(bad, message("y")), bad.flush, lambda: bad.read(0, 10)):
        with pytest.raises(LogOfflineError):
            call()
    append(good, message("y"))
    good.flush()
    assert read_all(good) == message("x") * 3 + message("y")
    assert directory.create("bad", 0) is bad
    assert directory.close() is False
    assert all_files(log_dir / "bad-0") == before


def test_a_disk_error_in_one_partition_does_not_stop_the_start(log_dir: Path) -> None:
    for name in ("bad-0", "good-0"):
        write_segments(log_dir / name, [message("x")])
    files = FaultyFiles(0, EIO, stays=True, path_part="bad-0")
    directory = made(log_dir, files)
    # The data directory's own look at the name comes first.
    files.fail_at = 1
    report = directory.open(NOW_MS)
    assert report.offline == {("bad", 0): "bad-0: open: Input/output error"}
    assert not directory.logs["good", 0].is_offline
    files.fail_at = None
    assert directory.logs["bad", 0].reopen(NOW_MS).messages == 1
    assert read_all(directory.logs["bad", 0]) == message("x")
    assert directory.close() is True


@pytest.mark.parametrize("workers", [0, 3])
def test_after_an_unclean_stop_every_log_is_recovered(log_dir: Path, workers: int) -> None:
    for number in range(8):
        tail = b"torn"[: number % 5]
        write_segments(log_dir / f"clicks-{number}", [message("x"), message("y") + tail])
    directory = made(log_dir)
    if workers:
        with ThreadPoolExecutor(workers) as executor:
            report = directory.open(NOW_MS, workers=executor)
    else:
        report = directory.open(NOW_MS)
    assert not report.was_clean
    dropped = {key[1]: each.dropped_bytes for key, each in report.recovered.items()}
    assert dropped == {number: number % 5 for number in range(8)}
    assert report.dropped_bytes == sum(dropped.values())
    for log in directory.logs.values():
        assert read_all(log) == message("x") + message("y")
    directory.close()


def test_after_a_clean_stop_nothing_is_read(log_dir: Path) -> None:
    directory = made(log_dir)
    directory.open(NOW_MS)
    for number in range(5):
        append(directory.create("clicks", number), message("x"))
    assert directory.close() is True

    of_the_lock = (log_dir / ".hermes_lock").stat().st_size
    files = WatchedFiles()
    directory = made(log_dir, files)
    report = directory.open(NOW_MS)
    assert report.was_clean
    assert report.recovered == {}
    assert files.bytes_read == of_the_lock
    calls_of_the_lock = {"open_append", "lock", "pread", "ftruncate", "pwritev", "fdatasync"}
    of_the_entries = {"open_read"}  # of topics, and of watermarks; there are no such files
    assert set(files.calls) == (
        {"listdir", "stat", "lstat", "unlink", "fsync_directory"}
        | calls_of_the_lock
        | of_the_entries
    )
    assert files.calls.count("open_read") == 2
    directory.close()


# -- the lock -----------------------------------------------------------------------------------

HOLDER = """
import sys
from hermes.storage import DataDirectory, LogSettings
DataDirectory(sys.argv[1], lambda topic: LogSettings()).open(0)
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_who_is_there_until_that_one_dies(
    log_dir: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(log_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        told = f"{holder.pid}: stop that process, or give this broker another log_dir$"
        with pytest.raises(DataDirectoryLockedError, match=told):
            made(log_dir).open(NOW_MS)
        holder.kill()
        holder.wait()
    directory = made(log_dir)
    directory.open(NOW_MS)
    with pytest.raises(DataDirectoryLockedError, match=f"in use by process {os.getpid()}: stop"):
        made(log_dir).open(NOW_MS)
    directory.close()
    directory.close()
    again = made(log_dir)
    again.open(NOW_MS)
    again.close()


def test_a_refused_start_touches_nothing(log_dir: Path) -> None:
    directory = made(log_dir)
    directory.open(NOW_MS)
    write_segments(log_dir / "clicks-0", [message("x") + b"torn"])
    (log_dir / CLEAN_SHUTDOWN_MARKER).touch()
    before = all_files(log_dir)
    second = made(log_dir)
    with pytest.raises(DataDirectoryLockedError):
        second.open(NOW_MS)
    assert second.close() is False
    assert all_files(log_dir) == before
    directory.close()


# -- the marker ---------------------------------------------------------------------------------


@pytest.mark.parametrize("had_marker", [False, True])
def test_a_start_that_fails_writes_no_marker(log_dir: Path, had_marker: bool) -> None:
    """0.7 wrote one, and the next start skipped the recovery that was due."""
    write_segments(log_dir / "clicks-0", [message("x") + b"torn"])
    if had_marker:
        (log_dir / CLEAN_SHUTDOWN_MARKER).touch()
    before = all_files(log_dir)
    directory = made(log_dir, FaultyFiles(0, EIO, only=("listdir",), stays=True))
    with pytest.raises(StorageError, match="open data directory"):
        directory.open(NOW_MS)
    assert directory.close() is False
    assert all_files(log_dir) == before
    again = made(log_dir)
    assert again.open(NOW_MS).was_clean is had_marker
    again.close()


def test_the_marker_goes_before_anything_can_be_appended(log_dir: Path) -> None:
    directory = made(log_dir)
    directory.open(NOW_MS)
    directory.close()
    files = FaultyFiles(0, EIO, only=("unlink",), path_part=CLEAN_SHUTDOWN_MARKER)
    directory = made(log_dir, files)
    with pytest.raises(StorageError):
        directory.open(NOW_MS)
    assert (log_dir / CLEAN_SHUTDOWN_MARKER).exists()
    assert dict(directory.logs) == {}


@pytest.mark.parametrize("why", ["asked", "flush failed", "log offline", "marker failed"])
def test_no_marker_unless_everything_is_on_disk(log_dir: Path, why: str) -> None:
    files = FaultyFiles(None, EIO, stays=True)
    directory = made(log_dir, files)
    directory.open(NOW_MS)
    log = directory.create("clicks", 0)
    append(log, message("x"))
    log.flush()
    if why == "flush failed":
        append(log, message("y"))
        files.only, files.fail_at = ("fdatasync",), 0
    elif why == "log offline":
        files.only, files.fail_at = ("pwrite",), 0
        with pytest.raises(LogOfflineError):
            append(log, message("y"))
    elif why == "marker failed":
        files.path_part, files.fail_at = CLEAN_SHUTDOWN_MARKER, 0

    assert directory.close(clean=why != "asked") is False

    assert not (log_dir / CLEAN_SHUTDOWN_MARKER).exists()
    again = made(log_dir)
    assert not again.open(NOW_MS).was_clean
    assert read_all(again.logs["clicks", 0]).startswith(message("x"))
    again.close()


def test_no_marker_over_an_append_that_came_while_the_logs_were_flushed(log_dir: Path) -> None:
    files = FaultyFiles(None)
    directory = made(log_dir, files)
    directory.open(NOW_MS)
    late, other = directory.create("a", 0), directory.create("b", 0)
    append(other, message("x"))

    def before(name: str, arguments: tuple[object, ...]) -> tuple[object, ...]:
        if name == "fdatasync" and late.end_offset == 0:  # b is being flushed: a was before
            append(late, message("late"))
        return arguments

    files.before = before  # type: ignore[method-assign,assignment]
    assert directory.close() is False
    assert not (log_dir / CLEAN_SHUTDOWN_MARKER).exists()


def test_closing_does_not_wait_for_a_log_whose_flush_hangs(log_dir: Path) -> None:
    directory = made(log_dir)
    directory.open(NOW_MS)
    stuck, other = directory.create("a", 0), directory.create("b", 0)
    for log in (stuck, other):
        append(log, message("x"))
    with stuck.state.flush_lock:  # as a thread holds it that doesn't come back from fsync
        assert directory.close(abandoned=[stuck]) is False
    assert (other.high_watermark, stuck.high_watermark) == (11, 0)
    assert not (log_dir / CLEAN_SHUTDOWN_MARKER).exists()
    again = made(log_dir)
    again.open(NOW_MS)
    again.close()


@pytest.mark.parametrize("since", ["nothing", "appended", "created"])
def test_a_start_that_fails_after_opening_puts_a_marker_back(log_dir: Path, since: str) -> None:
    write_segments(log_dir / "clicks-0", [message("x")])
    (log_dir / "empty-0").mkdir()
    (log_dir / CLEAN_SHUTDOWN_MARKER).touch()
    directory = made(log_dir)
    directory.open(NOW_MS)
    assert not (log_dir / CLEAN_SHUTDOWN_MARKER).exists()
    if since == "appended":
        append(directory.logs["clicks", 0], message("y"))
    elif since == "created":
        directory.create("other", 0)
    assert directory.close(clean=False) is (since == "nothing")
    assert (log_dir / CLEAN_SHUTDOWN_MARKER).exists() is (since == "nothing")


@pytest.mark.parametrize("pending", ["a draft", "a gap"])
def test_a_marker_beside_something_to_recover_is_not_put_back(log_dir: Path, pending: str) -> None:
    write_segments(log_dir / "clicks-0", [message("x")] * 3)
    if pending == "a gap":
        corrupt_gap(log_dir / "clicks-0")
    else:
        last = log_dir / "clicks-0" / "00000000000000000022.kafka"
        last.rename(last.with_suffix(".unflushed"))
    (log_dir / CLEAN_SHUTDOWN_MARKER).touch()
    directory = made(log_dir)
    directory.open(NOW_MS)
    assert directory.close(clean=False) is False
    assert not (log_dir / CLEAN_SHUTDOWN_MARKER).exists()


def test_closing_flushes_what_was_appended(log_dir: Path) -> None:
    directory = made(log_dir)
    directory.open(NOW_MS)
    append(directory.create("clicks", 0), message("x"))
    assert directory.close() is True
    again = made(log_dir)
    again.open(NOW_MS)
    assert read_all(again.logs["clicks", 0]) == message("x")
    again.close()


# -- creating -----------------------------------------------------------------------------------


def test_a_created_partition_is_there_after_its_first_flush(log_dir: Path) -> None:
    files = WatchedFiles()
    directory = made(log_dir, files)
    directory.open(NOW_MS)
    done = len(files.calls)

    log = directory.create("page-views", 3)

    assert "fsync_directory" not in files.calls[done:]
    assert directory.get("page-views", 3) is log is directory.logs["page-views", 3]
    assert directory.create("page-views", 3) is log
    assert directory.get("page-views", 4) is None
    assert (log_dir / "page-views-3" / "00000000000000000000.kafka").exists()
    log.flush()
    assert files.calls[done:].count("fsync_directory") == 2
    log.flush()
    assert files.calls[done:].count("fsync_directory") == 2
    directory.close()


def test_settings_come_from_the_topic(log_dir: Path) -> None:
    directory = DataDirectory(log_dir, lambda topic: LogSettings(len(topic)))
    directory.open(NOW_MS)
    assert directory.create("abc", 0).settings.segment_bytes == 3
    directory.close()


def test_the_mapping_of_logs_is_a_snapshot(log_dir: Path) -> None:
    directory = made(log_dir)
    directory.open(NOW_MS)
    directory.create("a", 0)
    before = directory.logs
    directory.create("b", 0)
    assert list(before) == [("a", 0)]
    with pytest.raises(TypeError):
        before["c", 0] = before["a", 0]  # type: ignore[index]
    directory.close()


@pytest.mark.parametrize("call", ["mkdir", "open_new"])
def test_a_partition_that_found_no_room_can_be_created_later(log_dir: Path, call: str) -> None:
    files = FaultyFiles(0, ENOSPC, only=(call,))
    directory = made(log_dir, files)
    directory.open(NOW_MS)
    with pytest.raises(DiskFullError):
        directory.create("clicks", 0)
    assert directory.get("clicks", 0) is None
    log = directory.create("clicks", 0)
    append(log, message("x"))
    log.flush()
    assert read_all(log) == message("x")
    directory.close()


def test_a_partition_that_took_two_tries_is_on_disk_after_its_first_flush(
    log_dir: Path, tmp_path: Path
) -> None:
    class FullOnceFiles(ForgetfulFiles):
        def before(self, name, arguments):  # type: ignore[no-untyped-def]
            if name == "open_new" and self.calls.count(name) == 1:
                raise OSError(ENOSPC, "no room")
            return super().before(name, arguments)

    files = FullOnceFiles(str(log_dir))
    directory = made(log_dir, files)
    directory.open(NOW_MS)
    with pytest.raises(DiskFullError):
        directory.create("clicks", 0)
    log = directory.create("clicks", 0)
    append(log, message("x"))
    log.flush()
    files.disk(str(tmp_path / "disk"))
    directory.close()
    again = made(tmp_path / "disk")
    again.open(NOW_MS)
    assert read_all(again.logs["clicks", 0]) == message("x")
    again.close()


def test_a_directory_that_came_by_itself_is_recovered_by_reopening_not_by_creating(
    log_dir: Path,
) -> None:
    """Creating is done in the reactor's thread, and what a failed delete leaves may be large."""
    files = WatchedFiles()
    directory = made(log_dir, files)
    directory.open(NOW_MS)
    write_segments(log_dir / "clicks-0", [message("x") + b"torn"])
    files.bytes_read = 0

    log = directory.create("clicks", 0)

    assert (log.is_offline, files.bytes_read) == (True, 0)
    assert directory.create("clicks", 0) is log
    with pytest.raises(LogOfflineError):
        append(log, message("y"))
    assert directory.reopen(log, NOW_MS).dropped_bytes == 4
    append(log, message("y"))
    log.flush()
    assert read_all(log) == message("x") + message("y")
    assert directory.close() is True


# -- deleting -----------------------------------------------------------------------------------


def test_deleting_a_topic_takes_all_its_partitions_and_nothing_else(log_dir: Path) -> None:
    directory = made(log_dir, segment_bytes=1)
    directory.open(NOW_MS)
    for topic, partition in (("a", 0), ("a", 1), ("a-b", 0)):
        log = directory.create(topic, partition)
        append(log, message("x"))
        append(log, message("y"))
        log.flush()

    assert directory.delete_topic("a") == 44

    assert sorted(path.name for path in log_dir.iterdir() if path.is_dir()) == ["a-b-0"]
    assert list(directory.logs) == [("a-b", 0)]
    assert directory.delete_topic("a") == 0
    assert read_all(directory.create("a", 0)) == b""
    directory.close()


def test_an_offline_partition_can_be_deleted_too(log_dir: Path) -> None:
    write_segments(log_dir / "bad-0", [message("x")] * 3)
    corrupt_gap(log_dir / "bad-0")
    directory = made(log_dir)
    assert directory.open(NOW_MS).offline
    directory.delete_topic("bad")
    assert not (log_dir / "bad-0").exists()
    assert directory.close() is True


def test_one_partition_that_resists_does_not_save_the_others(log_dir: Path) -> None:
    directory = made(log_dir)
    directory.open(NOW_MS)
    for partition in range(3):
        append(directory.create("a", partition), message("x"))
    (log_dir / "a-1" / "notes").write_text("mine")
    with pytest.raises(StorageError, match="a-1: delete"):
        directory.delete_topic("a")
    assert [path.name for path in log_dir.iterdir() if path.is_dir()] == ["a-1"]
    assert dict(directory.logs) == {}
    directory.close()


def test_of_several_topics_each_is_deleted_whatever_becomes_of_the_others(log_dir: Path) -> None:
    directory = made(log_dir)
    directory.open(NOW_MS)
    for topic in ("a", "b", "c"):
        append(directory.create(topic, 0), message("x"))
        directory.get(topic, 0).flush()
    (log_dir / "b-0" / "notes").write_text("mine")
    (log_dir / "c-7").mkdir()  # what an interrupted deletion has left
    first, second, third, fourth = directory.delete_topics(["a", "b", "c", "none"])
    assert (first, third, fourth) == (11, 11, 0)
    assert isinstance(second, StorageError)
    assert [path.name for path in log_dir.iterdir() if path.is_dir()] == ["b-0"]
    assert dict(directory.logs) == {}
    (log_dir / "b-0" / "notes").unlink()
    assert directory.delete_topics(["b"]) == [11]
    assert not (log_dir / "b-0").exists()
    directory.close()


def test_a_topic_that_is_being_deleted_is_left_alone_meanwhile(log_dir: Path) -> None:
    """A second delete that lifted the first one's mark would let create into a dying directory."""
    refused = []

    class RacingFiles(WatchedFiles):
        def before(self, name, arguments):  # type: ignore[no-untyped-def]
            if name in ("unlink", "rmdir"):
                for call in (directory.delete_topic, lambda topic: directory.create(topic, 0)):
                    with pytest.raises(StorageError, match="topic a is being deleted"):
                        call("a")
                refused.append(name)
            return arguments

    directory = made(log_dir, RacingFiles())
    directory.open(NOW_MS)
    directory.create("a", 0)
    directory.delete_topic("a")
    assert set(refused) == {"unlink", "rmdir"}
    assert directory.delete_topic("a") == 0
    directory.create("a", 0)
    directory.close()


def test_copies_of_one_topic_are_deleted_at_the_same_time(log_dir: Path) -> None:
    class RacingFiles(WatchedFiles):
        def before(self, name, arguments):  # type: ignore[no-untyped-def]
            if name == "rmdir" and directory.get("a", 1) is not None:
                directory.delete_copy("a", 1)
                for call in (directory.delete_topic, directory.delete_left):
                    with pytest.raises(StorageError, match="topic a is being deleted"):
                        call("a")
            return arguments

    directory = made(log_dir, RacingFiles())
    directory.open(NOW_MS)
    for partition in range(3):
        directory.create("a", partition, is_sole_copy=False)
    directory.watermarks.keep({("a", partition): 0 for partition in range(3)})
    directory.delete_copy("a", 0)
    assert [path.name for path in log_dir.iterdir() if path.is_dir()] == ["a-2"]
    assert [directory.watermarks.get("a", partition) for partition in range(3)] == [None, None, 0]
    directory.close()


@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("has_lost_power", [True, False])
def test_what_follows_a_hole_that_the_power_has_left_was_not_acknowledged(
    *, has_lost_power: bool, is_noted: bool
) -> None:
    """A kill leaves no holes, so damage is the disk's; nor may who can't know cut anything off."""
    files = MemoryFiles("/data")
    directory = DataDirectory("/data", lambda topic: settings(1 << 20), files)
    directory.open(NOW_MS)
    log = directory.create("k", 0, KAFKA, uuid4())
    append_values(log, b"flushed")
    log.flush()
    append_values(log, b"missing")
    append_values(log, b"written")
    path = log.view.segments[0].file.path
    data = files.pread(files.open_read(path), 1 << 20, 0)
    size = len(data) // 3
    if has_lost_power:
        files = files.after_power_loss()
    else:
        files.close_all()
    files.pwrite(files.open_append(path), bytes(9) + data[size + 9 :], size)
    if not is_noted:  # by an earlier version
        files.ftruncate(files.open_append("/data/.hermes_lock"), 2)
    directory = DataDirectory("/data", lambda topic: settings(1 << 20), files)
    directory.open(NOW_MS)
    log = directory.logs["k", 0]
    is_cut = has_lost_power and is_noted
    assert log.end_offset == (1 if is_cut else 3)
    append_values(log, b"new")
    log.flush()
    if is_cut:
        assert [each.value for each in read_records(log)] == [b"flushed", b"new"]
    directory.close()


def test_what_is_damaged_of_a_copy_is_kept_beside_it(log_dir: Path) -> None:
    directory = made(log_dir)
    directory.open(NOW_MS)
    log = directory.create("a", 0, is_sole_copy=False)
    append(log, message("x"))
    log.flush()
    log.damage = {log.flushed_segments()[0][0]: [Damage(0, 1)]}
    directory.delete_copy("a", 0, keeps_damaged=True)
    left = [path.name for path in log_dir.iterdir() if path.name.startswith("a-")]
    assert left == ["a-0-00000000000000000000.kafka.damaged"]
    directory.close()


def test_copies_that_disks_refused_to_delete_go_later(log_dir: Path) -> None:
    directory = made(log_dir)
    directory.open(NOW_MS)
    for partition in range(2):
        directory.create("a", partition, is_sole_copy=False)
        directory.watermarks.keep({("a", partition): 0})
        (log_dir / f"a-{partition}" / "notes").write_text("mine")
        with pytest.raises(StorageError, match="a-0: delete"):
            directory.delete_copy("a", partition)
    for partition in range(2):
        (log_dir / f"a-{partition}" / "notes").unlink()
    directory.delete_left("a")
    assert [path.name for path in log_dir.iterdir() if path.is_dir()] == []
    assert [directory.watermarks.get("a", partition) for partition in range(2)] == [None, None]
    directory.close()


def test_what_is_deleted_and_may_come_back_is_deleted_again(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has no room to write down that it is gone; of its directories nothing is certain."""
    directory = made(log_dir)
    directory.open(NOW_MS)
    topic_id = uuid4()
    directory.create("a", 0, KAFKA, topic_id, is_sole_copy=False)
    directory.watermarks.keep({("a", 0): 7})
    synced: list[str] = []
    monkeypatch.setattr(directory.files, "fsync_directory", synced.append)

    def refuse(*_: object, **__: object) -> None:
        raise DiskFullError("no room")

    with monkeypatch.context() as full:
        full.setattr("hermes.storage.watermarks.replace_whole", refuse)
        for _ in range(2):
            with pytest.raises(DiskFullError):
                directory.delete_topic("a")
            with pytest.raises(StorageError, match="an earlier topic a is not deleted yet"):
                directory.create("a", 0, KAFKA, uuid4(), is_sole_copy=False)
    synced.clear()
    directory.delete_topic("a")
    assert str(log_dir) in synced
    assert directory.watermarks.get("a", 0) is None
    directory.create("a", 0, KAFKA, uuid4(), is_sole_copy=False)
    directory.close()


def test_a_cluster_id_is_made_once_and_kept(tmp_path: Path) -> None:
    made = iter(["0f8fad5b-d9cb-469f-a165-70867728950e", "never"])
    directory = DataDirectory(tmp_path / "logs", lambda topic: settings(), UnsyncedFiles())
    directory.open(NOW_MS)
    for _ in range(2):
        assert directory.cluster_id(lambda: next(made)) == "0f8fad5b-d9cb-469f-a165-70867728950e"
    (tmp_path / "logs" / ".hermes_cluster_id").write_text("something else\n")
    with pytest.raises(StorageError, match=r"\.hermes_cluster_id holds no UUID; put back"):
        directory.cluster_id(lambda: next(made))
    directory.close()


def test_what_was_never_flushed_is_no_log_once_its_settings_are_forgotten(log_dir: Path) -> None:
    """The power has left the first segment's name, and the topic is deleted in the cluster."""
    (log_dir / "k-0").mkdir()
    (log_dir / "k-0" / f"{0:020}.log").touch()
    for name in ("kafka", "0.7"):

        def settings_for(topic: str, name: str = name) -> LogSettings:
            return settings(format=name)

        directory = DataDirectory(log_dir, settings_for)
        directory.open(NOW_MS)
        assert dict(directory.logs) == {}
        directory.close(clean=False)
    assert not (log_dir / "k-0").exists()


def test_an_empty_directory_of_a_copy_is_none_of_another_format(log_dir: Path) -> None:
    """The topic's settings weren't written, but there is a mark."""
    directory = made(log_dir)
    directory.open(NOW_MS)
    directory.watermarks.keep({("k", 0): 0})
    directory.close()
    for number in (0, 1):
        (log_dir / f"k-{number}").mkdir()
    directory = made(log_dir)
    directory.open(NOW_MS)
    assert list(directory.logs) == [("k", 1)]
    assert not (log_dir / "k-0").exists()
    directory.close()


@pytest.mark.parametrize("call", ["lstat", "open_read", "listdir"])
def test_what_could_not_be_looked_at_is_opened_as_what_it_is_once_it_can_be(
    log_dir: Path, call: str
) -> None:
    def opened(files: FileLayer) -> DataDirectory:
        directory = DataDirectory(log_dir, lambda topic: settings(format="kafka"), files)
        directory.open(NOW_MS)
        return directory

    directory = opened(UnsyncedFiles())
    topic_id = directory.create("k", 0).topic_id
    directory.logs["k", 0].flush()
    directory.close()
    files = FaultyFiles(0, stays=True, only=(call,), path_part="k-0")

    directory = opened(files)

    log = directory.logs["k", 0]
    assert log.offline_reason == "k-0: open: Input/output error"
    files.fail_at = None
    directory.reopen(log, NOW_MS)
    assert (log.format.name, log.topic_id) == ("kafka", topic_id)
    directory.close()


def test_what_could_not_be_looked_at_is_not_opened_as_what_it_is_not(log_dir: Path) -> None:
    """A log of Kafka's format, whose topic's settings have come to say 0.7."""
    directory = DataDirectory(log_dir, lambda topic: settings(format="kafka"), UnsyncedFiles())
    directory.open(NOW_MS)
    directory.create("k", 0)
    directory.logs["k", 0].flush()
    directory.close()
    before = all_files(log_dir)
    files = FaultyFiles(0, only=("lstat",), path_part=METADATA_NAME)
    directory = DataDirectory(log_dir, lambda topic: settings(format="0.7"), files)

    assert directory.open(NOW_MS).offline == {("k", 0): "k-0: open: Input/output error"}

    with pytest.raises(StorageError, match=r"k-0 could not be looked at .* restart the broker"):
        directory.reopen(directory.logs["k", 0], NOW_MS)
    directory.close()
    assert {**all_files(log_dir), CLEAN_SHUTDOWN_MARKER: b""} == before
