"""How a client of Kafka's protocol says who it is: SCRAM by SASL, as a conversation without I/O.

    SaslHandshake      v1   string mechanism -> int16 error | array of string mechanisms
    SaslAuthenticate   v1   bytes message -> int16 error | nullable string reason | bytes message
                            | int64 session's life in ms

Who drives it sends each request and passes the response's body on. Steps load libraries, and
compute for milliseconds, on purpose of SCRAM: event loops call `advance` in a thread.

Source: Kafka 4's schemas; KIP-43, KIP-152.
"""

from collections.abc import Generator
from functools import partial
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
    # And its libraries, for those only who need it.
    from hermes.security.scram import ScramClient, converse

    assert security.user is not None
    assert security.password is not None  # `ClientSecurity` sees to it
    client = ScramClient(security.user, security.password)
    chosen = yield KafkaRequest(_HANDSHAKE, _VERSION, encode_string(client.mechanism))
    if _reader(chosen).int16():
        raise NotAuthenticatedError(
            f"{address} does not authenticate by {client.mechanism}, so not {security.whom}: give "
            "the port of a listener of kafka_listen with authentication: scram"
        )
    yield from converse(client, security.whom, address, partial(_say, security.whom, address))


def _say(whom: str, address: str, message: bytes) -> Generator[KafkaRequest, Buffer, bytes]:
    from hermes.security.scram import refusal_of

    body = pack(">i", len(message)) + message
    reader = _reader((yield KafkaRequest(_AUTHENTICATE, _VERSION, body)))
    if reader.int16():
        raise refusal_of(whom, address)
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
