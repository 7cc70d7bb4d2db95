"""Whom a certificate names: served once its groups are known, and with those of now."""

from collections.abc import Callable
from typing import Any

import pytest
from jute_frames import Transport, answers, connect_request, get_data
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, maybeDeferred
from users_bench import USERS, Directory

from hermes.config.listeners import BY_CERTIFICATE
from hermes.coordination.embedded.clients import Clients
from hermes.coordination.embedded.connection import CoordinationFactory
from hermes.coordination.embedded.guard import Guard
from hermes.security import Operation, Resource
from hermes.server.authentication import Authentication

NO_NODE, NO_AUTH = (1, -101), (1, -102)


class OfGroup:
    """Rules that allow the group `web` everything, and nobody else anything."""

    is_on = True

    def __init__(self, users: Authentication) -> None:
        self._users = users

    def may(self, principal: str, operation: Operation, resource: Resource) -> bool:
        return "web" in self._users.groups_of(principal)

    def stamp(self, principal: str) -> object:
        return self._users.groups_of(principal)


class Server:
    """A listener that asks for certificates, all of which are alice's."""

    def __init__(self, bench: Any) -> None:
        self.directory = Directory(USERS)
        self.held: list[Callable[[], None]] = []
        self.users = Authentication(self.directory, bench.clock, self._in_thread)
        self._clock = bench.clock
        clients = Clients(bench.clock)
        clients.processor = bench.processor
        guard = Guard(BY_CERTIFICATE, users=self.users, rules=OfGroup(self.users))
        self._factory = CoordinationFactory(clients, guard)

    def _in_thread(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        done: Deferred[Any] = Deferred()
        self.held.append(lambda: maybeDeferred(function, *args).chainDeferred(done))
        return done

    def look_up(self) -> None:
        """The worker threads are done."""
        while self.held:
            self.held.pop(0)()
        self._clock.advance(0)

    def connect(self) -> Any:
        connection: Any = self._factory.buildProtocol(IPv4Address("TCP", "192.0.2.1", 4711))
        connection.makeConnection(Transport())
        connection.dataReceived(connect_request() + get_data(1, "/x"))
        self._clock.advance(0)
        return connection


@pytest.fixture
def server(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(
        "hermes.coordination.embedded.connection.peer_principal", lambda *_: "alice"
    )
    return Server(bench)


def test_rules_for_groups_hold_from_the_first_request_on(server: Server) -> None:
    connection = server.connect()
    assert NO_AUTH not in answers(connection)
    server.look_up()
    assert answers(connection) == [NO_NODE]


def test_groups_are_those_of_now(server: Server) -> None:
    connection = server.connect()
    server.look_up()
    for groups, answer in (([], NO_AUTH), (["web"], NO_NODE)):
        server.directory.users = server.directory.users.with_groups("alice", groups)
        server.users.refresh()
        server.look_up()
        connection.dataReceived(get_data(1, "/x"))
        server.look_up()
        assert answers(connection)[-1] == answer
    connection.connectionLost()
    assert server.users._connected == {}


def test_who_leaves_meanwhile_is_not_remembered(server: Server) -> None:
    connection = server.connect()
    connection.connectionLost()
    server.look_up()
    assert server.users._connected == {}


def test_whose_groups_can_not_be_looked_up_is_not_served(server: Server) -> None:
    server.directory.is_down = True
    connection = server.connect()
    server.look_up()
    assert answers(connection) == []
    assert connection.transport.aborting
