"""Files are flushed while they are written, and no error of a flush is lost."""

import errno
import threading
from pathlib import Path

import pytest

from hermes.spark.early_flush import _flushing, flushed_early
from hermes.spark.stores import LocalStore

LEAST = 1000


class Syncs:
    """Notes what is flushed; fails with an error's number if it has one."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.done: list[tuple[str, int]] = []
        self._changed = threading.Condition()

    def __call__(self, path: Path) -> None:
        with self._changed:
            self.done.append((path.name, path.stat().st_size))
            self._changed.notify_all()
        if self.number:
            raise OSError(self.number, "the disk is full")

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.done) >= count, 60)


def test_a_file_is_flushed_each_time_that_it_has_grown_enough(tmp_path) -> None:
    syncs = Syncs()
    directory = tmp_path / "not yet there"
    part = directory / "_temporary" / "0" / "part"
    with _flushing(directory, syncs, 0.001, LEAST):
        part.parent.mkdir(parents=True)
        (directory / "small").write_bytes(b"x" * (LEAST - 1))
        part.write_bytes(b"x" * LEAST)
        syncs.wait_for(1)
        part = part.rename(directory / "moved")
        with part.open("ab") as file:
            file.write(b"x" * (LEAST - 1))
            file.flush()
            (directory / "other").write_bytes(b"x" * LEAST)
            syncs.wait_for(2)
            file.write(b"x")
        syncs.wait_for(3)
    assert syncs.done == [("part", LEAST), ("other", LEAST), ("moved", 2 * LEAST)]


def write_until_flushed(directory: Path, syncs: Syncs, error: type[BaseException] | None) -> None:
    with _flushing(directory, syncs, 0.001, LEAST):
        (directory / "part").write_bytes(b"x" * LEAST)
        syncs.wait_for(1)
        (directory / "_SUCCESS").touch()
        if error is not None:
            raise error


def test_what_a_flush_reports_is_raised_at_the_end(tmp_path) -> None:
    with pytest.raises(OSError, match="the disk is full"):
        write_until_flushed(tmp_path, Syncs(errno.EIO), None)
    assert (tmp_path / "_SUCCESS").exists()


def test_the_error_of_the_block_wins(tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_until_flushed(tmp_path, Syncs(errno.EIO), KeyboardInterrupt)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESTALE])
def test_a_file_that_is_gone_is_no_error_and_is_tried_again(tmp_path, number) -> None:
    syncs = Syncs(number)
    with _flushing(tmp_path, syncs, 0.001, LEAST):
        (tmp_path / "part").write_bytes(b"x" * LEAST)
        syncs.wait_for(2)
        syncs.number = 0
    assert set(syncs.done) == {("part", LEAST)}


def test_no_thread_is_left(tmp_path) -> None:
    before = threading.active_count()
    with flushed_early(LocalStore(tmp_path), "attempt"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
