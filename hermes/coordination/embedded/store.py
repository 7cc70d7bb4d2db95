"""The file that holds the tree and the sessions: SQLite, used by one thread at a time.

    nodes     a row a node, ephemeral ones included
    sessions  a row a session that is alive
    counters  zxid: the newest transaction that the rows reflect

A transaction is written as a whole, and is on disk when `write` returns (write-ahead log,
synchronous=FULL). The file is locked for as long as it is open.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hermes.coordination.embedded.changes import (
    Change,
    ChildrenChanged,
    NodeDeleted,
    NodeWritten,
    SessionClosed,
    SessionOpened,
)
from hermes.coordination.embedded.records import Acl, Identity
from hermes.errors import StorageError

__all__ = ["Store", "Stored"]

_FORMAT: Final = 1

_SCHEMA: Final = (
    "CREATE TABLE nodes (path TEXT PRIMARY KEY, data BLOB, acl TEXT NOT NULL,"
    " czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,"
    " ctime INTEGER NOT NULL, mtime INTEGER NOT NULL, version INTEGER NOT NULL,"
    " acl_version INTEGER NOT NULL, created_children INTEGER NOT NULL, owner INTEGER NOT NULL)",
    "CREATE TABLE sessions (session_id INTEGER PRIMARY KEY, password BLOB NOT NULL,"
    " timeout_ms INTEGER NOT NULL)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    "INSERT INTO counters VALUES ('zxid', 0)",
    f"PRAGMA user_version = {_FORMAT}",
)

# Values stand in the order of `_values`: by position, which is why no placeholder has a name.
_STATEMENTS: Final[dict[type[Change], str]] = {
    NodeWritten: "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ChildrenChanged: "UPDATE nodes SET created_children = ?, pzxid = ? WHERE path = ?",
    NodeDeleted: "DELETE FROM nodes WHERE path = ?",
    SessionOpened: "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)",
    SessionClosed: "DELETE FROM sessions WHERE session_id = ?",
}


class Stored(NamedTuple):
    """What was read from the file.

    Attributes:
        nodes: all of them, in no order.
        sessions: those that were alive.
        zxid: the newest transaction.
    """

    nodes: tuple[NodeWritten, ...]
    sessions: tuple[SessionOpened, ...]
    zxid: int


class Store:
    """One file.

    Args:
        path: of the file; it and its directory are created when they are missing.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._database: sqlite3.Connection | None = None

    def open(self) -> Stored:
        """Open the file and read it; blocks.

        Raises:
            StorageError: it can't be used; the text says why.
        """
        self.close()
        try:
            with self._errors():
                return self._open()
        except StorageError:
            self.close()
            raise

    def write(self, changes: Sequence[Change], zxid: int) -> None:
        """Write changes, all or none; blocks until they are on disk.

        Args:
            changes: of whole transactions, in order.
            zxid: of the last of them.

        Raises:
            StorageError: nothing was written. Close the store and open it again.
        """
        assert self._database is not None
        with self._errors(), _transaction(self._database) as database:
            for change in changes:
                database.execute(_STATEMENTS[type(change)], _values(change))
            database.execute("UPDATE counters SET value = ? WHERE name = 'zxid'", (zxid,))

    def close(self) -> None:
        """Close the file; blocks. Nothing happens when it is not open."""
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _open(self) -> Stored:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch(0o600)  # it holds the passwords of sessions; SQLite's other files follow it
        self._database = database = sqlite3.connect(
            self.path, timeout=0, isolation_level=None, check_same_thread=False
        )
        for setting in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            database.execute(f"PRAGMA {setting}").fetchall()
        with _transaction(database):
            self._prepare(database)
        return _read(database)

    def _prepare(self, database: sqlite3.Connection) -> None:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in _SCHEMA:
                database.execute(statement)
        elif version != _FORMAT:
            raise StorageError(
                f"{self.path} has format {version}; this version of Hermes knows {_FORMAT}"
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say of which file SQLite complains."""
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            raise StorageError(f"coordination can't use {self.path}: {error}") from error


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _read(database: sqlite3.Connection) -> Stored:
    columns = ", ".join(NodeWritten._fields)
    nodes = tuple(
        NodeWritten(path, data, _decode_acl(acl), *numbers)
        for path, data, acl, *numbers in database.execute(f"SELECT {columns} FROM nodes")
    )
    sessions = tuple(
        SessionOpened(*row)
        for row in database.execute("SELECT session_id, password, timeout_ms FROM sessions")
    )
    (zxid,) = database.execute("SELECT value FROM counters WHERE name = 'zxid'").fetchone()
    return Stored(nodes, sessions, zxid)


def _values(change: Change) -> tuple[object, ...]:
    """What a change's statement is given, in its order."""
    match change:
        case NodeWritten(path, data, acl):
            return (path, data, json.dumps(acl), *change[3:])
        case ChildrenChanged(path, created_children, pzxid):
            return (created_children, pzxid, path)
        case _:
            return change


def _decode_acl(text: str) -> tuple[Acl, ...]:
    return tuple(
        Acl(permissions, Identity(scheme, name)) for permissions, (scheme, name) in json.loads(text)
    )
