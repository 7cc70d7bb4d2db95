"""A life of topics of Kafka's format on a disk that refuses calls, and then doesn't any more.

What was told holds, whatever was refused; refusals say what failed; and once the disk is well, each
log serves again, or has said that it is offline and comes back when it is asked to.
"""

import os
from collections.abc import Callable
from errno import EIO, EMFILE, ENOSPC
from pathlib import Path

from kafka_disk_lives import (
    Life,
    check_log,
    check_other,
    hold_to_the_books,
    settings_of,
)
from kafka_logs import read_records
from storage_fakes import OPERATIONS, WRITES, FaultyFiles
from storage_logs import NOW_MS

from hermes.errors import StorageError
from hermes.storage import DataDirectory

__all__ = ["FAULTS", "live_with", "total_failing_calls"]

#: What a call says that fails (None: a write that is cut short, and says so), whether what it was
#: to do is done all the same, and which calls fail.
FAULTS: dict[str, tuple[int | None, bool, tuple[str, ...]]] = {
    "EIO": (EIO, False, OPERATIONS),
    "EIO, done all the same": (EIO, True, OPERATIONS),
    "renames, done all the same": (EIO, True, ("rename",)),
    "ENOSPC": (ENOSPC, False, OPERATIONS),
    "EMFILE": (EMFILE, False, OPERATIONS),
    "short writes": (None, False, WRITES),
}


#: What a refusal names: a partition, a topic or the directory.
_WHERE = ("k-0", "d-0", "topic d", "/logs")
_WHY = (*(os.strerror(each) for each in (EIO, ENOSPC, EMFILE)), "exists already", "not opened yet")


class FailingLife(Life):
    """Goes on after each refusal, as a broker does.

    Attributes:
        refusals: all of them.
    """

    def __init__(self, path: Path, files: FaultyFiles) -> None:
        super().__init__(path, files)
        self.refusals: list[StorageError] = []

    def live(self) -> bool:
        """Do all but closing; say whether the directory could be opened."""
        if not self.attempt(lambda: self.directory.open(NOW_MS)):
            return False
        for step in self.steps():
            if not self.attempt(step):
                self.attempt(self.come_back)
        return True

    def attempt(self, step: Callable[[], object]) -> bool:
        """Do something that the disk may refuse; anything but a clear error of ours escapes."""
        try:
            step()
        except StorageError as error:
            self.refusals.append(error)
            return False
        return True

    def append(self) -> None:
        """See `Life.append`; what is refused isn't there."""
        before = len(self.books.appended)
        try:
            super().append()
        except StorageError:
            del self.books.appended[before:]
            log = self.directory.get("k", 0)
            assert log is None or log.is_offline or log.end_offset == before
            raise

    def come_back(self) -> None:
        """Bring `k` back, if it is offline. What was never flushed may be lost by that."""
        log = self.directory.get("k", 0)
        if log is None or not log.is_offline:
            return
        assert log.offline_reason
        self.directory.reopen(log, NOW_MS)
        assert self.books.flushed <= log.end_offset <= len(self.books.appended)
        del self.books.appended[log.end_offset :]


def total_failing_calls(path: Path, fault: str) -> int:
    """How many calls of a whole life can fail in a way; none does."""
    files = _files(fault)
    life = FailingLife(path / "logs", files)
    assert life.live()
    assert not life.refusals
    assert life.directory.close()
    return files.counted


def live_with(path: Path, fault: str, number: int, *, stays: bool) -> int:
    """Live with a call that fails, and hold everything against the books.

    Args:
        path: for the files; made.
        fault: of `FAULTS`.
        number: of the call.
        stays: whether all later ones fail as well, up to the last step.

    Returns:
        How many steps were refused.

    Raises:
        AssertionError: something does not hold.
    """
    files = _files(fault)
    files.fail_at, files.stays = number, stays
    life = FailingLife(path / "logs", files)
    is_open = life.live()
    files.fail_at = None
    for each in life.refusals:
        # It says where, and why: as the disk did, or that an earlier one did.
        assert any(part in str(each) for part in _WHERE), each
        assert any(part in str(each) for part in _WHY), each
    if not is_open:
        # It gave back all that it had taken: another may follow.
        life.directory = DataDirectory(path / "logs", settings_of, files)
        life.directory.open(NOW_MS)
    _serve_again(life)
    assert life.directory.close()
    assert files.opened == set()
    hold_to_the_books(path / "logs", life.books, was_refused=True)
    return len(life.refusals)


def _serve_again(life: FailingLife) -> None:
    """Hold what the broker shows to the books, now that the disk is well; go on from there."""
    books, log = life.books, life.directory.get("k", 0)
    if log is not None and log.high_watermark:
        # What was visible stays so, also while the log is offline.
        assert log.high_watermark >= books.flushed
        try:
            shown = read_records(log)
            assert shown == [books.appended[each.offset] for each in shown]
        except StorageError:
            # Nobody knows yet which of two files a segment is.
            assert log.is_offline
    life.come_back()
    if not life.attempt(life.append):
        # It has found what is left of a segment that did not begin, and so is offline now.
        assert life.log.is_offline
        life.come_back()
    before = len(life.refusals)
    for step in (life.append, life.flush):
        assert life.attempt(step), life.refusals[before:]
    assert books.flushed == len(books.appended)
    check_log(life.log, books, [])
    check_other(life.directory, books)
    books.other = "deleted"


def _files(fault: str) -> FaultyFiles:
    error, is_late, only = FAULTS[fault]
    files = FaultyFiles(None, error, only=only)
    files.is_late = is_late
    return files
