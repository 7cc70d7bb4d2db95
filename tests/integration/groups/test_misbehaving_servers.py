"""Servers that don't keep to ZooKeeper's protocol: bounded in time and memory, and left again."""

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from misbehaving_zookeeper import MisbehavingZooKeeper, answer

from hermes.coordination import kazoo_bounds
from hermes.coordination.sessions import Session
from hermes.errors import CoordinationError, CoordinationUnavailableError

CHILDREN = 8
Serve = Callable[..., MisbehavingZooKeeper]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[MisbehavingZooKeeper] = []

    def start(*args: Any, **options: Any) -> MisbehavingZooKeeper:
        servers.append(MisbehavingZooKeeper(*args, **options))
        return servers[-1]

    yield start
    for each in servers:
        each.close()


def test_a_server_that_says_nothing_is_given_up_when_connecting_may_take_no_longer(
    serve: Serve,
) -> None:
    session = Session(
        serve(granted_ms=None).address,
        session_timeout_seconds=3600,
        connection_timeout_seconds=0.3,
    )
    with pytest.raises(CoordinationUnavailableError, match=r"within 0\.3 s"):
        session.start()  # the test itself would end after five minutes


@pytest.mark.parametrize("granted_ms", [1, 2**31 - 1])
def test_an_absurd_timeout_is_not_believed(serve: Serve, granted_ms: int) -> None:
    session = Session(serve(granted_ms=granted_ms).address)
    session.start()
    try:
        assert 0.1 <= session.timeout_seconds <= 60
    finally:
        session.stop()


def test_a_silent_server_that_granted_years_is_given_up(serve: Serve) -> None:
    server = serve(lambda *_: b"", granted_ms=2**31 - 1)
    session = Session(server.address, connection_timeout_seconds=0.3)
    with pytest.raises(CoordinationUnavailableError, match=r"within 0\.3 s"):
        session.start()


@pytest.mark.parametrize(
    "broken",
    [
        lambda xid: struct.pack(">iiqi", 16, xid + 7, 1, 0),  # another request's answer
        lambda xid: struct.pack(">i", 2**31 - 1) + b"\0" * 100,
        lambda xid: struct.pack(">i", -5),
        lambda xid: struct.pack(">i", 1000) + b"\xff" * 1000,
        lambda xid: struct.pack(">i", 3) + b"abc",
        lambda xid: answer(xid, error=-9999),
    ],
    ids=["xid", "endless", "negative", "garbage", "short", "unknown error"],
)
def test_an_answer_that_is_none_costs_the_connection_and_no_more(
    serve: Serve, eventually: Any, monkeypatch: pytest.MonkeyPatch, broken: Callable[[int], bytes]
) -> None:
    lengths: list[int] = []
    read = kazoo_bounds.ConnectionHandler._read

    def watched(self: Any, length: int, timeout: float) -> Any:
        lengths.append(length)
        return read(self, length, timeout)

    monkeypatch.setattr(kazoo_bounds.ConnectionHandler, "_read", watched)

    def react(xid: int, kind: int, number: int) -> bytes | None:
        return broken(xid) if number == 0 and kind == CHILDREN else None

    server = serve(react)
    session = Session(server.address, session_timeout_seconds=2)
    session.start()
    try:
        with pytest.raises(CoordinationError):
            session.children("/x")
        eventually(lambda: session.session_id is not None and _answers(session))
        assert max(lengths) <= 16 * 1024 * 1024
    finally:
        session.stop()


def _answers(session: Session) -> bool:
    try:
        return session.children("/x") == []
    except CoordinationError:
        return False


def test_a_server_that_only_answers_nonsense_is_asked_ever_rarer(
    serve: Serve, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []

    class Counted(kazoo_bounds.threading.Event):  # type: ignore[name-defined,misc]
        def wait(self, timeout: float | None = None) -> bool:
            rests.append(timeout or 0)
            return False  # at once

    server = serve(lambda xid, kind, _: answer(xid + 7) if kind == CHILDREN else None)
    session = Session(server.address)
    session._connection._over = Counted()
    session.start()
    try:
        for _ in range(20):
            with suppress(CoordinationError):
                session.children("/x")
        eventually(lambda: len(rests) > 8)
        assert rests[:3] == pytest.approx([0.1, 0.2, 0.4])
        assert max(rests) == 2
    finally:
        session.stop()


def test_a_server_that_falls_silent_is_left(serve: Serve, eventually: Any) -> None:
    asked = 0

    def react(xid: int, kind: int, number: int) -> bytes | None:
        nonlocal asked
        asked += 1
        return b"" if number == 0 and asked > 1 else None

    server = serve(react)
    session = Session(server.address, session_timeout_seconds=1)
    session.start()
    try:
        eventually(lambda: server.connections > 1)
        eventually(lambda: _answers(session))
    finally:
        session.stop()


def test_a_server_that_is_away_is_one_line(
    serve: Serve, eventually: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[Any] = []
    connect = kazoo_bounds.BoundedConnection._connect

    def counted(self: Any, *args: Any) -> Any:
        attempts.append(args)
        return connect(self, *args)

    monkeypatch.setattr(kazoo_bounds.BoundedConnection, "_connect", counted)
    server = serve()
    session = Session(server.address, session_timeout_seconds=1)
    session.start()
    server.close()
    eventually(lambda: len(attempts) > 5)
    session.stop()
    (line,) = caplog.records
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith(f"lost ZooKeeper at {server.address}, reconnecting")
