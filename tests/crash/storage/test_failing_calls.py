"""Every call of the operating system fails once, or for good, over a whole life of a directory."""

import shutil
from collections.abc import Callable
from errno import EIO, EMFILE, ENOSPC
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kafka_logs import raw_batch
from storage_fakes import OPERATIONS, WRITES, FaultyFiles
from storage_logs import NOW_MS, append, message, open_log, read_all, settings

from hermes.errors import DiskFullError, LogOfflineError, StorageError
from hermes.storage import DataDirectory, LogSettings
from hermes.storage.checkpoints import EPOCHS_NAME, METADATA_NAME

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
    assert len(account.accepted) == account.flushed == 10 * 20
    assert life.books["b-0"].earliest == 8
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
    step = 4 if stays else 1 if error in (EIO, None) else 2
    for number in range(0, total, step):
        path = tmp_path / f"logs-{number}"
        files = FaultyFiles(number, error, stays=stays, only=only)
        life = lives(path, files)
        life.run()
        failures += files.failed
        assert files.opened == set(), number
        check_books(path, life.books)
        if error is None:
            assert life.refusals == []
            assert len(life.books["a-0"].accepted) == 10 * 20
    assert failures > total // (2 * step)


@pytest.mark.parametrize(("one", "other"), [("a-0", "b-0"), ("b-0", "a-0")])
@pytest.mark.parametrize("error", [EIO, ENOSPC])
def test_the_other_log_serves_whatever_happens_to_one(
    tmp_path: Path, lives: Any, check_books: Check, error: int, one: str, other: str
) -> None:
    files = FaultyFiles(None, path_part=one)
    healthy = lives(tmp_path / "whole", files)
    healthy.run()
    for number in range(1, files.counted, 4):
        path = tmp_path / f"logs-{number}"
        life = lives(path, FaultyFiles(number, error, stays=True, path_part=one))
        life.run()
        untouched = life.books[other]
        assert len(untouched.accepted) == 10 * untouched.size
        assert untouched.flushed == untouched.end
        assert untouched.earliest == healthy.books[other].earliest
        assert all(one in str(refusal) for refusal in life.refusals)
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


# -- a second fault while the first is being mended -----------------------------------------------


def log_before_a_flush(path: Path, files: FaultyFiles) -> tuple[Any, bytes]:
    """A log of a flushed segment and two that aren't."""
    log = open_log(path / "clicks-0", files, log_settings=settings(10))
    texts = [message(f"{number}") for number in range(3)]
    append(log, texts[0])
    log.flush()
    for number, text in enumerate(texts[1:]):
        append(log, text, now_ms=NOW_MS + number)
    return log, b"".join(texts)


def fails(files: FaultyFiles, number: int, call: Callable[[], object]) -> bool:
    """Whether a call reaches the fault that is armed `number` calls from now, and fails by it."""
    files.fail_at = files.counted + number
    try:
        call()
    except StorageError:
        return True
    finally:
        reached = files.counted > files.fail_at
        files.fail_at = None
    # A fault in a time index, say, is gone over.
    return reached


OPENS = ("open_new", "open_append", "open_read", "fsync_directory")


@pytest.mark.parametrize(
    ("error", "is_late", "only"),
    [(EIO, False, OPERATIONS), (EIO, True, OPERATIONS), (EMFILE, False, OPENS)],
    ids=["undone", "done all the same", "no descriptor"],
)
def test_no_call_that_fails_once_more_while_reopening_keeps_a_log_offline(
    tmp_path: Path, error: int, is_late: bool, only: tuple[str, ...]
) -> None:
    """Every call of the flush, and then every call of the re-opening: what was accepted is kept."""
    rounds = 0
    for first in count():
        second = 0
        while True:
            path = tmp_path / f"{first}-{second}"
            path.mkdir()
            files = FaultyFiles(None, error, only=only)
            log, expected = log_before_a_flush(path, files)
            files.is_late = is_late
            if not fails(files, first, log.flush):
                assert rounds > (5 if error == EMFILE else 100)
                return
            was_offline = log.is_offline
            again = was_offline and fails(files, second, lambda log=log: log.reopen(NOW_MS))
            if log.is_offline:
                assert log.reopen(NOW_MS).dropped_bytes == 0, (first, second)
            log.flush()
            assert read_all(log) == expected
            append(log, message("later"))
            log.flush()
            assert read_all(log) == expected + message("later")
            log.close()
            assert files.opened == set(), (first, second)
            rounds, second = rounds + 1, second + 1
            if not again:
                break


