"""Whatever happens to the embedded server's file, it serves a committed state or refuses."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.coordination.embedded.jute_records import OPEN_ACL
from hermes.coordination.embedded.store import CoordinationStore
from hermes.coordination.embedded.tree_changes import (
    Change,
    ChildrenChanged,
    NodeDeleted,
    NodeWritten,
    SessionClosed,
    SessionOpened,
)
from hermes.errors import StorageError


class Files(NamedTuple):
    """A server's files, as a clean stop or a crash left them, and what was committed."""

    files: dict[str, bytes]
    states: list[object]


def node(path: str, data: bytes, zxid: int) -> NodeWritten:
    return NodeWritten(path, data, OPEN_ACL, zxid, zxid, zxid, 5, 6, 7, 8, 9, 0)


def transactions() -> Iterator[list[Change]]:
    """Enough that the database has pages of all kinds: inner ones, long data, free ones."""
    for number in range(120):
        changes: list[Change] = [node(f"/{number}", b"%d" % number * 40, number)]
        if number % 10 == 3:
            changes.append(node(f"/{number - 1}", b"long" * 4000, number))
        if number % 7 == 2:
            changes += [NodeDeleted(f"/{number - 2}"), SessionOpened(number, b"p" * 16, 4000)]
        if number % 14 == 3:
            changes += [SessionClosed(number - 1), ChildrenChanged(f"/{number}", number, number)]
        yield changes


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    directory = tmp_path_factory.mktemp("store")
    store = CoordinationStore(directory / "file")
    states: list[object] = [summary(store)]
    for number, changes in enumerate(transactions()):
        store.write(changes, number + 1)
        states.append(summary_of_open(store))
        if number == 90:
            store.close()
            store.open()  # from here on there is both a database and a write-ahead log
    crashed = content(directory)
    assert "file-wal" in crashed
    store.close()
    return {"crash": Files(crashed, states), "stop": Files(content(directory), states)}


def summary(store: CoordinationStore) -> object:
    """What a server would serve from a file."""
    stored = store.open()
    return (frozenset(stored.nodes), frozenset(stored.sessions), stored.zxid)


def summary_of_open(store: CoordinationStore) -> object:
    """The same, of one that is open, without closing it."""
    from hermes.coordination.embedded.database import read

    stored, _ = read(store._opened())
    return (frozenset(stored.nodes), frozenset(stored.sessions), stored.zxid)


damages = st.tuples(
    st.sampled_from(["flip", "cut", "zero", "noise"]),
    st.floats(0, 1),  # where
    st.integers(0, 7),  # which bit
    st.integers(1, 5000),  # how long
)


@given(st.sampled_from(["crash", "stop"]), st.booleans(), st.lists(damages, min_size=1, max_size=2))
@example("stop", False, [("cut", 0.5, 0, 1)])
@example("stop", False, [("cut", 0.999, 0, 1)])
@example("stop", False, [("noise", 0.0, 0, 100)])
@example("stop", False, [("zero", 0.0, 0, 4096)])
@example("crash", True, [("cut", 0.0, 0, 1)])
@example("crash", False, [("cut", 0.0, 0, 1)])
def test_a_damaged_file_serves_a_committed_state_or_nothing(
    left_behind: dict[str, Files],
    how: str,
    in_log: bool,
    damage: list[tuple[str, float, int, int]],
) -> None:
    files, states = left_behind[how]
    name = "file-wal" if in_log and "file-wal" in files else "file"
    data = bytearray(files[name])
    for kind, where, bit, length in damage:
        position = int(where * max(0, len(data) - 1))
        if kind == "cut":
            del data[position:]
        elif kind == "flip":
            data[position : position + 1] = bytes(
                byte ^ (1 << bit) for byte in data[position : position + 1]
            )
        else:
            fill = b"\0" if kind == "zero" else b"\xa5\x3c\x07"
            end = min(len(data), position + length)
            data[position:end] = (fill * length)[: end - position]
    directory = Path(tempfile.mkdtemp(prefix="damaged-"))
    try:
        for each, original in files.items():
            (directory / each).write_bytes(bytes(data) if each == name else original)
        store = CoordinationStore(directory / "file")
        try:
            served = summary(store)
        except StorageError:
            return
        finally:
            store.close()
        assert served in states
    finally:
        shutil.rmtree(directory)


def test_files_without_damage_are_served(left_behind: dict[str, Files], tmp_path: Path) -> None:
    for how, (files, states) in left_behind.items():
        directory = tmp_path / how
        directory.mkdir()
        for name, data in files.items():
            (directory / name).write_bytes(data)
        store = CoordinationStore(directory / "file")
        assert summary(store) == states[-1]
        store.close()
