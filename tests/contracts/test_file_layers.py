"""What storage relies on, of every file layer: the operating system's, and the tests' in memory."""

from collections.abc import Callable
from errno import EBADF, EINVAL, EISDIR, ENOTDIR, ENOTEMPTY
from pathlib import Path
from random import Random
from stat import S_ISDIR, S_ISREG

import pytest
from file_places import PLACES, Place
from kafka_logs import append_values, read_records
from memory_files import SECTOR_BYTES, MemoryFiles
from storage_logs import NOW_MS, append, message, read_all, settings

from hermes.errors import LogOfflineError
from hermes.storage import Log
from hermes.storage.files import exists, identity, is_directory
from hermes.storage.formats import FORMATS
from hermes.storage.kafka_format import KAFKA


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES[request.param](tmp_path)


def fails_with(number: int, call: Callable[[], object]) -> None:
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno == number


def test_bytes_are_where_they_were_written(place: Place) -> None:
    files = place.files
    descriptor = files.open_new(place.path("a"))
    assert files.pwrite(descriptor, b"hello", 3) == 5
    assert files.pwritev(descriptor, [b"HE", bytearray(b""), memoryview(b"L")], 3) == 3
    assert files.pread(descriptor, 100, 0) == b"\0\0\0HELlo"
    assert files.read_resident(descriptor, 2, 3) == b"HE"
    assert (files.pread(descriptor, 2, 7), files.pread(descriptor, 2, 8)) == (b"o", b"")
    files.ftruncate(descriptor, 4)
    assert files.pread(descriptor, 100, 0) == b"\0\0\0H"
    files.ftruncate(descriptor, 6)
    files.fdatasync(descriptor)
    assert files.fstat(descriptor).st_size == 6
    files.close(descriptor)
    fails_with(EBADF, lambda: files.pread(descriptor, 1, 0))
    assert place.read("a") == b"\0\0\0H\0\0"


def test_names_lead_to_files(place: Place) -> None:
    files, path = place.files, place.path
    place.write("a", b"1")
    with pytest.raises(FileExistsError):
        files.open_new(path("a"))
    for call in (files.open_read, files.open_append, files.unlink, files.lstat, files.listdir):
        with pytest.raises(FileNotFoundError):
            call(path("b"))
    files.link(path("a"), path("b"))
    assert files.stat(path("a")).st_nlink == 2
    assert identity(files.lstat(path("a"))) == identity(files.lstat(path("b")))
    place.write("c", b"2")
    assert identity(files.lstat(path("a"))) != identity(files.lstat(path("c")))
    with pytest.raises(FileExistsError):
        files.link(path("a"), path("c"))
    files.rename(path("c"), path("b"))
    assert sorted(files.listdir(place.root)) == ["a", "b"]
    assert (place.read("a"), place.read("b")) == (b"1", b"2")
    assert not exists(path("c"), files)
    files.fsync_directory(place.root)


def test_what_has_lost_its_name_is_there_while_it_is_open(place: Place) -> None:
    files = place.files
    place.write("a", b"old")
    held = files.open_append(place.path("a"))
    files.unlink(place.path("a"))
    place.write("a", b"new")
    assert files.pread(held, 10, 0) == b"old"
    assert files.fstat(held).st_nlink == 0
    assert identity(files.fstat(held)) != identity(files.lstat(place.path("a")))
    files.close(held)


def test_directories(place: Place) -> None:
    files, path = place.files, place.path
    files.mkdir(path("d"))
    assert S_ISDIR(files.stat(path("d")).st_mode)
    with pytest.raises(FileExistsError):
        files.mkdir(path("d"))
    place.write("d/a", b"1")
    assert S_ISREG(files.lstat(path("d/a")).st_mode)
    named = [name for name in ("d", "d/a", "d/a/b", "e") if is_directory(path(name), files)]
    assert named == ["d"]
    fails_with(ENOTEMPTY, lambda: files.rmdir(path("d")))
    fails_with(ENOTDIR, lambda: files.listdir(path("d/a")))
    fails_with(ENOTDIR, lambda: files.open_read(path("d/a/b")))
    fails_with(EINVAL, lambda: files.open_read(path("d")))
    fails_with(EISDIR, lambda: files.unlink(path("d")))
    files.unlink(path("d/a"))
    files.rmdir(path("d"))
    assert files.listdir(place.root) == []


def test_a_lock_is_one_descriptors_until_it_is_closed(place: Place) -> None:
    files = place.files
    first = files.open_append(place.path("a"), create=True)
    second = files.open_append(place.path("a"))
    files.lock(first)
    files.lock(first)
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            files.lock(second)
    files.close(first)
    files.lock(second)
    files.close(second)
    fails_with(EBADF, lambda: files.lock(second))


