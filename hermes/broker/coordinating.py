"""A broker's part in coordination: the embedded server, if it runs one, and its registration.

    none        nothing
    zookeeper   registered before the broker calls itself ready
    embedded    the same, in this process's own server: it needs the reactor, so registering waits
                for the reactor to run, in a worker thread

kazoo has threads of its own and blocks, so the reactor never calls it once it runs.
"""

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from twisted.internet.defer import Deferred, fail, inlineCallbacks, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from hermes.broker.loopback_client import OwnAccess
from hermes.cluster.advertising import registered_place
from hermes.cluster.topic_registry import TopicRegistry
from hermes.config.broker import BrokerConfig
from hermes.config.kinds import FORMAT_0_7, FORMAT_KAFKA
from hermes.coordination.embedded import EmbeddedCoordination
from hermes.coordination.embedded.guard import KnowsUsers
from hermes.coordination.embedded.own_nodes import OwnNodes
from hermes.coordination.embedded.rights import Rules
from hermes.coordination.embedded.store import FILE_NAME
from hermes.coordination.listeners import BrokerListeners
from hermes.coordination.nodes import Node
from hermes.coordination.registration import BrokerRegistration
from hermes.coordination.sessions import Lease
from hermes.errors import CoordinationError, CoordinationUnavailableError, HermesError
from hermes.listening import Listener
from hermes.logs import ModuleLogger
from hermes.security import PLAIN
from hermes.storage.layout import parse_partition_directory

#: The pause before a broker that serves unregistered is registered again.
RETRY_SECONDS: Final = 5.0


