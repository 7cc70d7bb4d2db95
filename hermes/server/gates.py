"""What a connection may do before it has authenticated, on a listener for users or for tokens.

That is little, and not for long: to authenticate (request 80), and to ask which requests there are;
frames of 4 KiB (32 where there are tokens in them), 16 of them, ten seconds. An attempt delayed
after earlier failures holds no thread. An attempt that fails is the connection's last.

Neither an answer nor the work done for it tells whether a user exists.
"""

from collections import OrderedDict
from typing import Any, Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater

from hermes.errors import NotAuthenticatedError
from hermes.interfaces import IAuthenticator, User
from hermes.protocol import (
    REQUEST_VERSIONS,
    AuthenticateRequest,
    BrokerMetadata,
    ErrorCode,
    LongProduce,
    LongRequest,
    MetadataRequest,
    ProduceRun,
    UnsupportedRequest,
    encode_authenticate_response,
    encode_error_response,
    encode_refusal,
    frame,
    metadata_response_header,
)
from hermes.server.authentication import RESERVED, Authentication
from hermes.server.clients import Client
from hermes.server.outcomes import CloseConnection, DeferredResponse, Outcome
from hermes.server.policies import ListenerPolicy

#: The largest request, as it is declared; and where it has a token in it, with its claims.
MAX_FRAME_BYTES: Final = 4096
MAX_TOKEN_FRAME_BYTES: Final = 32 * 1024

#: How long a connection has.
TIME_SECONDS: Final = 10.0

#: How many connections may be like that; of more, the oldest end.
MAX_WAITING: Final = 1024

_MOST_REQUESTS: Final = 16
_FIRST_OWN_TYPE: Final = 64

#: How users prove that they know their passwords.
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

#: Why requests of strangers aren't carried out, for the metric.
REASON: Final = "not_authenticated"

#: All that a stranger is told of a broker.
_VERSIONS: Final = frame(
    metadata_response_header(BrokerMetadata(-1, "", 0, 0, 0, REQUEST_VERSIONS, ()), 0)
)


class GatedConnection(Protocol):
    def admit(self, user: User, revision: object) -> None:
        """The connection is `user`'s from now on."""

    def drain(self) -> None:
        """Take no more requests; close once the responses under way have left."""

    def give_up(self, reason: str) -> None: ...

    def groups_changed(self, groups: frozenset[str]) -> None: ...

    def revoke(self, reason: str) -> None:
        """Drain, and let nothing wait any longer."""


class WaitingGates:
    """The connections that haven't authenticated, oldest first, bounded in number."""

    def __init__(self) -> None:
        self._gates: OrderedDict[Gate, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._gates)

    def add(self, gate: "Gate") -> None:
        """Add a gate; above the bound the oldest is expelled."""
        self._gates[gate] = None
        if len(self._gates) > MAX_WAITING:
            # Out of it at once: its connection ends later, and more may come before it does.
            oldest, _ = self._gates.popitem(last=False)
            oldest.expel("too many others haven't either")

    def remove(self, gate: "Gate") -> None:
        self._gates.pop(gate, None)


