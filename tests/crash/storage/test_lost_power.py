"""The power goes at every call: what was reported as flushed is there afterwards.

LevelDB's idea: a file layer that forgets what was never synced, here with every mixture in between
too, since a disk may have written any of it.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from storage_fakes import Crash, ForgetfulFiles
from storage_logs import NOW_MS, append, message, open_log, read_all, settings

Check = Callable[[Path, Any], None]


def crashed_life(path: Path, lives: Any, crash_at: int | None) -> tuple[Any, ForgetfulFiles]:
    path.mkdir()
    files = ForgetfulFiles(str(path), crash_at)
    life = lives(path, files)
    if crash_at is None:
        life.run()
    else:
        with pytest.raises(Crash):
            life.run()
    files.close_all()  # as the end of a process does; the lock is one of them
    return life, files


def test_a_life_that_ends_well_is_all_on_disk(
    tmp_path: Path, lives: Any, check_books: Check
) -> None:
    life, files = crashed_life(tmp_path / "logs", lives, None)
    files.disk(str(tmp_path / "disk"))
    assert (tmp_path / "disk" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "disk" / "c-0").exists()
    for account in life.books.values():
        assert account.end == account.flushed
        assert len(account.accepted) == 10 * account.size
    check_books(tmp_path / "disk", life.books)


@pytest.mark.parametrize("seeds", [(), range(2)], ids=["all unsynced lost", "some of it lost"])
def test_power_lost_at_every_call(
    tmp_path: Path, lives: Any, check_books: Check, seeds: tuple[int, ...]
) -> None:
    _, whole = crashed_life(tmp_path / "whole", lives, None)
    flushed = set()
    for number in range(len(whole.calls)):
        life, files = crashed_life(tmp_path / f"logs-{number}", lives, number)
        for seed in seeds or (None,):
            disk = tmp_path / f"disk-{number}-{seed}"
            files.disk(str(disk), None if seed is None else Random(number * 1000 + seed))
            check_books(disk, life.books)
        flushed.add(life.books["a-0"].flushed)
    assert len(flushed) > 4


def test_the_process_killed_at_every_call(tmp_path: Path, lives: Any, check_books: Check) -> None:
    """Nothing written is lost then, flushed or not; only a call is cut short."""
    _, whole = crashed_life(tmp_path / "whole", lives, None)
    for number in range(len(whole.calls)):
        life, _ = crashed_life(tmp_path / f"logs-{number}", lives, number)
        check_books(tmp_path / f"logs-{number}", life.books)
        for name, account in life.books.items():
            if (tmp_path / f"logs-{number}" / name).exists():
                account.flushed = max(account.flushed, account.end)
        check_books(tmp_path / f"logs-{number}", life.books)


@pytest.mark.parametrize("segment_bytes", [0, 25, 45, 1000])
@pytest.mark.parametrize("count", range(1, 5))
def test_a_log_that_grows_and_rolls_while_a_segment_is_being_synced(
    tmp_path: Path, count: int, segment_bytes: int
) -> None:
    (tmp_path / "logs" / "clicks-0").mkdir(parents=True)
    files = ForgetfulFiles(str(tmp_path / "logs"))
    log = open_log(tmp_path / "logs" / "clicks-0", files, log_settings=settings(segment_bytes))
    parts = [message(f"message{number:03d}") for number in range(2 + count)]

    def append_from(start: int, end: int) -> None:
        for number in range(start, end):
            append(log, parts[number], now_ms=NOW_MS + number)

    append_from(0, 2)
    files.meanwhile = lambda: append_from(2, len(parts))
    for name, end in (("during", 2), ("after", len(parts))):
        assert log.flush() == 20 * end
        files.disk(str(tmp_path / name))
        assert read_all(log) == b"".join(parts[:end])
        assert read_all(open_log(tmp_path / name / "clicks-0")) == b"".join(parts[:end])
        for number in range(end):
            assert log.offsets_before(NOW_MS + number, 1, NOW_MS + 100) == [20 * number + 20]
    log.close()
    assert files.opened == set()


class KeepingFiles(ForgetfulFiles):
    """A broken layer: claims to have synced and has not."""

    def after(self, name: str, arguments: tuple[Any, ...], result: Any) -> None:
        if name != "fdatasync":
            super().after(name, arguments, result)


def test_this_test_would_notice_a_missing_sync(
    tmp_path: Path, lives: Any, check_books: Check
) -> None:
    (tmp_path / "logs").mkdir()
    files = KeepingFiles(str(tmp_path / "logs"))
    life = lives(tmp_path / "logs", files)
    life.run()
    files.disk(str(tmp_path / "disk"))
    with pytest.raises(AssertionError):
        check_books(tmp_path / "disk", life.books)
