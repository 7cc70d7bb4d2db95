"""How Kafka's clients say who they are: SASL, by the same users and the same proof as elsewhere.

    SaslHandshake      v0-1  string mechanism -> int16 error | array of mechanisms
    SaslAuthenticate   v0-2  bytes message -> int16 error | [string] reason | bytes message
                             | int64 session's life in ms (from v1); flexible from v2

After a handshake in v0 messages go without requests around them: a frame is the message, and a
refusal closes the connection. PLAIN isn't offered: it would show passwords to the broker.

Strangers' requests are decoded by hand: nothing is loaded for them.

Source: Kafka 4's schemas; KIP-43, KIP-152.
"""

from struct import Struct
from typing import Any, Final

from hermes.kafka.apis import API_VERSIONS, APIS
from hermes.kafka.dispatching import Call, Frame, api_versions
from hermes.protocol import ErrorCode
from hermes.protocol.kafka_errors import Code
from hermes.protocol.kafka_primitives import KafkaReader, encode_length, encode_text
from hermes.protocol.wire import Buffer, encode_string
from hermes.server.clients import Client
from hermes.server.gates import MECHANISMS, REASON, Gate
from hermes.server.outcomes import CloseConnection, Outcome

_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
_FLEXIBLE: Final = 2
_ERROR: Final = Struct(">h")
_LENGTH: Final = Struct(">i")
_FOR_EVER: Final = bytes(8)


class KafkaGate(Gate):
    """Stands in the broker's place until a client of Kafka has said who it is."""

    # Set with its request, of which there is one at a time.
    _asked: Frame | None = None
    _chosen = ""
    _is_raw = False

    def serve(self, request: Any, client: Client) -> Outcome:
        self._count_request()
        frame: Frame = request
        if self._is_raw:
            return self._converse(self._chosen, bytes(frame.data))
        frame.read_header()
        self._asked = frame
        if frame.key == API_VERSIONS:
            return api_versions(frame)
        api = APIS.get(frame.key)
        if api is not None and api.lowest <= frame.version <= api.highest:
            if frame.key == _HANDSHAKE:
                return self._shake_hands(frame)
            if frame.key == _AUTHENTICATE:
                return self._take_message(frame)
        raise CloseConnection("it asks something before it says who it is", "other", REASON)

    def _shake_hands(self, frame: Frame) -> bytes:
        mechanism = KafkaReader(frame.data, frame.body, False).text()
        if self._chosen:
            raise CloseConnection("it chooses a mechanism twice", "other", REASON)
        if mechanism in MECHANISMS:
            self._chosen = mechanism
            self._is_raw = frame.version == 0
        code = Code.NONE if self._chosen else Code.UNSUPPORTED_SASL_MECHANISM
        return _framed(
            frame, _ERROR.pack(code), _LENGTH.pack(len(MECHANISMS)), *map(encode_string, MECHANISMS)
        )

    def _take_message(self, frame: Frame) -> Outcome:
        if not self._chosen:
            raise CloseConnection("it proves something before it says how", "other", REASON)
        reader = KafkaReader(frame.data, frame.body, frame.version >= _FLEXIBLE)
        reader.tags()
        return self._converse(self._chosen, bytes(reader.data() or b""))

    def _encode_message(self, message: bytes) -> bytes:
        if self._is_raw:
            return len(message).to_bytes(4) + message
        return self._encode(Code.NONE, None, message)

    def _encode_refusal(self, code: ErrorCode, reason: str) -> bytes:
        if self._is_raw:
            raise CloseConnection(reason, "other", REASON)
        return self._encode(Code.SASL_AUTHENTICATION_FAILED, reason, b"")

    def _encode(self, code: Code, reason: str | None, message: bytes) -> bytes:
        frame = self._asked
        assert frame is not None
        return authenticated(frame, code, reason, message)


def authenticated(frame: Frame, code: Code, reason: str | None, message: bytes) -> bytes:
    """Encode the response to a SaslAuthenticate: the next message of the proof, or why not."""
    life = _FOR_EVER if frame.version else b""
    is_flexible = frame.version >= _FLEXIBLE
    tags = b"\0" if is_flexible else b""
    text, length = encode_text(reason, is_flexible), encode_length(len(message), is_flexible)
    return _framed(frame, tags, _ERROR.pack(code), text, length, message, life, tags)


def _framed(frame: Frame, *parts: Buffer) -> bytes:
    body = b"".join((frame.correlation_id.to_bytes(4, signed=True), *parts))
    return len(body).to_bytes(4) + body


# -- once it is known, or of no interest --------------------------------------------------------


def handshake(request: Any, call: Call) -> Any:
    """Refuse to begin anew."""
    return call.make.SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE, mechanisms=())


def authenticate(request: Any, call: Call) -> Any:
    """Refuse a proof that nobody has asked for."""
    reason = "this listener takes no users with passwords, or knows already who asks"
    return authenticated(call.frame, Code.ILLEGAL_SASL_STATE, reason, b"")
