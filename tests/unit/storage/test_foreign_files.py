"""Links, pipes, sockets, devices and directories where files of a log belong: never followed."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, append, message, read_all, settings, write_segments

from hermes.errors import LogOfflineError, StorageError
from hermes.storage import CLEAN_SHUTDOWN_MARKER, DataDirectory, FileLayer

PRECIOUS = b"precious " * 20


def link(path: Path) -> None:
    victim = path.with_name(f"{path.name}-victim")
    victim.write_bytes(PRECIOUS)
    path.symlink_to(victim)


def dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def pipe(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def unix_socket(path: Path) -> None:
    # The path of a socket may have 108 bytes only.
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero: endless
    except PermissionError:
        pytest.skip("only root can make a device")


INTRUDERS = [link, dangling_link, pipe, directory, unix_socket, device]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where an intruder is put; whatever a link leads to must be what it was afterwards."""
    yield tmp_path / "file"
    for victim in tmp_path.rglob("*-victim"):
        assert victim.read_bytes() == PRECIOUS
    assert not list(tmp_path.rglob("nowhere"))


@pytest.fixture
def log_dir(place: Path) -> Path:
    path = place.parent / "logs"
    path.mkdir()
    return path


def opened(path: Path, segment_bytes: int = 1 << 30) -> DataDirectory:
    made = DataDirectory(path, lambda topic: settings(segment_bytes), UnsyncedFiles())
    made.open(NOW_MS)
    return made


@pytest.mark.parametrize("intruder", INTRUDERS)
def test_the_file_layer_opens_nothing_but_regular_files(
    place: Path, intruder: Callable[[Path], None]
) -> None:
    intruder(place)
    files = FileLayer()
    for call in (files.open_read, files.open_append):
        with pytest.raises(OSError, match="is not a regular file"):
            call(str(place))
    with pytest.raises(OSError, match="is not a regular file"):
        files.open_append(str(place), create=True)
    with pytest.raises(FileExistsError):
        files.open_new(str(place))


@pytest.mark.parametrize("intruder", INTRUDERS)
@pytest.mark.parametrize("name", [f"{0:020d}.kafka", f"{11:020d}.kafka", f"{11:020d}.unflushed"])
def test_in_place_of_a_segment_it_keeps_that_partition_out_of_service(
    log_dir: Path, intruder: Callable[[Path], None], name: str
) -> None:
    write_segments(log_dir / "good-0", [message("x")])
    write_segments(log_dir / "bad-0", [message("x")])
    (log_dir / "bad-0" / name).unlink(missing_ok=True)
    intruder(log_dir / "bad-0" / name)
    made = DataDirectory(log_dir, lambda topic: settings(), UnsyncedFiles())

    report = made.open(NOW_MS)

    assert list(report.offline) == [("bad", 0)]
    assert "is not a regular file" in report.offline["bad", 0]
    assert read_all(made.logs["good", 0]) == message("x")
    with pytest.raises(LogOfflineError):
        append(made.logs["bad", 0], message("y"))
    assert made.close() is False


@pytest.mark.parametrize("intruder", INTRUDERS)
def test_in_place_of_a_time_index_it_is_named_and_the_partition_comes_back_without_it(
    log_dir: Path, intruder: Callable[[Path], None]
) -> None:
    write_segments(log_dir / "bad-0", [message("x")])
    path = log_dir / "bad-0" / f"{0:020d}.timeindex"
    intruder(path)
    made = DataDirectory(log_dir, lambda topic: settings(), UnsyncedFiles())

    assert f"{path} is not a regular file" in made.open(NOW_MS).offline["bad", 0]

    path.rename(place_beside(path))
    log = made.logs["bad", 0]
    made.reopen(log, NOW_MS)
    assert read_all(log) == message("x")
    made.close()


def place_beside(path: Path) -> Path:
    return path.with_name("moved away")


@pytest.mark.parametrize("intruder", INTRUDERS)
@pytest.mark.parametrize("suffix", [".kafka", ".unflushed"])
def test_in_the_way_of_a_new_segment_it_is_not_written(
    log_dir: Path, intruder: Callable[[Path], None], suffix: str
) -> None:
    made = opened(log_dir, segment_bytes=10)
    log = made.create("clicks", 0)
    append(log, message("x"))
    intruder(log_dir / "clicks-0" / f"{11:020d}{suffix}")
    with pytest.raises(LogOfflineError, match="exists already"):
        append(log, message("y"))
    for _ in range(2):  # what was appended comes back, and the intruder stays
        made.reopen(log, NOW_MS)
        assert read_all(log) == message("x")
        if suffix == ".unflushed":
            break
        with pytest.raises(LogOfflineError):
            append(log, message("y"))
    made.close()


@pytest.mark.parametrize("intruder", INTRUDERS)
def test_in_place_of_the_lock_it_stops_the_start(
    log_dir: Path, intruder: Callable[[Path], None]
) -> None:
    intruder(log_dir / ".hermes_lock")
    with pytest.raises(StorageError, match=r"\.hermes_lock is not a regular file"):
        opened(log_dir)


@pytest.mark.parametrize("intruder", INTRUDERS)
def test_in_place_of_the_marker_it_says_nothing_about_the_last_stop(
    log_dir: Path, intruder: Callable[[Path], None]
) -> None:
    write_segments(log_dir / "clicks-0", [message("x") + b"torn"])
    intruder(log_dir / CLEAN_SHUTDOWN_MARKER)
    made = DataDirectory(log_dir, lambda topic: settings(), UnsyncedFiles())
    report = made.open(NOW_MS)
    assert not report.was_clean
    assert report.dropped_bytes == 4
    assert CLEAN_SHUTDOWN_MARKER in report.strange
    assert made.close() is False


@pytest.mark.parametrize("intruder", [dangling_link, pipe, unix_socket, device])
def test_in_place_of_a_partition_it_is_left_alone(
    log_dir: Path, intruder: Callable[[Path], None]
) -> None:
    intruder(log_dir / "clicks-0")
    made = DataDirectory(log_dir, lambda topic: settings(), UnsyncedFiles())
    report = made.open(NOW_MS)
    assert report.strange == ("clicks-0",)
    with pytest.raises(StorageError):
        made.create("clicks", 0)
    made.close()


def test_a_partition_on_another_disk_is_deleted_with_its_link(
    log_dir: Path, tmp_path: Path
) -> None:
    write_segments(tmp_path / "elsewhere", [message("x")])
    (log_dir / "clicks-0").symlink_to(tmp_path / "elsewhere")
    made = opened(log_dir)
    append(made.logs["clicks", 0], message("y"))
    made.logs["clicks", 0].flush()
    made.delete_topic("clicks")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not os.path.lexists(log_dir / "clicks-0")
    made.close()


def test_the_data_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "disk")
    made = opened(tmp_path / "logs")
    log = made.create("clicks", 0)
    append(log, message("x"))
    log.flush()
    assert made.close() is True
    assert (tmp_path / "disk" / "clicks-0").is_dir()
