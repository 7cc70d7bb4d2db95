"""The file's keeper: trouble is said once, tried again ever more rarely, and its end is said."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, globalLogPublisher

from hermes.coordination.embedded.database import Stored
from hermes.coordination.embedded.jute_records import OPEN_ACL
from hermes.coordination.embedded.snapshots import condition_of, restore
from hermes.coordination.embedded.store import CoordinationStore, snapshot_path
from hermes.coordination.embedded.store_keeper import CHECK_SECONDS, SNAPSHOT_SECONDS, StoreKeeper
from hermes.coordination.embedded.tree_changes import NodeWritten
from hermes.errors import StorageError

NOW_MS = 1_700_000_000_000


class AtOnce(StoreKeeper[Stored]):
    """A keeper whose thread is this one."""

    is_in_thread = False

    def in_thread(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        self.is_in_thread = True
        try:
            called = maybeDeferred(function, *args)
        finally:
            self.is_in_thread = False
        return called


class Bench:
    """A keeper with a clock, and what it did."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.path = path
        self.served: list[Stored] = []
        self.ends = 0
        self.lines: list[str] = []
        self.prepared_in_thread: list[bool] = []
        self.keeper = AtOnce(
            self.clock, path, self._prepare, self.served.append, self._end, lambda: NOW_MS
        )

    def _prepare(self, stored: Stored) -> Stored:
        self.prepared_in_thread.append(self.keeper.is_in_thread)
        return stored

    def _end(self) -> None:
        self.ends += 1

    def observe(self, event: LogEvent) -> None:
        if event["log_namespace"].startswith("hermes.coordination.embedded.store_keeper"):
            self.lines.append(event["log_format"].format(**event))

    def wait(self, seconds: float) -> None:
        """Time goes by, a second at a time."""
        for _ in range(int(seconds)):
            self.clock.advance(1)

    def write(self, number: int) -> None:
        node = NodeWritten(f"/{number}", b"x", OPEN_ACL, 1, 1, 1, 0, 0, 0, 0, 0, 0)
        self.keeper.in_thread(self.keeper.store.write, [node], number).addErrback(
            self.keeper.failed
        )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "data" / "file")
    globalLogPublisher.addObserver(bench.observe)
    yield bench
    globalLogPublisher.removeObserver(bench.observe)
    bench.keeper.abandon()
    assert bench.clock.getDelayedCalls() == []


