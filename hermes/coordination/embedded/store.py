"""The file that holds the tree and the sessions, used by one thread at a time.

A transaction is written as a whole, and is on disk when `write` returns (SQLite's write-ahead log,
synchronous=FULL). The file is locked for as long as it is open. It is never followed as a link, and
it is refused when it is not exactly what was written: an empty tree, or half of one, would send
every consumer group back to where it started.

    <file>            the database (database.py)
    <file>-wal        SQLite's write-ahead log, while the file is open or after a crash
    <file>.snapshot   a whole copy of some minutes ago (snapshots.py)
"""

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from hermes.coordination.embedded.database import (
    FORMAT,
    Stored,
    apply_changes,
    check,
    connect,
    create_private,
    publish,
    read,
    transaction,
    write_new,
)
from hermes.coordination.embedded.tree_changes import Change
from hermes.coordination.embedded.zookeeper_errors import DamagedError, OutOfServiceError
from hermes.errors import StorageError

#: The file's name in a broker's log_dir: a file, since Kafka 0.7 dies on strange directories.
FILE_NAME: Final = ".hermes_coordination"

#: What SQLite puts beside a database; it belongs to that one and to no other.
BESIDE: Final = ("-wal", "-shm", "-journal")

_OTHERS: Final = 0o077

_ERRORS: Final = (sqlite3.Error, OSError, ValueError, TypeError, KeyError, RecursionError)


def snapshot_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.snapshot")


class CoordinationStore:
    """One file; it and its directory are created when they are missing.

    `was_created`: whether the last `open` found no file, and no snapshot, and created one.
    `times_put_back`: how often the file or its log was deleted while it was open, and put back.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.was_created = False
        self.times_put_back = 0
        self._database: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._log_identity = (0, 0)  # of the write-ahead log
        self._total = 0  # of the rows' digests
        self._has_changed = False  # since the last snapshot

    def open(self, may_create: bool = True) -> Stored:
        """Open the file, read it, and see that it can be written; blocks.

        Raises:
            DamagedError: it is not what was written, or it is gone and can't have been deleted to
                start without: its snapshot exists.
            OutOfServiceError: the disk is full or fails.
            StorageError: it can't be used for another reason; the text says why.
        """
        self.close()
        try:
            with self._errors():
                return self._open(may_create)
        except StorageError:
            self.close()
            raise

    def write(self, changes: Sequence[Change], zxid: int) -> None:
        """Write the changes of whole transactions, all or none; blocks until they are on disk.

        StorageError: nothing was written. Close the store and open it again.
        """
        try:
            self._check_in_place()
            with transaction(self._opened()) as database:
                total = apply_changes(database, changes, zxid, self._total)
        except (OutOfServiceError, *_ERRORS) as error:
            raise self._told(error) from error
        self._total = total
        self._has_changed = True

    def put_back_if_deleted(self) -> None:
        """Write the file again if somebody has deleted it, without any loss; blocks.

        StorageError: another file is in its place, or it can't be put back. Close, and open again.
        """
        with self._errors():
            self._check_in_place()

    def snapshot(self, now_ms: int) -> bool:
        """Write a copy of the file in place of the last one, if there is anything new; blocks.

        Returns whether there was. Raises StorageError: the last copy is still there.
        """
        target = snapshot_path(self.path)
        if not self._has_changed and target.exists():
            return False
        temporary = target.with_name(f"{target.name}.new")
        with self._errors():
            self._copy(temporary)
            with closing(connect(temporary)) as copy:
                check(copy)  # a damaged copy never takes the place of a good one
                copy.execute("PRAGMA journal_mode = OFF").fetchall()
                copy.execute("INSERT OR REPLACE INTO counter VALUES ('taken_ms', ?)", (now_ms,))
            publish(temporary, target)
        self._has_changed = False
        return True

    def close(self) -> None:
        database, self._database = self._database, None
        if database is None:
            return
        database.close()
        # SQLite leaves the log of a file that was moved away, and would give it to the next one.
        log = self._beside("-wal")
        with suppress(OSError):
            if _identity(self.path) != self._identity and _identity(log) == self._log_identity:
                log.unlink()

    def _open(self, may_create: bool) -> Stored:
        self.was_created = not self._is_there()
        if self.was_created:
            if not may_create:
                raise DamagedError("it is gone")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_new(self.path, Stored())
        database = self._connect()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise StorageError(
                f"{self.path} has format {version}; this version of Hermes knows {FORMAT}"
            )
        if version != FORMAT:
            raise DamagedError("its header is not what was written")
        return self._read(database)

    def _read(self, database: sqlite3.Connection) -> Stored:
        stored, self._total = read(database)
        self._has_changed = True  # for all that is known
        with transaction(database):  # on a full disk this fails here, before anybody is served
            apply_changes(database, (), stored.zxid, self._total)
        self._log_identity = _identity(self._beside("-wal"))
        return stored

    def _connect(self) -> sqlite3.Connection:
        self._identity = _identity(self.path)
        if stat.S_IMODE(os.lstat(self.path).st_mode) & _OTHERS:  # a copy that somebody put there
            os.chmod(self.path, 0o600)
        database = self._database = connect(self.path)
        for setting in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            database.execute(f"PRAGMA {setting}").fetchall()
        return database

    def _is_there(self) -> bool:
        beside = [path for path in map(self._beside, BESIDE) if _check_kind(path) is not None]
        found = _check_kind(self.path)
        if found is None:
            for path in (*beside, snapshot_path(self.path)):
                if path.exists():
                    raise DamagedError(f"it is gone, though {path.name} exists")
            return False
        if found.st_size == 0:
            raise DamagedError("it is empty")
        return True

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            raise StorageError(f"{self.path} is not open")
        return self._database

    def _check_in_place(self) -> None:
        try:
            if _identity(self.path) != self._identity:
                raise OutOfServiceError("another file has taken its place under the running broker")
            is_whole = _identity(self._beside("-wal")) == self._log_identity
        except FileNotFoundError:
            is_whole = False
        if not is_whole:
            self._put_back()
            self.times_put_back += 1

    def _put_back(self) -> None:
        temporary = self._beside(".new")
        self._copy(temporary)
        has_changed = self._has_changed
        with suppress(FileNotFoundError):
            if _identity(self._beside("-wal")) == self._log_identity:
                self._beside("-wal").unlink()
        self.close()
        publish(temporary, self.path)
        self._read(self._connect())
        self._has_changed = has_changed

    def _copy(self, temporary: Path) -> None:
        temporary.unlink(missing_ok=True)
        create_private(temporary)
        self._opened().execute("VACUUM INTO ?", (str(temporary),))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OutOfServiceError, *_ERRORS) as error:
            raise self._told(error) from error

    def _told(self, error: Exception) -> StorageError:
        if isinstance(error, OutOfServiceError):
            return type(error)(f"{self.path}: {error}")
        return _kind_of(error)(f"coordination can't use {self.path}: {error}")


def _kind_of(error: Exception) -> type[StorageError]:
    if isinstance(error, OSError):
        is_disk = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG)
        return OutOfServiceError if is_disk else StorageError
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF  # what is above it only explains
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PERM):
        return StorageError
    if primary in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY):
        return OutOfServiceError
    return DamagedError


def _identity(path: Path) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def _check_kind(path: Path) -> os.stat_result | None:
    """Look at a file without following it; None when there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise DamagedError(f"{path.name} is not a regular file; it is not followed and not used")
    return found
