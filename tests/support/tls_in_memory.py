"""A TLS listener and its clients without sockets: a test carries the bytes and moves the clock."""

import ssl
from contextlib import suppress
from typing import Any

from certificates import Certificates
from tls_clients import client_context
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from hermes.config.listeners import TlsConfig
from hermes.listening.handshakes import TlsFactory
from hermes.listening.tls import ServerTls

__all__ = ["TlsServer"]


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


class TlsServer:
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