class Gate:
    """Stands in the broker's place until the client has authenticated."""

    def __init__(
        self,
        authentication: Authentication,
        waiting: WaitingGates,
        policy: ListenerPolicy,
        client: Client,
        connection: GatedConnection,
    ) -> None:
        self._authentication = authentication
        self._waiting = waiting
        self._policy = policy
        self._client = client
        self._connection: GatedConnection | None = connection
        self._server: Any = None  # a ScramServer, from the first message on
        self._revision: object = None
        self._mechanism = ""
        self._requests = 0
        self._limit: IDelayedCall = authentication.clock.callLater(TIME_SECONDS, self._too_late)
        waiting.add(self)

    @property
    def max_frame_bytes(self) -> int:
        return MAX_TOKEN_FRAME_BYTES if self._policy.authentication == "token" else MAX_FRAME_BYTES

    def close(self) -> None:
        if self._requests and not self._mechanism:
            self._authentication.limited_log.warn(
                "unauthenticated",
                "{client} did not say who it is: this listener ({listener}) wants a user",
                client=self._client,
                listener=self._policy.name,
            )
        self._connection = self._server = None
        self._waiting.remove(self)
        if self._limit.active():
            self._limit.cancel()

    def expel(self, why: str) -> None:
        if self._connection is not None:
            self._authentication.counts[self._mechanism or "none", "expelled"] += 1
            self._connection.give_up(f"it has not said who it is, and {why}")

    def _too_late(self) -> None:
        self.expel(f"it has had {TIME_SECONDS:g} seconds")

    # -- in the broker's place ------------------------------------------------------------------

    def append_run(self, run: ProduceRun, client: Client) -> None:
        raise CloseConnection("it sent messages before it said who it is", "produce", REASON)

    def serve(self, request: Any, client: Client) -> Outcome:
        self._count_request()
        if isinstance(request, AuthenticateRequest):
            return self._authenticate(request)
        if isinstance(request, MetadataRequest) and request.topics == ():
            return _VERSIONS
        if _is_own(request):
            return encode_error_response(ErrorCode.NOT_AUTHENTICATED)
        raise CloseConnection("it asks something before it says who it is", "other", REASON)

    def _count_request(self) -> None:
        self._requests += 1
        if self._requests > _MOST_REQUESTS:
            raise CloseConnection("it asks too much before it says who it is", "other", REASON)

    # -- SCRAM ----------------------------------------------------------------------------------

    def _authenticate(self, request: AuthenticateRequest) -> Outcome:
        if request.mechanism not in MECHANISMS:
            reason = f"users are taken by {' or '.join(MECHANISMS)}"
            return encode_refusal(ErrorCode.UNSUPPORTED_VERSION, reason)
        return self._converse(request.mechanism, request.message)

    def _converse(self, mechanism: str, message: bytes) -> Outcome:
        if self._server is None:
            self._mechanism = mechanism
            step = self._begin(message)
        elif mechanism == self._mechanism:
            step = self._finish(message)
        else:
            return self._refuse("malformed", "a conversation has one mechanism")
        return DeferredResponse(Deferred.fromCoroutine(step), cancellable=True)

    def _encode_message(self, message: bytes) -> bytes:
        return encode_authenticate_response(message)

    def _encode_refusal(self, code: ErrorCode, reason: str) -> bytes:
        return encode_refusal(code, reason)

    async def _begin(self, message: bytes) -> bytes:
        try:
            challenge: bytes = await self._authentication.in_thread(self._challenge, message)
            return self._encode_message(challenge)
        except NotAuthenticatedError as error:
            return self._refuse("malformed", str(error))
        except CancelledError:  # the client has left
            raise
        except Exception as error:
            self._authentication.failed(self._mechanism, error)
            self._end()
            reason = "users can't be looked up now; the broker's log says why"
            return self._encode_refusal(ErrorCode.STORAGE_UNAVAILABLE, reason)

    def _challenge(self, message: bytes) -> bytes:
        """In a thread: look the user up and make the challenge."""
        from hermes.security.scram import ScramServer  # few brokers have users

        authenticator = self._users
        revision = authenticator.revision()
        server = ScramServer(self._mechanism, authenticator)
        challenge: bytes = server.challenge(message)
        found = server.found
        if found is not None and found.name in RESERVED and self._policy.authenticator is None:
            server.found = None
        self._revision, self._server = revision, server
        return challenge

    @property
    def _users(self) -> IAuthenticator:
        users = self._policy.authenticator or self._authentication.authenticator
        assert users is not None  # else there is no such listener
        return users

    async def _finish(self, message: bytes) -> bytes:
        authentication, server = self._authentication, self._server
        # Nobody can guess the broker's own password; and who tries comes from its own address.
        attempts = None if self._policy.authenticator is not None else authentication.attempts
        wait = 0.0 if attempts is None else attempts.begin(self._client.host, server.name)
        if wait is None:
            return self._refuse("too_many", "there were too many failures: try again later")
        if wait:
            await deferLater(authentication.clock, wait)
        try:
            user, final = server.finish(message)
        except NotAuthenticatedError as error:
            return self._refuse("wrong", str(error))
        if attempts is not None:
            attempts.succeeded(self._client.host, server.name)
        authentication.counts[self._mechanism, "accepted"] += 1
        if self._connection is not None:
            self._connection.admit(user, self._revision)
        return self._encode_message(final)

    def _refuse(self, result: str, reason: str) -> bytes:
        """Refuse an attempt; the connection ends once the client has been told."""
        found = None if self._server is None else self._server.found
        self._authentication.refused(self._mechanism, result, self._client, found)
        self._end()
        return self._encode_refusal(ErrorCode.NOT_AUTHENTICATED, reason)

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.drain()


def _is_own(request: Any) -> bool:
    """Whether a request is one of Hermes' own, so that an error code can answer it."""
    if isinstance(request, LongProduce):
        return request.acks is not None
    if isinstance(request, LongRequest):
        return int.from_bytes(request.frame[:2], signed=True) >= _FIRST_OWN_TYPE
    if isinstance(request, UnsupportedRequest):
        return True
    return int(getattr(request, "TYPE", 0)) >= _FIRST_OWN_TYPE
