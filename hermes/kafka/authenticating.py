"""How Kafka's clients say who they are: SASL, by the same users and the same proof as elsewhere.

    SaslHandshake      v0-1  string mechanism -> int16 error | array of mechanisms
    SaslAuthenticate   v0-2  bytes message -> int16 error | [string] reason | bytes message
                             | int64 session's life in ms (from v1); flexible from v2

After a handshake in v0 messages go without requests around them: a frame is the message, and a
refusal closes the connection. PLAIN, which shows passwords to the broker, is offered where the
listener says so: [identity] | NUL | user | NUL | password (RFC 4616).

Strangers' requests are decoded by hand: nothing is loaded for them.

Source: Kafka 4's schemas; KIP-43, KIP-152.
"""

from struct import Struct
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred

from hermes.errors import HermesError
from hermes.kafka.apis import API_VERSIONS, APIS
from hermes.kafka.dispatching import Call, Frame, api_versions
from hermes.protocol import ErrorCode
from hermes.protocol.kafka_errors import Code
from hermes.protocol.kafka_primitives import KafkaReader, encode_length, encode_text
from hermes.protocol.wire import Buffer, encode_string
from hermes.server.clients import Client
from hermes.server.gates import MECHANISMS, REASON, Gate
from hermes.server.outcomes import CloseConnection, DeferredResponse, Outcome

_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
_FLEXIBLE: Final = 2
_ERROR: Final = Struct(">h")
_LENGTH: Final = Struct(">i")
_FOR_EVER: Final = bytes(8)

_PLAIN: Final = "PLAIN"
_REFUSED: Final = "the user or the password is wrong"


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
        offered = (*MECHANISMS, _PLAIN) if self._policy.plain else MECHANISMS
        if mechanism is not None and mechanism in offered:
            self._chosen = mechanism
            self._is_raw = frame.version == 0
        code = Code.NONE if self._chosen else Code.UNSUPPORTED_SASL_MECHANISM
        return _framed(
            frame, _ERROR.pack(code), _LENGTH.pack(len(offered)), *map(encode_string, offered)
        )

    def _take_message(self, frame: Frame) -> Outcome:
        if not self._chosen:
            raise CloseConnection("it proves something before it says how", "other", REASON)
        reader = KafkaReader(frame.data, frame.body, frame.version >= _FLEXIBLE)
        reader.tags()
        return self._converse(self._chosen, bytes(reader.data() or b""))

    def _converse(self, mechanism: str, message: bytes) -> Outcome:
        if mechanism != _PLAIN:
            return super()._converse(mechanism, message)
        if self._mechanism:
            return self._refuse("malformed", "it was told before")
        self._mechanism = mechanism
        step = Deferred.fromCoroutine(self._check_password(message))
        return DeferredResponse(step, cancellable=True)

    async def _check_password(self, message: bytes) -> bytes:
        authentication = self._authentication
        try:
            identity, name, password = message.decode().split("\0")
        except ValueError:
            return self._refuse("malformed", "expected a user and a password between NULs")
        if not name or identity not in ("", name):
            return self._refuse("malformed", "expected a user, who acts for nobody else")
        try:
            revision = await authentication.in_thread(self._users.revision)
            user = await authentication.check_password(self._client.host, name, password)
        except CancelledError:  # the client has left
            raise
        except Exception as error:  # whatever an authenticator raises
            if not isinstance(error, HermesError):
                authentication.failed(_PLAIN, error)
            self._end()
            return self._encode_refusal(ErrorCode.STORAGE_UNAVAILABLE, "users can't be looked up")
        if user is None:  # which is counted and logged
            self._end()
            return self._encode_refusal(ErrorCode.NOT_AUTHENTICATED, _REFUSED)
        if self._connection is not None:
            self._connection.admit(user, revision)
        return self._encode_message(b"")

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
