"""All connections of one broker: their number, their budget, the sweep for idle ones."""

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Factory

from hermes.broker.broker import Broker
from hermes.broker.connection import BrokerConnection
from hermes.broker.limits import RequestMemory
from hermes.broker.pages import PageCache
from hermes.config import BrokerConfig
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger

__all__ = ["BrokerFactory"]


class BrokerFactory(Factory):
    """Makes the connections of one broker and keeps them in bounds.

    Attributes:
        broker: decides what requests do.
        config: the broker's settings.
        clock: the reactor, or a test's `Clock`.
        pages: keeps cold pages off the reactor.
        memory: the budget of requests that are being received.
        lines: takes the log lines that clients cause.
    """

    _log = ModuleLogger()
    noisy = False

    def __init__(
        self, broker: Broker, config: BrokerConfig, clock: IReactorTime, pages: PageCache
    ) -> None:
        self.broker = broker
        self.config = config
        self.clock = clock
        self.pages = pages
        self.memory = RequestMemory(config.request_memory_bytes)
        self.lines = LimitedLog(self._log, clock.seconds)
        self._open: set[BrokerConnection] = set()
        self._unfinished: set[BrokerConnection] = set()  # the open ones, and those with outcomes
        self._drained: Deferred[None] | None = None

    def buildProtocol(self, addr: IAddress | None) -> BrokerConnection | None:
        """Serve a new connection, or refuse it when there are too many."""
        if len(self._open) >= self.config.max_connections:
            self.broker.metrics.connections_refused += 1
            self.lines.warn(
                "connections",
                "refused a connection: max_connections={limit} are open",
                limit=self.config.max_connections,
            )
            return None
        return BrokerConnection(self)

    def connected(self, connection: BrokerConnection) -> None:
        """A connection was made."""
        self._open.add(connection)
        self._unfinished.add(connection)
        self.broker.metrics.connections += 1
        self.memory.add(connection)

    def disconnected(self, connection: BrokerConnection) -> None:
        """A connection is gone, though perhaps not all that it asked for is done."""
        self._open.discard(connection)
        self.broker.metrics.connections -= 1

    def finished(self, connection: BrokerConnection) -> None:
        """A connection that is gone has nothing under way any more. Again is harmless."""
        self._unfinished.discard(connection)
        self.memory.remove(connection)
        self._tell_drained()

    def refused(self, peer: str, reason: str) -> None:
        """A connection is being closed for what its peer did: count and, at times, log it."""
        self.broker.metrics.requests_refused += 1
        self.lines.warn(
            "refused", "closing the connection of {peer}: {reason}", peer=peer, reason=reason
        )

    def sweep_idle(self) -> None:
        """Close connections that were silent since the last sweep; call every `idle_timeout`."""
        for connection in list(self._open):
            if connection.was_idle():
                connection.give_up("it was idle for longer than idle_timeout")

    def drain(self) -> "Deferred[None]":
        """Let all connections finish the answers under way and close.

        Returns:
            A Deferred that fires when the last one is gone and nothing that was asked for is under
            way any more, so that nothing will be appended.
        """
        drained = self._drained = Deferred()
        self.broker.waiting.wake_all()
        for connection in list(self._open):
            connection.drain()
        self._tell_drained()
        return drained

    def _tell_drained(self) -> None:
        if self._drained is not None and not self._unfinished:
            drained, self._drained = self._drained, None
            drained.callback(None)

    def abort_all(self) -> None:
        """Cut what did not drain in time."""
        for connection in list(self._open):
            connection.give_up("the broker stops")
