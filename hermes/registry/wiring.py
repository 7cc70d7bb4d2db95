"""A registry put together and served: in a broker's process, or in one of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred

from hermes.config.broker import BrokerConfig
from hermes.config.listeners import ListenerConfig
from hermes.listening import Address
from hermes.registry.election import Election, Leader, NodeElection, NoElection
from hermes.registry.home import FixedHome, HomeBroker, HomeLocator, RecordedHome
from hermes.registry.metrics import RegistryMetrics
from hermes.registry.rest import RegistryResource
from hermes.registry.snapshot import SnapshotFile
from hermes.registry.topic_log import TopicLog
from hermes.registry.topic_store import TopicStore
from hermes.security import PLAIN, ClientSecurity
from hermes.web import WebServer

#: Where it is served, below a broker's HTTP port.
NAME: Final = "registry"

#: Of the snapshot in a data directory.
SNAPSHOT_NAME: Final = ".hermes_registry"

#: An address that means all of a machine's.
_ANYWHERE: Final = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class ServedRegistry:
    """A registry; `close` lets another lead and stops, in a thread, then fires. Idempotent."""

    store: TopicStore
    metrics: RegistryMetrics
    resource: RegistryResource
    close: Callable[[], "Deferred[None]"]


def serve_registry(web: WebServer, reactor: Any, store: TopicStore) -> ServedRegistry:
    """Serve a registry at `/registry` of a web server whose ports are open.

    `web`: ends the resource's threads when it stops. `store`: started by this.
    """
    metrics = RegistryMetrics(store)
    resource = RegistryResource(
        reactor, store, web.hosts, on_answered=metrics.answered, rights=web.guard.rights
    )
    web.root.add(NAME, resource, any_host=True)
    web.on_stop.append(resource.stop)

    def close() -> "Deferred[None]":
        closed: Deferred[None] = Deferred()

        def end() -> None:
            try:
                store.close()
            finally:
                reactor.callFromThread(closed.callback, None)

        reactor.callInThread(end)
        return closed

    store.start()
    return ServedRegistry(store, metrics, resource, close)


def broker_store(
    config: BrokerConfig,
    own: HomeBroker,
    url: str,
    connect: Callable[[], str | None],
    coordination_security: Callable[[], ClientSecurity] = lambda: PLAIN,
) -> TopicStore:
    """The store of the registry in a broker's process.

    Args:
        own: the broker, as this process reaches it.
        url: where other registries reach this one; empty if they can't: then it never leads.
        connect: says where coordination is, once that is known.
        coordination_security: how to connect there; may block, and raise HermesError.
    """
    if config.coordination == "none":
        return make_store(FixedHome(own), NoElection(), Path(config.log_dir))
    election = NodeElection(
        connect,
        Leader(f"broker {config.broker_id}", url),
        session_timeout_seconds=config.zookeeper_session_timeout_ms / 1000,
        connection_timeout_seconds=config.zookeeper_connection_timeout_ms / 1000,
        security=coordination_security,
    )

    def elsewhere() -> ClientSecurity:
        return PLAIN if config.connect_as is None else config.connect_as.security()

    homes = RecordedHome(election.session, own, elsewhere)
    return make_store(homes, election, Path(config.log_dir), elsewhere)


def make_store(
    homes: HomeLocator,
    election: Election,
    directory: Path | None,
    security: Callable[[], ClientSecurity] = lambda: PLAIN,
) -> TopicStore:
    """`directory`: where the store's snapshot is kept; None for none.

    `security`: how to connect to the leading registry; may block, and raise HermesError.
    """
    file = None if directory is None else SnapshotFile(directory / SNAPSHOT_NAME)
    return TopicStore(TopicLog(homes, election, file), election, security=security)


def url_of(
    address: Address, advertised_host: Callable[[], str], listener: ListenerConfig | None = None
) -> str:
    """Where other registries reach this one; empty if it has no TCP port.

    Args:
        address: what an HTTP port is bound to.
        listener: the port's, which may advertise another place, and have TLS.
        advertised_host: this machine's name for others; asked if the port is bound to all its
            addresses.
    """
    if isinstance(address, str):
        return ""
    host, port = address
    called, called_port = ("", None) if listener is None else listener.advertised_place
    if called:
        host = called
    elif host in _ANYWHERE:
        host = advertised_host()
    host = f"[{host}]" if ":" in host else host
    scheme = "http" if listener is None or listener.tls is None else "https"
    return f"{scheme}://{host}:{called_port or port}/{NAME}"
