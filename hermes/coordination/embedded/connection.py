"""Connections: carry bytes between a socket, its receiver and the coordinator.

Bounds: a frame is at most 1 MiB; a client with `MAX_OWED` requests without an answer, or one that
does not read its answers, is not read from; one that never asks for a session is cut off.
"""

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IPushProducer
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from hermes.coordination.embedded.coordinator import Coordinator, Peer
from hermes.coordination.embedded.receiver import ClientReceiver, Word
from hermes.coordination.embedded.records import Identity
from hermes.coordination.embedded.requests import ConnectRequest
from hermes.coordination.embedded.sessions import Session
from hermes.coordination.embedded.words import ClientReport, Statistics, answer_word
from hermes.errors import RemoteProtocolError
from hermes.logs import ModuleLogger

if TYPE_CHECKING:
    from hermes.coordination.embedded.service import EmbeddedCoordination

__all__ = ["MAX_OWED", "CoordinationConnection", "CoordinationFactory"]

#: So many requests of one client may be without an answer before it is not read from.
MAX_OWED: Final = 1000

#: So long may a client be connected without asking for a session, or leave its last bytes unread.
_PATIENCE_SECONDS: Final = 10.0


@implementer(IPushProducer)
class CoordinationConnection(Protocol):
    """One client's connection; a `Peer` of the coordinator.

    Attributes:
        identities: who the client is: its address, and what it has proved.
        session: which it uses.
        statistics: counted for `stat`.
    """

    _log = ModuleLogger()

    def __init__(self, owner: "CoordinationFactory", address: IAddress | None) -> None:
        host = getattr(address, "host", None)
        self.identities: list[Identity] = [Identity("ip", host)] if host else []
        self.session: Session[Peer] | None = None
        self.statistics = Statistics()
        self._owner = owner
        self._address = f"{host}:{getattr(address, 'port', '')}" if host else "unix"
        self._coordinator: Coordinator | None = None  # from the connect request on
        self._receiver = ClientReceiver()
        self._owed: deque[float] = deque()  # when the requests came that have no answer
        self._working = False
        self._ended = False
        self._is_full = False  # the transport's buffer
        self._timer: Any = None

    # -- Twisted calls --------------------------------------------------------------------------

    def connectionMade(self) -> None:
        """Twisted's: a client has connected."""
        transport: Any = self.transport
        if hasattr(transport, "setTcpNoDelay"):
            transport.setTcpNoDelay(True)
        transport.registerProducer(self, True)
        self._owner.connections[self] = None
        self._timer = self._owner.clock.callLater(_PATIENCE_SECONDS, self.abort)

    def dataReceived(self, data: bytes) -> None:
        """Twisted's: bytes arrived."""
        if not self._ended:
            self._receiver.receive_data(data)
            self._work()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted's: the connection is gone. The session lives on."""
        self._ended = True
        self._stop_timer()
        self._owner.connections.pop(self, None)
        if self._coordinator is not None:
            self._coordinator.leave(self)
        if not isinstance(reason.value, ConnectionDone):
            self._log.debug("{address}: {reason}", address=self._address, reason=str(reason.value))

    def pauseProducing(self) -> None:
        """Twisted's: the client does not read. It is not read from either."""
        self._is_full = True
        self._read_or_not()

    def resumeProducing(self) -> None:
        """Twisted's: the client reads again."""
        self._is_full = False
        self._go_on()

    def stopProducing(self) -> None:
        """Twisted's: the connection is going away."""
        self._ended = True

    # -- the coordinator calls ------------------------------------------------------------------

    def answer(self, data: bytes) -> None:
        """Send the answer of the oldest request that has none."""
        latency_ms = (self._owner.clock.seconds() - self._owed.popleft()) * 1000
        self._owner.statistics.answered(latency_ms)
        self.notify(data)
        if len(self._owed) == MAX_OWED // 2:
            self._go_on()

    def notify(self, data: bytes) -> None:
        """Send an event."""
        transport: Any = self.transport
        if transport.connected:
            self.statistics.sent += 1
            self._owner.statistics.sent += 1
            transport.write(data)

    def end(self) -> None:
        """Close the connection once everything is sent; a client that does not read is cut off."""
        transport: Any = self.transport
        if transport.connected and not transport.disconnecting:
            self._ended = True
            self._stop_timer()
            self._timer = self._owner.clock.callLater(_PATIENCE_SECONDS, self.abort)
            transport.unregisterProducer()
            transport.loseConnection()

    def abort(self) -> None:
        """Close the connection at once."""
        self._ended = True
        transport: Any = self.transport
        transport.abortConnection()

    # -- parts ----------------------------------------------------------------------------------

    @property
    def report(self) -> ClientReport:
        """What `stat` tells of it."""
        counted = self.statistics
        return ClientReport(self._address, len(self._owed), counted.received, counted.sent)

    def _work(self) -> None:
        """Serve what has arrived, for as long as the client may have answers."""
        if self._working:
            return
        self._working = True
        try:
            while not self._ended and self._may_serve:
                item = self._receiver.next_item()
                if item is None:
                    break
                self._serve(item)
        except RemoteProtocolError as error:
            self._log.warn("closing {address}: {error}", address=self._address, error=str(error))
            self.end()
        finally:
            self._working = False
        self._read_or_not()

    def _serve(self, item: Word | ConnectRequest | memoryview) -> None:
        self.statistics.received += 1
        self._owner.statistics.received += 1
        if isinstance(item, Word):
            self.notify(answer_word(item.name, self._owner.service.report()).encode())
            self.end()
            return
        self._owed.append(self._owner.clock.seconds())
        if isinstance(item, ConnectRequest):
            self._connect(item)
        elif self._coordinator is not None and self.session is not None:
            self._coordinator.handle(self, item)
        else:
            self._ended = True  # the session is over: whatever came behind is not for anyone

    def _connect(self, request: ConnectRequest) -> None:
        self._stop_timer()
        coordinator = self._owner.service.coordinator
        if coordinator is None:  # being loaded again
            self.end()
            return
        self._coordinator = coordinator
        coordinator.connect(self, request)
        self._owner.service.sessions_changed()

    @property
    def _may_serve(self) -> bool:
        return not self._is_full and len(self._owed) < MAX_OWED

    def _go_on(self) -> None:
        if not self._ended:
            self._work()

    def _read_or_not(self) -> None:
        transport: Any = self.transport
        if self._ended or not transport.connected or transport.disconnecting:
            return
        if self._may_serve:
            transport.resumeProducing()
        else:
            transport.pauseProducing()

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None


class CoordinationFactory(ServerFactory):
    """Makes connections.

    Args:
        service: whose coordinator serves them.
        clock: the reactor.
        max_connections: further ones are closed at once.

    Attributes:
        connections: the open ones, oldest first.
        statistics: counted since the start.
    """

    noisy = False

    def __init__(self, service: "EmbeddedCoordination", clock: Any, max_connections: int) -> None:
        self.service = service
        self.clock = clock
        self.connections: dict[CoordinationConnection, None] = {}
        self.statistics = Statistics()
        self._max_connections = max_connections

    def buildProtocol(self, addr: IAddress | None) -> CoordinationConnection | None:
        """Twisted's: make a connection's protocol, or refuse it."""
        if len(self.connections) >= self._max_connections:
            return None
        return CoordinationConnection(self, addr)

    def abort_all(self) -> None:
        """Close every connection at once; the sessions live on."""
        for connection in tuple(self.connections):
            connection.abort()