@pytest.mark.parametrize("is_flushed", [False, True], ids=["unflushed", "flushed"])
@pytest.mark.parametrize("is_late", [False, True], ids=["undone", "done all the same"])
def test_no_call_that_fails_while_a_segment_begins_keeps_a_log_offline(
    tmp_path: Path, is_late: bool, is_flushed: bool
) -> None:
    """What is left of the new segment, an empty file, has the name of the next try's."""
    offline = 0
    for number in count():
        path = tmp_path / str(number)
        path.mkdir()
        files = FaultyFiles(None, EIO)
        log, expected = log_before_a_flush(path, files)
        if is_flushed:
            log.flush()
        files.is_late = is_late
        if not fails(files, number, lambda log=log: append(log, message("rolls"))):
            break
        offline += log.is_offline
        log.reopen(NOW_MS)
        append(log, message("later"))
        log.flush()
        assert read_all(log) == expected + message("later"), number
        log.close()
    assert offline > 2


def test_a_start_in_which_a_call_fails_comes_to_what_any_other_does(tmp_path: Path) -> None:
    """As soon as what is offline is opened again: whatever was being made or deleted before."""

    def settings_for(topic: str) -> LogSettings:
        return settings(format="0.7" if topic == "a" else "kafka")

    def started(path: Path, fail_at: int | None) -> tuple[FaultyFiles, bool, dict[str, Any]]:
        """How it came out, and whether the start found partitions that it could not open."""
        files = FaultyFiles(fail_at)
        directory = DataDirectory(path, settings_for, files)
        try:
            was_refused = bool(directory.open(NOW_MS).offline)
        except StorageError:  # as a whole: the next start finds what this one did
            files.fail_at = None
            directory = DataDirectory(path, settings_for, files)
            was_refused = bool(directory.open(NOW_MS).offline)
        files.fail_at = None
        for topic, partition in [("a", 0), *(("k", number) for number in range(5))]:
            log = directory.create(topic, partition)
            if log.is_offline:
                directory.reopen(log, NOW_MS)
        found = {
            log.name: (log.format.name, log.earliest, log.end_offset, log.topic_id)
            for log in directory.logs.values()
        }
        directory.close(clean=False)
        assert files.opened == set()
        return files, was_refused, found

    whole = tmp_path / "whole"
    directory = DataDirectory(whole, settings_for, FaultyFiles(None))
    directory.open(NOW_MS)
    append(directory.create("a", 0), message("flushed"))
    for number in range(5):
        append(directory.create("k", number), raw_batch(0, 1))
    for log in directory.logs.values():
        log.flush()
    directory.close(clean=False)
    # One was being made on a full disk, one was being deleted; of a third the power took the id.
    for number, left in ((1, {METADATA_NAME}), (2, {EPOCHS_NAME, METADATA_NAME})):
        for each in (whole / f"k-{number}").iterdir():
            if each.name not in left:
                each.unlink()
    (whole / "k-1" / METADATA_NAME).write_bytes(b"")
    (whole / "k-2" / METADATA_NAME).write_bytes(b"")
    for each in (whole / "k-3").iterdir():
        if each.suffix != ".log":
            each.unlink()

    shutil.copytree(whole, tmp_path / "without")
    files, was_refused, expected = started(tmp_path / "without", None)
    assert not was_refused
    ends = {name: end for name, (_, _, end, _) in expected.items()}
    assert ends == {"a-0": ends["a-0"], "k-0": 1, "k-1": 0, "k-2": 0, "k-3": 1, "k-4": 1}
    refused = 0
    for number in range(files.counted):
        path = tmp_path / str(number)
        shutil.copytree(whole, path)
        files, was_refused, found = started(path, number)
        refused += was_refused
        expected["k-3"] = *expected["k-3"][:3], found["k-3"][3]  # an id that is made up each time
        assert found == expected, number
    assert refused > 20
