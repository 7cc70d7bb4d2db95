"""What is committed of logs with other copies, as a data directory keeps it."""

from errno import EIO
from pathlib import Path

import pytest
from storage_fakes import FaultyFiles, UnsyncedFiles

from hermes.errors import StorageError
from hermes.storage.watermarks import Watermarks


@pytest.mark.parametrize("call", ["fdatasync", "rename", "fsync_directory"])
@pytest.mark.parametrize("is_late", [False, True])
def test_what_could_not_be_kept_for_certain_is_forgotten_all_the_same(
    tmp_path: Path, call: str, is_late: bool
) -> None:
    """A failed call may have been carried out: then the next start finds what was to be kept."""
    files = FaultyFiles(0, EIO, only=(call,))
    files.is_late = is_late
    marks = Watermarks(str(tmp_path), files)
    with pytest.raises(StorageError):
        marks.keep({("x", 0): 7})
    assert marks.get("x", 0) is None
    marks.forget([("x", 0)])
    found = Watermarks(str(tmp_path), UnsyncedFiles())
    assert found.load() == ""
    assert found.get("x", 0) is None
