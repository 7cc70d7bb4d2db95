"""Whom a certificate names: served once its groups are known, and with those of now."""

from typing import Any

import pytest
from broker_bench import BrokerBench, answers, log_lines
from hermes_testkit import produce
from twisted.internet.address import IPv4Address
from users_bench import HELLO, Directory

from hermes.protocol import (
    ClusterIdRequest,
)
from hermes.server.policies import ListenerPolicy

CERTIFICATE = ListenerPolicy("by-certificate", "tls")


@pytest.fixture
def certified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.broker.connection.peer_principal", lambda *_: "alice")


@pytest.mark.usefixtures("certified")
def test_whom_a_certificate_names_is_served_when_its_groups_are_known(
    held_bench: tuple[BrokerBench, Any],
) -> None:
    bench, run = held_bench
    connection, transport = bench.connect(CERTIFICATE, IPv4Address("TCP", "192.0.2.1", 1))
    connection.dataReceived(ClusterIdRequest().encode())
    assert transport.value() == b""
    run()
    bench.clock.advance(0)
    assert len(answers(transport)) == 1
    client = connection._client
    assert (str(client), client.groups) == ("alice@192.0.2.1:1", {"web"})
    assert not client.knows_own_codes


@pytest.mark.usefixtures("certified")
def test_a_certificate_stays_good_but_its_groups_are_those_of_the_user(
    bench: BrokerBench, directory: Directory
) -> None:
    connection, transport = bench.connect(CERTIFICATE)
    directory.users = directory.users.with_groups("alice", ["ops"])
    bench.authentication.refresh()
    assert connection._client.groups == {"ops"}
    directory.users = directory.users.with_password("alice", "new", iterations=4096)
    bench.authentication.refresh()
    directory.users = directory.users.without("alice")
    bench.authentication.refresh()
    assert connection._client.groups == frozenset()
    directory.users = directory.users.with_user("alice", None, ["web"])
    bench.authentication.refresh()
    assert connection._client.groups == {"web"}
    assert not transport.disconnecting
    connection.connectionLost()
    assert bench.authentication._connected == {}


@pytest.mark.usefixtures("certified")
def test_without_its_groups_a_certificate_is_not_served(
    bench: BrokerBench, directory: Directory
) -> None:
    directory.is_down = True
    with log_lines() as lines:
        connection, transport = bench.connect(CERTIFICATE)
        connection.dataReceived(ClusterIdRequest().encode())
    assert transport.value() == b""
    assert transport.disconnecting
    assert "the directory is down" in lines[0]


@pytest.mark.usefixtures("certified")
def test_a_certificate_whose_holder_leaves_before_its_groups_are_known_leaves_nothing(
    held_bench: tuple[BrokerBench, Any],
) -> None:
    bench, run = held_bench
    connection, _ = bench.connect(CERTIFICATE)
    connection.dataReceived(produce("t", 0, HELLO))
    connection.connectionLost()
    run()
    bench.clock.advance(0)
    assert bench.authentication._connected == {}
    assert bench.connections._unfinished == set()
