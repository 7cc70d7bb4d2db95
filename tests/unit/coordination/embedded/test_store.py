"""The SQLite file: what was written is read again, all of a batch or nothing."""

import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes.coordination.embedded import database
from hermes.coordination.embedded import store as store_module
from hermes.coordination.embedded.jute_records import OPEN_ACL, Acl, AclIdentity
from hermes.coordination.embedded.snapshots import condition_of, restore
from hermes.coordination.embedded.store import CoordinationStore, snapshot_path
from hermes.coordination.embedded.tree_changes import (
    ChildrenChanged,
    NodeDeleted,
    NodeWritten,
    SessionClosed,
    SessionOpened,
)
from hermes.coordination.embedded.zookeeper_errors import DamagedError
from hermes.errors import StorageError

ACL = (*OPEN_ACL, Acl(1, AclIdentity("digest", "ü:\u4e16=")))
BIG = (1 << 62) + 1


def node(path: str, data: bytes | None = b"x") -> NodeWritten:
    return NodeWritten(path, data, ACL, BIG, 2, 3, 4, 5, 6, 7, 8, 9)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CoordinationStore]:
    store = CoordinationStore(tmp_path / "deep" / "coordination.sqlite")
    yield store
    store.close()


def change(path: Path, *statements: str) -> None:
    """Do something behind the store's back."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_new_file_is_empty(store: CoordinationStore) -> None:
    assert store.open() == ((), (), 0, None)
    assert store.was_created


def test_what_was_written_is_there_again(store: CoordinationStore) -> None:
    store.open()
    sessions = [SessionOpened(BIG, b"\0secret", 6000), SessionOpened(2, b"", 1)]
    nodes = [node("/a", None), node("/ü", b"\0\xff"), node("/gone")]
    store.write([*sessions, *nodes], 10)
    store.write(
        [
            ChildrenChanged("/a", 80, 81),
            NodeDeleted("/gone"),
            SessionClosed(2),
            node("/ü", b"new"),
            ChildrenChanged("/never there", 1, 1),
        ],
        BIG,
    )
    store.close()
    stored = store.open()
    assert not store.was_created
    assert sorted(stored.nodes) == sorted(
        [node("/a", None)._replace(created_children=80, pzxid=81), node("/ü", b"new")],
    )
    assert stored.sessions == (sessions[0],)
    assert stored.zxid == BIG


def test_whose_a_session_is_is_kept(store: CoordinationStore) -> None:
    store.open()
    store.write([SessionOpened(1, b"a", 6000), SessionOpened(2, b"b", 6000)], 2)
    store.write([SessionOpened(2, b"b", 6000, is_own=True)], 3)
    assert [each.is_own for each in store.open().sessions] == [False, True]


def test_values_are_bound_by_position_to_places_without_names(
    store: CoordinationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python 3.12 warns of the rest and 3.14 refuses it: ?1, :name, @name and $name are names.
    statements: list[str] = []
    connect = database.connect

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        return Traced(connection, statements)  # type: ignore[return-value]

    for module in (database, store_module):
        monkeypatch.setattr(module, "connect", traced)
    store.open()
    changes = [node("/a"), SessionOpened(1, b"", 1), ChildrenChanged("/a", 1, 2), NodeDeleted("/a")]
    store.write([*changes, SessionClosed(1)], 1)
    store.snapshot(5)
    assert len(statements) > 20
    assert not [each for each in statements if re.search(r"[?:@$]\w", each)]


class Traced:
    """A connection that notes what it is asked."""

    def __init__(self, connection: sqlite3.Connection, statements: list[str]) -> None:
        self._connection = connection
        self._statements = statements

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        self._statements.append(statement)
        return self._connection.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_parent_is_written_once_for_all_its_children(store: CoordinationStore) -> None:
    store.open()
    children = [ChildrenChanged("/a", number, number) for number in range(100)]
    seen: list[str] = []
    store._opened().set_trace_callback(seen.append)
    store.write([node("/a"), *children, node("/b"), NodeDeleted("/b"), *children[:7]], 1)
    assert sum(statement.startswith("UPDATE node") for statement in seen) == 1
    store._opened().set_trace_callback(None)
    store.write([*children, node("/a")], 2)  # the node says it all
    assert store.open().nodes == (node("/a"),)


def test_the_files_are_for_their_owner_alone(store: CoordinationStore) -> None:
    store.open()
    store.write([SessionOpened(1, b"secret", 6000)], 1)
    modes = {path.name: path.stat().st_mode & 0o777 for path in store.path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    assert store.path.name in modes


def test_a_copy_that_others_may_read_is_closed_to_them(store: CoordinationStore) -> None:
    store.open()
    store.close()
    store.path.chmod(0o644)
    store.open()
    store.write([SessionOpened(1, b"secret", 6000)], 1)
    modes = {path.stat().st_mode & 0o777 for path in store.path.parent.iterdir()}
    assert modes == {0o600}


def test_a_batch_is_written_as_a_whole_or_not_at_all(store: CoordinationStore) -> None:
    store.open()
    store.write([node("/a")], 1)
    with pytest.raises(StorageError, match="coordination can't use"):
        store.write([node("/b"), SessionOpened("no number", b"", 1)], 2)  # type: ignore[arg-type]
    stored = store.open()
    assert [each.path for each in stored.nodes] == ["/a"]
    assert stored.zxid == 1


def test_two_servers_cannot_use_one_file(store: CoordinationStore) -> None:
    store.open()
    with pytest.raises(StorageError, match="locked"):
        CoordinationStore(store.path).open()
    store.write([node("/a")], 1)


def test_a_file_of_another_kind_is_left_alone(store: CoordinationStore) -> None:
    store.path.parent.mkdir()
    content = b"this is no database, and longer than the header of one would be" * 40
    store.path.write_bytes(content)
    with pytest.raises(StorageError, match="not a database"):
        store.open()
    assert store.path.read_bytes() == content


def test_a_file_of_a_later_version_is_left_alone(store: CoordinationStore) -> None:
    store.open()
    store.close()
    change(store.path, "PRAGMA user_version = 3")
    with pytest.raises(StorageError, match="format 3"):
        store.open()


def test_the_log_of_a_file_that_is_gone_is_given_to_no_other(store: CoordinationStore) -> None:
    store.open()
    store.write([node("/a")], 1)
    log = store.path.with_name(f"{store.path.name}-wal")
    content = log.read_bytes()
    store.close()
    store.path.unlink()
    log.write_bytes(content)  # as after a crash
    with pytest.raises(DamagedError, match="gone"):
        store.open()
    assert not store.path.exists()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        CoordinationStore(tmp_path / "file" / "coordination.sqlite").open()


# -- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE node SET data = x'00' WHERE path = '/a'",
        "UPDATE node SET version = version + 1 WHERE path = '/a'",
        "UPDATE node SET pzxid = 77 WHERE path = '/a'",
        "UPDATE node SET created_children = 0 WHERE path = '/a'",
        "UPDATE node SET path = '/c' WHERE path = '/a'",
        "DELETE FROM node WHERE path = '/a'",
        "DELETE FROM node",
        "UPDATE session SET timeout_ms = 1",
        "DELETE FROM session",
        "UPDATE counter SET value = value + 1 WHERE name = 'zxid'",
        "DELETE FROM counter",
        "DROP TABLE node",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = 1",
    ],
)
def test_whatever_is_not_what_was_written_is_refused(
    store: CoordinationStore, statement: str
) -> None:
    store.open()
    store.write([node("/a"), node("/b"), SessionOpened(1, b"s", 6000)], 5)
    store.close()
    change(store.path, statement)
    with pytest.raises(DamagedError, match=re.escape(str(store.path))):
        store.open()


def test_an_emptied_file_is_refused(store: CoordinationStore) -> None:
    store.open()
    store.close()
    store.path.write_bytes(b"")
    with pytest.raises(DamagedError, match="empty"):
        store.open()
    assert store.path.read_bytes() == b""


def test_a_missing_file_whose_snapshot_is_there_is_refused(store: CoordinationStore) -> None:
    store.open()
    store.snapshot(1)
    store.close()
    store.path.unlink()
    with pytest.raises(DamagedError, match="gone"):
        store.open()
    assert not store.path.exists()
    snapshot_path(store.path).unlink()
    store.open()
    assert store.was_created


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_a_link_is_not_followed(store: CoordinationStore, tmp_path: Path, suffix: str) -> None:
    store.open()
    store.close()
    store.path.with_name(store.path.name + suffix).unlink(missing_ok=True)
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"")
    store.path.with_name(store.path.name + suffix).symlink_to(foreign)
    with pytest.raises(StorageError, match="not a regular file"):
        store.open()
    assert foreign.read_bytes() == b""


# -- a file that somebody touches while it is open ----------------------------------------------


def test_a_file_that_was_deleted_is_put_back(store: CoordinationStore) -> None:
    store.open()
    store.write([node("/a")], 1)
    store.put_back_if_deleted()
    assert store.times_put_back == 0
    for path in store.path.parent.iterdir():
        path.unlink()
    store.put_back_if_deleted()
    assert store.times_put_back == 1
    store.put_back_if_deleted()
    store.path.unlink()
    store.write([node("/b")], 2)  # looks for itself: what it promises is on disk
    assert store.times_put_back == 2
    stored = store.open()
    assert [each.path for each in stored.nodes] == ["/a", "/b"]
    assert stored.zxid == 2
    assert store.path.stat().st_mode & 0o777 == 0o600


def test_a_write_ahead_log_that_was_deleted_costs_nothing(
    store: CoordinationStore, tmp_path: Path
) -> None:
    store.open()
    store.write([node("/a")], 1)
    store.path.with_name(f"{store.path.name}-wal").unlink()
    store.write([node("/b")], 2)
    assert store.times_put_back == 1
    store.write([node("/c")], 3)
    assert store.times_put_back == 1
    crashed = CoordinationStore(tmp_path / "crashed" / store.path.name)
    shutil.copytree(store.path.parent, crashed.path.parent)
    assert [each.path for each in crashed.open().nodes] == ["/a", "/b", "/c"]
    crashed.close()


def test_a_directory_that_was_removed_is_not_made_again(store: CoordinationStore) -> None:
    store.open()
    shutil.rmtree(store.path.parent)
    with pytest.raises(StorageError):
        store.put_back_if_deleted()
    with pytest.raises(DamagedError, match="gone"):
        store.open(may_create=False)
    assert not store.path.parent.exists()


def test_a_file_that_was_replaced_is_not_written_over(store: CoordinationStore) -> None:
    store.open()
    store.write([node("/a")], 1)
    other = store.path.with_name("other")
    other.write_bytes(b"something else")
    other.rename(store.path)
    with pytest.raises(StorageError, match="replaced"):
        store.put_back_if_deleted()
    assert store.path.read_bytes() == b"something else"


# -- snapshots ----------------------------------------------------------------------------------


def test_a_snapshot_holds_what_was_written(store: CoordinationStore) -> None:
    store.open()
    store.write([node("/a"), SessionOpened(1, b"s", 6000)], 7)
    assert store.snapshot(1_700_000_000_000)
    assert not store.snapshot(1_700_000_000_001)  # there is nothing new
    store.write([node("/b")], 8)
    path = snapshot_path(store.path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert condition_of(path) == (1, 0, 1, 1_700_000_000_000)
    assert store.snapshot(1_700_000_000_002)
    assert condition_of(path) == (2, 0, 1, 1_700_000_000_002)
    assert {each.name for each in path.parent.iterdir()} == {
        store.path.name,
        f"{store.path.name}-wal",
        path.name,
    }


def test_a_link_in_the_place_of_a_snapshot_is_replaced(
    store: CoordinationStore, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"mine")
    store.open()
    for name in (".snapshot", ".snapshot.new"):
        store.path.with_name(store.path.name + name).symlink_to(foreign)
    store.write([node("/a")], 7)
    store.snapshot(1)
    assert foreign.read_bytes() == b"mine"
    assert not snapshot_path(store.path).is_symlink()


def test_a_damaged_file_never_replaces_a_good_snapshot(store: CoordinationStore) -> None:
    store.open()
    store.write([node("/a")], 1)
    store.snapshot(1)
    store.write([node("/b")], 2)
    store._opened().execute("UPDATE node SET version = 99 WHERE path = '/a'")
    with pytest.raises(DamagedError):
        store.snapshot(2)
    assert condition_of(snapshot_path(store.path)).taken_ms == 1


def test_a_restored_snapshot_has_no_sessions_and_a_new_epoch(store: CoordinationStore) -> None:
    store.open()
    owned = node("/consumers/g/owners/t/0-0")
    lasting = [
        node("/consumers/g")._replace(owner=0),
        node("/consumers/g/offsets/t/0-0", b"5")._replace(owner=0),
    ]
    store.write([*lasting, owned, SessionOpened(9, b"s", 6000)], 40)
    store.snapshot(1)
    store.write([lasting[1]._replace(data=b"900")], 41)
    store.close()
    content = store.path.read_bytes()
    store.path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedError):
        store.open()
    assert restore(store.path, snapshot_path(store.path)) == (3, 1, 1, 1)
    stored = store.open()
    assert sorted(stored.nodes) == sorted(lasting)
    assert stored.sessions == ()
    assert stored.zxid == 1 << 32
    damaged = store.path.with_name(f"{store.path.name}.damaged")
    assert damaged.read_bytes() == content[: len(content) // 2]


def test_an_older_backup_is_restored_into_a_newer_epoch_than_any_before(
    store: CoordinationStore, tmp_path: Path
) -> None:
    """Else clients that have seen a transaction of the last epoch would be turned away."""
    backup = tmp_path / "backup"
    store.open()
    store.snapshot(1)
    shutil.copy(snapshot_path(store.path), backup)
    store.close()
    restore(store.path, backup)
    store.open()
    store.write([node("/a")], (1 << 32) + 5000)
    store.snapshot(2)
    store.close()
    store.path.write_bytes(b"damaged" * 1000)
    restore(store.path, backup)
    assert store.open().zxid == 2 << 32


def test_what_was_replaced_is_kept_where_there_is_nothing_to_replace(
    store: CoordinationStore,
) -> None:
    """As where a restore was interrupted, and is done once more."""
    store.open()
    store.snapshot(1)
    store.close()
    store.path.write_bytes(b"damaged" * 1000)
    restore(store.path, snapshot_path(store.path))
    store.path.unlink()
    restore(store.path, snapshot_path(store.path))
    damaged = store.path.with_name(f"{store.path.name}.damaged")
    assert damaged.read_bytes() == b"damaged" * 1000


def test_nothing_is_restored_under_a_broker_that_serves(store: CoordinationStore) -> None:
    store.open()
    store.write([node("/a")], 1)
    store.snapshot(1)
    with pytest.raises(StorageError, match="stop it first"):
        restore(store.path, snapshot_path(store.path))
    store.write([node("/b")], 2)
    assert len(store.open().nodes) == 2


def test_nothing_is_restored_from_what_is_no_whole_copy(
    store: CoordinationStore, tmp_path: Path
) -> None:
    store.open()
    store.write([node("/a")], 1)
    store.close()
    bad = tmp_path / "bad"
    for content in (b"", b"x" * 5000, store.path.read_bytes()[:-100]):
        bad.write_bytes(content)
        with pytest.raises(StorageError, match="can't be used"):
            restore(store.path, bad)
    with pytest.raises(StorageError, match="no file"):
        restore(store.path, tmp_path / "none")
    assert len(store.open().nodes) == 1
