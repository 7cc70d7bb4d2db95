"""A connection behind TLS: Twisted's, for peers that send much, or only send, and with an end."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from OpenSSL import SSL
from twisted.internet.protocol import connectionDone
from twisted.protocols.tls import BufferingTLSTransport
from twisted.python.failure import Failure

__all__ = ["TlsTransport"]

#: How long a peer is waited for to do its part of a close.
ANSWER_SECONDS: Final = 1.0

#: How long a peer may take for what it was sent before the close.
CLOSE_SECONDS: Final = 30.0

#: More than two tickets, or one record, take.
_TICKETS_BYTES: Final = 32 * 1024


class _Pieces:
    """Takes the place of the application's protocol while a read is being decrypted."""

    __slots__ = ("dataReceived", "found")

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self.dataReceived = self.found.append


class TlsTransport(BufferingTLSTransport):
    """Twisted's, for peers that send much, for peers that only send, and whose close always ends.

    A record has 16 KiB at most, and Twisted hands over one at a time; here an application gets all
    that one read of the socket brought, as it does without TLS, and so can append it at once.

    A TLS 1.3 server sends tickets after the handshake, and pyOpenSSL can't keep it from that. A
    producer that sends, reads nothing and closes would then have unread input, at which its kernel
    throws away what hasn't left yet. So tickets leave together with the first thing that the peer
    has a reason to read.

    TLS is closed by both sides. The peer's part is read even if the application has stopped
    reading; a peer that doesn't do its part soon is no longer waited for, once everything has been
    given to the kernel, and one that doesn't take what was sent is cut off.

    Attributes:
        verification_error: OpenSSL's number for why it refuses the peer's certificate, if it does.
    """

    verification_error: int | None = None
    _patience: Any = None
    _pieces: _Pieces | None = None
    _tickets = b""

    def use(self, application: Any) -> None:
        self._hold_tickets()
        self._pieces = _Pieces()
        self.wrappedProtocol = application
        application.makeConnection(self)

    def dataReceived(self, data: bytes) -> None:
        pieces, application = self._pieces, self.wrappedProtocol
        if pieces is None:
            super().dataReceived(data)  # type: ignore[no-untyped-call]
            return
        self.wrappedProtocol = pieces  # type: ignore[assignment]
        try:
            super().dataReceived(data)  # type: ignore[no-untyped-call]
        finally:
            self.wrappedProtocol = application
        found = pieces.found
        together = found[0] if len(found) == 1 else b"".join(found)
        found.clear()
        if together and not self._aborted:
            application.dataReceived(together)

    def _hold_tickets(self) -> None:
        """Keep what TLS 1.3 sends after the handshake."""
        connection: SSL.Connection = self.getHandle()  # type: ignore[no-untyped-call]
        if connection.get_protocol_version_name() == "TLSv1.3":
            with suppress(SSL.WantReadError):
                self._tickets = connection.bio_read(_TICKETS_BYTES)

    def _flushSendBIO(self) -> None:
        if not self._tickets:
            super()._flushSendBIO()  # type: ignore[no-untyped-call]
            return
        with suppress(SSL.WantReadError):
            following = self._tlsConnection.bio_read(_TICKETS_BYTES)
            transport: Any = self.transport
            transport.write(self._tickets + following)
            self._tickets = b""

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        super()._tlsShutdownFinished(reason)  # type: ignore[no-untyped-call]
        if reason is not None:
            # Else it and the frame that it went through would keep each other, and with them the
            # connection, until the garbage is collected.
            reason.cleanFailure()  # type: ignore[no-untyped-call]

    def loseConnection(self) -> None:
        super().loseConnection()
        if self.connected and self._patience is None:
            transport: Any = self.transport
            transport.resumeProducing()
            self._wait(ANSWER_SECONDS, self._close)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._patience is not None and self._patience.active():
            self._patience.cancel()
        super().connectionLost(reason)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        factory: Any = self.factory
        self._patience = factory.reactor.callLater(seconds, then)

    def _close(self) -> None:
        if self._producer is not None:  # which still sends
            self._wait(ANSWER_SECONDS, self._close)
        else:
            transport: Any = self.transport
            transport.loseConnection()
            self._wait(CLOSE_SECONDS, self.abortConnection)