def test_modes_and_times(place: Place) -> None:
    files = place.files
    descriptor = files.open_new(place.path("a"))
    files.fchmod(descriptor, 0o640)
    files.close(descriptor)
    files.utime(place.path("a"), ns=(5, 1_234_567_890))
    status = files.lstat(place.path("a"))
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o640, 1_234_567_890)


@pytest.mark.parametrize("name", FORMATS)
def test_a_log_lives_as_well(place: Place, name: str) -> None:
    """It rolls, is cut, deletes, is stopped and killed, and comes back."""
    place.files.mkdir(place.path("t-0"))

    def opened(*, clean: bool) -> Log:
        log = Log("t", 0, place.path("t-0"), settings(150), place.files, log_format=FORMATS[name])
        log.open(clean=clean, now_ms=NOW_MS)
        return log

    if name == KAFKA.name:
        place.write("t-0/partition.metadata", b"version: 0\ntopic_id: Zqg1ECfTSJWwEWu0bA2sXw")
    log = opened(clean=False)
    log.is_sole_copy = False
    values = [b"message %02d" % number for number in range(20)]
    ends = []
    for value in values:
        append_values(log, value) if log.counts_messages else append(log, message(value))
        ends.append(log.end_offset)
    log.flush()
    log.replica.cut_to(ends[9], NOW_MS)
    log.commit(ends[9])
    log.delete_oldest(1)
    kept = _values(log)
    assert kept
    assert kept == values[10 - len(kept) : 10]
    log.close()
    for clean in (True, False):
        log = opened(clean=clean)
        assert (log.end_offset, _values(log)) == (ends[9], kept)
        log.close() if clean else log.flush()
    log.state.go_offline("its disk failed")
    with pytest.raises(LogOfflineError):
        log.flush()
    log.reopen(NOW_MS)
    log.delete()
    assert place.files.listdir(place.root) == []


def _values(log: Log) -> list[bytes | None]:
    if log.counts_messages:
        return [each.value for each in read_records(log)]
    data = read_all(log)
    return [data[place + 10 : place + 20] for place in range(0, len(data), 20)]


# -- a loss of power, in memory -------------------------------------------------------------------


def test_what_was_synced_survives_a_loss_of_power_and_of_all_else_any_part_may() -> None:
    files = MemoryFiles()
    place = Place(files, "/data")
    size = 4 * SECTOR_BYTES
    place.write("a", b"1" * size)
    descriptor = files.open_append("/data/a")
    files.fdatasync(descriptor)
    files.fsync_directory("/data")
    files.pwrite(descriptor, b"2" * size, 0)
    files.rename("/data/a", "/data/b")
    place.write("c", b"3")
    found = set()
    for seed in range(200):
        after = Place(files.after_power_loss(Random(seed)), "/data")
        names = sorted(after.files.listdir("/data"))
        assert names in (["a"], ["b"], ["a", "c"], ["b", "c"])
        data = after.read(names[0])
        sectors = [data[start : start + SECTOR_BYTES] for start in range(0, size, SECTOR_BYTES)]
        assert set(sectors) <= {b"1" * SECTOR_BYTES, b"2" * SECTOR_BYTES}
        found.add((tuple(names), b"1" in data, b"2" in data))
        assert after.files.boot_id() != files.boot_id()
    assert len(found) > 8
    after = Place(files.after_power_loss(), "/data")
    assert after.read("a") == b"1" * size
    assert after.files.listdir("/data") == ["a"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_log_keeps_what_it_has_flushed_over_losses_of_power(name: str) -> None:
    for seed in range(30):
        chance, files = Random(seed), MemoryFiles()
        place = Place(files, "/data")
        files.mkdir("/data/t-0")
        if name == KAFKA.name:
            place.write("t-0/partition.metadata", b"version: 0\ntopic_id: Zqg1ECfTSJWwEWu0bA2sXw")
        log = Log("t", 0, "/data/t-0", settings(150), files, log_format=FORMATS[name])
        log.open(clean=False, now_ms=NOW_MS, is_new_directory=True)
        flushed, end = list[bytes | None](), 0
        for number in range(chance.randrange(4, 30)):
            value = b"message %02d" % number
            append_values(log, value) if log.counts_messages else append(log, message(value))
            if number == 2 or chance.random() < 0.2:
                end, flushed = log.flush(), _values(log)
        files = files.after_power_loss(chance)
        log = Log("t", 0, "/data/t-0", settings(150), files, log_format=FORMATS[name])
        report = log.open(clean=False, now_ms=NOW_MS)
        assert report is not None
        assert log.high_watermark >= end
        assert all(start >= end for start, _ in report.bad_ranges)
        log.state.view = log.state.view.up_to(end)  # beyond it something may be damaged
        assert _values(log) == flushed
        log.close()
        assert files.open_count == 0
