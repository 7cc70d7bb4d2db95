"""How this broker reaches another: by TCP, perhaps TLS; ApiVersions; perhaps SCRAM, by SASL.

The settings are those of any client (`ClientSecurity`), and so are the errors.
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from hermes.errors import BrokerNotReachedError, BrokerUnavailableError, ConfigError
from hermes.kafka.outgoing import OutgoingConnection, OutgoingLimits
from hermes.protocol.kafka_requests import API_VERSIONS, decode_api_versions
from hermes.protocol.kafka_sasl import advance, prove_identity
from hermes.security import PLAIN, ClientSecurity

__all__ = ["OtherBroker"]

_LIMITS: Final = OutgoingLimits()

# Twisted waits so long for one more address before it tells that the last one has refused. Whether
# a broker is gone is to be known sooner than by its default, 0.3 s.
_NEXT_ADDRESS_SECONDS: Final = 0.01


class OtherBroker:
    """Where another broker listens for Kafka's protocol, and who this one is there.

    `in_thread`: calls a function in a worker thread and returns its Deferred: for files, and for
    what SCRAM computes.
    """

    def __init__(
        self,
        reactor: Any,
        host: str,
        port: int,
        in_thread: Callable[..., "Deferred[Any]"],
        security: ClientSecurity = PLAIN,
        limits: OutgoingLimits = _LIMITS,
    ) -> None:
        self.address = f"{host}:{port}"
        self._reactor = reactor
        self._place = (host, port)
        self._in_thread = in_thread
        self._security = security
        self._limits = limits
        self._tls: Any = None

    def connect(self) -> "Deferred[OutgoingConnection]":
        """Make a connection. Cancelling ends the attempt, and leaves nothing behind.

        Returns:
            Fires with a connection that is ready for requests; close it. Fails with

            BrokerNotTrustedError: one side doesn't trust the other's certificate.
            BrokerNotReachedError: there is no connection, for any other reason.
            NotAuthenticatedError: the other refuses the user, or could not prove itself.
            RemoteProtocolError: what answers doesn't speak Kafka's protocol.
            ConfigError: a file, the user's name or the password can't be used.
        """
        connecting: Deferred[OutgoingConnection] = Deferred.fromCoroutine(self._connect())
        return connecting.addTimeout(self._limits.connect_seconds, self._reactor, self._too_late)

    def _too_late(self, _: Any, seconds: float) -> Failure:
        why = f"there was no connection to {self.address}, ready for requests, in {seconds:g} s"
        return Failure(BrokerNotReachedError(why))  # type: ignore[no-untyped-call]

    async def _connect(self) -> OutgoingConnection:
        try:
            connection = await self._reach()
        except (ConfigError, CancelledError):
            raise
        except ConnectingCancelledError:  # as endpoints call it
            raise CancelledError from None
        except Exception as error:
            raise BrokerNotReachedError(
                f"no connection to {self.address}: {error}; is the broker running there?"
            ) from error
        try:
            await self._introduce(connection)
        except BaseException as error:
            connection.close()
            if type(error) is BrokerUnavailableError:
                raise BrokerNotReachedError(
                    f"{error} (is it a port of kafka_listen, and does it want TLS or a user?)"
                ) from error
            raise
        return connection

    async def _reach(self) -> OutgoingConnection:
        (host, port), security, limits = self._place, self._security, self._limits
        factory: Any = Factory.forProtocol(
            lambda: OutgoingConnection(host, port, security, self._reactor, limits)
        )
        factory.noisy = False
        endpoint = HostnameEndpoint(
            self._reactor, host, port, limits.connect_seconds, attemptDelay=_NEXT_ADDRESS_SECONDS
        )
        if not security.uses_tls:
            plain: Any = await endpoint.connect(factory)
            assert isinstance(plain, OutgoingConnection)
            return plain
        prepared = await self._in_thread(self._prepare_tls)
        from twisted.protocols.tls import TLSMemoryBIOFactory  # the thread has imported OpenSSL

        factory = TLSMemoryBIOFactory(prepared, True, factory, clock=self._reactor)
        wrapped: Any = await endpoint.connect(factory)
        assert isinstance(wrapped.wrappedProtocol, OutgoingConnection)
        return wrapped.wrappedProtocol

    def _prepare_tls(self) -> Any:
        """In a thread: read the certificates' files."""
        if self._tls is None:
            from hermes.listening.client_tls import ClientTls  # pyOpenSSL, for those who need it

            self._tls = ClientTls(self._place[0], self._security)
        return self._tls.prepared()

    async def _introduce(self, connection: OutgoingConnection) -> None:
        await connection.ready
        seconds = self._limits.connect_seconds  # all of it has no more, and that ends first
        connection.versions = decode_api_versions(await connection.ask(API_VERSIONS, seconds))
        if self._security.user is None:
            return
        talk = prove_identity(self._security, self.address)
        request = await self._in_thread(advance, talk, None)
        while request is not None:
            answer = await connection.ask(request, seconds)
            request = await self._in_thread(advance, talk, answer)
