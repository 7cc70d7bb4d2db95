"""Every call of the operating system fails once, or for good, over a whole life of a directory."""

from collections.abc import Callable
from errno import EIO, EMFILE, ENOSPC
from pathlib import Path
from typing import Any

import pytest
from storage_fakes import OPERATIONS, WRITES, FaultyFiles
from storage_logs import NOW_MS, append, message, read_all

from hermes.errors import DiskFullError, LogOfflineError

Check = Callable[[Path, Any], None]


def calls_of_a_life(path: Path, lives: Any, **options: Any) -> int:
    """How many calls a life makes when nothing fails."""
    files = FaultyFiles(None, **options)
    life = lives(path, files)
    life.run()
    assert life.refusals == []
    assert files.opened == set()
    return files.counted


def test_a_life_without_faults(tmp_path: Path, lives: Any, check_books: Check) -> None:
    life = lives(tmp_path / "logs", FaultyFiles(None))
    life.run()
    assert life.refusals == []
    account = life.books["a-0"]
    assert len(account.accepted) == account.flushed == 16 * 20
    assert life.books["b-0"].earliest == 14 * 20
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "logs" / "c-0").exists()
    check_books(tmp_path / "logs", life.books)


@pytest.mark.parametrize("stays", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("error", [EIO, ENOSPC, EMFILE, None])
def test_the_nth_call_fails(
    tmp_path: Path, lives: Any, check_books: Check, error: int | None, stays: bool
) -> None:
    only = WRITES if error is None else OPERATIONS
    total = calls_of_a_life(tmp_path / "whole", lives, only=only)
    assert total > 40
    failures = 0
    for number in range(0, total, 3 if stays else 1):
        path = tmp_path / f"logs-{number}"
        files = FaultyFiles(number, error, stays=stays, only=only)
        life = lives(path, files)
        life.run()
        failures += files.failed
        assert files.opened == set(), number
        check_books(path, life.books)
        if error is None:
            assert life.refusals == []
            assert len(life.books["a-0"].accepted) == 16 * 20
    assert failures >= total // 4


@pytest.mark.parametrize("error", [EIO, ENOSPC])
def test_the_other_log_serves_whatever_happens_to_one(
    tmp_path: Path, lives: Any, check_books: Check, error: int
) -> None:
    total = calls_of_a_life(tmp_path / "whole", lives, path_part="a-0")
    for number in range(1, total, 2):
        path = tmp_path / f"logs-{number}"
        life = lives(path, FaultyFiles(number, error, stays=True, path_part="a-0"))
        life.run()
        untouched = life.books["b-0"]
        assert len(untouched.accepted) == untouched.flushed == 16 * 20
        assert untouched.earliest == 14 * 20
        assert all("a-0" in str(refusal) for refusal in life.refusals)
        check_books(path, life.books)


def test_a_disk_that_fills_up_and_is_emptied_again(tmp_path: Path, lives: Any) -> None:
    files = FaultyFiles(None, ENOSPC, stays=True, only=(*WRITES, "open_new", "mkdir"))
    life = lives(tmp_path / "logs", files)
    life.directory.open(NOW_MS)
    for _ in range(3):
        files.fail_at = None
        life.append("a-0")
        life.flush("a-0")
        files.fail_at = files.counted
        for _ in range(3):
            with pytest.raises(DiskFullError):
                life.append("a-0")
            with pytest.raises(DiskFullError):
                life.log("b-0")
            life.serve("a-0")
    files.fail_at = None
    life.append("b-0")
    assert len(life.books["a-0"].accepted) == 60
    assert life.directory.close() is True


def test_a_log_that_keeps_failing_keeps_its_visible_part(tmp_path: Path, lives: Any) -> None:
    files = FaultyFiles(None, EIO, stays=True, only=("fdatasync",))
    life = lives(tmp_path / "logs", files)
    life.directory.open(NOW_MS)
    life.append("a-0")
    life.flush("a-0")
    life.append("a-0")
    files.fail_at = files.counted
    log = life.log("a-0")
    for _ in range(5):
        with pytest.raises(LogOfflineError):
            log.flush()
        with pytest.raises(LogOfflineError):
            append(log, message("refused"))
        with pytest.raises(LogOfflineError):
            log.reopen(NOW_MS)
        assert read_all(log) == bytes(life.books["a-0"].accepted[:20])
    files.fail_at = None
    life.reopen("a-0")
    assert log.high_watermark == 40
    life.directory.close()
