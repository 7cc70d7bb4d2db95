"""Sessions on both servers: what may be relied on, and what is found again."""

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import RolledBackError
from server_process import ServerProcess, free_port

from hermes.coordination.sessions import Session
from hermes.errors import CoordinationError, CoordinationUnavailableError

Make = Callable[..., Session]


def test_a_session_in_a_new_chroot(connect: str, make_session: Make) -> None:
    session = make_session(connect)
    assert session.session_id is not None
    assert session.holds_lease(session.session_id)
    assert not session.holds_lease(session.session_id + 1)
    assert session.create_ephemeral("/a/b", b"x") is None
    assert session.create_ephemeral("/a/b", b"y") is None, "its own node, from another attempt"
    node = session.get("/a/b")
    assert node is not None
    assert (node.value, node.owner) == (b"y", session.session_id)
    assert session.children("/") == ["a"]
    assert session.children("/nowhere") == []
    assert session.get("/nowhere") is None


def test_another_s_node_is_reported_and_not_deleted(connect: str, make_session: Make) -> None:
    first, second = make_session(connect), make_session(connect)
    assert first.create_ephemeral("/n", b"first") is None
    other = second.create_ephemeral("/n", b"second")
    assert other is not None
    assert (other.value, other.owner) == (b"first", first.session_id)
    assert not second.delete_own("/n")
    assert first.delete_own("/n")
    assert second.create_ephemeral("/n", b"second") is None


def test_a_watch_for_a_node_that_is_not_there_yet(connect: str, make_session: Make) -> None:
    changed = threading.Event()
    watching = make_session(connect, on_change=changed.set)
    other = make_session(connect)
    reads: list[Any] = [watching.get, watching.children]
    for read in reads:
        path = f"/{read.__name__}"
        changed.clear()
        assert not read(path, watch=True)
        other.ensure_path(path)
        assert changed.wait(60)


def test_a_transaction_is_done_as_a_whole(connect: str, make_session: Make) -> None:
    session = make_session(connect)

    def fill(transaction: Any) -> None:
        transaction.create("/one", b"")
        transaction.set_data("/missing", b"")

    results = session.transact(fill)
    assert isinstance(results[0], RolledBackError)
    assert session.get("/one") is None


def test_the_lease_uses_the_timeout_that_the_server_grants(
    connect: str, make_session: Make
) -> None:
    assert make_session(connect, session_timeout_seconds=1000).timeout_seconds == pytest.approx(60)


def test_the_lease_ends_while_the_server_is_out_of_reach(
    own_server: ServerProcess, make_session: Make, eventually: Callable[..., Any]
) -> None:
    session = make_session(own_server.address, session_timeout_seconds=1.5)
    number = session.session_id
    assert number is not None
    assert session.create_ephemeral("/n", b"") is None
    own_server.pause()
    eventually(lambda: not session.holds_lease(number))
    with pytest.raises(CoordinationUnavailableError):
        session.get("/n")
    own_server.resume()
    eventually(lambda: session.session_id and session.holds_lease(session.session_id))


def test_an_expired_session_is_followed_by_another(
    connect: str, make_session: Make, eventually: Callable[..., Any], expire: Any
) -> None:
    session = make_session(connect)
    before = session.session_id
    assert before is not None
    assert session.create_ephemeral("/n", b"") is None
    expire(session)
    eventually(lambda: session.session_id not in (None, before))
    assert not session.holds_lease(before)
    assert session.create_ephemeral("/n", b"") is None


def test_a_server_that_restarts_is_found_again(
    own_server: ServerProcess, make_session: Make, eventually: Callable[..., Any]
) -> None:
    session = make_session(own_server.address, session_timeout_seconds=2)
    assert session.create_ephemeral("/n", b"") is None
    own_server.kill()
    eventually(lambda: session.session_id is None)
    own_server.start()
    number = eventually(lambda: session.session_id)
    assert session.create_ephemeral("/n", b"") is None
    assert session.holds_lease(number)


def test_no_server_is_a_clear_error() -> None:
    session = Session(f"127.0.0.1:{free_port()}", connection_timeout_seconds=0.2)
    with pytest.raises(CoordinationUnavailableError, match=r"did not answer within 0\.2 s"):
        session.start()


def test_a_wait_for_a_server_is_told_once_with_the_reason() -> None:
    told: list[str] = []
    session = Session(f"127.0.0.1:{free_port()}", connection_timeout_seconds=1.1)
    with pytest.raises(CoordinationUnavailableError):
        session.start(told.append)
    (text,) = told
    assert "has not answered yet (" in text
    assert text.endswith("Connection refused): trying for 1.1 s")


def test_a_server_that_answers_is_not_waited_for_aloud(make_session: Make, connect: str) -> None:
    told: list[str] = []
    session = Session(connect)
    session.start(told.append)
    session.stop()
    assert told == []


def test_a_server_that_says_nothing_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        session = Session(
            f"127.0.0.1:{silent.getsockname()[1]}",
            session_timeout_seconds=0.5,
            connection_timeout_seconds=0.2,
        )
        with pytest.raises(CoordinationUnavailableError, match=r"did not answer within 0\.2 s"):
            session.start()


@pytest.mark.parametrize("connect", ["", "host:port"])
def test_a_wrong_address_is_a_clear_error(connect: str) -> None:
    with pytest.raises(CoordinationError):
        Session(connect, connection_timeout_seconds=0.2).start()
