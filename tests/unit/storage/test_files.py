"""The file layer: writes go on where they stopped, and errors get our names."""

import os
from errno import EDQUOT, EIO, ENOSPC
from pathlib import Path

import pytest
from storage_fakes import FaultyFiles

from hermes.errors import DiskFullError, StorageError
from hermes.storage.files import IOV_MAX, FileLayer, read_exactly, storage_error, write_all


class OneByteFiles(FileLayer):
    """Writes and reads a byte at a time."""

    def __init__(self) -> None:
        self.writes = 0

    def pwritev(self, descriptor, buffers, position):  # type: ignore[no-untyped-def, override]
        self.writes += 1
        return os.pwrite(descriptor, buffers[0][:1], position)

    def pread(self, descriptor, length, position):  # type: ignore[no-untyped-def, override]
        return os.pread(descriptor, min(1, length), position)


def test_open_new_never_takes_over_a_file(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_bytes(b"kept")

    with pytest.raises(FileExistsError):
        FileLayer().open_new(str(path))

    assert path.read_bytes() == b"kept"


def test_short_writes_are_continued_and_never_repeated(tmp_path: Path) -> None:
    files = OneByteFiles()
    descriptor = files.open_new(str(tmp_path / "file"))

    write_all(files, descriptor, [b"abc", b"", bytearray(b"de"), memoryview(b"f")], 2)

    assert read_exactly(files, descriptor, 100, 0) == b"\0\0abcdef"
    assert files.writes == 6
    files.close(descriptor)


def test_no_call_gets_more_buffers_than_the_system_takes(tmp_path: Path) -> None:
    taken = []

    class CountingFiles(FileLayer):
        def pwritev(self, descriptor, buffers, position):  # type: ignore[no-untyped-def, override]
            taken.append(len(buffers))
            return os.pwritev(descriptor, buffers, position)

    files = CountingFiles()
    descriptor = files.open_new(str(tmp_path / "file"))
    buffers = [b"%06d" % number for number in range(2 * IOV_MAX + 5)]

    write_all(files, descriptor, buffers, 0)

    assert taken == [IOV_MAX, IOV_MAX, 5]
    assert read_exactly(files, descriptor, 10**6, 0) == b"".join(buffers)
    files.close(descriptor)


def test_a_write_that_writes_nothing_is_an_error_and_no_endless_loop(tmp_path: Path) -> None:
    class StuckFiles(FileLayer):
        def pwritev(self, descriptor, buffers, position):  # type: ignore[no-untyped-def, override]
            return 0

    files = StuckFiles()
    descriptor = files.open_new(str(tmp_path / "file"))
    with pytest.raises(OSError, match="wrote none") as caught:
        write_all(files, descriptor, [b"x"], 0)
    assert caught.value.errno == EIO
    files.close(descriptor)


def test_reads_go_on_after_short_reads_and_stop_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    files = OneByteFiles()
    descriptor = files.open_read(str(tmp_path / "file"))

    assert read_exactly(files, descriptor, 3, 1) == b"bcd"
    assert read_exactly(files, descriptor, 10, 4) == b"ef"
    assert read_exactly(files, descriptor, 10, 6) == b""
    files.close(descriptor)


@pytest.mark.parametrize(
    ("number", "kind"), [(ENOSPC, DiskFullError), (EDQUOT, DiskFullError), (EIO, StorageError)]
)
def test_errors_say_what_was_being_done(number: int, kind: type[StorageError]) -> None:
    error = storage_error("create partition clicks-0", OSError(number, os.strerror(number)))

    assert type(error) is kind
    assert str(error) == f"create partition clicks-0: {os.strerror(number)}"


def test_a_directory_can_be_synced(tmp_path: Path) -> None:
    FileLayer().fsync_directory(str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        FileLayer().fsync_directory(str(tmp_path / "file"))


def test_the_faulty_layer_of_these_tests_fails_the_call_it_is_told_to(tmp_path: Path) -> None:
    files = FaultyFiles(1, EIO, only=("stat",))
    files.stat(str(tmp_path))
    with pytest.raises(OSError, match="Input/output"):
        files.stat(str(tmp_path))
    files.stat(str(tmp_path))
    assert (files.counted, files.failed) == (3, 1)


def test_a_late_fault_is_that_of_its_own_call_though_it_fails_by_itself(tmp_path: Path) -> None:
    files = FaultyFiles(0, EIO, only=("unlink",))
    files.is_late = True
    with pytest.raises(OSError, match="Input/output"):
        files.unlink(str(tmp_path / "nothing"))
    files.stat(str(tmp_path))
