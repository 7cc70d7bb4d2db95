"""SCRAM by SASL from the client's side: against this broker's own half, and against liars."""

from collections.abc import Callable

import pytest
from planted_secrets import planted

from hermes.errors import NotAuthenticatedError, RemoteProtocolError
from hermes.protocol.kafka_primitives import KafkaReader
from hermes.protocol.kafka_requests import KafkaRequest
from hermes.protocol.kafka_sasl import advance, prove_identity
from hermes.protocol.wire import encode_string
from hermes.security import ClientSecurity
from hermes.security.scram import ScramServer
from hermes.security.users import Users

PASSWORD = planted("the password of SASL's alice")
ALICE = ClientSecurity(user="alice", password=PASSWORD)
USERS = Users.none().with_user("alice", PASSWORD, iterations=4096)
CHOSEN = bytes.fromhex("0000 00000001") + encode_string("SCRAM-SHA-256")
#: Of error, text and message: a proof that was refused.
REFUSED = bytes.fromhex("003a") + encode_string("no") + bytes(4) + bytes(8)


def said(message: bytes) -> bytes:
    return bytes.fromhex("0000 ffff") + len(message).to_bytes(4) + message + bytes(8)


def message_of(request: KafkaRequest) -> bytes:
    reader = KafkaReader(request.body, 0, is_flexible=False)
    message = bytes(reader.data() or b"")
    assert reader.remaining == 0
    return message


def hold(
    answers: Callable[[int, KafkaRequest], bytes], security: ClientSecurity = ALICE
) -> list[tuple[int, int]]:
    """Hold a conversation; the keys and versions of what was asked."""
    talk = prove_identity(security, "there:9092")
    asked: list[tuple[int, int]] = []
    request = advance(talk, None)
    while request is not None:
        asked.append((request.key, request.version))
        assert not request.is_flexible
        request = advance(talk, answers(len(asked), request))
    return asked


def broker(users: Users = USERS, last: Callable[[bytes], bytes] = said) -> Callable[..., bytes]:
    """The broker's half, whose last word a test may change."""
    server = ScramServer("SCRAM-SHA-256", users)

    def answer(number: int, request: KafkaRequest) -> bytes:
        if number == 1:
            assert request.body == encode_string("SCRAM-SHA-256")
            return CHOSEN
        if number == 2:
            return said(server.challenge(message_of(request)))
        try:
            _, final = server.finish(message_of(request))
        except NotAuthenticatedError:
            return REFUSED
        return last(final)

    return answer


def test_both_sides_prove_themselves() -> None:
    assert hold(broker()) == [(17, 1), (36, 1), (36, 1)]


def test_a_wrong_password_is_told_without_it() -> None:
    wrong = ClientSecurity(user="alice", password="wrong")
    with pytest.raises(NotAuthenticatedError, match="there:9092 refused user 'alice': the name"):
        hold(broker(), wrong)


def test_a_broker_without_users_does_not_do_for_one() -> None:
    with pytest.raises(NotAuthenticatedError, match="does not authenticate by SCRAM-SHA-256"):
        hold(lambda number, request: bytes.fromhex("0021 00000000"))


@pytest.mark.parametrize("final", [b"", b"v=", b"v=AAAA", b"e=other-error", b"\xff", b"r=1,s=2"])
def test_a_broker_that_can_not_prove_itself_is_not_trusted(final: bytes) -> None:
    with pytest.raises(NotAuthenticatedError, match="did not prove that it knows user 'alice'"):
        hold(broker(last=lambda _: said(final)))


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=x,s=QQ==,i=4096",
        b"r=x",
        b"i=1",
        b"\xff\xfe",
        b"r=x,s=!!!,i=4096",
        b"a" * 100_000,
        "beyond",
    ],
)
def test_a_challenge_that_is_none_is_refused_with_the_address(challenge: bytes | str) -> None:
    def answer(number: int, request: KafkaRequest) -> bytes:
        if number == 1:
            return CHOSEN
        assert number == 2, "nothing is proved to it"
        if isinstance(challenge, bytes):
            return said(challenge)
        nonce = message_of(request).rpartition(b"r=")[2]  # of more work than anybody does
        return said(b"r=" + nonce + b"more,s=QQ==,i=1000000001")

    with pytest.raises(NotAuthenticatedError, match="there:9092, to user 'alice': the broker"):
        hold(answer)


# Of the response to the handshake only the code is read.
CUTS = [(1, 0), (1, 1), *((turn, cut) for turn in (2, 3) for cut in range(20))]


@pytest.mark.parametrize(("turn", "cut"), CUTS)
def test_a_response_that_is_cut_ends_it(turn: int, cut: int) -> None:
    honest = broker()

    def answer(number: int, request: KafkaRequest) -> bytes:
        given = honest(number, request)
        return given[:cut] if number == turn else given

    with pytest.raises(RemoteProtocolError, match="are left"):
        hold(answer)
