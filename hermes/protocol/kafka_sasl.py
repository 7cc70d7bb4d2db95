"""How a client of Kafka's protocol says who it is: SCRAM by SASL, as a conversation without I/O.

    SaslHandshake      v1   string mechanism -> int16 error | array of string mechanisms
    SaslAuthenticate   v1   bytes message -> int16 error | nullable string reason | bytes message
                            | int64 session's life in ms

Who drives it sends each request and passes the response's body on. Steps load libraries, and
compute for milliseconds, on purpose of SCRAM: event loops call `advance` in a thread.

Source: Kafka 4's schemas; KIP-43, KIP-152.
"""

from collections.abc import Generator
from typing import TypeAlias

from hermes.errors import NotAuthenticatedError
from hermes.protocol.kafka_primitives import KafkaReader
from hermes.protocol.kafka_requests import KafkaRequest
from hermes.protocol.wire import Buffer, encode_string, pack
from hermes.security import ClientSecurity

__all__ = ["SaslConversation", "advance", "prove_identity"]

_HANDSHAKE = 17
_AUTHENTICATE = 36
_VERSION = 1

SaslConversation: TypeAlias = Generator[KafkaRequest, Buffer, None]


def prove_identity(security: ClientSecurity, address: str) -> SaslConversation:
    """Prove who this is, and have the broker prove that it knows the user.

    Raises:
        NotAuthenticatedError: the broker refuses the user, or could not prove itself.
        RemoteProtocolError: a response can't be read.
    """
    from hermes.security.scram import ScramClient  # and its libraries, for those only who need it

    assert security.user is not None
    assert security.password is not None  # `ClientSecurity` sees to it
    client = ScramClient(security.user, security.password)
    chosen = yield KafkaRequest(_HANDSHAKE, _VERSION, encode_string(client.mechanism))
    if _reader(chosen).int16():
        raise NotAuthenticatedError(
            f"{address} does not authenticate by {client.mechanism}, so not {security.whom}: give "
            "the port of a listener of kafka_listen with authentication: scram"
        )
    challenge = yield from _say(client.first(), security, address)
    try:
        proof = client.answer(challenge)
    except NotAuthenticatedError as error:
        raise NotAuthenticatedError(f"{address}, to {security.whom}: {error}") from None
    last = yield from _say(proof, security, address)
    try:
        client.verify(last)
    except NotAuthenticatedError as error:
        raise NotAuthenticatedError(
            f"{address} did not prove that it knows {security.whom}: it is not the broker that it "
            f"seems to be ({error})"
        ) from None


def _say(
    message: bytes, security: ClientSecurity, address: str
) -> Generator[KafkaRequest, Buffer, bytes]:
    body = pack(">i", len(message)) + message
    reader = _reader((yield KafkaRequest(_AUTHENTICATE, _VERSION, body)))
    if reader.int16():
        raise NotAuthenticatedError(
            f"{address} refused {security.whom}: the name or the password is wrong, or there were "
            "too many attempts; ask who keeps the broker's users_file"
        )
    reader.text()
    return bytes(reader.data() or b"")


def _reader(body: Buffer) -> KafkaReader:
    return KafkaReader(body, 0, is_flexible=False)


def advance(talk: SaslConversation, answer: Buffer | None) -> KafkaRequest | None:
    """Tell a conversation the answer to its last request; None to begin.

    Returns the next request; None when all is done. Raises as `prove_identity` does.
    """
    try:
        return next(talk) if answer is None else talk.send(answer)
    except StopIteration:
        return None
