"""The embedded coordination server as a Twisted service.

Start: the file is read (blocking, as the broker's data directory is), then the port opened. Stop:
the port closed, the connections cut, what was committed written, the file closed. Sessions are not
closed by a stop: their clients have their timeouts, counted from the next start, to come back.

When the file can't be written nothing more is answered: all connections are cut, which leaves the
clients as unsure of their last writes as after any lost connection, and the server begins again
from what the file holds.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IListeningPort
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from hermes.coordination.embedded.changes import Change
from hermes.coordination.embedded.clients import Clients
from hermes.coordination.embedded.committing import CommitQueue
from hermes.coordination.embedded.connection import CoordinationFactory
from hermes.coordination.embedded.coordinator import Coordinator, State
from hermes.coordination.embedded.expiry import ExpiryTimer
from hermes.coordination.embedded.limits import MAX_TREE_BYTES
from hermes.coordination.embedded.store import Store, Stored
from hermes.coordination.embedded.tree import DataTree
from hermes.coordination.embedded.words import Report
from hermes.errors import HermesError
from hermes.listening import Address, Listener
from hermes.logs import ModuleLogger

__all__ = ["DEFAULT_LISTEN", "EmbeddedCoordination"]

#: ZooKeeper's port, for this machine only.
DEFAULT_LISTEN: Final = "tcp:2181:interface=127.0.0.1"

#: The unit of ZooKeeper's session timeouts: 2 to 20 of these unless said otherwise.
DEFAULT_TICK_MS: Final = 2000

_RELOAD_SECONDS: Final = 1.0


class EmbeddedCoordination(Service):
    """A small ZooKeeper for one machine.

    Attributes:
        addresses: what the port is bound to, as (host, port) or a UNIX socket's path, while the
            service runs.
    """

    name = "coordination"
    _log = ModuleLogger()

    def __init__(
        self,
        reactor: Any,
        path: str | Path,
        listen: str = DEFAULT_LISTEN,
        *,
        tick_ms: int = DEFAULT_TICK_MS,
        min_session_timeout_ms: int | None = None,
        max_session_timeout_ms: int | None = None,
        max_connections: int = 1000,
        max_bytes: int = MAX_TREE_BYTES,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Prepare, without touching anything.

        Args:
            reactor: serves the socket and the timers.
            path: the SQLite file that holds everything; created when it is missing.
            listen: an endpoint string of Twisted's.
            tick_ms: at least 1; the unit of the two that follow.
            min_session_timeout_ms: the shortest that a client can get; 2 ticks unless given.
            max_session_timeout_ms: the longest that a client can get; 20 ticks unless given.
            max_connections: further clients are turned away.
            max_bytes: what the nodes may take in memory.
            now_ms: the wall clock, in ms since 1970.

        Raises:
            ConfigError: `listen` is no endpoint.
        """
        self.addresses: list[Address] = []
        self._reactor = reactor
        self._listener = Listener(reactor, "coordination_listen", listen)
        self._store = Store(path)
        self._tick_ms = tick_ms
        self._timeouts_ms = (
            min_session_timeout_ms or 2 * tick_ms,
            max_session_timeout_ms or 20 * tick_ms,
        )
        self._max_connections = max_connections
        self._max_bytes = max_bytes
        self._now_ms = now_ms
        self._clients = Clients(reactor, self.report, max_connections)
        self._factory = CoordinationFactory(self._clients)
        self._timer: ExpiryTimer | None = None
        self._pool: ThreadPool | None = None
        self._port: IListeningPort | None = None
        self._reload: Any = None

    @property
    def coordinator(self) -> Coordinator | None:
        """What decides; None while nothing can be served."""
        return self._clients.coordinator

    @property
    def connect_string(self) -> str:
        """What a client on this machine connects to, `host:port`.

        Raises:
            HermesError: the service does not run, or listens on no TCP port.
        """
        for address in self.addresses:
            if not isinstance(address, str):
                host, port = address
                host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
                return f"{host}:{port}"
        raise HermesError("the embedded coordination server has no TCP port")

    # -- start ----------------------------------------------------------------------------------

    def startService(self) -> None:
        """Read the file, then open the port.

        Raises:
            HermesError: the file or the port can't be had; everything is undone.
        """
        self._pool = ThreadPool(0, 1, name="hermes-coordination")
        self._pool.start()
        try:
            self._begin(self._store.open())
            opened = self._listener.open(self._factory)
        except BaseException:
            self._undo()
            raise
        self._port = opened.port
        self.addresses.append(opened.address)
        super().startService()  # type: ignore[no-untyped-call]
        self._log.info(
            "embedded coordination, for this machine only, listens on {addresses} and keeps {path}",
            addresses=self.addresses,
            path=str(self._store.path),
        )

    def _begin(self, stored: Stored) -> None:
        """Serve what is stored."""
        state = State(DataTree.restore(stored.nodes, stored.zxid, self._max_bytes))
        state.sessions.restore(stored.sessions, self._reactor.seconds())
        queue = CommitQueue(self._write, self._write_failed)
        coordinator = self._clients.coordinator = Coordinator(
            state,
            queue,
            self._timeouts_ms,
            self._reactor.seconds,
            self._now_ms,
            self._clients.lines,
            self._note_deadline,
            lambda function: self._reactor.callLater(0, self._if_serving, coordinator, function),
        )
        self._timer = ExpiryTimer(self._reactor, state.sessions, coordinator.expire)
        self._timer.update()

    # -- stop -----------------------------------------------------------------------------------

    @inlineCallbacks
    def stopService(self) -> "Any":
        """Close the port, write what was committed, close the file.

        Returns:
            A Deferred that fires when everything is on disk and released.
        """
        super().stopService()  # type: ignore[no-untyped-call]
        if self._timer is not None:
            self._timer.stop()
        if self._reload is not None and self._reload.active():
            self._reload.cancel()
        if self._port is not None:
            port, self._port = self._port, None
            yield port.stopListening()
        self._clients.abort_all()
        if self.coordinator is not None:
            yield self.coordinator.queue.idle()
            self._clients.coordinator = None
        if self._pool is not None:
            yield self._in_thread(self._store.close)
        self._undo()

    def _undo(self) -> None:
        """Release what a start took."""
        if self._timer is not None:
            self._timer.stop()
        if self._port is not None:
            self._port.stopListening()
        self._store.close()
        if self._pool is not None:
            self._pool.stop()
        self._timer = self._port = self._pool = self._clients.coordinator = None
        self.addresses.clear()

    # -- the file -------------------------------------------------------------------------------

    def _write(self, changes: Sequence[Change], zxid: int) -> "Deferred[None]":
        return self._in_thread(self._store.write, changes, zxid)

    def _write_failed(self, failure: Failure) -> None:
        self._log.critical(
            "coordination can't write: {error}; its clients are cut off, and it begins again from "
            "what was written",
            error=failure.getErrorMessage(),
        )
        self._clients.coordinator = None
        if self._timer is not None:
            self._timer.stop()
        self._clients.abort_all()
        self._load_again()

    def _load_again(self) -> None:
        if self.running:
            self._in_thread(self._store.open).addCallbacks(self._begin_again, self._still_broken)

    def _begin_again(self, stored: Stored) -> None:
        if self.running:
            self._begin(stored)
            self._log.info("coordination serves again")

    def _still_broken(self, failure: Failure) -> None:
        self._log.error("coordination stays out: {error}", error=failure.getErrorMessage())
        if self.running:
            self._reload = self._reactor.callLater(_RELOAD_SECONDS, self._load_again)

    def _in_thread(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        assert self._pool is not None
        return deferToThreadPool(self._reactor, self._pool, function, *args)

    def _if_serving(self, coordinator: Coordinator, function: Callable[[], None]) -> None:
        if coordinator is self.coordinator:
            function()

    def _note_deadline(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.note(deadline)

    # -- what connections ask -------------------------------------------------------------------

    def report(self) -> Report | None:
        """The state of the server, for the four-letter words; None while nothing is served."""
        if self.coordinator is None:
            return None
        state = self.coordinator.state
        clients = tuple(connection.report for connection in self._clients.connected)
        return Report(
            statistics=self._clients.statistics,
            clients=clients,
            outstanding=sum(client.queued for client in clients),
            zxid=state.tree.zxid,
            nodes=len(state.tree.nodes),
            ephemerals=state.tree.ephemeral_count,
            watches=len(state.watches),
            sessions=len(state.sessions),
            data_bytes=state.tree.weight_bytes,
            settings=self._settings(),
        )

    def _settings(self) -> dict[str, object]:
        address = self.addresses[0] if self.addresses else ""
        shortest, longest = self._timeouts_ms
        return {
            "clientPort": address if isinstance(address, str) else address[1],
            "dataDir": self._store.path.parent,
            "tickTime": self._tick_ms,
            "maxClientCnxns": self._max_connections,
            "minSessionTimeout": shortest,
            "maxSessionTimeout": longest,
            "serverId": 0,
        }
