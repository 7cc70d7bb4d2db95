"""Sessions: how they begin, how they end, and what goes with them."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from kazoo.security import make_digest_acl

CLOSE = -11
PING = 11


def states(client: Any, make_seen: Any) -> Any:
    seen = make_seen()
    client.add_listener(seen)
    return seen


def expire(client: Any, make_client: Callable[..., Any], address: str) -> None:
    """End a client's session from outside: another one takes it over and closes it."""
    thief = make_client(address, client_id=client.client_id)
    thief.stop()


def test_a_session_is_negotiated(raw: Any) -> None:
    for wanted, given in ((1, 200), (5000, 5000), (10_000_000, 60_000)):
        timeout, session, password, rest = raw().connect(timeout_ms=wanted)
        assert timeout == given
        assert session > 0
        assert len(password) == 16
        assert any(password)
        assert rest == b""


def test_the_read_only_byte_is_answered_to_whoever_sent_it(raw: Any) -> None:
    assert raw().connect(read_only=b"\0")[3] == b"\0"
    assert raw().connect(read_only=b"\1")[3] == b"\0"


def test_a_session_goes_on_over_a_new_connection(raw: Any) -> None:
    first, second = raw(), raw()
    _, session, password, _ = first.connect()
    assert second.connect(session, password)[1:3] == (session, password)
    assert first.is_closed()
    assert second.call(-2, PING) == (-2, 0, b"")


@pytest.mark.parametrize("wrong", ["password", "session"])
def test_a_session_needs_its_password(raw: Any, wrong: str) -> None:
    first, second = raw(), raw()
    _, session, password, _ = first.connect()
    if wrong == "password":
        answer = second.connect(session, b"x" * 16)
    else:
        answer = second.connect(session + 12345, password)
    assert answer == (0, 0, bytes(16), b"")
    assert second.is_closed()


def test_a_closed_session_is_gone(raw: Any) -> None:
    first, second = raw(), raw()
    _, session, password, _ = first.connect()
    assert first.call(7, CLOSE) == (7, 0, b"")
    assert first.is_closed()
    assert second.connect(session, password)[:2] == (0, 0)


def test_a_client_from_the_future_is_turned_away(raw: Any) -> None:
    client = raw()
    with pytest.raises(EOFError):
        client.connect(last_zxid=1 << 40)


def test_closing_takes_the_ephemeral_nodes(connect: Callable[..., Any], seen: Any) -> None:
    owner, other = connect(), connect()
    owner.create("/e1", ephemeral=True)
    owner.create("/e2", ephemeral=True)
    owner.create("/kept")
    other.exists("/e1", watch=seen)
    owner.stop()
    assert seen.wait_for(1)[0].type == "DELETED"
    assert other.get_children("/") == ["kept"]


def test_silence_takes_the_ephemeral_nodes(client: KazooClient, raw: Any, seen: Any) -> None:
    """A client that says nothing for its timeout is taken for dead, and cut off."""
    silent = raw()
    _, session, password, _ = silent.connect(timeout_ms=300)
    path = (client.chroot + "/e").encode()
    acl = b"\0\0\0\1\0\0\0\x1f\0\0\0\5world\0\0\0\6anyone"
    body = len(path).to_bytes(4, "big") + path + b"\0\0\0\0" + acl + b"\0\0\0\1"
    assert silent.call(1, 1, body)[1] == 0
    if client.exists("/e", watch=seen):
        assert seen.wait_for(1)[0].type == "DELETED"
    assert client.exists("/e") is None
    assert silent.is_closed()
    assert raw().connect(session, password)[:2] == (0, 0)


def test_an_expired_session_is_replaced(
    connect: Callable[..., Any], make_client: Callable[..., Any], server: Any, make_seen: Any
) -> None:
    client, other = connect(), connect()
    client.create("/e", ephemeral=True)
    before = client.client_id[0]
    changes = states(client, make_seen)
    expire(client, make_client, server.address)
    changes.wait(lambda items: KazooState.LOST in items and items[-1] == KazooState.CONNECTED)
    assert client.client_id[0] != before
    assert other.exists("/e") is None
    client.create("/e", ephemeral=True)


def test_a_session_survives_a_lost_connection(connect: Callable[..., Any], make_seen: Any) -> None:
    client, other = connect(), connect()
    client.create("/e", ephemeral=True)
    before = client.client_id
    changes = states(client, make_seen)
    client._connection._socket.shutdown(2)
    changes.wait(lambda items: items[-2:] == [KazooState.SUSPENDED, KazooState.CONNECTED])
    assert client.client_id == before
    assert other.exists("/e").ephemeralOwner == before[0]


def test_authentication_is_sent_again(connect: Callable[..., Any], make_seen: Any) -> None:
    client = connect(auth_data=[("digest", "u:p")])
    client.create("/a", b"x", acl=[make_digest_acl("u", "p", all=True)])
    changes = states(client, make_seen)
    client._connection._socket.shutdown(2)
    changes.wait(lambda items: items[-2:] == [KazooState.SUSPENDED, KazooState.CONNECTED])
    assert client.retry(client.get, "/a")[0] == b"x"
