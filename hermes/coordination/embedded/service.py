"""The embedded coordination server as a Twisted service.

Start: the file is read (blocking, as the broker's data directory is), then the port opened. Stop:
the port closed, the connections cut, what was committed written, the file closed. Sessions are not
closed by a stop: their clients have their timeouts, counted from the next start, to come back.

When the file can't be written or is damaged nothing is answered: all connections are cut, which
leaves the clients as unsure of their last writes as after any lost connection, and the server
starts again from what the file holds once it can be used (store_keeper.py).
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import inlineCallbacks
from twisted.internet.interfaces import IListeningPort

from hermes.config.listeners import ListenerConfig
from hermes.coordination.embedded.clients import Clients
from hermes.coordination.embedded.commit_queue import CommitQueue
from hermes.coordination.embedded.connection import CoordinationFactory
from hermes.coordination.embedded.database import Stored
from hermes.coordination.embedded.guard import Guard, KnowsUsers, own_guard
from hermes.coordination.embedded.guarded_processor import GuardedProcessor
from hermes.coordination.embedded.limits import MAX_TREE_BYTES
from hermes.coordination.embedded.own_nodes import OwnNodes
from hermes.coordination.embedded.processor import ServerState
from hermes.coordination.embedded.rights import Rules
from hermes.coordination.embedded.store_keeper import StoreKeeper
from hermes.coordination.embedded.tree import DataTree
from hermes.coordination.embedded.tree_changes import SessionOpened
from hermes.coordination.embedded.visible_names import VisibleNames
from hermes.errors import HermesError
from hermes.listening import Address, Listener
from hermes.security import ClientSecurity

#: ZooKeeper's port, for this machine only.
DEFAULT_LISTEN: Final = ListenerConfig("tcp:2181:interface=127.0.0.1")

# Where the broker connects to it where others have to prove who they are.
_OWN_LISTEN: Final = ListenerConfig("tcp:0:interface=127.0.0.1")

#: The unit of ZooKeeper's session timeouts: 2 to 20 of these unless said otherwise.
DEFAULT_TICK_MS: Final = 2000


class EmbeddedCoordination(Service):
    """A small ZooKeeper for one machine; nothing is opened before it is started.

    Args:
        path: the SQLite file that holds everything; created when it is missing.
        listen: where to listen, and the rules for those who connect.
        tick_ms: at least 1; the unit of the two that follow.
        min_session_timeout_ms: the shortest that a client can get; 2 ticks unless given.
        max_session_timeout_ms: the longest that a client can get; 20 ticks unless given.
        max_bytes: what the nodes may take in memory.
        is_new: asked at the start whether it is normal that there is no file yet.
        users: needed if `listen` asks for passwords.
        rules: the access rules; None: there never are any.
        own: the user and password of the broker itself, for which there is one more port, on the
            loopback interface; None: it connects as everybody does.

    Raises:
        ConfigError: `listen` is not an endpoint.

    Attributes:
        addresses: what the port is bound to, as (host, port) or a UNIX socket's path, while the
            service runs.
        on_serving: called whenever it begins to serve; see `is_serving`.
        own_nodes: the nodes, for this process.
    """

    name = "coordination"

    def __init__(
        self,
        reactor: Any,
        path: str | Path,
        listen: ListenerConfig = DEFAULT_LISTEN,
        *,
        tick_ms: int = DEFAULT_TICK_MS,
        min_session_timeout_ms: int | None = None,
        max_session_timeout_ms: int | None = None,
        max_bytes: int = MAX_TREE_BYTES,
        is_new: Callable[[], bool] = lambda: True,
        users: KnowsUsers | None = None,
        rules: Rules | None = None,
        own: ClientSecurity | None = None,
    ) -> None:
        self.addresses: list[Address] = []
        self.on_serving: Callable[[], None] = lambda: None
        self._reactor = reactor
        self.listener = Listener(reactor, "coordination_listen", listen)
        self._keeper = StoreKeeper(reactor, path, self._restored, self._begin, self._end, _now_ms)
        self._is_new = is_new
        self._tick_ms = tick_ms
        self._timeouts_ms = (
            min_session_timeout_ms or 2 * tick_ms,
            max_session_timeout_ms or 20 * tick_ms,
        )
        self._max_bytes = max_bytes
        self._clients = Clients(reactor)
        self.own_nodes = OwnNodes(reactor, self._clients)
        shown = None if rules is None else VisibleNames(rules.stamp)
        guard = Guard(listen.authentication, listen.tls, users, rules, shown)
        self._factories = [(self.listener, CoordinationFactory(self._clients, guard))]
        if own is not None:
            of_own = CoordinationFactory(self._clients, own_guard(own))
            self._factories.append((Listener(reactor, "coordination_listen", _OWN_LISTEN), of_own))
        self._has_served = False
        self._ports: list[IListeningPort] = []
        self._own_address: Address | None = None

    @property
    def processor(self) -> GuardedProcessor | None:
        return self._clients.processor

    @property
    def is_serving(self) -> bool:
        """Whether clients are served: not while the file is damaged or can't be written."""
        return self.processor is not None

    @property
    def connect_string(self) -> str:
        """What a client on this machine connects to, `host:port`.

        HermesError: the service does not run, or listens on no TCP port.
        """
        for address in self.addresses:
            if not isinstance(address, str):
                return _connect_string(address)
        raise HermesError("the embedded coordination server has no TCP port")

    @property
    def own_connect_string(self) -> str:
        """What the broker itself connects to; the same, unless it has a port of its own."""
        own = self._own_address
        return self.connect_string if own is None or isinstance(own, str) else _connect_string(own)

    # -- start ------------------------------------------------------------------------------------

    def startService(self) -> None:
        """Read the file, then open the port.

        Raises HermesError: the file or the port can't be opened; everything is undone. A damaged
        file is not such an error: it is logged, and clients are sent away until it is restored.
        """
        try:
            self._keeper.start(is_new=self._is_new())
            for listener, factory in self._factories:
                opened = listener.open(factory)
                self._ports.append(opened.port)
                if listener is self.listener:
                    self.addresses.append(opened.address)
                else:
                    self._own_address = opened.address
        except BaseException:
            self._undo()
            raise
        self._clients.settings = self._settings()
        super().startService()  # type: ignore[no-untyped-call]

    def _restored(self, stored: Stored) -> tuple[DataTree, tuple[SessionOpened, ...]]:
        """Build the tree that is stored; any thread."""
        return DataTree.restore(stored.nodes, stored.zxid, self._max_bytes), stored.sessions

    def _begin(self, restored: tuple[DataTree, tuple[SessionOpened, ...]]) -> None:
        tree, sessions = restored
        state = ServerState(tree)
        state.sessions.restore(sessions, self._reactor.seconds())
        queue = CommitQueue(self._keeper.write, self._keeper.failed, self._reactor)
        processor = self._clients.processor = GuardedProcessor(
            state, queue, self._timeouts_ms, self._reactor, _now_ms, self._clients.limited_log
        )
        if not self._has_served:  # the file is locked, so the process that had it before is dead
            processor.end_own()
        self._has_served = True
        self.on_serving()

    def _end(self) -> None:
        if self.processor is not None:
            self.processor.stop()
            self.processor.queue.abandon()
            self._clients.processor = None
        self.own_nodes.abort()
        self._clients.abort_all()

    # -- stop -------------------------------------------------------------------------------------

    @inlineCallbacks
    def stopService(self) -> "Any":
        """Close the port, write what was committed, close the file; then the Deferred fires."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self.processor is not None:
            self.processor.stop()
        while self._ports:
            yield self._ports.pop().stopListening()
        self._clients.abort_all()
        if self.processor is not None:
            yield self.processor.queue.idle()
            self._clients.processor = None
        yield self._keeper.stop()
        self._undo()

    def _undo(self) -> None:
        self._end()
        while self._ports:
            self._ports.pop().stopListening()
        self._keeper.abandon()
        self._own_address = None
        self._has_served = False
        self.addresses.clear()

    def mark_own(self, session_id: int) -> None:
        """Note that a session is of this process's own broker, so that it ends with the process.

        While nothing is served nothing happens: call it again once the session is connected.
        """
        if self.processor is not None:
            self.processor.mark_own(session_id)

    def _settings(self) -> dict[str, object]:
        address = self.addresses[0] if self.addresses else ""
        shortest, longest = self._timeouts_ms
        return {
            "clientPort": address if isinstance(address, str) else address[1],
            "dataDir": self._keeper.store.path.parent,
            "tickTime": self._tick_ms,
            "maxClientCnxns": self._clients.max_count,
            "minSessionTimeout": shortest,
            "maxSessionTimeout": longest,
            "serverId": 0,
        }


def _connect_string(address: tuple[str, int]) -> str:
    host, port = address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
