"""Connections: their bounds, on a transport in memory."""

import struct
from typing import Any

import pytest
from twisted.internet.testing import StringTransport

from hermes.coordination.embedded.connection import MAX_OWED, CoordinationFactory
from hermes.coordination.embedded.words import Report, Statistics

CONNECT = struct.pack(">iiqiqi", 44, 0, 0, 5000, 0, 16) + bytes(16)
PING = struct.pack(">iii", 8, -2, 11)
PING_ANSWER_BYTES = 20
CONNECT_ANSWER_BYTES = 40


class Service:
    """What a factory needs of its service."""

    def __init__(self, bench: Any) -> None:
        self.coordinator = bench.coordinator
        self.changes = 0

    def sessions_changed(self) -> None:
        self.changes += 1

    def report(self) -> Report:
        return Report(Statistics(), (), 0, 0, 4, 0, 0, 0, lambda: 0)


class Transport(StringTransport):
    """Remembers whether it was asked to read."""

    is_reading = True

    def pauseProducing(self) -> None:
        self.is_reading = False

    def resumeProducing(self) -> None:
        self.is_reading = True

    def abortConnection(self) -> None:
        self.aborting = True
        self.connected = False


@pytest.fixture
def factory(bench: Any) -> CoordinationFactory:
    service: Any = Service(bench)
    return CoordinationFactory(service, bench.clock, 2)


def connected(factory: CoordinationFactory) -> Any:
    connection: Any = factory.buildProtocol(None)
    connection.makeConnection(Transport())
    return connection


def test_requests_without_an_answer_are_bounded(bench: Any, factory: Any) -> None:
    connection = connected(factory)
    bench.disk.is_slow = True
    connection.dataReceived(CONNECT + PING * (3 * MAX_OWED))
    assert connection.report.queued == MAX_OWED
    assert not connection.transport.is_reading
    bench.disk.finish()
    assert connection.report.queued == 0
    assert connection.transport.is_reading
    answers = CONNECT_ANSWER_BYTES + 3 * MAX_OWED * PING_ANSWER_BYTES
    assert len(connection.transport.value()) == answers


def test_a_client_that_does_not_read_is_not_read_from(factory: Any) -> None:
    connection = connected(factory)
    connection.dataReceived(CONNECT)
    connection.transport.producer.pauseProducing()
    assert not connection.transport.is_reading
    connection.dataReceived(PING)
    assert len(connection.transport.value()) == CONNECT_ANSWER_BYTES
    connection.transport.producer.resumeProducing()
    assert connection.transport.is_reading
    assert len(connection.transport.value()) == CONNECT_ANSWER_BYTES + PING_ANSWER_BYTES


def test_a_client_that_never_asks_for_a_session_is_cut_off(bench: Any, factory: Any) -> None:
    silent, served = connected(factory), connected(factory)
    served.dataReceived(CONNECT)
    bench.clock.advance(10)
    assert silent.transport.disconnected or not silent.transport.connected
    assert served.transport.connected


def test_connections_are_counted(factory: Any) -> None:
    first = connected(factory)
    connected(factory)
    assert factory.buildProtocol(None) is None
    first.connectionLost()
    assert factory.buildProtocol(None) is not None


def test_a_word_is_answered_and_the_connection_closed(factory: Any) -> None:
    connection = connected(factory)
    connection.dataReceived(b"ruok\n")
    assert connection.transport.value() == b"imok"
    assert connection.transport.disconnecting
    connection.dataReceived(b"more")
    assert connection.transport.value() == b"imok"


def test_nothing_behind_the_end_of_a_session_is_served(factory: Any) -> None:
    connection = connected(factory)
    close = struct.pack(">iii", 8, 1, -11)
    connection.dataReceived(CONNECT + close + PING)
    size = CONNECT_ANSWER_BYTES + PING_ANSWER_BYTES
    assert len(connection.transport.value()) == size
    assert connection.transport.disconnecting


def test_while_nothing_can_be_served_clients_are_sent_away(factory: Any) -> None:
    factory.service.coordinator = None
    connection = connected(factory)
    connection.dataReceived(CONNECT)
    assert connection.transport.disconnecting
    assert connection.transport.value() == b""
