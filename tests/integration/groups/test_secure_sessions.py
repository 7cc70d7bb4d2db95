"""Sessions by TLS, and as a user, against servers that are what they should be, and others."""

import logging
import pickle
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from certificates import Certificates, Pair
from misbehaving_zookeeper import MisbehavingZooKeeper, answer

from hermes.coordination.kazoo_bounds import BoundedConnection
from hermes.coordination.sessions import Session
from hermes.errors import (
    ConfigError,
    CoordinationNotAuthenticatedError,
    CoordinationNotAuthorizedError,
    CoordinationUnavailableError,
)
from hermes.security import ClientSecurity, credentials

AUTH, EXISTS, CHILDREN, MULTI = 100, 3, 8, 14
AUTH_FAILED, NO_AUTH = -115, -102
PASSWORD = "pa:ss planted-8Xk2"

Serve = Callable[..., MisbehavingZooKeeper]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[MisbehavingZooKeeper] = []

    def start(*args: Any, pair: Pair | None = None, **options: Any) -> MisbehavingZooKeeper:
        if pair is not None:
            options["tls"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            options["tls"].load_cert_chain(pair.certificate, pair.key)
        servers.append(MisbehavingZooKeeper(*args, **options))
        return servers[-1]

    yield start
    for each in servers:
        each.close()


def refusal(address: str, security: ClientSecurity) -> str:
    """What a session's start says that TLS forbids."""
    session = Session(address, security=security, connection_timeout_seconds=3600)
    with pytest.raises(CoordinationUnavailableError) as caught:
        session.start()  # at once: no other attempt could succeed
    return str(caught.value)


def test_a_session_by_tls(serve: Serve, certificates: Certificates) -> None:
    server = serve(pair=certificates.server)
    security = ClientSecurity(tls_ca=str(certificates.ca), user="alice", password=PASSWORD)
    session = Session(server.address, security=security)
    session.start()
    try:
        assert session.get("/x") is None
        assert session.timeout_seconds == 6
    finally:
        session.stop()
    (auth,) = [each for each in server.received if each[4:8] == struct.pack(">i", AUTH)]
    assert auth.endswith(b"alice:" + PASSWORD.encode())
    assert b"digest" in auth


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("untrusted_server", "is not of an authority that is trusted: let tls_ca be"),
        ("expired_server", "has expired"),
        ("wrong_host_server", "is for another address: connect by a name that it has"),
    ],
)
def test_certificates_that_are_refused(
    serve: Serve, certificates: Certificates, pair: str, said: str
) -> None:
    server = serve(pair=getattr(certificates, pair))
    user = ClientSecurity(tls_ca=str(certificates.ca), user="alice", password=PASSWORD)
    text = refusal(server.address, user)
    assert said in text
    assert "127.0.0.1" in text
    assert PASSWORD not in text
    assert server.received == []


