"""How a broker learns where others listen, and what it tells of it."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from hermes.cluster.neighbours import Neighbours
from hermes.coordination.listeners import BrokerListeners, ListenerNode
from hermes.errors import CoordinationUnavailableError
from hermes.protocol import ClusterBroker, decode_cluster_brokers_response
from hermes.server.outcomes import DeferredResponse

PLAIN = ListenerNode("0", "here", 9092, False, "none")
SECURE = ListenerNode("1", "here", 9094, True, "scram")
OWN = BrokerListeners((PLAIN, SECURE))


class Registered:
    """Reads that end when the test says so."""

    def __init__(self) -> None:
        self.reads: list[Deferred[Any]] = []
        self.clock = Clock()
        self.neighbours = Neighbours(3, lambda: OWN, self._read, self.clock.seconds)

    def _read(self) -> "Deferred[Any]":
        self.reads.append(Deferred())
        return self.reads[-1]

    def ask(self, listener: ListenerNode = PLAIN) -> Any:
        return self.neighbours.tell(listener)


def told(outcome: Any) -> list[ClusterBroker]:
    if isinstance(outcome, DeferredResponse):
        assert outcome.cancellable
        found: list[Any] = []
        outcome.to_deferred().addCallback(found.append)
        (outcome,) = found
    return decode_cluster_brokers_response(outcome[4:])


def elsewhere(*listeners: ListenerNode) -> BrokerListeners:
    return BrokerListeners(tuple(each._replace(host="there") for each in listeners))


def test_without_coordination_it_knows_itself() -> None:
    neighbours = Neighbours(3, lambda: OWN, None, Clock().seconds)
    assert told(neighbours.tell(PLAIN)) == [(3, "here", 9092)]
    assert told(neighbours.tell(SECURE)) == [(3, "here", 9094)]
    assert told(neighbours.tell(SECURE._replace(authentication="tls"))) == []


def test_each_broker_is_told_by_the_listener_that_is_alike() -> None:
    registered = Registered()
    asked = registered.ask(SECURE)
    registered.reads[0].callback({7: elsewhere(PLAIN), 5: elsewhere(PLAIN, SECURE)})
    assert told(asked) == [(3, "here", 9094), (5, "there", 9094)]
    assert told(registered.ask()) == [(3, "here", 9092), (5, "there", 9092), (7, "there", 9092)]


def test_it_looks_at_most_once_a_second_whoever_asks() -> None:
    registered = Registered()
    asked = [registered.ask() for _ in range(3)]
    assert len(registered.reads) == 1
    registered.reads[0].callback({5: elsewhere(PLAIN)})
    assert all(told(each) == [(3, "here", 9092), (5, "there", 9092)] for each in asked)
    registered.clock.advance(0.9)
    registered.ask()
    assert len(registered.reads) == 1
    registered.clock.advance(0.2)
    late = registered.ask()
    assert len(registered.reads) == 2
    registered.reads[1].callback({})
    assert told(late) == [(3, "here", 9092)]


def test_what_was_known_is_told_while_nothing_can_be_read() -> None:
    registered = Registered()
    registered.ask()
    registered.reads[0].callback({5: elsewhere(PLAIN)})
    registered.clock.advance(2)
    asked = registered.ask()
    registered.reads[1].errback(CoordinationUnavailableError("it is away"))
    assert told(asked) == [(3, "here", 9092), (5, "there", 9092)]


def test_a_client_that_goes_takes_nothing_from_others() -> None:
    registered = Registered()
    gone, stays = registered.ask(), registered.ask()
    failures: list[Any] = []
    gone.to_deferred().addErrback(failures.append)
    gone.cancel()
    assert failures[0].check(CancelledError)
    registered.reads[0].callback({})
    assert told(stays) == [(3, "here", 9092)]


def test_a_fault_of_ours_is_logged_and_ends_nothing() -> None:
    registered = Registered()
    lines: list[Any] = []
    globalLogPublisher.addObserver(lines.append)
    try:
        asked = registered.ask()
        registered.reads[0].errback(ZeroDivisionError())
    finally:
        globalLogPublisher.removeObserver(lines.append)
    assert told(asked) == [(3, "here", 9092)]
    assert "reading where other brokers listen failed" in [each["log_format"] for each in lines]
