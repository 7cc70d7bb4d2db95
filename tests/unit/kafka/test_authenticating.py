"""SASL: Kafka's clients say who they are by the users that there are, or get nowhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import answers, log_lines
from kafka_bench import KafkaBench, decode_answer, encode_request
from twisted.internet.address import IPv4Address
from users_bench import SCRAM, USERS, Directory

from hermes.security.scram import ScramClient
from hermes.server.gates import TIME_SECONDS
from hermes.server.policies import ListenerPolicy


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(
        tmp_path,
        authenticator=Directory(USERS),
        topics={"new": {"format": "kafka"}},
        access=[{"principal": "alice", "operations": ["describe"], "topic": "new"}],
    )
    bench.shared.topics.create_declared("new")
    yield bench
    bench.close()


class Guest:
    """A client on a listener that wants users."""

    policy = SCRAM

    def __init__(self, bench: KafkaBench) -> None:
        self.bench = bench
        address = IPv4Address("TCP", "192.0.2.1", 4711)
        self.connection, self.transport = bench.connect_kafka(self.policy, address)

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        (answer,) = self.send(encode_request(name, version, **fields))
        return decode_answer(name, version, answer)

    def send(self, data: bytes) -> list[bytes]:
        self.connection.dataReceived(data)
        self.bench.turns(self.transport)
        self.bench.clock.advance(1)
        return answers(self.transport)

    def prove(self, client: ScramClient, version: int = 2) -> Any:
        """Say who one is; the last answer."""
        first = self.ask("SaslAuthenticate", version, auth_bytes=client.first())
        assert (first.error_code, first.error_message) == (0, None)
        last = client.answer(first.auth_bytes)
        return self.ask("SaslAuthenticate", version, auth_bytes=last)

    def topics(self) -> list[str]:
        answer = self.ask("Metadata", 1, topics=None)
        return [each.name for each in answer.topics]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_proves_it_is_served_as_its_rules_say(
    bench: KafkaBench, mechanism: str, version: int
) -> None:
    guest = Guest(bench)
    assert guest.ask("ApiVersions", 0).error_code == 0
    hand = guest.ask("SaslHandshake", 1, mechanism=mechanism)
    assert (hand.error_code, hand.mechanisms) == (0, ("SCRAM-SHA-256", "SCRAM-SHA-512"))
    client = ScramClient("alice", "wonder", mechanism)
    final = guest.prove(client, version)
    assert final.error_code == 0
    client.verify(final.auth_bytes)
    assert guest.topics() == ["new"]
    assert bench.authentication.counts == {(mechanism, "accepted"): 1}


def test_others_see_what_their_rules_show(bench: KafkaBench) -> None:
    guest = Guest(bench)
    guest.ask("SaslHandshake", 1, mechanism="SCRAM-SHA-256")
    assert guest.prove(ScramClient("bob", "builder")).error_code == 0
    assert guest.topics() == []


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "wonder")])
def test_a_wrong_proof_is_told_and_ends_the_connection(
    bench: KafkaBench, user: str, password: str
) -> None:
    guest = Guest(bench)
    guest.ask("SaslHandshake", 1, mechanism="SCRAM-SHA-256")
    with log_lines() as lines:
        final = guest.prove(ScramClient(user, password))
    assert (final.error_code, final.auth_bytes) == (58, b"")
    assert final.error_message == "the user or the password is wrong"
    assert guest.transport.disconnecting
    assert len(lines) == 1


def test_messages_without_requests_around_them(bench: KafkaBench) -> None:
    """After a handshake in v0, as clients of before Kafka 1.0 do."""
    guest = Guest(bench)
    assert guest.ask("SaslHandshake", 0, mechanism="SCRAM-SHA-256").error_code == 0
    client = ScramClient("alice", "wonder")

    def say(message: bytes) -> bytes:
        (answer,) = guest.send(len(message).to_bytes(4) + message)
        return answer

    client.verify(say(client.answer(say(client.first()))))
    assert guest.topics() == ["new"]


def test_a_wrong_proof_without_requests_ends_the_connection(bench: KafkaBench) -> None:
    guest = Guest(bench)
    guest.ask("SaslHandshake", 0, mechanism="SCRAM-SHA-256")
    client = ScramClient("alice", "wrong")
    first = client.first()
    (challenge,) = guest.send(len(first).to_bytes(4) + first)
    last = client.answer(challenge)
    assert guest.send(len(last).to_bytes(4) + last) == []
    assert guest.transport.disconnecting


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI", ""])
def test_other_mechanisms_are_not_offered(bench: KafkaBench, mechanism: str) -> None:
    hand = Guest(bench).ask("SaslHandshake", 1, mechanism=mechanism)
    assert (hand.error_code, hand.mechanisms) == (33, ("SCRAM-SHA-256", "SCRAM-SHA-512"))


@pytest.mark.parametrize(
    "requests",
    [
        [encode_request("Metadata", 1, topics=None)],
        [encode_request("SaslAuthenticate", 2, auth_bytes=b"n,,n=alice,r=x")],
        [encode_request("SaslHandshake", 1, mechanism="SCRAM-SHA-256")] * 2,
        [(5000).to_bytes(4)],
        [b"\0\0\0\2\0\0"],
    ],
)
def test_strangers_get_nowhere(bench: KafkaBench, requests: list[bytes]) -> None:
    guest = Guest(bench)
    for each in requests:
        guest.send(each)
    assert guest.transport.disconnecting


def test_who_says_nothing_ends_soon(bench: KafkaBench) -> None:
    guest = Guest(bench)
    bench.clock.advance(TIME_SECONDS)
    assert guest.transport.disconnecting or guest.transport.disconnected


def test_where_nobody_is_asked_a_proof_is_refused(bench: KafkaBench) -> None:
    for name, version, fields in (
        ("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"}),
        ("SaslAuthenticate", 0, {"auth_bytes": b"x"}),
        ("SaslAuthenticate", 2, {"auth_bytes": b"x"}),
    ):
        assert bench.ask(name, version, **fields).error_code == 34


class PlainGuest(Guest):
    """A client on a listener that takes passwords as they are."""

    policy = ListenerPolicy("users", "scram", plain=True)

    def tell(self, message: bytes, version: int = 2) -> Any:
        """Send a password; the answer."""
        hand = self.ask("SaslHandshake", 1, mechanism="PLAIN")
        assert (hand.error_code, hand.mechanisms[-1]) == (0, "PLAIN")
        return self.ask("SaslAuthenticate", version, auth_bytes=message)


@pytest.mark.parametrize("message", [b"\0alice\0wonder", b"alice\0alice\0wonder"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_password_as_it_is_where_the_listener_takes_it(
    bench: KafkaBench, message: bytes, version: int
) -> None:
    guest = PlainGuest(bench)
    told = guest.tell(message, version)
    assert (told.error_code, told.error_message, told.auth_bytes) == (0, None, b"")
    assert guest.topics() == ["new"]
    assert bench.connections.authentication.counts["password", "accepted"] == 1


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0nobody\0wonder",
        b"\0hermes-internal\0wonder",
        b"bob\0alice\0wonder",
        b"\0\0wonder",
        b"\0alice\0",
        b"alice\0wonder",
        b"\0alice\0wonder\0",
        b"\xff\0alice\0wonder",
        b"",
    ],
)
def test_a_wrong_password_is_the_connections_last(bench: KafkaBench, message: bytes) -> None:
    with log_lines() as lines:
        guest = PlainGuest(bench)
        told = guest.tell(message)
    assert told.error_code == 58
    assert guest.transport.disconnecting
    assert not any("wonder" in line for line in lines)


def test_who_gave_a_password_as_it_is_ends_with_its_user(bench: KafkaBench) -> None:
    guest = PlainGuest(bench)
    assert guest.tell(b"\0alice\0wonder").error_code == 0
    authentication = bench.connections.authentication
    authentication.authenticator.users = USERS.without("alice")  # type: ignore[union-attr]
    authentication.refresh()
    bench.turns()
    assert guest.transport.disconnecting


def test_a_password_as_it_is_comes_raw_after_an_old_handshake(bench: KafkaBench) -> None:
    guest = PlainGuest(bench)
    guest.ask("SaslHandshake", 0, mechanism="PLAIN")
    message = b"\0alice\0wonder"
    assert guest.send(len(message).to_bytes(4) + message) == [b""]
    assert guest.topics() == ["new"]


def test_no_password_as_it_is_elsewhere(bench: KafkaBench) -> None:
    guest = Guest(bench)
    hand = guest.ask("SaslHandshake", 1, mechanism="PLAIN")
    assert (hand.error_code, "PLAIN" in hand.mechanisms) == (33, False)
    guest.send(encode_request("SaslAuthenticate", 2, auth_bytes=b"\0alice\0wonder"))
    assert guest.transport.disconnecting


def test_while_users_cannot_be_looked_up_nobody_is_let_in(bench: KafkaBench) -> None:
    bench.connections.authentication.authenticator.is_down = True  # type: ignore[union-attr]
    guest = PlainGuest(bench)
    assert guest.tell(b"\0alice\0wonder").error_code == 58
    assert guest.transport.disconnecting
