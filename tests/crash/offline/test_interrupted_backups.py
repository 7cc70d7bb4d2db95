"""The machine stops at every single call of a backup, and of a restore: what is on disk then?"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from storage_fakes import Crash, ForgetfulFiles, UnsyncedFiles
from storage_logs import NOW_MS, all_files, append, message, open_log, read_all, settings

from hermes.errors import StorageError
from hermes.offline.backup import BackupSource, Repository, restore, take_backup, verify
from hermes.storage import DataDirectory, FileLayer
from hermes.storage.layout import RESTORE_MARKER

SMALL = settings(segment_bytes=100)


def take(root: Path, files: FileLayer, now_ms: int = NOW_MS) -> None:
    """Back up what no broker is using."""
    source = BackupSource(str(root / "data"), None, SMALL)
    repository = Repository(root / "backups", files)
    take_backup(repository, source, now_ms=now_ms, version="1", pause=lambda: None, files=files)


def fill(root: Path, start: int) -> bytes:
    """Append to the log, and close it as a kill would."""
    log = open_log(root / "data" / "clicks-0", log_settings=SMALL)
    for number in range(start, start + 5):
        append(log, message(f"message {number:04}"), now_ms=NOW_MS + number)
    log.flush()
    log.close()
    return read_all_of(root / "data")


def read_all_of(path: Path) -> bytes:
    log = open_log(path / "clicks-0", log_settings=SMALL)
    data = read_all(log)
    log.close()
    return data


def crash_points(root: Path, scratch: Path, action: str) -> Iterator[Path]:
    """What a disk holds after a stop at each call: nothing that wasn't synced, or some of it.

    `root` is as it was before, each time.
    """
    number = 0
    while True:
        work = scratch / "work"
        shutil.copytree(root, work)
        files = ForgetfulFiles(str(work), crash_at=number)
        try:
            ACTIONS[action](work, files)
        except Crash:
            is_over = False
        else:
            is_over = True
        finally:
            files.close_all()
        files.disk(str(scratch / "disk"), Random(number) if number % 2 else None)
        yield scratch / "disk"
        shutil.rmtree(scratch / "disk")
        shutil.rmtree(work)
        if is_over:
            return
        number += 1


def _restore(root: Path, files: FileLayer) -> None:
    repository = Repository(root / "backups", files)
    name = repository.latest()
    manifest = repository.read(name)
    restore(repository.directory(name), manifest, str(root / "restored"), files=files)


ACTIONS = {
    "backup": lambda root, files: take(root, files, NOW_MS + 1),
    "restore": _restore,
    "keep": lambda root, files: Repository(root / "backups", files).keep(1),
}


def contents(repository: Repository, name: str, target: Path) -> bytes:
    """What a backup holds, verified and restored."""
    manifest = repository.read(name)
    assert list(verify(repository.directory(name), manifest)) == []
    restore(repository.directory(name), manifest, str(target), files=UnsyncedFiles())
    data = read_all_of(target)
    shutil.rmtree(target)
    return data


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "data").mkdir(parents=True)
    return tmp_path / "root"


def test_a_backup_is_whole_or_not_there_and_the_older_one_always_is(
    root: Path, tmp_path: Path
) -> None:
    older = fill(root, 0)
    take(root, UnsyncedFiles())
    newer = fill(root, 5)
    (first,) = Repository(root / "backups").names()
    seen = set()
    for number, disk in enumerate(crash_points(root, tmp_path, "backup")):
        repository = Repository(disk / "backups")
        assert repository.names()[0] == first
        found = [contents(repository, each, tmp_path / "target") for each in repository.names()]
        assert found in ([older], [older, newer])
        seen.add(len(found))
        if number % 7 == 0:  # the next one copes with whatever was left
            take(disk, UnsyncedFiles(), NOW_MS + 2)
            assert contents(repository, repository.latest(), tmp_path / "target") == newer
            assert set(os.listdir(disk / "backups")) == {".hermes_lock", *repository.names()}
    assert seen == {1, 2}
    assert number > 100


def test_what_is_restored_is_whole_or_refused(root: Path, tmp_path: Path) -> None:
    data = fill(root, 0)
    take(root, UnsyncedFiles())
    outcomes = set()
    for disk in crash_points(root, tmp_path, "restore"):
        target = disk / "restored"
        if not target.exists() or not all_files(target).keys() - {".hermes_lock"}:
            outcomes.add("nothing")
            continue
        directory = DataDirectory(target, lambda topic: SMALL, UnsyncedFiles())
        if (target / RESTORE_MARKER).exists():
            with pytest.raises(StorageError, match="a restore that was not finished"):
                directory.open(NOW_MS)
            outcomes.add("refused")
        else:
            directory.open(NOW_MS)
            directory.close()
            assert read_all_of(target) == data
            outcomes.add("whole")
    assert outcomes == {"nothing", "refused", "whole"}


def test_deleting_older_backups_leaves_the_newest(root: Path, tmp_path: Path) -> None:
    fill(root, 0)
    take(root, UnsyncedFiles())
    newer = fill(root, 5)
    take(root, UnsyncedFiles(), NOW_MS + 1)
    for disk in crash_points(root, tmp_path, "keep"):
        repository = Repository(disk / "backups")
        for name in repository.names():
            assert list(verify(repository.directory(name), repository.read(name))) == []
        assert contents(repository, repository.latest(), tmp_path / "target") == newer
