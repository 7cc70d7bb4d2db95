"""How Kafka's clients show bearer tokens (SASL/OAUTHBEARER), and again before these expire.

A connection ends with its token, unless its client shows another one of the same holder before
(KIP-368): by SaslHandshake and SaslAuthenticate once more, between its other requests.

Source: KIP-255, KIP-368; RFC 7628.
"""

from typing import Any, Final

from hermes.errors import HermesError, NotAuthenticatedError
from hermes.interfaces import TokenHolder
from hermes.security.bearer import INVALID, read_bearer
from hermes.server.authentication import Authentication
from hermes.server.clients import Client
from hermes.server.gates import GatedConnection

OAUTHBEARER: Final = "OAUTHBEARER"


class TokenConversation:
    """One attempt: what a client says, and what it is answered.

    Attributes:
        holder: whose token it is, once it is taken.
    """

    def __init__(self, authentication: Authentication, client: Client) -> None:
        self._authentication = authentication
        self._client = client
        self._refusal = ""
        self.holder: TokenHolder | None = None

    async def take(self, message: bytes, principal: str = "") -> bytes:
        """Answer a message; nothing is left to be said once there is a holder.

        Args:
            principal: whose it must be; anybody's unless given.

        Raises:
            NotAuthenticatedError: the attempt has failed, which is counted and logged.
            HermesError: tokens can't be checked now.
        """
        if self._refusal or self.holder is not None:
            raise NotAuthenticatedError(self._refusal or "it was told before")
        try:
            identity, token = read_bearer(message)
        except NotAuthenticatedError as error:
            raise self._refused(str(error)) from None
        try:
            holder = await self._authentication.check_token(token)
        except NotAuthenticatedError as error:
            self._refusal = str(self._refused(str(error)))
            return INVALID
        if identity not in ("", holder.name):
            raise self._refused("a client acts for nobody but the token's holder")
        if principal not in ("", holder.name):
            raise self._refused("the token belongs to a different user than the one before")
        self._authentication.counts[OAUTHBEARER, "accepted"] += 1
        self.holder = holder
        return b""

    def _refused(self, reason: str) -> NotAuthenticatedError:
        self._authentication.token_refused(self._client, reason)
        return NotAuthenticatedError(reason)


class TokenSession:
    """What a client holds its connection by, from when it is admitted. In the reactor's thread.

    Attributes:
        attempt: the one to hold it for longer, if there is any.
    """

    def __init__(
        self, authentication: Authentication, connection: GatedConnection, client: Client
    ) -> None:
        self._authentication = authentication
        self._connection = connection
        self._client = client
        self._timer: Any = None
        self.attempt: TokenConversation | None = None

    def hold(self, holder: TokenHolder) -> None:
        """Let it last as long as a token, unless the client has left while that was checked."""
        self.close()
        if self._client.has_left:
            return
        clock = self._authentication.clock
        self._timer = clock.callLater(holder.life_seconds, self._expired)

    def begin(self) -> None:
        self.attempt = TokenConversation(self._authentication, self._client)

    async def take(self, message: bytes) -> tuple[bytes, float]:
        """Answer a message of the attempt; and how long the connection lasts now, 0: no longer.

        Raises as `TokenConversation.take`; the connection ends then.
        """
        attempt = self.attempt
        assert attempt is not None
        try:
            answer = await attempt.take(message, self._client.principal)
        except HermesError as error:
            self._connection.revoke(str(error))
            raise
        holder = attempt.holder
        if holder is None:
            return answer, 0.0
        self.attempt = None
        self.hold(holder)
        self._connection.groups_changed(holder.groups)
        return answer, holder.life_seconds

    def close(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _expired(self) -> None:
        self._authentication.counts[OAUTHBEARER, "expired"] += 1
        self._connection.revoke("its token has expired")