class Coordination:
    """Starts and stops what `coordination` says. Lives in the reactor's thread.

    Args:
        own: the broker's credentials as its own client, where clients must authenticate.
        users: knows the passwords of the embedded server's clients.
        rules: the access rules; None: there never are any.

    Raises:
        ConfigError: `coordination_listen` is no endpoint, or a file of `connect_as` is unusable.

    Attributes:
        security: with what this process connects to coordination.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        config: BrokerConfig,
        reactor: Any,
        in_thread: Callable[..., "Deferred[Any]"],
        now_ms: Callable[[], int],
        *,
        own: OwnAccess | None = None,
        users: KnowsUsers | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.security = PLAIN
        self._config = config
        self._reactor = reactor
        self._in_thread = in_thread
        self._now_ms = now_ms
        self._registration: BrokerRegistration | None = None
        self._is_withdrawn = False
        self._retry: IDelayedCall | None = None
        self._server: EmbeddedCoordination | None = None
        if config.coordination == "embedded":
            self._server = EmbeddedCoordination(
                reactor,
                Path(config.log_dir) / FILE_NAME,
                config.coordination_listen,
                max_bytes=config.coordination_max_bytes,
                is_new=self._is_new,
                users=users,
                rules=rules,
                own=None if own is None else own.security,
            )
            if own is not None:
                self.security = own.security
        elif config.coordination == "zookeeper" and config.connect_as is not None:
            self.security = config.connect_as.security()

    def _is_new(self) -> bool:
        """Whether the data directory has no partitions: then it is normal that no file exists."""
        return not any(map(parse_partition_directory, os.listdir(self._config.log_dir)))

    @property
    def connect_string(self) -> str | None:
        """Where clients find coordination, as kazoo takes it; None where there is none."""
        if self._server is not None:
            return self._server.connect_string
        return self._config.zookeeper_connect if self._config.coordination == "zookeeper" else None

    @property
    def own_connect_string(self) -> str | None:
        """The same for this process, which brings `security`."""
        return self.connect_string if self._server is None else self._server.own_connect_string

    def address_for_clients(self) -> str:
        """Where clients find coordination; empty where there is none.

        An embedded server on every address is given as `:port`: a client uses the host by which it
        has reached the broker.
        """
        if self._server is not None and self._server.running:
            for address in self._server.addresses:
                if not isinstance(address, str) and address[0] in ("", "0.0.0.0", "::"):
                    return f":{address[1]}"
        return self.connect_string or ""

    @property
    def own_nodes(self) -> OwnNodes | None:
        """The embedded server's nodes, without a connection; None where there is no such server."""
        return None if self._server is None else self._server.own_nodes

    @property
    def is_enabled(self) -> bool:
        return self._config.coordination != "none"

    @property
    def is_registered(self) -> bool:
        return self._registration is not None and self._registration.is_registered

    @property
    def is_serving(self) -> bool:
        """Whether the embedded server serves its clients; False where there is none."""
        return self._server is not None and self._server.is_serving

    @property
    def cluster_id(self) -> str:
        """Empty without coordination, or before it was reached."""
        return "" if self._registration is None else self._registration.cluster_id

    def lease_of(self, life: int) -> Lease | None:
        """The lease of a session, if the broker is registered in that."""
        return None if self._registration is None else self._registration.lease_of(life)

    def stored_offsets(
        self, limit: int
    ) -> "Deferred[tuple[dict[tuple[str, str, int], int], bool]]":
        if self._registration is None or not self._registration.is_registered:
            return succeed(({}, True))
        read: Deferred[tuple[dict[tuple[str, str, int], int], bool]] = self._in_thread(
            self._registration.stored_offsets, limit
        )
        return read

    @property
    def ports(self) -> list[Listener]:
        """Those of the embedded server that are open to others."""
        return [] if self._server is None else [self._server.listener]

    def listeners_of_brokers(self) -> "Deferred[dict[int, BrokerListeners]]":
        if self._registration is None or not self._registration.is_registered:
            return fail(CoordinationUnavailableError("the broker is not registered"))
        read: Deferred[dict[int, BrokerListeners]] = self._in_thread(
            self._registration.listeners_of_brokers
        )
        return read

    def start(self) -> None:
        """Open the embedded server's port, if there is one. Raises HermesError."""
        if self._server is None:
            return
        try:
            self._server.startService()
        except (HermesError, OSError) as error:
            raise HermesError(
                f"{error}; this is the embedded coordination server's: change coordination_listen, "
                "or set coordination to zookeeper or none"
            ) from error
        where = self._server.connect_string
        if self._config.coordination_listen.is_loopback:
            self._log.info(
                "coordination is embedded, for this machine only, at {where} (the default; "
                "coordination: zookeeper is for clusters, none for static broker lists)",
                where=where,
            )
        else:
            self._log.info(
                "coordination is embedded, for all that depends on this one broker, at {where}",
                where=where,
            )

    def register(self, listeners: BrokerListeners, topics: TopicRegistry) -> None:
        """Register the broker and its topics in an ensemble, if there is one; blocks.

        For the start, before the reactor serves anybody. Raises HermesError when the id is in use,
        or ZooKeeper can't be reached.
        """
        if self._server is None and self.connect_string is not None:
            registration = self._registration_for(self.connect_string, listeners, topics)
            registration.start()
            self._registration = registration

    def look(self, paths: Collection[str]) -> dict[str, bytes]:
        """Read nodes before the reactor serves anybody; blocks.

        b"" where there is no node; without those that can't be read now.
        """
        found: dict[str, bytes] = {}

        def read(get: Callable[[str], Node | None]) -> None:
            for path in paths:
                with suppress(CoordinationError):
                    node = get(path)
                    found[path] = b"" if node is None else node.value

        if self._registration is not None:
            read(self._registration.node)
        elif self._server is not None:
            nodes = self._server.own_nodes
            nodes.call_then(lambda _: None, read, nodes.get)
        return found

    def register_embedded(
        self, listeners: BrokerListeners, topics: TopicRegistry
    ) -> "Deferred[None]":
        """Register the broker and its topics in the embedded server, if there is one.

        The Deferred fails with HermesError when the id is in use or nothing fit can be advertised.
        While the server is out of service the broker serves unregistered, and is registered later.
        """
        if self._server is None:
            return succeed(None)
        if not self._server.is_serving:
            self._server.on_serving = lambda: self._register_late(listeners, topics)
            return succeed(None)
        try:
            self._registration = self._registration_for(
                self._server.own_connect_string, listeners, topics
            )
        except HermesError as error:
            failed: Deferred[None] = Deferred()
            failed.errback(error)
            return failed
        registered: Deferred[None] = self._in_thread(self._registration.start)
        return registered

    def _register_late(self, listeners: BrokerListeners, topics: TopicRegistry) -> None:
        assert self._server is not None
        self._server.on_serving = lambda: None

        def failed(failure: Failure) -> None:
            if self._is_withdrawn:  # which ends the attempt
                return
            self._log.error(
                "the broker is not registered: {error}", error=failure.getErrorMessage()
            )
            if isinstance(failure.value, CoordinationError):
                self._retry = self._reactor.callLater(
                    RETRY_SECONDS, self._register_late, listeners, topics
                )

        self.register_embedded(listeners, topics).addErrback(failed)

    def _registration_for(
        self, connect: str, listeners: BrokerListeners, topics: TopicRegistry
    ) -> BrokerRegistration:
        config = self._config
        host, port = registered_place(config, listeners)
        return BrokerRegistration(
            config.broker_id,
            host,
            port,
            topics.of_format(FORMAT_0_7),
            {} if config.kafka_listen else topics.of_format(FORMAT_KAFKA),
            connect=connect,
            listeners=listeners,
            security=self.security,
            session_timeout_seconds=config.zookeeper_session_timeout_ms / 1000,
            connection_timeout_seconds=config.zookeeper_connection_timeout_ms / 1000,
            now_ms=self._now_ms,
            on_session=self._registered_in,
        )

    def _registered_in(self, session_id: int) -> None:
        if self._server is not None:
            self._reactor.callFromThread(self._server.mark_own, session_id)

    def topic_created(self, topic: str, partitions: int, log_format: str) -> None:
        """Announce a new topic, unless the cluster knows its partitions already."""
        holds_records = log_format == FORMAT_KAFKA
        if self._registration is not None and not (holds_records and self._config.kafka_listen):
            self._registration.topic_created(topic, partitions, holds_records=holds_records)

    def topic_deleted(self, topic: str, topic_id: UUID | None = None) -> None:
        """Withdraw a topic, also what `kafka_listen` has left of it."""
        if self._registration is not None:
            left = None if self._config.kafka_listen else topic_id
            self._registration.topic_deleted(topic, left)

    def unregister(self) -> "Deferred[None]":
        """Withdraw the registration; fires when done, or ZooKeeper will do it by itself."""
        self._is_withdrawn = True
        if self._server is not None:
            self._server.on_serving = lambda: None
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        registration, self._registration = self._registration, None
        if registration is None:
            return succeed(None)
        registration.stop_soon()  # at once, as it may keep the threads busy
        unregistered: Deferred[None] = self._in_thread(registration.stop)
        return unregistered

    @inlineCallbacks
    def stop(self) -> "Any":
        """Close the embedded server, if it runs; `unregister` comes first."""
        if self._server is not None and self._server.running:
            yield self._server.stopService()
