"""What brokers ask each other about transactions: over few connections, and not for ever."""

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from outgoing_bench import OutgoingTransport
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from hermes.errors import BrokerTimeoutError, BrokerUnavailableError
from hermes.kafka.outgoing import OutgoingConnection, OutgoingLimits
from hermes.kafka.transactions.remote import RemoteBrokers
from hermes.protocol.transaction_markers import Marker
from hermes.security import PLAIN
from hermes.transactions.deciding import Producer

MARKER = Marker(5, 1, True, 0)


class Other:
    """Broker 2, which answers nothing; reached when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.connecting: list[Deferred[OutgoingConnection]] = []
        topics: Any = SimpleNamespace(registered=lambda: {2: "its listeners"})
        other: Any = self
        self.remote = RemoteBrokers(topics, lambda listeners: other)

    def connect(self) -> "Deferred[OutgoingConnection]":
        self.connecting.append(Deferred())
        return self.connecting[-1]

    def reached(self) -> StringTransport:
        connection = OutgoingConnection("there", 9092, PLAIN, self.clock, OutgoingLimits())
        transport = OutgoingTransport()
        connection.makeConnection(transport)
        self.connecting.pop().callback(connection)
        return transport

    def ask(self) -> list[Any]:
        """Have it write a marker; what becomes of that, once something has."""
        return begun(self.remote.write_markers(2, MARKER, 2, [("new", 0)]))


def begun(work: Coroutine[Any, Any, Any]) -> list[Any]:
    """What becomes of it, once something has."""
    found: list[Any] = []
    Deferred.fromCoroutine(work).addErrback(lambda failure: found.append(failure.value))
    return found


def test_those_who_ask_at_once_share_a_connection() -> None:
    other = Other()
    asked = [other.ask(), other.ask()]
    assert len(other.connecting) == 1
    transport = other.reached()
    once = len(transport.value()) // 2
    assert once > 20
    third = other.ask()
    assert len(transport.value()) == 3 * once
    assert other.connecting == []
    assert [*asked, third] == [[], [], []]


def test_a_join_waits_for_no_marker() -> None:
    other = Other()
    other.ask()
    other.reached()
    joined = begun(
        other.remote.add_partitions(2, "t", Producer(5, 1), [("new", 0)], verify_only=False)
    )
    transport = other.reached()
    assert b"t" in transport.value()
    assert joined == []


def test_a_broker_that_cannot_be_reached_is_tried_again() -> None:
    other = Other()
    asked = [other.ask(), other.ask()]
    other.connecting.pop().errback(BrokerUnavailableError("gone"))
    assert [type(each) for found in asked for each in found] == [BrokerUnavailableError] * 2
    other.ask()
    assert len(other.connecting) == 1


def test_a_broker_that_sleeps_is_not_waited_for() -> None:
    other = Other()
    asked = other.ask()
    other.reached()
    other.clock.advance(9.9)
    assert asked == []
    other.clock.advance(0.1)
    assert [type(each) for each in asked] == [BrokerTimeoutError]
    other.ask()
    assert len(other.connecting) == 1


def test_who_stops_ends_what_is_under_way() -> None:
    other = Other()
    asked = other.ask()
    other.remote.stop()
    assert [type(each) for each in [*asked, *other.ask()]] == [BrokerUnavailableError] * 2
    assert other.connecting[1:] == []
