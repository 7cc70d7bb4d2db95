"""The power goes, or the process is killed, at every call: no range of a source is there twice.

After each crash the mirrors go on, once from the positions that the log tells, and once from what
was acknowledged to them, as those that don't ask. Nothing is missing then either, and all of it is
in order.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from mirrored_logs import SIZE, MirroredLog, SourceCopy
from storage_fakes import Crash, ForgetfulFiles, UnsyncedFiles

from hermes.errors import SourceOverlapError
from hermes.storage import source_positions


def copies() -> list[SourceCopy]:
    return [SourceCopy("v", is_verbatim=True), SourceCopy("s", is_verbatim=False)]


def life(log: MirroredLog) -> None:
    """Open, copy both sources between a producer's messages, flush now and then, roll, close."""
    log.open()
    verbatim, some = log.copies
    log.produce()
    log.copy(verbatim, 3)
    for number in range(3):
        log.copy(verbatim)
        log.copy(some, 3)
        log.produce()
        if number != 1:
            log.flush()
        log.copy(verbatim, 1)
        log.copy(verbatim, 2)
    log.flush()
    log.log.delete_oldest(1)
    log.copy(some, 5)
    log.produce()
    log.produce()
    log.flush()
    log.copy(some, 1)  # of a message that isn't copied
    log.log.flush()
    log.copy(verbatim)
    log.log.flush()
    log.log.close()


def crashed(path: Path, crash_at: int | None) -> tuple[MirroredLog, ForgetfulFiles]:
    (path / "clicks-0").mkdir(parents=True)
    files = ForgetfulFiles(str(path), crash_at)
    log = MirroredLog(path / "clicks-0", files, copies())
    if crash_at is None:
        life(log)
    else:
        with pytest.raises(Crash):
            life(log)
    files.close_all()
    return log, files


def resume_by_position(log: MirroredLog, source: SourceCopy) -> None:
    log.copy(source, 3)


def resume_by_acknowledgement(log: MirroredLog, source: SourceCopy) -> None:
    """Send again what was sent before, in other batches; cut what overlaps."""
    begin = source.acknowledged
    while True:
        try:
            added = log.send(source, begin, 3)
        except SourceOverlapError:
            begin = log.log.sources.position(source.name)
            continue
        begin += 3 * SIZE
        if added is not None:
            return


RESUMES = [resume_by_position, resume_by_acknowledgement]


def goes_on(
    directory: Path,
    sources: Sequence[SourceCopy],
    boot: str,
    resume: Callable[[MirroredLog, SourceCopy], None],
) -> None:
    """Open after a crash, check, copy more, and open once more."""
    files = UnsyncedFiles()
    files.boot = boot
    log = MirroredLog(directory, files, [replace(each) for each in sources])
    log.open()
    log.check()
    assert log.log.high_watermark == log.log.end_offset
    for source in log.copies:
        resume(log, source)
    log.produce()
    log.flush()
    log.check()
    log.log.close()
    again = MirroredLog(directory, files, log.copies)
    again.open(clean=True)
    again.check()
    resume(again, again.copies[0])
    again.flush()
    again.check()
    again.log.close()


def test_a_life_that_ends_well(tmp_path: Path) -> None:
    log, files = crashed(tmp_path / "logs", None)
    assert [each.acknowledged > 8 * SIZE for each in log.copies] == [True, True]
    files.disk(str(tmp_path / "disk"))
    goes_on(tmp_path / "disk" / "clicks-0", log.copies, "another start", resume_by_position)


@pytest.mark.parametrize("resume", RESUMES)
@pytest.mark.parametrize("seeds", [(), range(4)], ids=["all unsynced lost", "some of it lost"])
def test_power_lost_at_every_call(
    tmp_path: Path, seeds: Sequence[int], resume: Callable[[MirroredLog, SourceCopy], None]
) -> None:
    _, whole = crashed(tmp_path / "whole", None)
    acknowledged = set()
    for number in range(len(whole.calls)):
        log, files = crashed(tmp_path / f"logs-{number}", number)
        for seed in seeds or (None,):
            disk = tmp_path / f"disk-{number}-{seed}"
            files.disk(str(disk), None if seed is None else Random(number * 1000 + seed))
            goes_on(disk / "clicks-0", log.copies, "another start", resume)
        acknowledged.add(log.copies[0].acknowledged)
    assert len(acknowledged) > 3


