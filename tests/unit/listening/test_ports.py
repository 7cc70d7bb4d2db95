"""Ports: how many connections are accepted before others have their turn."""

from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory

from hermes.config.listeners import ListenerConfig
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
        self.backlog = 0

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        self.backlog = backlog
        return self._port


@pytest.mark.parametrize(
    ("endpoint", "backlog"), [("tcp:0", 1024), ("tcp6:0", 1024), ("tcp6:0:backlog=7", 7)]
)
def test_as_many_may_wait_at_a_port_as_reconnect_at_once(endpoint: str, backlog: int) -> None:
    reactor = OnePortReactor(CrowdedPort())
    Listener(reactor, "listen", ListenerConfig(endpoint)).open(Factory())
    assert reactor.backlog == backlog


def test_a_crowd_is_let_in_a_few_at_a_time() -> None:
    port = CrowdedPort()
    Listener(OnePortReactor(port), "listen", ListenerConfig("tcp:0")).open(Factory())
    for _ in range(20):
        port.doRead()
    assert max(port.accepted) <= 64
