"""Connections of a listener that asks for users: their bounds, on a transport in memory."""

import struct
from typing import Any

import pytest
from jute_frames import Transport, answers, connect_request, get_data, request, text
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred

from hermes.config.listeners import BY_PASSWORD
from hermes.coordination.embedded.clients import Clients
from hermes.coordination.embedded.connection import CoordinationFactory
from hermes.coordination.embedded.guard import Guard, OwnUsers
from hermes.coordination.embedded.limits import IDLE_SECONDS, PROOF_SECONDS
from hermes.errors import HermesError
from hermes.security import INTERNAL, ClientSecurity

PING = request(-2, 11)


class Named:
    """A user."""

    def __init__(self, name: str) -> None:
        self.name = name


class Users:
    """Checks passwords when a test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.checks: list[Deferred[Any]] = []
        self.connections: dict[Any, str] = {}

    def check_password(self, address: str, name: str, password: str) -> "Deferred[Any]":
        self.asked.append((address, name, password))
        self.checks.append(Deferred())
        return self.checks[-1]

    def connected(self, connection: Any, user: Any, revision: object) -> None:
        self.connections[connection] = user.name

    def disconnected(self, connection: Any, name: str) -> None:
        assert self.connections.pop(connection) == name


class Server:
    """A listener that asks for passwords, on a bench."""

    def __init__(self, bench: Any) -> None:
        self.users = Users()
        self.clients = Clients(bench.clock, 3)
        self.clients.processor = bench.processor
        self._clock = bench.clock
        guard = Guard(BY_PASSWORD, users=self.users)
        self._factory = CoordinationFactory(self.clients, guard)

    def connect(self) -> Any:
        connection: Any = self._factory.buildProtocol(IPv4Address("TCP", "192.0.2.1", 4711))
        connection.makeConnection(Transport())
        return connection

    def receive(self, connection: Any, *data: bytes) -> None:
        connection.dataReceived(b"".join(data))
        self._clock.advance(0)

    def check(self, outcome: Any) -> None:
        """The password that waits was checked."""
        self.users.checks.pop(0).callback(outcome)
        self._clock.advance(0)

    def user(self, name: str = "alice") -> Any:
        connection = self.connect()
        self.receive(connection, connect_request(), proof(name))
        self.check(Named(name))
        return connection


def proof(name: str = "alice", password: str = "secret") -> bytes:
    return request(-4, 100, bytes(4) + text("digest") + text(f"{name}:{password}"))


@pytest.fixture
def server(bench: Any) -> Server:
    return Server(bench)


def test_requests_wait_in_order_while_a_password_is_checked(server: Server) -> None:
    connection = server.connect()
    server.receive(connection, connect_request(), proof(), get_data(1, "/"), get_data(2, "/x"))
    assert server.users.asked == [("192.0.2.1", "alice", "secret")]
    assert answers(connection) == []
    server.receive(connection, get_data(3, "/"))
    assert answers(connection) == []
    assert not connection.transport.is_reading
    server.check(Named("alice"))
    assert answers(connection) == [(-4, 0), (1, 0), (2, -101), (3, 0)]
    assert connection.transport.is_reading


@pytest.mark.parametrize("outcome", [None, Named(INTERNAL), Named("anonymous")])
def test_who_is_refused_gets_no_answer_to_what_waits(server: Server, outcome: Any) -> None:
    connection = server.connect()
    server.receive(connection, connect_request(), proof(), get_data(1, "/"))
    server.check(outcome)
    assert answers(connection) == [(-4, -115)]
    assert connection.transport.disconnecting
    assert not server.users.connections


def test_a_password_that_can_t_be_checked_costs_the_connection(server: Server) -> None:
    connection = server.connect()
    server.receive(connection, connect_request(), proof())
    server.users.checks.pop().errback(HermesError("users can't be looked up now"))
    assert answers(connection) == []
    assert connection.transport.aborting


def test_a_client_that_has_gone_meanwhile_gets_nothing(bench: Any, server: Server) -> None:
    connection = server.connect()
    server.receive(connection, connect_request(), proof())
    connection.connectionLost()
    count = len(bench.state.sessions)
    server.check(Named("alice"))
    assert len(bench.state.sessions) == count
    assert not server.users.connections


def test_proving_takes_no_longer_than_it_may(bench: Any, server: Server) -> None:
    silent, living = server.connect(), server.connect()
    server.receive(living, connect_request())
    bench.clock.advance(IDLE_SECONDS)
    assert silent.transport.aborting
    for _ in range(9):
        server.receive(living, PING)  # signs of life don't count
        bench.clock.advance((PROOF_SECONDS - IDLE_SECONDS) / 10)
    assert not living.transport.aborting
    bench.clock.advance(1)
    assert living.transport.aborting


def test_a_user_may_be_silent_for_longer(bench: Any, server: Server) -> None:
    connection = server.user()
    server.receive(connection, PING)
    bench.clock.advance(PROOF_SECONDS / 2)
    server.receive(connection, PING)
    bench.clock.advance(PROOF_SECONDS / 2 + 1)
    assert not connection.transport.aborting


def test_strangers_make_room_for_users(server: Server) -> None:
    user = server.user()
    strangers = [server.connect() for _ in range(2)]
    for each in strangers:
        server.receive(each, connect_request())
    another = server.connect()
    assert strangers[0].transport.aborting
    assert not strangers[1].transport.aborting
    assert not user.transport.aborting
    assert another is not None


def test_a_frame_is_small_until_a_client_is_known(server: Server) -> None:
    stranger = server.connect()
    server.receive(stranger, connect_request(), struct.pack(">i", 4097))
    assert stranger.transport.disconnecting
    user = server.user()
    server.receive(user, struct.pack(">i", 1_000_000))
    assert not user.transport.disconnecting


@pytest.mark.parametrize("word", ["stat", "srvr", "mntr", "conf", "envi", "isro"])
def test_words_tell_nothing(server: Server, word: str) -> None:
    connection = server.connect()
    server.receive(connection, word.encode())
    assert connection.transport.value() == b""
    assert connection.transport.disconnecting
    well = server.connect()
    server.receive(well, b"ruok")
    assert well.transport.value() == b"imok"


def test_a_user_who_is_gone_is_cut_off(server: Server) -> None:
    connection = server.user()
    assert server.users.connections == {connection: "alice"}
    connection.revoke("its user was removed")
    assert connection.transport.aborting
    connection.connectionLost()
    assert not server.users.connections


def test_one_s_own_user_is_checked_in_whole() -> None:
    users = OwnUsers(ClientSecurity(user=INTERNAL, password="random"))
    found: list[Any] = []
    for name, password in (
        *((INTERNAL, "random"), (INTERNAL, "rando"), (INTERNAL, "randomx"), (INTERNAL, "")),
        *(("alice", "random"), ("", ""), ("\ud800", "\ud800")),
    ):
        users.check_password("", name, password).addCallback(found.append)
    assert [each and each.name for each in found] == [INTERNAL, *[None] * 6]
