"""Which of a broker's ports a client is told of."""

from typing import Any

import pytest

from hermes.coordination.cluster_view import read_brokers
from hermes.coordination.layout import BROKER_IDS
from hermes.coordination.listeners import (
    BrokerListeners,
    ListenerNode,
    format_listeners,
    listeners_path,
)
from hermes.coordination.nodes import Node
from hermes.errors import InvalidNodeError
from hermes.security import PLAIN, ClientSecurity

CERTIFICATE = {"tls_certificate": "web.pem"}
USER = {"user": "alice", "password": "secret"}
WAYS = [(tls, how) for tls in (False, True) for how in ("none", "scram", "tls")]


class FakeSession:
    """Reads from a dictionary."""

    def __init__(self, security: ClientSecurity, listeners: bytes | None) -> None:
        self.security = security
        self.read: list[str] = []
        self._nodes = {f"{BROKER_IDS}/0": b"here-1:first:1000"}
        if listeners is not None:
            self._nodes[listeners_path(0)] = listeners

    def children(self, path: str, *, watch: bool) -> list[str]:
        assert path == BROKER_IDS
        return ["0"]

    def get_all(self, paths: list[str]) -> list[Node | None]:
        return [self.get(each) for each in paths]

    def get(self, path: str, *, watch: bool = False) -> Node | None:
        self.read.append(path)
        value = self._nodes.get(path)
        return None if value is None else Node(value, 0, 1)


def port_for(given: dict[str, Any], ways: list[tuple[bool, str]], **more: Any) -> int:
    """The port that a client uses: 1000 for 0.7's, else its place among the listeners."""
    listeners = [ListenerNode(str(n), "here", n, tls, how) for n, (tls, how) in enumerate(ways, 1)]
    session: Any = FakeSession(
        ClientSecurity(**given), format_listeners(BrokerListeners(listeners))
    )
    (node,) = read_brokers(session, pytest.fail, **more).values()
    return node.port


@pytest.mark.parametrize(
    ("given", "way"),
    [
        ({"tls": True}, (True, "none")),
        (CERTIFICATE, (True, "tls")),
        (USER, (False, "scram")),
        ({"tls": True, **USER}, (True, "scram")),
        ({**CERTIFICATE, **USER}, (True, "scram")),
    ],
)
def test_a_client_gets_the_listener_that_is_for_it(
    given: dict[str, Any], way: tuple[bool, str]
) -> None:
    assert port_for(given, WAYS) == WAYS.index(way) + 1
    others = [each for each in WAYS if each != way and each != (True, "none")]
    assert port_for(given, others) == 1000


def test_a_certificate_may_be_brought_where_nobody_asks_for_it() -> None:
    assert port_for(CERTIFICATE, [(False, "none"), (True, "scram"), (True, "none")]) == 3


def test_a_plain_client_reads_what_it_always_did() -> None:
    session: Any = FakeSession(PLAIN, b"nonsense")
    (node,) = read_brokers(session, pytest.fail).values()
    assert (node.host, node.port) == ("first", 1000)
    assert session.read == [f"{BROKER_IDS}/0"]


def test_what_is_brought_to_brokers_may_be_another_than_what_coordination_got() -> None:
    assert port_for({}, WAYS, security=ClientSecurity(tls=True)) == WAYS.index((True, "none")) + 1
    assert port_for(USER, WAYS, security=PLAIN) == 1000


@pytest.mark.parametrize("value", [None, b"nonsense", b'{"listeners": []}'])
def test_a_broker_that_tells_nothing_is_used_as_older_ones_are(value: bytes | None) -> None:
    faults: list[InvalidNodeError] = []
    session: Any = FakeSession(ClientSecurity(tls=True), value)
    (node,) = read_brokers(session, faults.append).values()
    assert node.port == 1000
    assert len(faults) == (value == b"nonsense")
