"""A broker between its start and its stop: what it consists of, in which order it comes and goes.

A `ServingBroker` exists once everything was acquired: threads, the data directory (lock, load,
recover), coordination, the ports (so nobody is served before everything is readable), then the
registration in ZooKeeper, if there is one. If anything fails, all of it is released. The stop goes
the other way: the registration withdrawn, so that clients go elsewhere, ports closed, responses
under way finished, logs flushed, the clean-shutdown marker written, the lock released. Nothing
acknowledged is lost at any point. The module is long because start and stop belong side by side,
each part's end by its beginning.

A stop always ends. Clients and the registration may take `stop_timeout` together. Worker threads
are waited for as long as they make progress: a disk that hangs, so that nothing finishes for three
times `stop_timeout`, is reported and left behind, and the marker isn't written.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import ServerFactory

from hermes.broker.connection import BrokerFactory
from hermes.broker.connections import Connections
from hermes.broker.coordinating import Coordination
from hermes.broker.loopback_client import OWN_LISTENER, OwnAccess, OwnClient
from hermes.broker.maintenance import Maintenance
from hermes.broker.periodic import PeriodicTask
from hermes.broker.shutdown import ShutdownWaits
from hermes.cluster.advertising import advertised_listeners
from hermes.cluster.cluster import Cluster, Following
from hermes.cluster.neighbours import Neighbours
from hermes.cluster.shared import Shared, no_file
from hermes.cluster.topic_registry import TopicRegistry
from hermes.config.broker import BrokerConfig
from hermes.config.requested import Requested
from hermes.config.setting import named_source
from hermes.coordination.cluster_id import new_cluster_id
from hermes.coordination.listeners import BrokerListeners
from hermes.coordination.sessions import Session
from hermes.errors import ConfigError, StorageError
from hermes.interfaces import IRetentionPolicy
from hermes.listening import Address, Listener
from hermes.logs import ModuleLogger, RecentLines
from hermes.metrics import Series
from hermes.partition.damage_check import DamageCheck
from hermes.partition.flush_queue import FlushPolicy
from hermes.partition.flush_threads import FlushThreads
from hermes.partition.flushing import FlushScheduler
from hermes.reactors import Bell, OwnThread, WorkerThreads, caller_in
from hermes.server.authentication import Authentication
from hermes.server.authorization import Authorization
from hermes.server.checks import (
    authenticator,
    retention_policy,
    shared_users,
    token_verifier,
)
from hermes.server.pages import PageCache
from hermes.server.policies import ListenerPolicy
from hermes.server.settings import Settings, parsed_entries
from hermes.storage import DataDirectory, FileLayer, Log, LogSettings, OpenReport, TopicEntries
from hermes.storage.requested_file import REQUESTED_NAME, read_requested
from hermes.storage.topic_entries import ENTRIES_NAME
from hermes.v0_7.dispatching import Broker

if TYPE_CHECKING:
    from hermes.web import WebGuard, WebServer

#: Makes what serves a listener, by its policy.
FactoryOf: TypeAlias = Callable[[ListenerPolicy], ServerFactory]

#: Retention passes begin this long after the start, as in 0.7.
FIRST_RETENTION_SECONDS = 60.0

#: How often to check for logs to compact, as Kafka's cleaner does.
_COMPACTION_SECONDS = 15.0

#: How often reopening offline logs is retried.
_REOPEN_SECONDS = 5.0

#: How often to check that the search for damage runs, and how soon at first.
_DAMAGE_SECONDS = 10.0
_FIRST_DAMAGE_SECONDS = 0.5

#: How often to check whether the wall clock was set.
_WATCH_SECONDS = 60.0

#: How often to check whether logs know of too many idempotent producers.
_PRODUCERS_SECONDS = 5.0

#: How often to check for changed users.
_USERS_SECONDS = 1.0

#: How often connections that hold memory are swept for those that make no progress.
_SWEEP_SECONDS = 1.0

#: Recovery accepts any smaller message, whatever the limit is now.
_BELIEVED_MESSAGE_BYTES = 1_000_000

#: How much of the names of created topics a line shows, in characters.
_NAMES_LENGTH = 200

#: A disk counts as hung when nothing finishes on it for this many times `stop_timeout`.
_DISK_GRACE = 3


class ServingBroker:
    """One broker that serves. Lives in the reactor's thread.

    Creating one starts it, and blocks for as long as recovery takes.

    Args:
        now_ms: the wall clock, in ms since 1970.
        files: the file layer; the operating system's unless given.
        mount_kafka: makes what serves `kafka_listeners`; None only without such ports.
        mount: says what the HTTP ports serve, before they open.
        recent_lines: the last lines of the log, for requests for them.
        read_config: reads broker.yaml again, and checks it as a start would; blocks.
        on_settings: called with the settings whenever some were changed.

    Raises:
        HermesError: the data directory, a port or the registration can't be acquired; all of it
            is undone.

    Attributes:
        addresses: what the ports are bound to, as (host, port) or a UNIX socket's path.
        shared: what the parts of the broker that carry out requests have in common.
        listeners: how clients reach them.
        tls_listeners: the ports that have TLS, whatever they serve.
        own: its credentials as its own client, where clients must authenticate; else None.
        opened: what opening the data directory has found, which took `opening_seconds`.
        in_thread: calls a function in a worker thread that may wait for disks.
        web: what it serves over HTTP; None without a port for it.
        on_started: called once nothing of the start can fail any more.
        on_leaving: called when a stop begins, while everything still runs and serves; what they
            return is waited for first.
        on_stopping: called then; what they return is waited for as clients are.
        on_reopened: called with each log that is back in service.
        group_offsets: what groups have stored here without coordination: pairs of (group, topic,
            partition) and the offset.
        more_series: what `/metrics` has beside the broker's own, read for each scrape.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        config: BrokerConfig,
        reactor: Any,
        now_ms: Callable[[], int],
        listeners: Sequence[Listener],
        files: FileLayer | None = None,
        *,
        kafka_listeners: Sequence[Listener] = (),
        mount_kafka: "Callable[[ServingBroker], FactoryOf] | None" = None,
        http_listeners: Sequence[Listener] = (),
        mount: Callable[["WebServer", "ServingBroker"], None] = lambda web, run: None,
        recent_lines: RecentLines | None = None,
        read_config: Callable[[], BrokerConfig] = no_file,
        on_settings: Callable[[BrokerConfig], None] = lambda config: None,
    ) -> None:
        self.addresses: list[Address] = []
        self.kafka_addresses: list[Address] = []
        self.stopping = False
        self.on_started: list[Callable[[], None]] = []
        self.on_leaving: list[Callable[[], Deferred[Any]]] = []
        self.on_stopping: list[Callable[[], Deferred[Any]]] = []
        self.on_reopened: list[Callable[[Log], None]] = []
        self.more_series: list[Callable[[], Iterable[Series]]] = []
        self.group_offsets: list[Callable[[], Iterable[tuple[tuple[str, str, int], int]]]] = []
        self.settings = Settings(config)
        self.authorization = Authorization(self.settings, reactor.seconds)
        self.own = OwnAccess.make() if config.is_guarded else None
        self.reactor = reactor
        self.now_ms = now_ms
        self.io_threads = WorkerThreads(0, config.io_threads, name="hermes-io")
        self.flush_threads = FlushThreads(config.flush_threads, partial(Bell, reactor))
        self.group_thread = OwnThread(reactor, "hermes-groups")
        self._waits = ShutdownWaits(reactor)
        self._policies: dict[str, IRetentionPolicy] = {}
        self._on_settings = on_settings
        with ExitStack() as undo:
            self.io_threads.start()
            undo.callback(self._stop_threads)
            in_thread = self.in_thread = caller_in(reactor, self.io_threads)
            own_users = authenticator(config)
            users = shared_users(config, own_users)
            self.authentication = Authentication(
                users or own_users, reactor, in_thread, token_verifier(config)
            )
            self.authorization.groups_of = self.authentication.groups_of
            self.directory = DataDirectory(
                config.log_dir,
                self._log_settings,
                files,
                max_open_segments=config.max_open_segments,
                take_entries=self._take_entries,
            )
            began = reactor.seconds()
            with ThreadPoolExecutor(config.io_threads) as workers:
                report = self.opened = self.directory.open(
                    now_ms(), workers=workers, broker_id=config.broker_id
                )
            self.opening_seconds = reactor.seconds() - began
            undo.callback(self.directory.close, clean=False)
            self._report_opened(report)
            self.coordination = Coordination(
                config,
                reactor,
                in_thread,
                now_ms,
                own=self.own,
                users=self.authentication,
                rules=self.authorization,
            )
            undo.callback(self.coordination.stop)
            self.flusher = FlushScheduler(reactor, self.flush_threads, self._flush_policy)
            topics = TopicRegistry(
                self.directory,
                self.settings,
                self.coordination.topic_created,
                self.coordination.topic_deleted,
                lambda *place: self.cluster.topics.owns(*place),  # noqa: PLW0108 - made below
                lambda *place: self.cluster.topics.check_here(*place),  # noqa: PLW0108
            )
            self._report_more_partitions(topics)
            self.shared = Shared(
                self.settings,
                self.directory,
                topics,
                self.flusher,
                reactor,
                now_ms,
                in_thread,
                recent_lines=recent_lines,
                read_config=read_config,
                authorization=self.authorization,
            )
            self.listeners = BrokerListeners(())
            # Brokers without such ports number topics of Kafka's format for themselves: two of them
            # may hold different topics of one name.
            following = (
                Following(self.new_session, reactor.callFromThread)
                if self.coordination.is_enabled and config.kafka_listen
                else None
            )
            self.cluster = Cluster(
                self.shared, lambda: self.listeners, self._cluster_id(), following, users
            )
            self.on_stopping.append(self.cluster.stop)
            topics.report_declared(map(topics.create_declared, topics.missing()))
            neighbours = Neighbours(
                config.broker_id,
                lambda: self.listeners,
                self.coordination.listeners_of_brokers if self.coordination.is_enabled else None,
                reactor.seconds,
            )
            self.broker = Broker(
                self.shared, self.cluster, self.coordination.address_for_clients, neighbours.tell
            )
            self.connections = Connections(
                self.broker, self.settings, reactor, PageCache(in_thread), self.authentication
            )
            self.maintenance = Maintenance(
                self.directory,
                self._retention_policy,
                now_ms,
                reactor.seconds,
                in_thread,
                self._reopened,
                self.flusher.is_flushing,
                self._compaction_of,
                reactor.callLater,
            )
            self._damage_threads = WorkerThreads(0, 1, name="hermes-damage")
            self._damage_threads.start()
            undo.callback(self._damage_threads.stop)
            pages = self.connections.pages
            self.damage = DamageCheck(
                self.directory,
                caller_in(reactor, self._damage_threads),
                reactor.seconds,
                lambda: self.config.damage_check_rate,
                lambda: pages.warming > 0,
                files,
            )
            self.coordination.start()
            self._ports: list[IListeningPort] = []
            self._open(listeners, partial(BrokerFactory, self.connections), self.addresses, undo)
            self._own_kafka_address = "", 0
            if kafka_listeners and mount_kafka is not None:
                factory_of = mount_kafka(self)
                self._open(kafka_listeners, factory_of, self.kafka_addresses, undo)
                self._own_kafka_address = self._open_own(factory_of, undo)
            self._own_address = self._open_own(partial(BrokerFactory, self.connections), undo)
            self.web = self._serve_http(http_listeners, mount, undo) if http_listeners else None
            ports = (*listeners, *kafka_listeners, *http_listeners, *self.coordination.ports)
            self.tls_listeners = [each for each in ports if each.tls is not None]
            self.listeners = self._advertised()
            self.coordination.register(self.listeners, topics)
            self.cluster.begin(self.coordination.look)
            self._record_owner()
            undo.pop_all()
        self._tasks: dict[Callable[[], Any], tuple[float, PeriodicTask]] = {}
        self._start_tasks()
        self.settings.on_change(self._settings_changed)
        self.settings.on_topic_change(self._topic_changed)
        self.cluster.start()
        for call in self.on_started:
            call()

    def new_session(self, on_change: Callable[[], None] = lambda: None) -> Session | None:
        """An unstarted session with coordination; None while there can't be one."""
        coordination, config = self.coordination, self.config
        address = coordination.own_connect_string
        if address is None or not coordination.is_registered:
            return None
        return Session(
            address,
            security=coordination.security,
            session_timeout_seconds=config.zookeeper_session_timeout_ms / 1000,
            connection_timeout_seconds=config.zookeeper_connection_timeout_ms / 1000,
            on_change=on_change,
        )

    def _open(
        self,
        listeners: Iterable[Listener],
        factory_of: FactoryOf,
        addresses: list[Address],
        undo: ExitStack,
    ) -> None:
        for listener in listeners:
            opened = listener.open(factory_of(ListenerPolicy.of(listener.config)))
            undo.callback(opened.port.stopListening)
            self._ports.append(opened.port)
            addresses.append(opened.address)

    def _advertised(self) -> BrokerListeners:
        http = [] if self.web is None else self.web.addresses
        try:
            return advertised_listeners(self.config, self.addresses, http, self.kafka_addresses)
        except ConfigError:
            if self.coordination.is_enabled:
                raise
            return BrokerListeners(())  # advertised to nobody

    def _reopened(self, log: Log) -> None:
        self.shared.topics.reopened(log)
        self.flusher.reopened(log)
        for call in self.on_reopened:
            call(log)

    def _record_owner(self) -> None:
        try:
            self.directory.keep_owner()
        except StorageError as error:
            self._log.error(
                "it is not noted that the data directory is broker {broker_id}'s: {error}",
                broker_id=self.config.broker_id,
                error=error,
            )

    def _cluster_id(self) -> Callable[[], str]:
        """A function for the cluster's UUID: coordination's, or a single broker's own."""
        if self.coordination.is_enabled:
            return lambda: self.coordination.cluster_id
        try:
            kept = self.directory.cluster_id(new_cluster_id)
        except StorageError as error:
            self._log.error("this cluster's id is not known to mirrors: {error}", error=error)
            kept = ""
        return lambda: kept

    @property
    def config(self) -> BrokerConfig:
        return self.settings.config

    @property
    def own_client(self) -> OwnClient | None:
        """How parts of this process reach the broker; None without a port."""
        return self._own_client(self._own_address, self.addresses)

    @property
    def own_kafka_client(self) -> OwnClient | None:
        """The same by Kafka's protocol; None where that isn't served."""
        if not self.kafka_addresses:
            return None
        return self._own_client(self._own_kafka_address, self.kafka_addresses)

    def _own_client(self, own: tuple[str, int], addresses: Sequence[Address]) -> OwnClient | None:
        if self.own is not None:
            return OwnClient(*own, self.own.security)
        for address in addresses:
            if not isinstance(address, str):
                host, port = address
                return OwnClient({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)
        return None

    def _open_own(self, factory_of: FactoryOf, undo: ExitStack) -> tuple[str, int]:
        """Listen for this process itself, where clients must authenticate."""
        if self.own is None:
            return "", 0
        listener = Listener(self.reactor, "listen", OWN_LISTENER)
        users = self.own.authenticator()
        policy = ListenerPolicy(OWN_LISTENER.name, OWN_LISTENER.authentication, None, users)
        opened = listener.open(factory_of(policy))
        undo.callback(opened.port.stopListening)
        self._ports.append(opened.port)
        assert not isinstance(opened.address, str)
        return opened.address

    # -- changes while it runs ------------------------------------------------------------------

    def _take_entries(self, entries: TopicEntries) -> None:
        with named_source(os.path.join(self.directory.path, ENTRIES_NAME)):
            altered = parsed_entries(entries)
        self.settings.entries = entries
        try:
            kept = read_requested(self.directory.path, self.directory.files)
            requested = Requested.decode(kept or b"")
        except ConfigError as error:
            path = os.path.join(self.directory.path, REQUESTED_NAME)
            text = f"{error.message}; put back a copy of it, or move it away to go on without"
            raise ConfigError(error.key, text, source=path) from None
        self.settings.use(replace(self.config, altered=altered, requested=requested))

    def _settings_changed(self) -> None:
        config = self.config
        self.io_threads.adjustPoolsize(0, config.io_threads)
        self.flusher.use_threads(config.flush_threads)
        self.directory.limit_open_segments(config.max_open_segments)
        if self.web is not None:
            self.web.hosts.use(config.http_hosts)
        self._policies.clear()
        self._start_tasks()
        self._on_settings(config)

    def _topic_changed(self, topic: str) -> None:
        self._policies.pop(topic, None)
        topics = self.broker.topics
        topics.settings_changed(topic)
        for log in topics.partitions(topic):
            log.settings = self._log_settings(topic)
            self.flusher.policy_changed(log)

    def _retention_policy(self, topic: str) -> IRetentionPolicy:
        policy = self._policies.get(topic)
        if policy is None:
            policy = self._policies[topic] = retention_policy(
                self.config, topic, self.settings.policy_makers
            )
        return policy

    # -- stop -----------------------------------------------------------------------------------

    @inlineCallbacks
    def stop(self) -> "Any":
        """Close the ports, finish what is under way, flush, write the marker.

        The Deferred fires when everything is on disk and released, or can't be waited for.
        """
        self.stopping = True
        for _, task in self._tasks.values():
            task.stop()
        self.maintenance.stop()
        damage_stopped = self.damage.stop()
        seconds = self.config.stop_timeout_ms / 1000
        self._waits.begin(seconds, _DISK_GRACE * seconds)
        for leaving in [call() for call in self.on_leaving]:
            yield self._waits.for_clients(leaving)
        stopped = [call() for call in self.on_stopping]
        unregistered = self.coordination.unregister()
        for each in stopped:
            yield self._waits.for_clients(each)
        is_registered = not (yield self._waits.for_clients(unregistered))
        if is_registered:
            self._log.warn("the broker's registration is not taken back in time; it will expire")
        for port in self._ports:
            yield port.stopListening()
        self.broker.topics.stopping = True
        yield self._drain()
        self.shared.acknowledgements.stop()
        if self.web is not None:  # which has told until now that the broker stops
            yield self.web.stop()
        if (yield self._waits.for_disk(damage_stopped, lambda: None)):
            self._damage_threads.stop()  # else it hangs in a read, and harms nobody
        clean = yield self._close_directory()
        yield self._waits.for_disk(self.coordination.stop(), lambda: None)
        if not clean:
            self._log.critical("some logs were not closed cleanly; the next start recovers them")
        self._stop_threads(waits=not (is_registered or self._waits.is_exhausted))

    def hurry(self) -> None:
        """Stop waiting for clients, when a stop is under way."""
        self._waits.hurry()

    @inlineCallbacks
    def _drain(self) -> "Any":
        drained = self.connections.drain()
        if not (yield self._waits.for_clients(drained)):
            self.connections.abort_all()
            # What threads check for them may still be appended.
            if not (yield self._waits.for_disk(drained, lambda: None)):
                self._log.critical("requests that were under way do not end; they are left behind")

    @inlineCallbacks
    def _close_directory(self) -> "Any":
        """Flush and close the logs; whether the marker was written."""
        flusher, directory = self.flusher, self.directory
        hung: list[Log] = []
        if not (yield self._waits.for_disk(flusher.stop(), lambda: flusher.flushing)):
            hung = flusher.flushing
            for log in hung:
                self._log.critical(
                    "the disk does not end a flush of {log}; it is left behind as it is",
                    log=log.name,
                )
        closed: Deferred[bool] = self._in_own_thread(directory.close, abandoned=hung)
        if not (yield self._waits.for_disk(closed, lambda: directory.closing)):
            self._log.critical(
                "the disk does not end the last flush of {what}; it is left behind as it is",
                what=str(directory.closing),
            )
            return False
        return (yield closed)

    def _in_own_thread(self, function: Callable[..., Any], **options: Any) -> "Deferred[Any]":
        """Call a function in a thread outside the pools: theirs may all hang."""
        pool = WorkerThreads(0, 1, name="hermes-close")
        pool.start()
        called = caller_in(self.reactor, pool)(function, **options)

        def ended(result: Any) -> Any:
            pool.stop()
            return result

        return called.addBoth(ended)

    def _stop_threads(self, waits: bool = True) -> None:
        self.flush_threads.stop(waits)
        self.group_thread.stop(waits)
        if waits:  # else one of them may never end
            self.io_threads.stop()

    # -- parts ----------------------------------------------------------------------------------

    def _serve_http(
        self,
        listeners: Sequence[Listener],
        mount: Callable[["WebServer", "ServingBroker"], None],
        undo: ExitStack,
    ) -> "WebServer":
        from hermes.web import WebServer  # imported only where it is used: it delays the start

        web = WebServer(self.reactor, self.config.http_hosts, self._guard())
        undo.callback(web.stop)
        web.open(listeners)
        mount(web, self)
        return web

    def _guard(self) -> "WebGuard":
        """HTTP's view of users and rules: the same as everybody's."""
        from hermes.web import WebGuard

        users = self.authentication
        known = users.authenticator
        return WebGuard(
            None if known is None else users.check_password,
            lambda: users.revision,
            (lambda name: None) if known is None else known.find,
            self.authorization.may if self.config.is_guarded else None,
            users.introduce,
        )

    def _start_tasks(self) -> None:
        """Start the periodic tasks; running ones are kept, unless their interval has changed."""
        config = self.config
        retention = config.retention_check_interval_ms / 1000
        first = min(retention, FIRST_RETENTION_SECONDS)
        for function, interval, delay in (
            (self.connections.sweep_idle, config.idle_timeout_ms / 1000, None),
            (self.connections.memory.sweep, _SWEEP_SECONDS, None),
            (self.broker.large_responses.sweep, _SWEEP_SECONDS, None),
            (self.maintenance.reopen_offline, _REOPEN_SECONDS, None),
            (self.maintenance.watch_clock, _WATCH_SECONDS, None),
            (self.maintenance.bound_producers, _PRODUCERS_SECONDS, None),
            (self.maintenance.apply_retention, retention, first),
            (self.maintenance.compact, _COMPACTION_SECONDS, None),
            (self.damage.look, _DAMAGE_SECONDS, _FIRST_DAMAGE_SECONDS),
            (self._log_metrics, config.metrics_interval_ms / 1000, None),
            (self.authentication.refresh, _USERS_SECONDS if config.knows_users else 0, None),
        ):
            running_interval, task = self._tasks.get(function, (0, None))
            if interval == running_interval:
                continue
            if task is not None:
                task.stop()
                del self._tasks[function]
            if interval > 0:
                first_seconds = interval if delay is None else delay
                task = PeriodicTask(self.reactor, function, interval, first_seconds)
                self._tasks[function] = interval, task

    def _log_metrics(self) -> None:
        self._log.info("metrics: {metrics}", metrics=self.broker.metrics.snapshot())

    def _log_settings(self, topic: str) -> LogSettings:
        settings = self.config.topic(topic)
        return LogSettings(
            segment_bytes=settings.segment_bytes,
            segment_age_ms=settings.segment_age_ms,
            # A log may hold larger messages, from before this limit was lowered.
            max_message_bytes=max(self.config.max_message_bytes, _BELIEVED_MESSAGE_BYTES),
            format=settings.format,
        )

    def _compaction_of(self, topic: str) -> tuple[bool, int]:
        settings = self.config.topic(topic)
        return settings.is_compacted, settings.tombstone_retention_ms

    def _flush_policy(self, topic: str) -> FlushPolicy:
        settings = self.config.topic(topic)
        # 0.7 looked for due logs at intervals, so a message waited for the later of the two.
        interval_ms = max(settings.flush_interval_ms, self.config.flush_check_interval_ms)
        return FlushPolicy(settings.flush_messages, interval_ms)

    def _report_more_partitions(self, topics: TopicRegistry) -> None:
        """Log which numbers of broker.yaml have no effect: a topic never loses partitions."""
        beyond = topics.beyond_configuration()
        if beyond:
            shown = [f"{name} {there}, not {said}" for name, (there, said) in beyond.items()]
            more = f" and {len(shown) - 10} more topics" if len(shown) > 10 else ""
            self._log.warn(
                "topics keep the partitions that they have, though broker.yaml says fewer: "
                "{topics}{more}",
                topics=", ".join(shown[:10]),
                more=more,
            )

    def _report_opened(self, report: OpenReport) -> None:
        for (topic, partition), reason in report.offline.items():
            self._log.error(
                "{topic}-{partition} is offline: {reason}",
                topic=topic,
                partition=partition,
                reason=reason,
            )
        for (topic, partition), recovery in report.recovered.items():
            if recovery.dropped_bytes:
                self._log.warn(
                    "recovered {topic}-{partition}: dropped {dropped} bytes after offset {end}",
                    topic=topic,
                    partition=partition,
                    dropped=recovery.dropped_bytes,
                    end=recovery.valid_end,
                )
            if recovery.bad_ranges:
                self._log.warn(
                    "recovered {topic}-{partition}: kept damaged messages at {bad}",
                    topic=topic,
                    partition=partition,
                    bad=list(recovery.bad_ranges),
                )
        for (topic, partition), lost in report.lost.items():
            self._log.error(
                "{topic}-{partition} has lost messages that were on disk: {lost}",
                topic=topic,
                partition=partition,
                lost=lost,
            )
        for text in report.foreign:
            self._log.error("{text}: move the directory away that is not this topic's", text=text)
        for text in report.healed:
            self._log.warn("mended {text}", text=text)
        for name in report.strange:
            self._log.warn("{name} is not part of a log; it is left alone", name=name)
