"""Backups of data directories that hold damage: named, and copied all the same."""

import os
import shutil
from collections.abc import Mapping
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from kafka_logs import append_values
from storage_fakes import UnsyncedFiles, WatchedFiles
from storage_logs import NOW_MS, append, message, settings

from hermes.offline.backup import BackupSource, Repository, take_backup, verify
from hermes.offline.backup.manifest import BackupManifest, DamagedRange
from hermes.offline.backup.taking import CompletedBackup
from hermes.storage import DataDirectory
from hermes.storage.damage import MOST_RANGES

FORMATS = ("0.7", "kafka")
LENGTH = 250


def filled(
    path: Path, log_format: str, *, state: str = "stopped", length: int = LENGTH
) -> Mapping[int, int] | None:
    """A data directory of `x-0` with about ten segments; what a broker says of it, if one runs."""
    log_settings = settings(segment_bytes=12 * length, format=log_format)
    directory = DataDirectory(path, lambda topic: log_settings, UnsyncedFiles())
    directory.open(NOW_MS)
    log = directory.create("x", 0)
    for number in range(100):
        if log_format == "kafka":
            append_values(log, payload(number, length))
        else:
            append(log, message(payload(number, length)), now_ms=NOW_MS + number)
    log.flush()
    watermarks = {0: log.high_watermark}
    if state == "stopped":
        directory.close()
    else:
        assert directory._lock is not None
        directory._lock.release()
    return watermarks if state == "running" else None


def payload(number: int, length: int = LENGTH) -> bytes:
    return b"%03d" % number + b"x" * length


