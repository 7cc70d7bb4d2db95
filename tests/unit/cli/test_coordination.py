"""`hermes coordination`: what an operator is told, and what is restored."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes.coordination.embedded.jute_records import OPEN_ACL
from hermes.coordination.embedded.store import FILE_NAME, CoordinationStore, snapshot_path
from hermes.coordination.embedded.tree_changes import NodeWritten


@pytest.fixture
def store(tmp_path: Path) -> CoordinationStore:
    """A broker's file, closed, with a snapshot that is an hour old and one node younger."""
    store = CoordinationStore(tmp_path / FILE_NAME)
    store.open()
    nodes = [
        NodeWritten(path, b"", OPEN_ACL, 1, 1, 1, 0, 0, 0, 0, 0, 0)
        for path in ("/consumers", "/consumers/a", "/consumers/b", "/consumers/a/ids")
    ]
    store.write(nodes, 1)
    store.snapshot(time.time_ns() // 1_000_000 - 3_600_000)
    store.write([nodes[0]._replace(path="/younger")], 2)
    store.close()
    return store


def test_show_says_what_the_file_and_its_snapshot_hold(run: Any, store: CoordinationStore) -> None:
    result = run("coordination", "show", store.path.parent)
    assert result.exit_code == 0
    file, snapshot = result.stdout.splitlines()
    assert file == f"{store.path}: 5 nodes, 2 consumer groups"
    assert snapshot.startswith(f"{snapshot_path(store.path)}: 4 nodes, 2 consumer groups, taken at")
    assert snapshot.endswith(", 60 minutes ago")


def test_show_what_is_damaged(run: Any, store: CoordinationStore) -> None:
    store.path.write_bytes(store.path.read_bytes()[:-100])
    result = run("coordination", "show", store.path.parent)
    assert result.exit_code == 1
    assert f"{store.path} can't be used" in result.stdout


def test_show_while_a_broker_serves(run: Any, store: CoordinationStore) -> None:
    store.open()
    result = run("coordination", "show", store.path.parent)
    store.close()
    assert result.exit_code == 1
    assert f"{store.path} can't be looked at while a broker serves from it" in result.stdout
    assert "60 minutes ago" in result.stdout


def test_show_a_file_of_a_newer_release(run: Any, tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 3")
    shown = run("coordination", "show", tmp_path).stdout.splitlines()
    assert shown[0] == f"{path} has format 3; this version of Hermes knows 2"


def test_restore_the_snapshot(run: Any, store: CoordinationStore) -> None:
    result = run("coordination", "restore", store.path.parent)
    assert result.exit_code == 0
    assert "restored from" in result.stdout
    assert "60 minutes ago" in result.stdout
    assert len(store.open().nodes) == 4
    store.close()


def test_a_copy_is_restored_instead_of_the_snapshot(
    run: Any, store: CoordinationStore, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    snapshot_path(store.path).rename(copy)
    store.path.unlink()
    result = run("coordination", "restore", store.path.parent, "--from", copy)
    assert result.exit_code == 0
    assert len(store.open().nodes) == 4
    store.close()


def test_nothing_to_restore_is_one_line(run: Any, tmp_path: Path) -> None:
    result = run("coordination", "restore", tmp_path)
    assert result.exit_code == 1
    assert result.stderr.startswith("hermes: there is no file")
    assert result.stderr.count("\n") == 1


def test_its_files_are_known_to_check_log(run: Any, store: CoordinationStore) -> None:
    result = run("check-log", store.path.parent)
    assert FILE_NAME not in result.stdout + result.stderr
    assert "0 notices" in result.stdout