@pytest.mark.parametrize("resume", RESUMES)
def test_the_process_killed_at_every_call(
    tmp_path: Path, resume: Callable[[MirroredLog, SourceCopy], None]
) -> None:
    """What was appended is all there then, of producers as well."""
    _, whole = crashed(tmp_path / "whole", None)
    for number in range(len(whole.calls)):
        log, files = crashed(tmp_path / f"logs-{number}", number)
        goes_on(tmp_path / f"logs-{number}" / "clicks-0", log.copies, files.boot, resume)


def test_a_sync_that_another_thread_makes_while_a_record_is_written(tmp_path: Path) -> None:
    """That one may come too early for the record: the next flush must not rely on it."""

    class RacingFiles(ForgetfulFiles):
        """Syncs what there is just before a record is written, as a flush under way does."""

        is_racing = False

        def before(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            if self.is_racing and name == "pwritev":
                self.is_racing = False
                log.log.state.sidecars[0].sync()
            return super().before(name, arguments)

    (tmp_path / "logs" / "clicks-0").mkdir(parents=True)
    files = RacingFiles(str(tmp_path / "logs"))
    log = MirroredLog(tmp_path / "logs" / "clicks-0", files, copies())
    log.open()
    log.copy(log.copies[0])
    log.flush()
    files.is_racing = True
    log.copy(log.copies[0])
    assert not files.is_racing
    log.flush()
    files.disk(str(tmp_path / "disk"))
    goes_on(tmp_path / "disk" / "clicks-0", log.copies, "another start", resume_by_position)
    log.log.close()


class BusyFiles(ForgetfulFiles):
    """Lets mirrors go on while a file of positions is replaced.

    Attributes:
        busy: what they do then.
        replaced: how often that was.
    """

    def __init__(self, root: str, crash_at: int | None = None) -> None:
        self.busy: Callable[[], object] = lambda: None
        self.replaced = 0
        self._draft = -1
        super().__init__(root, crash_at)

    def after(self, name: str, arguments: tuple[Any, ...], result: Any) -> None:
        super().after(name, arguments, result)
        if name == "open_new" and arguments[0].endswith("sources.positions.new"):
            self._draft = result
        elif name == "fdatasync" and arguments[0] == self._draft:
            self._draft = -1
            self.replaced += 1
            self.busy()


def busy_life(path: Path, crash_at: int | None) -> tuple[MirroredLog, BusyFiles]:
    (path / "clicks-0").mkdir(parents=True)
    files = BusyFiles(str(path), crash_at)
    log = MirroredLog(path / "clicks-0", files, copies(), segment_bytes=1000)
    try:
        log.open()
        log.copy(log.copies[0])
        files.busy = lambda: [log.copy(each, 3) for each in log.copies]
        for _ in range(3):
            log.copy(log.copies[0])
            log.produce()
            log.flush()
    except Crash:
        pass
    files.busy = lambda: None
    files.crash_at = None
    files.close_all()
    return log, files


@pytest.mark.parametrize("is_power_lost", [True, False])
def test_a_crash_while_the_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_power_lost: bool
) -> None:
    monkeypatch.setattr(source_positions, "_LEAST_REWRITE_BYTES", 100)
    monkeypatch.setattr(source_positions, "_REWRITE_FACTOR", 1)
    _, whole = busy_life(tmp_path / "whole", None)
    assert whole.replaced >= 4
    for number in range(len(whole.calls)):
        log, files = busy_life(tmp_path / f"logs-{number}", number)
        if not is_power_lost:
            path = tmp_path / f"logs-{number}" / "clicks-0"
            goes_on(path, log.copies, files.boot, resume_by_acknowledgement)
            continue
        for seed in (None, 1, 2):
            disk = tmp_path / f"disk-{number}-{seed}"
            files.disk(str(disk), None if seed is None else Random(number * 1000 + seed))
            goes_on(disk / "clicks-0", log.copies, "another start", resume_by_acknowledgement)