def damage(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def test_a_new_file_is_nothing_to_talk_about(bench: Bench) -> None:
    bench.keeper.start(is_new=True)
    assert bench.served == [Stored()]
    assert bench.lines == []


def test_a_missing_file_is_when_the_directory_is_not_new(bench: Bench) -> None:
    bench.keeper.start(is_new=False)
    assert bench.served == [Stored()]
    (line,) = bench.lines
    assert "there was no coordination file" in line
    assert "restore" in line


def test_a_damaged_file_is_said_once_and_served_when_it_is_restored(bench: Bench) -> None:
    store = CoordinationStore(bench.path)
    store.open()
    node = NodeWritten("/consumers/g", b"x", OPEN_ACL, 1, 1, 1, 0, 0, 0, 0, 0, 0)
    store.write([node], 1)
    store.snapshot(NOW_MS - 12 * 60_000)
    store.close()
    damage(bench.path)
    bench.keeper.start(is_new=False)
    bench.wait(120)
    (line,) = bench.lines
    assert "out of service, messages are served" in line
    assert (
        f"12 minutes old, with: hermes coordination restore {quote(str(bench.path.parent))}" in line
    )
    assert bench.served == []
    restore(bench.path, snapshot_path(bench.path))
    bench.wait(15)
    (served,) = bench.served
    assert served.nodes == (node,)
    assert bench.prepared_in_thread == [True]
    assert bench.lines[1:] == ["coordination serves again, after 120 s"] or (
        bench.lines[1].startswith("coordination serves again, after 1")
    )


def test_without_a_snapshot_the_advice_is_another(bench: Bench) -> None:
    bench.path.parent.mkdir()
    bench.path.write_bytes(b"")
    bench.keeper.start(is_new=False)
    (line,) = bench.lines
    assert "There is no snapshot" in line
    assert "--from COPY" in line


def test_a_snapshot_that_says_nonsense_of_its_time_is_no_hindrance(bench: Bench) -> None:
    """That is all of it that no digest is about."""
    store = CoordinationStore(bench.path)
    store.open()
    store.snapshot(1 << 60)
    store.close()
    bench.path.write_bytes(b"")
    bench.keeper.start(is_new=False)
    (line,) = bench.lines
    assert "hermes coordination restore" in line
    restore(bench.path, snapshot_path(bench.path))
    bench.wait(15)
    assert len(bench.served) == 1


def test_a_file_that_is_in_use_ends_the_start(bench: Bench) -> None:
    store = CoordinationStore(bench.path)
    store.open()
    with pytest.raises(StorageError, match="locked"):
        bench.keeper.start(is_new=True)
    store.close()


def test_a_disk_that_is_full_is_two_lines(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.keeper.start(is_new=True)
    bench.write(1)
    attempts: list[float] = []

    def full(*args: object) -> None:
        attempts.append(bench.clock.seconds())
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("hermes.coordination.embedded.store.apply_changes", full)
        bench.write(2)
        assert bench.ends == 1
        bench.wait(390)
        assert len(bench.lines) == 1
        assert "is full" in bench.lines[0]
        assert 25 < len(attempts) < 40  # at the end every 15 s
    bench.wait(15)
    assert len(bench.lines) == 2
    assert "serves again" in bench.lines[1]
    assert bench.served[-1].zxid == 1


def test_a_deleted_file_is_put_back_and_said(bench: Bench) -> None:
    bench.keeper.start(is_new=True)
    bench.write(1)
    bench.path.unlink()
    bench.wait(CHECK_SECONDS)
    assert bench.path.exists()
    (line,) = bench.lines
    assert "deleted" in line
    assert bench.ends == 0
    bench.write(2)
    assert bench.ends == 0


def test_a_replaced_file_is_served_from_then_on(bench: Bench, tmp_path: Path) -> None:
    bench.keeper.start(is_new=True)
    bench.write(1)
    other = CoordinationStore(tmp_path / "other")
    other.open()
    other.write([NodeWritten("/o", b"", OPEN_ACL, 1, 1, 1, 0, 0, 0, 0, 0, 0)], 70)
    other.close()
    (tmp_path / "other").rename(bench.path)
    bench.wait(CHECK_SECONDS)
    assert bench.ends == 1
    bench.wait(2)
    assert bench.served[-1].zxid == 70
    assert len(bench.lines) == 2


def test_snapshots_are_taken_when_something_has_changed(bench: Bench) -> None:
    bench.keeper.start(is_new=True)
    bench.wait(65)
    assert condition_of(snapshot_path(bench.path)).nodes == 0
    bench.write(1)
    bench.wait(SNAPSHOT_SECONDS + 5)
    assert condition_of(snapshot_path(bench.path)) == (1, 0, 0, NOW_MS)
    before = snapshot_path(bench.path).stat().st_ino
    bench.wait(3 * SNAPSHOT_SECONDS)
    assert snapshot_path(bench.path).stat().st_ino == before
    assert bench.lines == []


def test_a_stop_takes_a_last_snapshot(bench: Bench) -> None:
    bench.keeper.start(is_new=True)
    bench.write(1)
    bench.keeper.stop()
    assert condition_of(snapshot_path(bench.path)).nodes == 1
    assert condition_of(bench.path).nodes == 1


def test_nothing_is_tried_after_a_stop(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.path.parent.mkdir()
    bench.path.write_bytes(b"nonsense" * 1000)
    bench.keeper.start(is_new=False)
    opening: Deferred[Stored] = Deferred()
    with monkeypatch.context() as patch:
        patch.setattr(bench.keeper, "in_thread", lambda *args: opening)
        bench.wait(1)
    bench.keeper.stop()
    opening.callback(Stored())
    bench.wait(60)
    assert bench.served == []
    assert len(bench.lines) == 1


def test_what_is_damaged_is_no_last_snapshot(bench: Bench) -> None:
    bench.path.parent.mkdir()
    bench.path.write_bytes(b"nonsense" * 1000)
    bench.keeper.start(is_new=False)
    bench.keeper.stop()
    assert not snapshot_path(bench.path).exists()
    assert bench.path.read_bytes() == b"nonsense" * 1000
