"""Reaching another broker without sockets: one that is in memory, and those that misbehave."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_bench import KafkaBench
from outgoing_bench import OutgoingTransport, response
from planted_secrets import planted
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from users_bench import SCRAM, USERS, Directory

from hermes.errors import (
    BrokerNotReachedError,
    ConfigError,
    NotAuthenticatedError,
    RemoteProtocolError,
    is_refusal,
    is_retriable,
)
from hermes.kafka.other_brokers import OtherBroker
from hermes.kafka.outgoing import OutgoingConnection, OutgoingLimits
from hermes.protocol.kafka_requests import API_VERSIONS, KafkaRequest
from hermes.protocol.wire import encode_string
from hermes.security import PLAIN, ClientSecurity
from hermes.server.policies import ListenerPolicy

OPEN = ListenerPolicy()
ALICE = ClientSecurity(user="alice", password="wonder")
HOST = IPv4Address("TCP", "192.0.2.1", 4711)
#: That Fetch is there, from 4 to 18.
VERSIONS = bytes.fromhex("0000 00000001 0001 0004 0012")
#: Of Metadata in version 1, about one topic.
METADATA = KafkaRequest(3, 1, bytes.fromhex("00000001") + encode_string("new"))


class Attempt:
    """One attempt to connect, and its end."""

    def __init__(
        self,
        security: ClientSecurity = PLAIN,
        in_thread: Callable[..., "Deferred[Any]"] = maybeDeferred,
    ) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.transport = OutgoingTransport()
        self.outcome: Any = None
        limits = OutgoingLimits(connect_seconds=5)
        other = OtherBroker(self.reactor, "127.0.0.1", 9092, in_thread, security, limits)
        self.connecting = other.connect()
        self.connecting.addBoth(self._note)

    def _note(self, outcome: Any) -> None:
        assert self.outcome is None
        self.outcome = outcome.value if isinstance(outcome, Failure) else outcome

    def accept(self) -> "Attempt":
        _, _, factory, _, _ = self.reactor.tcpClients[0]
        self.protocol = factory.buildProtocol(None)
        self.protocol.makeConnection(self.transport)
        return self

    def answer(self, *answers: bytes) -> "Attempt":
        """Answer what was asked, one after the other."""
        for each in answers:
            self.transport.clear()
            self.protocol.dataReceived(each)
        return self

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))

    def serve(self, bench: KafkaBench, policy: ListenerPolicy = OPEN) -> "Attempt":
        """Let a broker answer, for as long as something is asked."""
        connection, transport = bench.connect_kafka(policy, HOST)
        while sent := self.transport.value():
            connection.dataReceived(sent)
            bench.turns(transport)
            bench.clock.advance(1)
            answered = transport.value()
            transport.clear()
            self.answer(answered)
            if transport.disconnecting and not self.transport.is_aborted:
                self.lose()
        return self

    def has_left_nothing(self) -> bool:
        """Whether neither a timer nor an open socket remains."""
        return self.transport.is_aborted and self.reactor.getDelayedCalls() == []


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(
        tmp_path, authenticator=Directory(USERS), topics={"new": {"format": "kafka"}}
    )
    bench.shared.topics.create_declared("new")
    yield bench
    bench.close()


@pytest.mark.parametrize(("security", "policy"), [(PLAIN, OPEN), (ALICE, SCRAM)])
def test_a_connection_is_ready_for_requests(
    bench: KafkaBench, security: ClientSecurity, policy: ListenerPolicy
) -> None:
    attempt = Attempt(security).accept()
    assert attempt.transport.value() == API_VERSIONS.encode(1)
    connection, transport = bench.connect_kafka(policy, HOST)
    while sent := attempt.transport.value():
        connection.dataReceived(sent)
        bench.clock.advance(1)
        answered = transport.value()
        transport.clear()
        attempt.answer(answered)
    made = attempt.outcome
    assert isinstance(made, OutgoingConnection)
    assert made.versions[1] == range(4, 19)
    assert made.versions[3] == range(14)
    answers: list[memoryview] = []
    made.ask(METADATA).addCallback(answers.append)
    connection.dataReceived(attempt.transport.value())
    bench.clock.advance(1)
    attempt.answer(transport.value())
    assert encode_string("new") in bytes(answers[0])
    made.close()
    attempt.lose()
    assert attempt.has_left_nothing()


def test_a_refused_connection_says_where_it_was_tried() -> None:
    attempt = Attempt()
    _, _, factory, _, _ = attempt.reactor.tcpClients[0]
    factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))
    attempt.reactor.advance(0.01)  # so soon: brokers judge by it whether another one lives
    assert type(attempt.outcome) is BrokerNotReachedError
    assert "no connection to 127.0.0.1:9092: " in str(attempt.outcome)
    assert is_retriable(attempt.outcome)
    assert attempt.reactor.getDelayedCalls() == []


def test_a_connection_that_is_not_accepted_in_time_is_given_up() -> None:
    attempt = Attempt()
    attempt.reactor.advance(4.9)
    assert attempt.outcome is None
    attempt.reactor.advance(0.1)
    assert type(attempt.outcome) is BrokerNotReachedError
    assert "no connection to 127.0.0.1:9092, ready for requests, in 5 s" in str(attempt.outcome)
    assert attempt.reactor.connectors[0].stoppedConnecting
    assert attempt.reactor.getDelayedCalls() == []


# What a broker has answered before it goes silent, or leaves.
STAGES = [
    (PLAIN, []),
    (ALICE, []),
    (ALICE, [response(1, VERSIONS)]),
    (ALICE, [response(1, VERSIONS), response(2, bytes(6))]),
]


@pytest.mark.parametrize(("security", "answers"), STAGES)
def test_all_of_it_has_one_time(security: ClientSecurity, answers: list[bytes]) -> None:
    attempt = Attempt(security)
    attempt.reactor.advance(2)
    attempt.accept().answer(*answers)
    attempt.reactor.advance(2.9)
    assert attempt.outcome is None
    attempt.reactor.advance(0.1)
    assert type(attempt.outcome) is BrokerNotReachedError
    assert "ready for requests, in 5 s" in str(attempt.outcome)
    assert attempt.has_left_nothing()
    attempt.lose()


@pytest.mark.parametrize(("security", "answers"), STAGES)
def test_a_cancelled_attempt_leaves_nothing(security: ClientSecurity, answers: list[bytes]) -> None:
    attempt = Attempt(security).accept().answer(*answers)
    attempt.connecting.cancel()
    assert isinstance(attempt.outcome, CancelledError)
    assert attempt.has_left_nothing()
    attempt.lose()


def test_an_attempt_that_is_cancelled_at_once_leaves_nothing() -> None:
    attempt = Attempt()
    attempt.connecting.cancel()
    assert isinstance(attempt.outcome, CancelledError)
    assert attempt.reactor.connectors[0].stoppedConnecting
    assert attempt.reactor.getDelayedCalls() == []


def test_an_attempt_may_be_cancelled_while_a_thread_computes() -> None:
    computing: list[Deferred[Any]] = []

    def in_thread(*_: Any) -> "Deferred[Any]":
        computing.append(Deferred())
        return computing[-1]

    attempt = Attempt(ALICE, in_thread).accept().answer(response(1, VERSIONS))
    assert len(computing) == 1
    attempt.connecting.cancel()
    computing[0].callback(None)
    assert isinstance(attempt.outcome, CancelledError)
    assert attempt.has_left_nothing()


@pytest.mark.parametrize(("security", "answers"), STAGES)
def test_a_broker_that_leaves_before_it_is_ready_may_be_no_right_one(
    security: ClientSecurity, answers: list[bytes]
) -> None:
    attempt = Attempt(security).accept().answer(*answers)
    attempt.lose()
    assert type(attempt.outcome) is BrokerNotReachedError
    assert "is it a port of kafka_listen, and does it want TLS or a user?" in str(attempt.outcome)
    assert attempt.has_left_nothing()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP"),
        (response(2, VERSIONS), "an answer to request 2"),
        (response(1, bytes.fromhex("0023 00000000")), "the error 35"),
        (response(1, bytes.fromhex("0000 7fffffff")), "0 bytes are left"),
        (response(1, VERSIONS) + response(2, b"unasked"), "that nobody asked for"),
        ((64 << 20 | 1).to_bytes(4), "up to 67108864 are allowed"),
    ],
)
def test_what_speaks_another_protocol_is_told_as_such(answer: bytes, words: str) -> None:
    attempt = Attempt().accept().answer(answer)
    if isinstance(attempt.outcome, OutgoingConnection):  # the last straw came with the answer
        answered: list[Failure] = []
        attempt.outcome.ask(METADATA).addErrback(answered.append)
        assert words in str(answered[0].value)
    else:
        assert type(attempt.outcome) is RemoteProtocolError
        assert words in str(attempt.outcome)
    assert attempt.has_left_nothing()


def test_a_wrong_password_is_refused_for_good(bench: KafkaBench) -> None:
    password = planted("a wrong password of another broker's")
    attempt = Attempt(ClientSecurity(user="alice", password=password)).accept().serve(bench, SCRAM)
    assert type(attempt.outcome) is NotAuthenticatedError
    assert "127.0.0.1:9092 refused user 'alice'" in str(attempt.outcome)
    assert password not in str(attempt.outcome)
    assert is_refusal(attempt.outcome)
    assert attempt.has_left_nothing()


def test_a_listener_without_users_takes_none(bench: KafkaBench) -> None:
    attempt = Attempt(ALICE).accept().serve(bench)
    assert type(attempt.outcome) is NotAuthenticatedError
    assert "127.0.0.1:9092 does not authenticate by SCRAM-SHA-256" in str(attempt.outcome)
    assert attempt.has_left_nothing()


def test_who_can_not_prove_to_know_the_password_gets_no_request(bench: KafkaBench) -> None:
    """A stranger that took the broker's port, and passes on whatever isn't proof."""
    attempt = Attempt(ALICE).accept()
    connection, transport = bench.connect_kafka(SCRAM, HOST)
    for _ in range(4):
        connection.dataReceived(attempt.transport.value())
        bench.clock.advance(1)
        answered = transport.value()
        transport.clear()
        start = answered.find(b"v=")
        if start > 0:  # the broker's proof, 44 characters of base64
            answered = answered[: start + 2] + b"A" * 43 + b"=" + answered[start + 46 :]
        attempt.answer(answered)
    assert type(attempt.outcome) is NotAuthenticatedError
    assert "127.0.0.1:9092 did not prove that it knows user 'alice'" in str(attempt.outcome)
    assert attempt.transport.value() == b""
    assert attempt.has_left_nothing()


def test_a_users_name_that_can_not_be_one_is_a_fault_of_the_settings() -> None:
    security = ClientSecurity(user="alice\0", password="wonder")
    attempt = Attempt(security).accept().answer(response(1, VERSIONS))
    assert type(attempt.outcome) is ConfigError
    assert attempt.has_left_nothing()


def test_certificates_that_are_not_there_are_a_fault_of_the_settings(tmp_path: Path) -> None:
    attempt = Attempt(ClientSecurity(tls_ca=str(tmp_path / "ca.pem")))
    assert isinstance(attempt.outcome, ConfigError)
    assert attempt.outcome.key == "tls_ca"
    assert attempt.reactor.tcpClients == []
    assert attempt.reactor.getDelayedCalls() == []
