"""Handshakes without sockets: how long, how many at a time, and what follows one."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from broker_bench import log_lines
from certificates import Certificates
from tls_clients import client_context
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from hermes.config.listeners import TlsConfig
from hermes.listening.handshakes import HANDSHAKE_SECONDS, MAX_HANDSHAKES, TlsFactory
from hermes.listening.tls import ServerTls


class Echo(Protocol):
    """Says hello, then whatever it is told."""

    def connectionMade(self) -> None:
        self.transport.write(b"hello")

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(data)


class Application(Factory):
    """Counts what it makes."""

    noisy = False

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.is_full = False

    def buildProtocol(self, addr: Any) -> Protocol | None:
        if self.is_full:
            return None
        self.made.append(Echo())
        return self.made[-1]


class Transport(StringTransport):
    """In memory; tells its protocol when it is cut."""

    def abortConnection(self) -> None:
        super().abortConnection()
        self.lost = True


class Server:
    """A TLS listener whose connections are strings."""

    def __init__(self, certificates: Certificates) -> None:
        self.clock = Clock()
        self.application = Application()
        server = certificates.server
        tls = ServerTls(
            "listen", TlsConfig(server.certificate, server.key), False, self.clock.seconds
        )
        self.factory = TlsFactory(tls, self.application, self.clock, False)
        self.factory.doStart()
        self.context = client_context(certificates.ca)

    @property
    def outcomes(self) -> dict[str, int]:
        return {how: count for how, count in self.factory.handshakes.outcomes.items() if count}

    def accept(self) -> tuple[Any, Transport]:
        protocol = self.factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1))
        transport = Transport()
        protocol.makeConnection(transport)
        return protocol, transport

    def connect(self) -> tuple[Any, Transport, "Client"]:
        protocol, transport = self.accept()
        client = Client(self.context)
        for _ in range(4):
            client.shake_hands()
            if sent := client.outgoing.read():
                protocol.dataReceived(sent)
            client.incoming.write(transport.value())
            transport.clear()
        return protocol, transport, client


class Client:
    """A TLS client whose bytes a test carries."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake_hands(self) -> None:
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()


@pytest.fixture
def server(certificates: Certificates) -> Iterator[Server]:
    server = Server(certificates)
    yield server
    server.factory.doStop()
    server.clock.advance(0)
    assert server.clock.getDelayedCalls() == [], "a closed port leaves no timer"


def test_an_application_sees_a_connection_when_its_handshake_is_over(server: Server) -> None:
    protocol, transport = server.accept()
    assert server.application.made == []
    protocol.dataReceived(b"\x16\x03\x01")
    assert server.application.made == []
    protocol, transport, client = server.connect()
    assert len(server.application.made) == 1
    assert server.outcomes == {"completed": 1}
    server.clock.advance(0)
    client.incoming.write(transport.value())
    assert client.tls.read() == b"hello"


def test_a_handshake_may_take_ten_seconds(server: Server) -> None:
    _, early = server.accept()
    server.clock.advance(HANDSHAKE_SECONDS / 2)
    _, late = server.accept()
    with log_lines() as lines:
        server.clock.advance(HANDSHAKE_SECONDS / 2)
        assert early.disconnected
        assert not late.disconnected
        server.clock.advance(HANDSHAKE_SECONDS / 2)
    assert late.disconnected
    assert server.outcomes == {"timed_out": 2}
    assert ["it took longer than 10 s" in line for line in lines] == [True, True]


def test_a_connection_that_has_shaken_hands_may_be_silent(server: Server) -> None:
    _, transport, _ = server.connect()
    server.clock.advance(100 * HANDSHAKE_SECONDS)
    assert not transport.disconnected


def test_the_oldest_makes_room_when_there_are_too_many(server: Server) -> None:
    begun = [server.accept()[1] for _ in range(MAX_HANDSHAKES)]
    assert not any(transport.disconnected for transport in begun)
    _, transport, _ = server.connect()
    assert begun[0].disconnected
    assert not any(each.disconnected for each in begun[1:])
    assert not transport.disconnected
    assert server.outcomes == {"crowded_out": 1, "completed": 1}
    assert len(server.factory.handshakes) == MAX_HANDSHAKES - 1


def test_a_full_application_is_not_asked_to_serve(server: Server) -> None:
    server.application.is_full = True
    _, transport, _ = server.connect()
    assert transport.disconnected


def test_a_closed_port_ends_handshakes_under_way_and_no_connection(server: Server) -> None:
    _, begun = server.accept()
    _, made, _ = server.connect()
    server.factory.doStop()
    assert begun.disconnected
    assert not made.disconnected
    server.factory.doStart()


def test_a_peer_that_just_leaves_is_not_worth_a_line(server: Server) -> None:
    with log_lines() as lines:
        protocol, _ = server.accept()
        protocol.connectionLost(Failure(ConnectionDone()))
    assert lines == []
    assert server.outcomes == {"left": 1}


def test_a_peer_that_does_not_close_is_not_waited_for_long(server: Server) -> None:
    protocol, transport, _ = server.connect()
    protocol.pauseProducing()
    server.application.made[0].transport.loseConnection()
    assert transport.producerState == "producing", "its part of the close is read"
    assert not transport.disconnecting
    server.clock.advance(1)
    assert transport.disconnecting
    server.clock.advance(30)
    assert transport.disconnected


def test_the_ends_of_certificates_are_looked_at_daily(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []
    tls = server.factory.handshakes.tls
    monkeypatch.setattr(tls, "warn_of_end", lambda: looked.append(server.clock.seconds()))
    for _ in range(3 * 24):
        server.clock.advance(3600)
    assert len(looked) == 3
