"""The SQLite database that holds the tree and the sessions: its tables, and what proves them whole.

    node      one row per node, ephemeral ones included, with the digest of its values
    session   one row per session that is alive; of the broker's own one is_own is 1, else 0
    counter   zxid: the newest transaction that the rows reflect; digest: of all rows and the zxid;
              in a snapshot also taken_ms: when it was taken, in ms since 1970

SQLite finds damage in its own structure, not in what it keeps. So every row counts in one sum,
which is written with each transaction and compared when the file is read: a file whose bytes have
changed, or that is a mixture of two states, is refused. Format 1, of the first versions, had none.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes.coordination.embedded.jute_records import Acl, AclIdentity
from hermes.coordination.embedded.tree_changes import (
    Change,
    ChildrenChanged,
    NodeDeleted,
    NodeWritten,
    SessionClosed,
    SessionOpened,
)
from hermes.coordination.embedded.zookeeper_errors import DamagedError

#: Which tables there are; in the header of the file.
FORMAT: Final = 2

_SCHEMA: Final = (
    "CREATE TABLE node (path TEXT PRIMARY KEY, data BLOB, acl TEXT NOT NULL,"
    " czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,"
    " ctime INTEGER NOT NULL, mtime INTEGER NOT NULL, version INTEGER NOT NULL,"
    " acl_version INTEGER NOT NULL, created_children INTEGER NOT NULL, owner INTEGER NOT NULL,"
    " digest INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE session (session_id INTEGER PRIMARY KEY, password BLOB NOT NULL,"
    " timeout_ms INTEGER NOT NULL, is_own INTEGER NOT NULL)",
    "CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    f"PRAGMA user_version = {FORMAT}",
)
_COLUMNS: Final = ", ".join(NodeWritten._fields)
_SESSION_COLUMNS: Final = ", ".join(SessionOpened._fields)
_SET_COUNTERS: Final = "INSERT OR REPLACE INTO counter VALUES ('zxid', ?), ('digest', ?)"
_MASK: Final = (1 << 63) - 1  # what SQLite's integers hold


class Stored(NamedTuple):
    """What a database holds. `taken_ms`: when a snapshot was taken, in ms since 1970; else None."""

    nodes: tuple[NodeWritten, ...] = ()
    sessions: tuple[SessionOpened, ...] = ()
    zxid: int = 0
    taken_ms: int | None = None


def connect(path: Path) -> sqlite3.Connection:
    """Open a database file, without touching it yet; any one thread at a time may use it."""
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def read(database: sqlite3.Connection) -> tuple[Stored, int]:
    """Read everything, and check that it is what was written.

    Returns what there is, and the sum of its rows' digests, which `apply_changes` continues from.
    Raises DamagedError: it is not; or `sqlite3.Error`, which mostly says the same.
    """
    nodes: list[NodeWritten] = []
    sessions, zxid, taken_ms, total = _walk(database, nodes.append)
    return Stored(tuple(nodes), sessions, zxid, taken_ms), total


def check(database: sqlite3.Connection) -> None:
    _walk(database, lambda node: None)


def _walk(
    database: sqlite3.Connection, found: Callable[[NodeWritten], None]
) -> tuple[tuple[SessionOpened, ...], int, int | None, int]:
    """Check everything, and give away the nodes.

    Returns the sessions, the zxid, when it was taken if it is a snapshot, the sum of the digests.
    """
    for (complaint,) in database.execute("PRAGMA quick_check(1)"):
        if complaint != "ok":
            raise DamagedError(" ".join(str(complaint).split())[:200])
    total = 0
    for *values, digest in database.execute(f"SELECT {_COLUMNS}, digest FROM node"):
        path, data, acl, *numbers = values
        node = NodeWritten(path, data, _decode_acl(acl), *numbers)
        if digest != _node_digest(node, acl):
            raise DamagedError("a node is not what was written")
        found(node)
        total += digest + _children_digest(path, node.created_children, node.pzxid)
    sessions = tuple(map(_session, database.execute(f"SELECT {_SESSION_COLUMNS} FROM session")))
    total += sum(map(_session_digest, sessions))
    counters = dict(database.execute("SELECT name, value FROM counter"))
    zxid = counters["zxid"]
    if counters["digest"] != _file_digest(total, zxid):
        raise DamagedError("nodes or sessions are missing, or of another time than the rest")
    return sessions, zxid, counters.get("taken_ms"), total & _MASK


def apply_changes(
    database: sqlite3.Connection, changes: Sequence[Change], zxid: int, total: int
) -> int:
    """Write changes, within a transaction of the caller's.

    Returns what becomes of `total`, the sum of the rows' digests.
    """
    for change in changes if len(changes) == 1 else _latest(changes):
        total += _apply(database, change)
    total &= _MASK
    database.execute(_SET_COUNTERS, (zxid, _file_digest(total, zxid)))
    return total


def write_new(path: Path, stored: Stored) -> None:
    """Write a database file atomically; it is on disk afterwards."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    create_private(temporary)
    with closing(connect(temporary)) as database:
        database.execute("PRAGMA journal_mode = OFF").fetchall()  # nobody else sees it yet
        with transaction(database):
            for statement in _SCHEMA:
                database.execute(statement)
            apply_changes(database, (*stored.nodes, *stored.sessions), stored.zxid, 0)
    publish(temporary, path)