def segments(path: Path) -> list[Path]:
    return sorted(each for each in (path / "x-0").iterdir() if each.suffix in (".log", ".kafka"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def take(
    root: Path, watermarks: Mapping[int, int] | None = None, *, files: Any = None, at: int = 0
) -> CompletedBackup:
    files = files or UnsyncedFiles()
    flushed = None if watermarks is None else lambda topic: watermarks
    return take_backup(
        Repository(root / "backups", files),
        BackupSource(str(root / "data"), flushed, settings()),
        now_ms=NOW_MS + at,
        version="1",
        pause=lambda: None,
        files=files,
    )


def expected(segment: Path, length: int = LENGTH) -> tuple[DamagedRange, ...]:
    """What is to be said of damage in the second frame of a segment."""
    base = int(segment.stem)
    path = f"data/x-0/{segment.stem}{segment.suffix}"
    if segment.suffix == ".log":
        return (DamagedRange(path, base + 1, base + 2),)
    size = len(message(payload(0, length)))
    return (DamagedRange(path, base + size, base + 2 * size),)


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("state", ["running", "stopped", "killed"])
@pytest.mark.parametrize("number", [0, 3, -1], ids=["first", "middle", "last"])
def test_damage_is_named_and_copied(
    tmp_path: Path, log_format: str, state: str, number: int
) -> None:
    watermarks = filled(tmp_path / "data", log_format, state=state)
    damaged = segments(tmp_path / "data")[number]
    flip(damaged, 500)
    first = take(tmp_path, watermarks)
    assert first.manifest.faults == []
    assert first.manifest.damaged is not None
    assert tuple(first.manifest.damaged) == expected(damaged)
    copied = tmp_path / "backups" / first.name / "data" / "x-0" / damaged.name
    assert copied.read_bytes()[: damaged.stat().st_size] == damaged.read_bytes()
    # What is linked isn't read again, and is no better for it.
    second = take(tmp_path, watermarks, at=1000)
    assert second.linked_bytes
    assert second.manifest.damaged == first.manifest.damaged
    read = Repository(tmp_path / "backups", UnsyncedFiles()).read(second.name)
    assert read.damaged == expected(damaged)


@pytest.mark.parametrize("log_format", FORMATS)
def test_nothing_is_read_twice_for_it(
    tmp_path: Path, log_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "data", log_format)
    looking, blind = WatchedFiles(), WatchedFiles()
    take(tmp_path, files=looking)
    monkeypatch.setattr("hermes.offline.backup.partition_copy.damage_of", lambda *arguments: [])
    shutil.rmtree(tmp_path / "backups")
    take(tmp_path, files=blind)
    assert looking.bytes_read == blind.bytes_read


@pytest.mark.parametrize("log_format", FORMATS)
def test_a_torn_end_is_no_damage(tmp_path: Path, log_format: str) -> None:
    filled(tmp_path / "data", log_format, state="killed")
    last = segments(tmp_path / "data")[-1]
    os.truncate(last, last.stat().st_size - 3)
    assert take(tmp_path).manifest.damaged == []


@pytest.mark.parametrize("log_format", FORMATS)
def test_the_end_of_a_segment_that_others_follow_is_damage(tmp_path: Path, log_format: str) -> None:
    filled(tmp_path / "data", log_format)
    second, third, *_ = segments(tmp_path / "data")[1:]
    flip(second, second.stat().st_size - 3)
    (found,) = take(tmp_path).manifest.damaged or ()
    assert (found.path, found.end) == (f"data/x-0/{second.name}", int(third.stem))


class UnreadableFiles(UnsyncedFiles):
    """A disk that gives some bytes of one file no more."""

    def __init__(self, path: Path, start: int, end: int) -> None:
        self._file, self._start, self._end = path.stat().st_ino, start, end
        self.pread = self._pread

    def _pread(self, descriptor: int, length: int, position: int) -> bytes:
        is_ours = os.fstat(descriptor).st_ino == self._file
        if is_ours and position < self._end and self._start < position + length:
            raise OSError(EIO, os.strerror(EIO))
        return os.pread(descriptor, length, position)


@pytest.mark.parametrize("log_format", FORMATS)
def test_what_the_disk_does_not_give_back_is_damage(
    tmp_path: Path, log_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.storage.damage._SECTOR_BYTES", 16)
    filled(tmp_path / "data", log_format, length=20_000)
    damaged = segments(tmp_path / "data")[3]
    taken = take(tmp_path, files=UnreadableFiles(damaged, 35_000, 35_010))
    assert taken.manifest.damaged is not None
    assert tuple(taken.manifest.damaged) == expected(damaged, 20_000)
    copied = (tmp_path / "backups" / taken.name / "data" / "x-0" / damaged.name).read_bytes()
    there = damaged.read_bytes()
    lost = slice(35_000 // 16 * 16, -(-35_010 // 16) * 16)
    assert (copied[: lost.start], copied[lost.stop :]) == (there[: lost.start], there[lost.stop :])
    assert not any(copied[lost])


def test_a_partition_that_can_not_be_looked_at_is_left_out(tmp_path: Path) -> None:
    filled(tmp_path / "data", "kafka")
    (tmp_path / "data" / "y-0").mkdir()
    damaged = segments(tmp_path / "data")[-1]
    taken = take(tmp_path, files=UnreadableFiles(damaged, 0, 10))
    assert taken.manifest.faults == ["x-0 is not in the backup: Input/output error"]
    assert [each.topic for each in taken.manifest.partitions] == ["y"]


@pytest.mark.parametrize("state", ["running", "stopped", "killed"])
@pytest.mark.parametrize(
    ("log_format", "name"),
    [
        ("0.7", "{first}.timeindex"),
        ("0.7", "{last}.timeindex"),
        ("kafka", "{first}.appends"),
        ("kafka", "{last}.appends"),
        ("kafka", "{second}.snapshot"),
        ("kafka", "leader-epoch-checkpoint"),
    ],
)
def test_messages_are_saved_also_where_a_file_beside_them_is_unreadable(
    tmp_path: Path, log_format: str, name: str, state: str
) -> None:
    watermarks = filled(tmp_path / "data", log_format, state=state)
    first, second, *_, last = (each.stem for each in segments(tmp_path / "data"))
    lost = tmp_path / "data" / "x-0" / name.format(first=first, second=second, last=last)
    if lost.suffix == ".snapshot":
        lost.write_bytes(bytes(8))
    taken = take(tmp_path, watermarks, files=UnreadableFiles(lost, 0, 8))
    assert taken.manifest.faults == [f"x-0: {lost.name} is not in the backup: Input/output error"]
    copied = tmp_path / "backups" / taken.name / "data" / "x-0"
    for each in segments(tmp_path / "data"):
        assert (copied / each.name).read_bytes() == each.read_bytes()
    assert list(verify(str(tmp_path / "backups" / taken.name), taken.manifest)) == []


def test_an_unreadable_file_of_the_broker_is_named(tmp_path: Path) -> None:
    filled(tmp_path / "data", "0.7")
    lost = tmp_path / "data" / ".hermes_topics"
    lost.write_bytes(b"{}")
    taken = take(tmp_path, files=UnreadableFiles(lost, 0, 2))
    assert taken.manifest.faults == [".hermes_topics is not in the backup: Input/output error"]
    assert [each.topic for each in taken.manifest.partitions] == ["x"]
    copied = os.listdir(tmp_path / "backups" / taken.name / "data")
    assert ".hermes_topics" not in copied


def test_very_much_damage_is_told_together(tmp_path: Path) -> None:
    log_settings = settings(segment_bytes=1_000_000)
    directory = DataDirectory(tmp_path / "data", lambda topic: log_settings, UnsyncedFiles())
    directory.open(NOW_MS)
    log = directory.create("x", 0)
    size = len(message(b"x" * 20))
    for _ in range(3 * MOST_RANGES):
        append(log, message(b"x" * 20))
    log.flush()
    end = log.high_watermark
    directory.close()
    (path,) = segments(tmp_path / "data")
    data = bytearray(path.read_bytes())
    for number in range(0, 3 * MOST_RANGES, 2):
        data[(number + 1) * size - 1] ^= 1
    path.write_bytes(data)
    found = take(tmp_path).manifest.damaged or ()
    assert len(found) == MOST_RANGES
    assert (found[-1].start, found[-1].end) == ((2 * MOST_RANGES - 2) * size, end - size)


def test_a_backup_of_a_version_that_did_not_look_is_not_linked(tmp_path: Path) -> None:
    filled(tmp_path / "data", "kafka")
    first = take(tmp_path)
    body = {
        **{name: getattr(first.manifest, name) for name in BackupManifest.__slots__},
        "damaged": None,
    }
    manifest = tmp_path / "backups" / first.name / "manifest.json"
    manifest.write_bytes(BackupManifest(**body).encode())
    flip(segments(tmp_path / "data")[2], 500)
    second = take(tmp_path, at=1000)
    assert (second.linked_bytes, len(second.manifest.damaged or ())) == (0, 1)
