"""Errors of the file system, as users see them."""

import errno
import os
from pathlib import Path

import pytest

from hermes.spark.file_system import LocalFileSystem


def test_what_fails_on_an_open_file_says_which_one(tmp_path: Path, monkeypatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    path = tmp_path / "file"
    LocalFileSystem().write(path, b"content")
    with pytest.raises(OSError, match=r"Input/output error: .*/file'"):
        LocalFileSystem().sync(path)


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="there is no full device")
def test_a_full_disk_says_what_was_written(tmp_path: Path, monkeypatch) -> None:
    opened = open
    monkeypatch.setattr("builtins.open", lambda path, mode: opened("/dev/full", "wb"))
    with pytest.raises(OSError, match=r"No space left on device: .*/file'"):
        LocalFileSystem().write(tmp_path / "file", b"content")
