"""What brokers ask each other about transactions: over few connections, together, not for ever."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from outgoing_bench import OutgoingTransport
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hermes.errors import BrokerTimeoutError, BrokerUnavailableError, RemoteProtocolError
from hermes.kafka.outgoing import OutgoingConnection, OutgoingLimits
from hermes.kafka.transactions.remote import RemoteBrokers
from hermes.protocol.kafka_errors import Code
from hermes.protocol.transaction_markers import Marker
from hermes.security import PLAIN
from hermes.transactions.deciding import Producer
from hermes.transactions.state import Place, group_place

MARKER = Marker(5, 1, True, 0)
PLACE = ("new", 0)


class Connection:
    """The other end of one that was reached."""

    def __init__(self, clock: Clock) -> None:
        self.connection = OutgoingConnection("there", 9092, PLAIN, clock, OutgoingLimits())
        self.transport = OutgoingTransport()
        self.connection.makeConnection(self.transport)
        self._seen = 0

    def sent(self) -> list[bytes]:
        """The requests that have come since the last look."""
        data, found = self.transport.value(), []
        while self._seen < len(data):
            (size,) = struct.unpack_from(">i", data, self._seen)
            found.append(data[self._seen + 4 : self._seen + 4 + size])
            self._seen += 4 + size
        return found

    def answer(self, request: bytes, *topics: str) -> None:
        """Answer about markers: for each of them, that it is written in partition 0 of a topic."""
        body = bytes([len(topics) + 1])
        for name in topics:
            body += struct.pack(">q", 5) + b"\2" + bytes([len(name) + 1]) + name.encode()
            body += b"\2" + struct.pack(">ih", 0, 0) + b"\0\0\0"
        frame = request[4:8] + b"\0" + body + b"\0"
        self.connection.dataReceived(struct.pack(">i", len(frame)) + frame)


class Other:
    """Broker 2; reached when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.connecting: list[Deferred[OutgoingConnection]] = []
        topics: Any = SimpleNamespace(registered=lambda: {2: "its listeners"})
        other: Any = self
        self.remote = RemoteBrokers(topics, lambda listeners: other)

    def connect(self) -> "Deferred[OutgoingConnection]":
        self.connecting.append(Deferred())
        return self.connecting[-1]

    def reached(self) -> Connection:
        found = Connection(self.clock)
        self.connecting.pop().callback(found.connection)
        return found

    def ask(self, place: Place = PLACE) -> list[Any]:
        """Have it write a marker; what becomes of that, once something has."""
        return outcome(self.remote.write_markers(2, MARKER, 2, [place]))


def outcome(asked: "Deferred[Any]") -> list[Any]:
    found: list[Any] = []
    asked.addCallbacks(found.append, lambda failure: found.append(failure.value))
    return found


def test_what_is_asked_meanwhile_goes_together() -> None:
    other = Other()
    first = other.ask(("a", 0))
    assert len(other.connecting) == 1
    there = other.reached()
    (request,) = there.sent()
    later = [other.ask(("b", 0)), other.ask(("c", 0))]
    assert there.sent() == []
    there.answer(request, "a")
    assert first == [{("a", 0): Code.NONE}]
    (request,) = there.sent()
    there.answer(request, "b", "c")
    assert later == [[{("b", 0): Code.NONE}], [{("c", 0): Code.NONE}]]
    assert other.connecting == []


def test_who_asks_again_once_answered_is_heard() -> None:
    other = Other()
    again: list[Any] = []
    asked = other.remote.write_markers(2, MARKER, 2, [PLACE])
    asked.addCallback(lambda _: again.append(other.ask()))
    there = other.reached()
    for _ in range(2):
        (request,) = there.sent()
        there.answer(request, "new")
    assert again == [[{PLACE: Code.NONE}]]


def test_joins_and_groups_wait_for_no_marker_in_a_partition() -> None:
    other = Other()
    asked = [other.ask()]
    other.reached()
    asked.append(other.ask(group_place("g")))
    other.reached()
    joining = other.remote.add_partitions(2, "t", Producer(5, 1), [PLACE], verify_only=False)
    asked.append(outcome(joining))
    assert [b"\2t" in each for each in other.reached().sent()] == [True]
    assert asked == [[], [], []]


@pytest.mark.parametrize("topics", [(), ("new", "new")])
def test_an_answer_to_something_else_is_none(topics: tuple[str, ...]) -> None:
    other = Other()
    asked, there = other.ask(), other.reached()
    (request,) = there.sent()
    there.answer(request, *topics)
    assert [type(each) for each in asked] == [RemoteProtocolError]


def test_what_is_not_answered_is_not_done() -> None:
    other = Other()
    asked, there = other.ask(), other.reached()
    (request,) = there.sent()
    there.answer(request, "old")
    assert asked == [{PLACE: Code.UNKNOWN_SERVER_ERROR}]


def test_a_broker_that_cannot_be_reached_is_tried_again() -> None:
    other = Other()
    asked = [other.ask(), other.ask()]
    other.connecting.pop().errback(BrokerUnavailableError("gone"))
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


@pytest.mark.parametrize("is_reached", [False, True])
def test_who_stops_ends_what_is_under_way(is_reached: bool) -> None:
    other = Other()
    asked = [other.ask()]
    if is_reached:
        other.reached()
    asked.append(other.ask())
    other.remote.stop()
    asked.append(other.ask())
    assert [type(each) for found in asked for each in found] == [BrokerUnavailableError] * 3
    assert len(other.connecting) <= 1
