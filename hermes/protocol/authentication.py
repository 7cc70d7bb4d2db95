"""Hermes' own request by which a client says who it is, type 80, and its response.

Framed and versioned as in `own_requests`. The mechanism says what messages hold: SCRAM's, RFC 5802.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

from hermes.errors import LocalProtocolError, RemoteProtocolError
from hermes.protocol.admin_responses import decode_refusable_response
from hermes.protocol.error_codes import ErrorCode
from hermes.protocol.wire import Buffer, ByteReader, encode_string, frame, own_frame, pack

#: The longest message of a mechanism, in bytes: a name of 255 characters fits, and two nonces.
MAX_MESSAGE_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class AuthenticateRequest:
    """Type 80: take the next step of an authentication.

        string mechanism | int32 size | message

    Attributes:
        mechanism: SASL's name, for instance "SCRAM-SHA-256".
        message: the client's, up to `MAX_MESSAGE_BYTES`.
    """

    TYPE: ClassVar[int] = 80

    mechanism: str
    message: bytes = field(repr=False)

    def encode(self) -> bytes:
        return own_frame(self.TYPE, encode_string(self.mechanism), _sized(self.message))

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        return cls(reader.string(), _message(reader))


def encode_authenticate_response(message: bytes) -> bytes:
    """Encode `int16 0 | int32 size | message`; see `encode_refusal` for an error."""
    return frame(pack(">h", ErrorCode.NONE), _sized(message))


def decode_authenticate_response(body: Buffer) -> bytes:
    """Decode the broker's message. Raises: as `decode_refusable_response`."""
    return _message(decode_refusable_response(body))


def _sized(message: bytes) -> bytes:
    if len(message) > MAX_MESSAGE_BYTES:
        raise LocalProtocolError(
            f"a message of {len(message)} bytes; {MAX_MESSAGE_BYTES} are the most for saying who "
            "asks"
        )
    return pack(">i", len(message)) + message


def _message(reader: ByteReader) -> bytes:
    size = reader.count(reader.int32())
    if size > MAX_MESSAGE_BYTES:
        raise RemoteProtocolError(
            f"a message of {size} bytes; {MAX_MESSAGE_BYTES} are the most for saying who asks"
        )
    return bytes(reader.take(size))
