"""The server stops, is killed, or is paused: what it said stays true, sessions go on."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, SessionExpiredError

#: A session that no restart outlasts.
LONG = 60.0


def vanish(client: Any) -> tuple[int, bytes]:
    """End a client without ending its session; what is needed to go on with it.

    Before the restart, since ZooKeeper leaves those who connect while it starts without an answer.
    """
    session: tuple[int, bytes] = client.client_id
    client._stopped.set()
    client._connection._write_sock.send(b"\0")  # wakes its thread
    client._connection._socket.shutdown(2)
    assert client._connection.connection_stopped.wait(20)
    return session


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_everything_answered_is_there_after_a_restart(
    own_server: Any, make_client: Callable[..., Any], how: str
) -> None:
    client = make_client(own_server.address, timeout=LONG)
    client.create("/p", b"one")
    client.set("/p", b"two")
    client.create("/p/e", ephemeral=True)
    client.create("/p/gone")
    client.delete("/p/gone")
    acls = client.get_acls("/p")[0]
    before, stat = client.get("/p"), client.exists("/p/e")
    session = vanish(client)
    getattr(own_server, how)()
    own_server.start()
    client = make_client(own_server.address, timeout=LONG, client_id=session)
    assert client.client_id == session
    assert client.get("/p") == before
    assert client.exists("/p/e") == stat
    assert client.get_acls("/p")[0] == acls
    assert client.create("/p/n-", sequence=True) == "/p/n-0000000002"
    assert client.exists("/p/n-0000000002").czxid > stat.czxid
    client.stop()
    assert make_client(own_server.address).exists("/p/e") is None


def test_a_session_that_nobody_comes_back_for_ends(
    own_server: Any, make_client: Callable[..., Any], seen: Any
) -> None:
    gone = make_client(own_server.address, timeout=1.0)
    gone.create("/e", ephemeral=True)
    vanish(gone)
    own_server.kill()
    own_server.start()
    other = make_client(own_server.address)
    if other.exists("/e", watch=seen):
        assert seen.wait_for(1)[0].type == "DELETED"
    assert other.exists("/e") is None


def test_nothing_that_was_answered_is_lost_by_a_kill(
    own_server: Any, make_client: Callable[..., Any]
) -> None:
    client = make_client(own_server.address, timeout=LONG)
    client.create("/p")
    results = [client.create_async("/p/n-", sequence=True) for _ in range(400)]
    answered = {results[0].get(20)}
    own_server.kill()
    for result in results[1:]:
        try:
            answered.add(result.get(20))
        except (ConnectionLoss, SessionExpiredError):
            break
    own_server.start()
    other = make_client(own_server.address)
    there = {f"/p/{name}" for name in other.get_children("/p")}
    assert answered <= there
    assert len(there) == other.exists("/p").cversion
    assert other.create("/p/n-", sequence=True) == f"/p/n-{len(there):010d}"


def test_a_pause_shorter_than_the_timeout_costs_nothing(
    own_server: Any, make_client: Callable[..., Any]
) -> None:
    client = make_client(own_server.address, timeout=20.0)
    client.create("/e", ephemeral=True)
    session = client.client_id
    own_server.pause()
    waiting = client.create_async("/waiting")
    own_server.resume()
    assert waiting.get(20) == "/waiting"
    assert client.client_id == session
    assert client.exists("/e")
