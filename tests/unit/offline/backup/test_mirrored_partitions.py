"""Backups of partitions that mirrors write to: no range is lost or there twice after a restore."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from mirrored_logs import SIZE, MirroredLog, SourceCopy
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, settings

from hermes.offline.backup import BackupSource, Repository, restore, take_backup
from hermes.offline.inspection import Limits
from hermes.offline.verification import DirectoryCheck, Finding
from hermes.storage.lock import DirectoryLock


@pytest.fixture
def log(tmp_path: Path) -> MirroredLog:
    (tmp_path / "data").mkdir()
    copies = [SourceCopy("v", is_verbatim=True), SourceCopy("s", is_verbatim=False)]
    log = MirroredLog(tmp_path / "data" / "clicks-0", UnsyncedFiles(), copies)
    log.open()
    return log


def fill(log: MirroredLog) -> None:
    for number in range(6):
        log.copy(log.copies[0], 3)
        log.copy(log.copies[1], 2)
        log.produce()
        if number % 2:
            log.flush()


def backed_up(
    tmp_path: Path, flushed: Callable[[str], Mapping[int, int]] | None
) -> tuple[MirroredLog, list[Finding]]:
    """Back up, restore, check, and open on another machine."""
    files = UnsyncedFiles()
    repository = Repository(tmp_path / "backups", files)
    source = BackupSource(str(tmp_path / "data"), flushed, settings(150))
    take_backup(repository, source, now_ms=NOW_MS, version="1", pause=lambda: None, files=files)
    name = repository.latest()
    target = tmp_path / "restored"
    restore(repository.directory(name), repository.read(name), str(target), files=files)
    findings = list(DirectoryCheck(target, Limits(), pause=lambda: None).run())
    files.boot = "another machine"
    copies = [SourceCopy("v", is_verbatim=True), SourceCopy("s", is_verbatim=False)]
    restored = MirroredLog(target / "clicks-0", files, copies)
    restored.open()
    return restored, findings


def test_a_backup_of_a_running_broker(tmp_path: Path, log: MirroredLog) -> None:
    fill(log)
    high_watermark = log.log.high_watermark
    log.copy(log.copies[0], 3)  # written down, but not in the backup
    lock = DirectoryLock(str(tmp_path / "data"), UnsyncedFiles())
    restored, findings = backed_up(tmp_path, lambda topic: {0: high_watermark})
    lock.release()
    assert [each.kind for each in findings] == ["notice"]
    assert "1 ranges end beyond the log's end" in findings[0].text
    assert restored.log.end_offset == high_watermark
    for each, original in zip(restored.copies, log.copies, strict=True):
        assert restored.log.sources.position(each.name) == original.acknowledged
    restored.check()
    for each in restored.copies:
        restored.copy(each, 3)
    restored.flush()
    restored.check()
    restored.log.close()
    log.log.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_backup_of_a_directory_that_nobody_uses(
    tmp_path: Path, log: MirroredLog, is_clean: bool
) -> None:
    fill(log)
    if is_clean:
        log.log.close()
        (tmp_path / "data" / ".kafka_cleanshutdown").touch()
    else:
        log.copy(log.copies[0], 3)
    end = log.log.end_offset
    restored, findings = backed_up(tmp_path, None)
    assert findings == []
    assert restored.log.end_offset == end
    restored.check()
    restored.copy(restored.copies[0], 1)
    restored.flush()
    restored.check()
    restored.log.close()
    log.log.close()


def checked(root: Path) -> list[tuple[str, str]]:
    check = DirectoryCheck(root, Limits(), pause=lambda: None)
    return [(each.kind, each.text) for each in check.run()]


def test_check_log_looks_at_positions(tmp_path: Path, log: MirroredLog) -> None:
    root, path = tmp_path / "data", tmp_path / "data" / "clicks-0" / "sources.positions"
    fill(log)
    assert checked(root) == []
    with open(path, "ab") as file:
        file.write(b"torn")
    assert checked(root) == [("notice", "4 bytes at its end are torn")]
    path.write_bytes(path.read_bytes()[:-4])
    log.log.close()
    (root / ".kafka_cleanshutdown").touch()
    assert checked(root) == []
    data = path.read_bytes()
    path.write_bytes(data[:50] + b"X" + data[51:])
    ((kind, text),) = checked(root)
    assert kind == "problem"
    assert "damaged at byte 12" in text
    assert "may be stored again" in text
    path.write_bytes(b"something else")
    assert checked(root)[0][1].startswith("doesn't begin as it was written")
    path.rename(path.with_name("sources.positions.damaged"))
    ((kind, text),) = checked(root)
    assert (kind, text.startswith("a sources.positions that was damaged")) == ("problem", True)


def test_check_log_finds_a_log_that_was_cut(tmp_path: Path, log: MirroredLog) -> None:
    fill(log)
    log.log.close()
    (tmp_path / "data" / ".kafka_cleanshutdown").touch()
    segments = sorted((tmp_path / "data" / "clicks-0").glob("*.kafka"))
    last = next(each for each in reversed(segments) if each.stat().st_size)
    with open(last, "r+b") as file:
        file.truncate(last.stat().st_size - 2 * SIZE)
    found = checked(tmp_path / "data")
    assert ("problem", True) in [(kind, "end beyond the log's end" in text) for kind, text in found]
