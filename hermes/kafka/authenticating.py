"""How Kafka's clients say who they are: SASL, by the same users and the same proof as elsewhere.

    SaslHandshake      v0-1  string mechanism -> int16 error | array of mechanisms
    SaslAuthenticate   v0-2  bytes message -> int16 error | [string] reason | bytes message
                             | int64 session's life in ms (from v1); flexible from v2

After a handshake in v0 messages go without requests around them: a frame is the message, and a
refusal closes the connection. PLAIN, which shows passwords to the broker, is offered where the
listener says so: [identity] | NUL | user | NUL | password (RFC 4616). A listener for tokens takes
these alone, and as often as they expire.

Strangers' requests are decoded by hand: nothing is loaded for them.

Source: Kafka 4's schemas; KIP-43, KIP-152.
"""

from struct import Struct
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred

from hermes.errors import HermesError
from hermes.interfaces import User
from hermes.kafka.apis import API_VERSIONS, APIS
from hermes.kafka.dispatching import Call, api_versions
from hermes.kafka.frames import Frame
from hermes.kafka.tokens import OAUTHBEARER, TokenConversation, TokenSession
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

_PLAIN: Final = "PLAIN"
_REFUSED: Final = "the user or the password is wrong"


class KafkaGate(Gate):
    """Stands in the broker's place until a client of Kafka has said who it is."""

    # Set with its request, of which there is one at a time.
    _asked: Frame | None = None
    _chosen = ""
    _is_raw = False
    _conversation: TokenConversation | None = None
    _life_seconds = 0.0

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
        offered = self._offered
        if mechanism is not None and mechanism in offered:
            self._chosen = mechanism
            self._is_raw = frame.version == 0
        code = Code.NONE if self._chosen else Code.UNSUPPORTED_SASL_MECHANISM
        return _framed(
            frame, _ERROR.pack(code), _LENGTH.pack(len(offered)), *map(encode_string, offered)
        )

    @property
    def _offered(self) -> tuple[str, ...]:
        if self._policy.authentication == "token":
            return (OAUTHBEARER,)
        return (*MECHANISMS, _PLAIN) if self._policy.plain else MECHANISMS

    def _take_message(self, frame: Frame) -> Outcome:
        if not self._chosen:
            raise CloseConnection("it proves something before it says how", "other", REASON)
        reader = KafkaReader(frame.data, frame.body, frame.version >= _FLEXIBLE)
        reader.tags()
        return self._converse(self._chosen, bytes(reader.data() or b""))

    def _converse(self, mechanism: str, message: bytes) -> Outcome:
        if mechanism == OAUTHBEARER:
            step = Deferred.fromCoroutine(self._check_token(message))
            return DeferredResponse(step, cancellable=True)
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

    async def _check_token(self, message: bytes) -> bytes:
        self._mechanism = OAUTHBEARER
        if self._conversation is None:
            self._conversation = TokenConversation(self._authentication, self._client)
        try:
            answer = await self._conversation.take(message)
        except CancelledError:  # the client has left
            raise
        except HermesError as error:
            self._end()
            return self._encode_refusal(ErrorCode.NOT_AUTHENTICATED, str(error))
        holder, connection = self._conversation.holder, self._connection
        if holder is not None and connection is not None:
            connection.admit(User(holder.name, (), holder.groups), None)
            session = TokenSession(self._authentication, connection, self._client)
            self._client.token_session = session
            session.hold(holder)
            self._life_seconds = holder.life_seconds
        return self._encode_message(answer)

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
        return authenticated(frame, code, reason, message, self._life_seconds)


def authenticated(
    frame: Frame, code: Code, reason: str | None, message: bytes, life_seconds: float = 0.0
) -> bytes:
    """Encode the response to a SaslAuthenticate: the next message of the proof, or why not.

    `life_seconds`: for how long the connection is held by it; 0: for as long as it lasts.
    """
    life = int(life_seconds * 1000).to_bytes(8) if frame.version else b""
    is_flexible = frame.version >= _FLEXIBLE
    tags = b"\0" if is_flexible else b""
    text, length = encode_text(reason, is_flexible), encode_length(len(message), is_flexible)
    return _framed(frame, tags, _ERROR.pack(code), text, length, message, life, tags)


def _framed(frame: Frame, *parts: Buffer) -> bytes:
    body = b"".join((frame.correlation_id.to_bytes(4, signed=True), *parts))
    return len(body).to_bytes(4) + body


# -- once it is known, or of no interest --------------------------------------------------------


def handshake(request: Any, call: Call) -> Any:
    """Refuse to begin anew, but where a token may be followed by another one."""
    make, session = call.make, call.client.token_session
    if session is None:
        return make.SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE, mechanisms=())
    code = Code.UNSUPPORTED_SASL_MECHANISM
    if request.mechanism == OAUTHBEARER:
        session.begin()
        code = Code.NONE
    return make.SaslHandshakeResponse(error_code=code, mechanisms=(OAUTHBEARER,))


async def authenticate(request: Any, call: Call) -> Any:
    """Take another token; refuse a proof that nobody has asked for."""
    session: TokenSession | None = call.client.token_session
    if session is None or session.attempt is None:
        reason = "this listener takes no users with passwords, or knows already who asks"
        return authenticated(call.frame, Code.ILLEGAL_SASL_STATE, reason, b"")
    try:
        answer, life_seconds = await session.take(bytes(request.auth_bytes))
    except HermesError as error:
        code = Code.SASL_AUTHENTICATION_FAILED
        return authenticated(call.frame, code, str(error), b"")
    return authenticated(call.frame, Code.NONE, None, answer, life_seconds)