def test_the_authorities_of_the_system_are_not_trusted_beside_the_given_one(
    serve: Serve, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    # Nor may what is made with that be kept for the tests after this one.
    monkeypatch.setattr(credentials, "_contexts", credentials._Contexts())
    server = serve(pair=certificates.server)
    assert "is not of an authority" in refusal(
        server.address, ClientSecurity(tls_ca=str(certificates.other_ca))
    )
    system = Session(server.address, security=ClientSecurity(tls=True))
    system.start()
    system.stop()


def test_a_host_name_is_verified(serve: Serve, certificates: Certificates) -> None:
    port = serve(pair=certificates.wrong_host_server).address.rpartition(":")[2]
    text = refusal(f"localhost:{port}", ClientSecurity(tls_ca=str(certificates.ca)))
    assert "certificate of 'localhost' is for another host name" in text


@pytest.fixture
def say() -> Iterator[Callable[[bytes], str]]:
    """Starts a server that only ever says one thing; its address."""
    servers: list[tuple[socket.socket, threading.Thread]] = []

    def start(what: bytes) -> str:
        listening = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            with suppress(OSError):  # once it is shut down
                while True:
                    with listening.accept()[0] as connected, suppress(OSError):
                        connected.recv(10)
                        connected.sendall(what)
                        while connected.recv(1000):
                            pass

        thread = threading.Thread(target=serve)
        servers.append((listening, thread))
        thread.start()
        return f"127.0.0.1:{listening.getsockname()[1]}"

    yield start
    for listening, thread in servers:
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        listening.close()


def test_a_port_without_tls(certificates: Certificates, say: Callable[[bytes], str]) -> None:
    text = refusal(say(bytes(64)), ClientSecurity(tls_ca=str(certificates.ca)))
    assert "'127.0.0.1' doesn't speak TLS at this port" in text


def test_a_port_with_tls_that_is_reached_without(
    serve: Serve, certificates: Certificates, say: Callable[[bytes], str]
) -> None:
    alert = say(bytes.fromhex("15030300020246"))
    for address in (alert, serve(pair=certificates.server).address):
        session = Session(address, connection_timeout_seconds=0.5)
        with pytest.raises(CoordinationUnavailableError, match="perhaps the port is for TLS"):
            session.start()


def test_a_handshake_that_is_never_finished_takes_no_longer_than_connecting_may(
    certificates: Certificates,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        session = Session(
            f"127.0.0.1:{silent.getsockname()[1]}",
            security=ClientSecurity(tls_ca=str(certificates.ca)),
            session_timeout_seconds=3600,
            connection_timeout_seconds=0.3,
        )
        with pytest.raises(CoordinationUnavailableError, match=r"within 0\.3 s"):
            session.start()  # the test itself would end after twenty minutes


def test_answers_that_come_in_one_record_are_all_read_at_once(
    serve: Serve, certificates: Certificates
) -> None:
    kept: list[bytes] = []

    def react(xid: int, kind: int, number: int) -> bytes | None:
        if kind != CHILDREN:
            return None
        kept.append(answer(xid, struct.pack(">i", 0)))
        return b"".join(kept) if len(kept) == 20 else b""

    # kazoo itself would see the second one when the third of an hour is over.
    server = serve(react, granted_ms=60_000, pair=certificates.server)
    session = Session(server.address, security=ClientSecurity(tls_ca=str(certificates.ca)))
    session.start()
    try:
        begin = time.monotonic()
        results = [session._client.get_children_async(f"/{number}") for number in range(20)]
        assert [each.get(timeout=60) for each in results] == [[]] * 20
        assert time.monotonic() - begin < 10  # a ping, which would help, comes after 20 s
    finally:
        session.stop()


def test_a_user_that_is_refused(serve: Serve, certificates: Certificates) -> None:
    def react(xid: int, kind: int, number: int) -> bytes | None:
        return answer(xid, error=AUTH_FAILED) if kind == AUTH else None

    server = serve(react, pair=certificates.server)
    security = ClientSecurity(tls_ca=str(certificates.ca), user="alice", password=PASSWORD)
    session = Session(server.address, security=security, connection_timeout_seconds=3600)
    with pytest.raises(CoordinationNotAuthenticatedError) as caught:
        session.start()
    assert "refuses user 'alice': check the user and the password" in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert server.connections == 1


@pytest.mark.parametrize("error", [AUTH_FAILED, -124])
def test_a_server_that_asks_for_a_user(serve: Serve, error: int) -> None:
    server = serve(lambda xid, kind, _: answer(xid, error=error) if kind == EXISTS else None)
    session = Session(server.address)
    with pytest.raises(CoordinationNotAuthenticatedError, match="it asks for a user and a pass"):
        session.start()


def test_a_user_that_is_refused_later_is_tried_again(
    serve: Serve, certificates: Certificates, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    refusing = [False]
    refused: list[int] = []

    def react(xid: int, kind: int, number: int) -> bytes | None:
        if refusing[0] and kind == AUTH:
            refused.append(number)
            return answer(xid, error=AUTH_FAILED)
        return None

    server = serve(react, pair=certificates.server)
    security = ClientSecurity(tls_ca=str(certificates.ca), user="alice", password=PASSWORD)
    session = Session(server.address, security=security)
    session.start()
    try:
        refusing[0] = True
        session._connection.drop()
        eventually(lambda: len(refused) >= 2)
        refusing[0] = False
        eventually(lambda: "answers again" in caplog.text)
        assert session.get("/x") is None
    finally:
        session.stop()
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(lines) == 2
    assert PASSWORD not in caplog.text


def test_what_may_not_be_done(serve: Serve, certificates: Certificates) -> None:
    def react(xid: int, kind: int, number: int) -> bytes | None:
        if kind == MULTI:
            failed = struct.pack(">i?ii", -1, False, NO_AUTH, NO_AUTH)
            return answer(xid, failed + struct.pack(">i?i", -1, True, -1))
        return answer(xid, error=NO_AUTH) if kind == CHILDREN else None

    server = serve(react, pair=certificates.server)
    security = ClientSecurity(tls_ca=str(certificates.ca), user="alice", password=PASSWORD)
    session = Session(server.address, security=security)
    session.start()
    try:
        with pytest.raises(CoordinationNotAuthorizedError, match=r"^/x: .* refuses user 'alice'"):
            session.children("/x")
        with pytest.raises(CoordinationNotAuthorizedError, match=r"^/y: .* refuses user 'alice'"):
            session.transact(lambda transaction: transaction.delete("/y"))
    finally:
        session.stop()


@pytest.mark.parametrize("host", ["zk.example.org", "10.0.0.1", "[fd00::1]"])
def test_no_password_is_sent_in_clear(host: str) -> None:
    user = ClientSecurity(user="alice", password=PASSWORD)
    with pytest.raises(ConfigError) as caught:
        Session(f"127.0.0.1:2181,{host}:2181", security=user)
    assert caught.value.key == "tls"
    assert PASSWORD not in str(caught.value)


def test_nothing_is_said_about_passwords(
    serve: Serve, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    server = serve(pair=certificates.server)
    security = ClientSecurity(tls_ca=str(certificates.ca), user="alice", password=PASSWORD)
    session = Session(server.address, security=security)
    session.start()
    try:
        session.get("/x")
    finally:
        session.stop()
    assert "Sending request" in caplog.text  # kazoo's lines are there
    for secret in (PASSWORD, "p" * 16, (b"p" * 16).hex()):  # the server's password of a session
        assert secret not in caplog.text
    assert PASSWORD not in repr(session._connection)
    assert PASSWORD not in repr(vars(session))


def test_a_dropped_connection_sends_nothing_in_clear(certificates: Certificates) -> None:
    near, far = socket.socketpair()
    context = ClientSecurity(tls_ca=str(certificates.ca)).ssl_context()
    wrapped = context.wrap_socket(near, server_hostname="x", do_handshake_on_connect=False)
    with wrapped, far:
        connection: Any = SimpleNamespace(_socket=wrapped)
        BoundedConnection.drop(connection)  # in another thread than the one that sends
        assert wrapped._sslobj is not None  # or it would be a plain socket from now on
        assert far.recv(1) == b""


def test_a_security_that_can_be_pickled_makes_the_same_session(certificates: Certificates) -> None:
    security = ClientSecurity(tls_ca=str(certificates.ca), user="alice", password=PASSWORD)
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        Session(address, security=pickle.loads(pickle.dumps(security)))
