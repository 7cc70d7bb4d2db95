"""The SQLite file: what was written is read again, all of a batch or nothing."""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.coordination.embedded.changes import (
    ChildrenChanged,
    NodeDeleted,
    NodeWritten,
    SessionClosed,
    SessionOpened,
)
from hermes.coordination.embedded.records import OPEN_ACL, Acl, Identity
from hermes.coordination.embedded.store import _STATEMENTS, Store
from hermes.errors import StorageError

ACL = (*OPEN_ACL, Acl(1, Identity("digest", "ü:\u4e16=")))
BIG = (1 << 62) + 1


def node(path: str, data: bytes | None = b"x") -> NodeWritten:
    return NodeWritten(path, data, ACL, BIG, 2, 3, 4, 5, 6, 7, 8, 9)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "deep" / "coordination.sqlite")
    yield store
    store.close()


def test_a_new_file_is_empty(store: Store) -> None:
    assert store.open() == ((), (), 0)


def test_what_was_written_is_there_again(store: Store) -> None:
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
    assert sorted(stored.nodes) == sorted(
        [node("/a", None)._replace(created_children=80, pzxid=81), node("/ü", b"new")],
    )
    assert stored.sessions == (sessions[0],)
    assert stored.zxid == BIG


def test_no_statement_binds_names_by_position() -> None:
    # Python 3.12 warns of it and 3.14 refuses it; older ones say nothing, so ask SQLite's rule:
    # ?1, :name, @name and $name are names.
    for statement in _STATEMENTS.values():
        assert not re.search(r"[?:@$]\w", statement), statement


def test_the_files_are_for_their_owner_alone(store: Store) -> None:
    store.open()
    store.write([SessionOpened(1, b"secret", 6000)], 1)
    modes = {path.name: path.stat().st_mode & 0o777 for path in store.path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    assert store.path.name in modes


def test_a_batch_is_written_as_a_whole_or_not_at_all(store: Store) -> None:
    store.open()
    store.write([node("/a")], 1)
    with pytest.raises(StorageError, match="coordination can't use"):
        store.write([node("/b"), SessionOpened("no number", b"", 1)], 2)  # type: ignore[arg-type]
    stored = store.open()
    assert [each.path for each in stored.nodes] == ["/a"]
    assert stored.zxid == 1


def test_two_servers_cannot_use_one_file(store: Store) -> None:
    store.open()
    with pytest.raises(StorageError, match="locked"):
        Store(store.path).open()
    store.write([node("/a")], 1)


def test_a_file_of_another_kind_is_left_alone(store: Store) -> None:
    store.path.parent.mkdir()
    content = b"this is no database, and longer than the header of one would be" * 40
    store.path.write_bytes(content)
    with pytest.raises(StorageError, match="not a database"):
        store.open()
    assert store.path.read_bytes() == content


def test_a_file_of_a_later_version_is_left_alone(store: Store) -> None:
    store.open()
    store.close()
    database = sqlite3.connect(store.path)
    database.execute("PRAGMA user_version = 2")
    database.close()
    with pytest.raises(StorageError, match="format 2"):
        store.open()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        Store(tmp_path / "file" / "coordination.sqlite").open()
