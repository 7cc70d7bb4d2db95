"""All connections of one broker: what they share, how many there are, the sweep for idle ones.

A connection reports to this table, which may end it and knows it as a `Connection`. Neither knows
the factory (connection.py), which knows both.
"""

from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hermes.config.broker import BrokerConfig
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.server.authentication import Authentication
from hermes.server.clients import Client
from hermes.server.gates import WaitingGates
from hermes.server.limits import BudgetedConnection, RequestMemory
from hermes.server.metrics import reason_of
from hermes.server.outcomes import CloseConnection
from hermes.server.pages import PageCache
from hermes.server.quotas import Quotas
from hermes.server.settings import Settings
from hermes.v0_7.dispatching import Broker


class Connection(BudgetedConnection, Protocol):
    def was_idle(self) -> bool:
        """Whether the peer has been silent since the last call, and not because of us."""

    def limits_changed(self) -> None: ...

    def quotas_changed(self) -> None:
        """Another quota may apply, or one for the first time."""

    def drain(self) -> None:
        """Take no more requests; close once the responses under way have left."""


class Connections:
    """The connections of one broker; lives in the reactor's thread."""

    _log = ModuleLogger()

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        clock: IReactorTime,
        pages: PageCache,
        authentication: Authentication,
    ) -> None:
        self.broker = broker
        self.authentication = authentication
        self.waiting = WaitingGates()
        self._settings = settings
        self.clock = clock
        self.pages = pages
        self.memory = RequestMemory(settings.config.request_memory_bytes)
        self.quotas = Quotas(settings, clock)
        settings.on_change(self._settings_changed)
        self.limited_log = LimitedLog(self._log, clock.seconds)
        self._open: set[Connection] = set()
        self._unfinished: set[Connection] = set()  # the open ones, and those with responses pending
        self._drained: Deferred[None] | None = None

    @property
    def config(self) -> BrokerConfig:
        return self._settings.config

    def _settings_changed(self) -> None:
        self.memory.limit_bytes = self.config.request_memory_bytes
        quotas_changed = self.quotas.reload()
        for connection in list(self._open):
            connection.limits_changed()
            if quotas_changed:
                connection.quotas_changed()

    def has_room(self, address: Any) -> bool:
        """Whether one more may connect; one that is refused is counted and logged."""
        if len(self._open) < self.config.max_connections:
            return True
        self.broker.metrics.connections_refused += 1
        self.limited_log.warn(
            "connections",
            "refused a connection of {client}: max_connections={limit} are open",
            client=Client(address),
            limit=self.config.max_connections,
        )
        return False

    def connected(self, connection: Connection) -> None:
        self._open.add(connection)
        self._unfinished.add(connection)
        self.broker.metrics.connections += 1
        self.broker.metrics.connections_accepted += 1
        self.memory.add(connection)

    def disconnected(self, connection: Connection) -> None:
        """A connection is lost; what it asked for may still be under way."""
        self._open.discard(connection)
        self.broker.metrics.connections -= 1

    def finished(self, connection: Connection) -> None:
        """A lost connection has nothing under way any more. May be called twice."""
        self._unfinished.discard(connection)
        self.memory.remove(connection)
        self._notify_drained()

    def refused(self, client: Client, reason: str, error: BaseException | None = None) -> None:
        """A connection is closed for what its peer did: count and, within limits, log it."""
        metrics = self.broker.metrics
        metrics.requests_refused += 1
        if isinstance(error, CloseConnection):
            metrics.refuse(error.request, error.reason)
        else:
            metrics.refuse("connection", "given_up" if error is None else reason_of(error))
        self.limited_log.warn(
            "refused", "closing the connection of {client}: {reason}", client=client, reason=reason
        )

    def sweep_idle(self) -> None:
        """Close connections silent since the last sweep; call it every `idle_timeout`."""
        for connection in list(self._open):
            if connection.was_idle():
                connection.give_up("it was idle for longer than idle_timeout")

    def drain(self) -> "Deferred[None]":
        """Let all connections finish the responses under way and close.

        The Deferred fires when the last one is gone and nothing that was asked for is under way any
        more, so that nothing will be appended.
        """
        drained = self._drained = Deferred()
        self.broker.waiting.wake_all()
        for connection in list(self._open):
            connection.drain()
        self._notify_drained()
        return drained

    def _notify_drained(self) -> None:
        if self._drained is not None and not self._unfinished:
            drained, self._drained = self._drained, None
            drained.callback(None)

    def abort_all(self) -> None:
        for connection in list(self._open):
            connection.give_up("the broker is shutting down")
