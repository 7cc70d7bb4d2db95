"""SASL/OAUTHBEARER: who shows a token is served while it lasts, and may show another in time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import answers, log_lines
from kafka_bench import KafkaBench, decode_answer, encode_request
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from zope.interface import implementer

from hermes.errors import NotAuthenticatedError
from hermes.interfaces import ITokenVerifier, TokenHolder
from hermes.server.policies import ListenerPolicy

POLICY = ListenerPolicy(authentication="token")
REFUSED = b'{"status":"invalid_token"}'


@implementer(ITokenVerifier)
class Names:
    """A token is `NAME:SECONDS`; it isn't signed by anybody."""

    def verify(self, token: str) -> TokenHolder:
        """See `ITokenVerifier`."""
        if token == "broken":
            raise OSError("the provider is away")
        name, _, seconds = token.partition("~")
        if not seconds:
            raise NotAuthenticatedError("the token has expired")
        return TokenHolder(name, frozenset({"staff"}), float(seconds))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(
        tmp_path,
        topics={"new": {"format": "kafka"}},
        access=[{"principal": "group:staff", "operations": ["describe"], "topic": "new"}],
    )
    bench.authentication.token_verifier = Names()
    bench.shared.topics.create_declared("new")
    yield bench
    bench.close()


class Guest:
    """A client on a listener that wants tokens."""

    def __init__(self, bench: KafkaBench) -> None:
        self.bench = bench
        address = IPv4Address("TCP", "192.0.2.1", 4711)
        self.connection, self.transport = bench.connect_kafka(POLICY, address)

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        self.connection.dataReceived(encode_request(name, version, **fields))
        self.bench.turns(self.transport)
        (answer,) = answers(self.transport)
        self.transport.clear()
        return decode_answer(name, version, answer)

    def shake(self, mechanism: str = "OAUTHBEARER") -> Any:
        return self.ask("SaslHandshake", 1, mechanism=mechanism)

    def say(self, message: bytes, version: int = 2) -> Any:
        return self.ask("SaslAuthenticate", version, auth_bytes=message)

    def show(self, token: str, identity: str = "", version: int = 2) -> Any:
        return self.say(f"n,{identity},\1auth=Bearer {token}\1\1".encode(), version)

    def topics(self) -> list[str]:
        return [each.name for each in self.ask("Metadata", 1, topics=None).topics]

    @property
    def has_ended(self) -> bool:
        return bool(self.transport.disconnecting or self.transport.disconnected)


def admitted(bench: KafkaBench, token: str = "alice~100") -> Guest:
    guest = Guest(bench)
    assert guest.shake().error_code == 0
    assert guest.show(token).error_code == 0
    return guest


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_token_is_taken(bench: KafkaBench, version: int) -> None:
    guest = Guest(bench)
    hand = guest.shake()
    assert (hand.error_code, hand.mechanisms) == (0, ("OAUTHBEARER",))
    answer = guest.show("alice~100", version=version)
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    life = getattr(answer, "session_lifetime", None)
    assert life is None or life.total_seconds() == 100
    assert guest.topics() == ["new"]
    assert bench.authentication.counts == {("OAUTHBEARER", "accepted"): 1}


def test_passwords_are_not(bench: KafkaBench) -> None:
    hand = Guest(bench).shake("SCRAM-SHA-256")
    assert (hand.error_code, hand.mechanisms) == (33, ("OAUTHBEARER",))


def test_a_token_that_is_not_taken_is_told_as_the_rfc_has_it(bench: KafkaBench) -> None:
    guest = Guest(bench)
    guest.shake()
    with log_lines() as lines:
        told = guest.show("alice")
        assert (told.error_code, told.auth_bytes) == (0, REFUSED)
        assert not guest.has_ended
        final = guest.say(b"\1")
    assert (final.error_code, final.error_message) == (58, "the token has expired")
    assert guest.has_ended
    assert len(lines) == 1
    assert "showed a token that is not taken: the token has expired" in lines[0]