def create_private(path: Path) -> None:
    """Create an empty file that only its owner may read: it will hold passwords of sessions."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o600))


def publish(temporary: Path, path: Path) -> None:
    """Give a finished file its name, durably."""
    _sync(temporary, os.O_RDWR)
    os.replace(temporary, path)
    _sync(path.parent, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- changes ------------------------------------------------------------------------------------


def _latest(changes: Sequence[Change]) -> Iterator[Change]:
    """Leave out what is written over: a thousand children change their parent a thousand times."""
    parents: dict[str, ChildrenChanged] = {}
    for change in changes:
        if isinstance(change, ChildrenChanged):
            parents[change.path] = change
            continue
        if isinstance(change, NodeWritten | NodeDeleted):
            parents.pop(change.path, None)  # the whole node, or its end, says more
        yield change
    yield from parents.values()


def _apply(database: sqlite3.Connection, change: Change) -> int:
    match change:
        case NodeWritten(path, data, acl):
            row, text, numbers = _node_row(database, path), _encode_acl(acl), change[3:]
            digest = _node_digest(change, text)
            database.execute(
                "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (path, data, text, *numbers, digest),
            )
            if row is not None and row[1:] == (change.created_children, change.pzxid):
                return digest - int(row[0])
            before = _row_share(path, row)
            after = digest + _children_digest(path, change.created_children, change.pzxid)
        case ChildrenChanged(path, created_children, pzxid):
            before = _node_share(database, path)
            database.execute(
                "UPDATE node SET created_children = ?, pzxid = ? WHERE path = ?",
                (created_children, pzxid, path),
            )
            after = _node_share(database, path)
        case NodeDeleted(path):
            before, after = _node_share(database, path), 0
            database.execute("DELETE FROM node WHERE path = ?", (path,))
        case SessionOpened(session_id):
            before, after = _session_share(database, session_id), _session_digest(change)
            database.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?)", change)
        case SessionClosed(session_id):
            before, after = _session_share(database, session_id), 0
            database.execute("DELETE FROM session WHERE session_id = ?", (session_id,))
    return after - before


def _node_share(database: sqlite3.Connection, path: str) -> int:
    """What a node's row counts in the sum; 0 when there is none."""
    return _row_share(path, _node_row(database, path))


def _node_row(database: sqlite3.Connection, path: str) -> Any:
    return database.execute(
        "SELECT digest, created_children, pzxid FROM node WHERE path = ?", (path,)
    ).fetchone()


def _row_share(path: str, row: Any) -> int:
    return 0 if row is None else row[0] + _children_digest(path, *row[1:])


def _session_share(database: sqlite3.Connection, session_id: int) -> int:
    row = database.execute(
        f"SELECT {_SESSION_COLUMNS} FROM session WHERE session_id = ?", (session_id,)
    ).fetchone()
    return 0 if row is None else _session_digest(_session(row))


def _session(row: tuple[Any, ...]) -> SessionOpened:
    session_id, password, timeout_ms, is_own = row
    return SessionOpened(session_id, password, timeout_ms, bool(is_own))


# -- digests ------------------------------------------------------------------------------------


def _node_digest(node: NodeWritten, acl: str) -> int:
    """Of all values but the two that `ChildrenChanged` sets, which have a digest of their own."""
    path, data, _, czxid, mzxid, _, ctime, mtime, version, acl_version, _, owner = node
    rest = (path, None, (), czxid, mzxid, 0, ctime, mtime, version, acl_version, 0, owner)
    return _digest((*rest, acl, data is None), data or b"")


def _children_digest(path: str, created_children: int, pzxid: int) -> int:
    return _digest(("children", path, created_children, pzxid))


def _session_digest(session: SessionOpened) -> int:
    return _digest(("session", *session))


def _file_digest(total: int, zxid: int) -> int:
    return (total + _digest(("zxid", zxid))) & _MASK


def _digest(values: tuple[object, ...], data: bytes = b"") -> int:
    text = repr(values).encode("utf-8", "surrogatepass")
    hashed = blake2b(text, digest_size=8)
    hashed.update(data)
    return int.from_bytes(hashed.digest(), "big") & _MASK


@lru_cache(maxsize=64)  # nearly all nodes have the same one
def _encode_acl(acl: tuple[Acl, ...]) -> str:
    return json.dumps(acl)


@lru_cache(maxsize=64)
def _decode_acl(text: str) -> tuple[Acl, ...]:
    return tuple(
        Acl(permissions, AclIdentity(scheme, name))
        for permissions, (scheme, name) in json.loads(text)
    )
