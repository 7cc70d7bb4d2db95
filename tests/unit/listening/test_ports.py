"""Ports: how many connections are accepted before others have their turn."""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory

from hermes.config import ListenerConfig
from hermes.listening import Listener


class CrowdedPort:
    """A port, as Twisted's, that more wait to be accepted at than it takes at once."""

    def __init__(self) -> None:
        self.numberAccepts = 100
        self.accepted: list[int] = []

    def doRead(self) -> None:
        self.accepted.append(self.numberAccepts)
        self.numberAccepts += 20

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", 1)


class OnePortReactor:
    def __init__(self, port: Any) -> None:
        self._port = port

    def listenTCP(self, *arguments: Any, **options: Any) -> Any:
        return self._port


def test_a_crowd_is_let_in_a_few_at_a_time() -> None:
    port = CrowdedPort()
    Listener(OnePortReactor(port), "listen", ListenerConfig("tcp:0")).open(Factory())
    for _ in range(20):
        port.doRead()
    assert max(port.accepted) <= 64