def test_after_a_refusal_another_token_is_of_no_use(bench: KafkaBench) -> None:
    guest = Guest(bench)
    guest.shake()
    guest.show("alice")
    assert guest.show("alice~100").error_code == 58
    assert guest.has_ended


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"n,,\1auth=Basic x\1\1", "expected a bearer token"),
        (b"n,a=root,\1auth=Bearer alice~100\1\1", "acts for nobody but"),
        (b"n,,\1auth=Bearer anonymous~100\1\1", "a name that nobody can have"),
    ],
)
def test_what_is_no_own_token_ends_the_connection(
    bench: KafkaBench, message: bytes, reason: str
) -> None:
    guest = Guest(bench)
    guest.shake()
    answer = guest.say(message)
    if answer.auth_bytes == REFUSED:
        answer = guest.say(b"\1")
    assert answer.error_code == 58
    assert reason in answer.error_message
    assert guest.has_ended


def test_a_provider_that_is_away_is_no_clients_fault(bench: KafkaBench) -> None:
    guest = Guest(bench)
    guest.shake()
    with log_lines() as lines:
        answer = guest.show("broken")
    assert answer.error_code == 58
    assert "the broker's log says why" in answer.error_message
    assert any("OSError: the provider is away" in line for line in lines)
    assert bench.authentication.counts == {("OAUTHBEARER", "failed"): 1}


def test_a_token_may_be_longer_than_what_users_send(bench: KafkaBench) -> None:
    guest = Guest(bench)
    guest.shake()
    assert guest.show(f"{'a' * 200}~{'0' * 20_000}100").error_code == 0
    other = Guest(bench)
    other.shake()
    other.connection.dataReceived(encode_request("SaslAuthenticate", 2, auth_bytes=bytes(40_000)))
    assert other.has_ended


# -- the end of a token ---------------------------------------------------------------------------


def test_a_connection_ends_with_its_token(bench: KafkaBench) -> None:
    guest = admitted(bench)
    bench.clock.advance(99)
    assert guest.topics() == ["new"]
    bench.clock.advance(2)
    assert guest.has_ended
    assert bench.authentication.counts["OAUTHBEARER", "expired"] == 1


def test_another_token_holds_it_for_longer(bench: KafkaBench) -> None:
    guest = admitted(bench)
    for _ in range(3):
        bench.clock.advance(90)
        assert guest.shake().error_code == 0
        assert guest.topics() == ["new"]  # meanwhile others may be asked
        answer = guest.show("alice~100")
        assert (answer.error_code, answer.session_lifetime.total_seconds()) == (0, 100)
    bench.clock.advance(101)
    assert guest.has_ended


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("bob~100", "to a different user than the one before"),
        ("alice", "the token has expired"),
    ],
)
def test_a_wrong_one_ends_it(bench: KafkaBench, token: str, reason: str) -> None:
    guest = admitted(bench)
    guest.shake()
    answer = guest.show(token)
    if not answer.error_code:
        answer = guest.say(b"\1")
    assert answer.error_code == 58
    assert reason in answer.error_message
    assert guest.has_ended


def test_it_is_not_begun_anew_by_another_mechanism_or_without_one(bench: KafkaBench) -> None:
    guest = admitted(bench)
    assert guest.show("alice~100").error_code == 34
    assert guest.shake("SCRAM-SHA-256").error_code == 33
    assert guest.show("alice~100").error_code == 34
    assert guest.topics() == ["new"]


def test_nothing_is_left_of_who_leaves(bench: KafkaBench) -> None:
    guest = admitted(bench)
    before = len(bench.clock.getDelayedCalls())
    guest.connection.connectionLost()
    assert len(bench.clock.getDelayedCalls()) < before


def test_nothing_holds_who_leaves_while_another_token_is_checked(bench: KafkaBench) -> None:
    guest, checked = admitted(bench), Deferred[Any]()
    guest.shake()
    bench.authentication.in_thread = lambda function, *args: checked
    message = encode_request("SaslAuthenticate", 2, auth_bytes=b"n,,\1auth=Bearer alice~9\1\1")
    guest.connection.dataReceived(message)
    guest.connection.connectionLost()
    waiting = len(bench.clock.getDelayedCalls())
    checked.callback(TokenHolder("alice", frozenset(), 9.0))
    assert len(bench.clock.getDelayedCalls()) == waiting
