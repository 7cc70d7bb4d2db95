"""SCRAM as clients speak it, against the broker's half: who is let in, what refusals say."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes.client.authenticating import advance, authenticate
from hermes.client.connection import BrokerConnection
from hermes.errors import (
    BrokerNotReachedError,
    BrokerUnavailableError,
    ConfigError,
    HermesError,
    NotAuthenticatedError,
    is_retriable,
)
from hermes.protocol import (
    AuthenticateRequest,
    ErrorCode,
    MetadataRequest,
    decode_request,
    encode_authenticate_response,
    encode_error_response,
)
from hermes.security import INTERNAL, ClientSecurity
from hermes.security.scram import ScramServer
from hermes.security.users import Users

PASSWORD = "correct horse"
USERS = Users.only("alice", PASSWORD, iterations=4096)
ALICE = ClientSecurity(user="alice", password=PASSWORD)


class Server:
    """A broker's half: answers encoded requests; refuses as it is told."""

    def __init__(self, users: Any = USERS) -> None:
        self.users = users
        self.steps = 0
        self.refusal: ErrorCode | None = None
        self.name = ""

    def answer(self, frame: bytes) -> bytes:
        request = decode_request(memoryview(frame)[4:])
        assert isinstance(request, AuthenticateRequest)
        assert PASSWORD.encode() not in frame
        self.steps += 1
        if self.refusal is not None:
            return encode_error_response(self.refusal)
        try:
            if self.steps % 2:
                self._scram = ScramServer(request.mechanism, self.users)
                return encode_authenticate_response(self._scram.challenge(request.message))
            user, proof = self._scram.finish(request.message)
        except NotAuthenticatedError:
            return encode_error_response(ErrorCode.NOT_AUTHENTICATED)
        self.name = user.name
        return encode_authenticate_response(proof)


def converse(security: ClientSecurity, answer: Callable[[bytes], bytes]) -> None:
    talk = authenticate(security, "here:9092")
    step = next(talk, None)
    while step is not None:
        step = advance(talk, step, answer(step.request)[4:])


def refusal_of(security: ClientSecurity, answer: Callable[[bytes], bytes]) -> HermesError:
    with pytest.raises(HermesError) as refused:
        converse(security, answer)
    assert "here:9092" in str(refused.value)
    assert PASSWORD not in str(refused.value)
    assert "'alice'" in str(refused.value) or "'mallory'" in str(refused.value)
    return refused.value


def test_a_user_is_let_in() -> None:
    server = Server()
    converse(ALICE, server.answer)
    assert (server.name, server.steps) == ("alice", 2)


def test_the_broker_itself_is_a_user_of_its_own_listener() -> None:
    server = Server(Users.only(INTERNAL, PASSWORD, iterations=4096))
    converse(ClientSecurity(user=INTERNAL, password=PASSWORD), server.answer)
    assert server.name == INTERNAL


@pytest.mark.parametrize(
    "security",
    [
        ClientSecurity(user="alice", password="wrong"),
        ClientSecurity(user="mallory", password=PASSWORD),
    ],
)
def test_a_wrong_name_and_a_wrong_password_are_refused_alike(security: ClientSecurity) -> None:
    server = Server()
    error = refusal_of(security, server.answer)
    assert isinstance(error, NotAuthenticatedError)
    assert "the name or the password is wrong" in str(error)
    assert server.steps == 2
    assert not is_retriable(error)


def test_a_broker_that_does_not_know_the_user_is_not_believed() -> None:
    """It can make a challenge, and say that all is well; but not prove it."""
    real, other = Server(), Server(Users.only("alice", "another", iterations=4096))

    def answer(frame: bytes) -> bytes:
        if other.steps:
            return encode_authenticate_response(b"v=" + b"A" * 43 + b"=")
        return other.answer(frame)

    error = refusal_of(ALICE, answer)
    assert isinstance(error, NotAuthenticatedError)
    assert "did not prove that it knows user 'alice'" in str(error)
    assert not is_retriable(error)
    assert not real.steps


def test_a_listener_without_scram_says_so() -> None:
    server = Server()
    server.refusal = ErrorCode.UNSUPPORTED_VERSION
    error = refusal_of(ALICE, server.answer)
    assert isinstance(error, NotAuthenticatedError)
    assert "leave out user and password" in str(error)
    assert not is_retriable(error)


def test_users_that_can_not_be_looked_up_now_are_tried_again() -> None:
    server = Server()
    server.refusal = ErrorCode.STORAGE_UNAVAILABLE
    error = refusal_of(ALICE, server.answer)
    assert isinstance(error, BrokerNotReachedError)
    assert is_retriable(error)


def test_a_connection_that_ends_was_none() -> None:
    talk = authenticate(ALICE, "here:9092")
    step = next(talk)
    with pytest.raises(BrokerNotReachedError, match="when user 'alice' was to be") as cut:
        advance(talk, step, BrokerUnavailableError("cut"))
    assert is_retriable(cut.value)


@pytest.mark.parametrize(
    "challenge",
    [b"", b"no SCRAM", b"r=other,s=QUJDREVGR0hJSktM,i=4096"]
    + [b"r=%%s0,s=QUJDREVGR0hJSktM,i=%d" % each for each in (0, 1, 4095, 5_000_000, 10**9)],
)
def test_a_broker_can_neither_keep_a_client_busy_nor_have_an_easy_proof(challenge: bytes) -> None:
    """With few iterations a proof would tell a password to whoever tries many."""

    def answer(frame: bytes) -> bytes:
        message = decode_request(memoryview(frame)[4:]).message
        nonce = message.rpartition(b"r=")[2]
        return encode_authenticate_response(challenge.replace(b"%s", nonce))

    error = refusal_of(ALICE, answer)
    assert isinstance(error, NotAuthenticatedError)


@pytest.mark.parametrize("key", ["user", "password"])
def test_what_can_be_no_name_or_no_password_is_refused_before_anything_is_sent(key: str) -> None:
    given = {"user": "alice", "password": PASSWORD, key: "\u0007bell"}
    with pytest.raises(ConfigError) as refused:
        ClientSecurity(**given).check()
    assert refused.value.key == key
    assert "bell" not in str(refused.value)


def test_a_connection_authenticates_before_anything_else_and_again_after_a_cut(
    memory_broker: Callable[..., Any],
) -> None:
    broker = memory_broker()
    server, plain = Server(), type(broker).answer

    def answer(request: object) -> bytes | None:
        if isinstance(request, AuthenticateRequest):
            return server.answer(request.encode())
        return plain(broker, request)

    broker.answer = answer
    with BrokerConnection(broker.host, broker.port, security=ALICE) as connection:
        for round_number in (1, 2):
            connection.call(MetadataRequest(()).encode())
            connection.call(MetadataRequest(()).encode())
            assert server.name == "alice"
            assert broker.request_types() == [80, 80, 66, 66] * round_number
            connection.disconnect()
        server.users = Users.only("alice", "another", iterations=4096)
        for _ in range(2):
            with pytest.raises(NotAuthenticatedError, match=connection.address):
                connection.call(MetadataRequest(()).encode())
            assert not connection.is_connected
    assert broker.request_types()[8:] == [80, 80] * 2
