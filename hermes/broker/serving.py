"""A broker between its start and its stop: what it consists of, in which order it comes and goes.

A `ServingBroker` exists once everything was acquired: threads, the data directory (lock, load,
recover), coordination, the ports (so nobody is served before everything is readable), then the
registration in ZooKeeper, if there is one. If anything fails, all of it is released. The stop goes
the other way: the registration taken back, so that clients go elsewhere, ports closed, responses
under way finished, logs flushed, the clean-shutdown marker written, the lock released. Nothing
acknowledged is lost at any point; what a stop cuts off was not acknowledged.

A stop always ends. Clients and the registration may take `stop_timeout` together. Worker threads
are waited for as long as they make progress: a disk that hangs, so that nothing finishes for three
times `stop_timeout`, is reported and left behind, and the marker isn't written.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache, partial
from threading import Thread
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from hermes.broker.broker import Broker
from hermes.broker.connection import BrokerFactory
from hermes.broker.connections import Connections
from hermes.broker.coordinating import Coordination
from hermes.broker.flushing import FlushPolicy, FlushScheduler
from hermes.broker.maintenance import Maintenance
from hermes.broker.pages import PageCache
from hermes.broker.patience import Patience
from hermes.broker.periodic import PeriodicTask
from hermes.broker.shared import Shared
from hermes.broker.topics import TopicRegistry
from hermes.config import BrokerConfig
from hermes.interfaces import IRetentionPolicy
from hermes.limited_log import LimitedLog
from hermes.listening import Address, Listener
from hermes.logs import ModuleLogger, RecentLines
from hermes.quoting import printable
from hermes.storage import DataDirectory, FileLayer, Log, LogSettings, OpenReport

if TYPE_CHECKING:
    from hermes.web import WebServer

#: Retention passes begin this long after the start, as in 0.7.
FIRST_RETENTION_SECONDS = 60.0

#: How often reopening offline logs is retried.
_REOPEN_SECONDS = 5.0

#: How often to check whether the wall clock was set.
_WATCH_SECONDS = 60.0

#: How often connections that hold memory are swept for those that make no progress.
_SWEEP_SECONDS = 1.0

#: Recovery takes any smaller message for one, whatever the limit of today.
_BELIEVED_MESSAGE_BYTES = 1_000_000

#: How much of the names of created topics a line shows, in characters.
_NAMES_LENGTH = 200

#: A disk hangs when nothing has finished on it for this many times `stop_timeout`.
_DISK_PATIENCE = 3


class _Threads(ThreadPool):
    """Worker threads that never keep a process alive: one may hang in a system call."""

    # Since Python 3.14 a bare partial would be called as a method.
    threadFactory = staticmethod(partial(Thread, daemon=True))  # type: ignore[assignment]


class ServingBroker:
    """One broker that serves. Lives in the reactor's thread.

    Creating one starts it, and blocks for as long as recovery takes.

    Args:
        config: the broker's settings.
        reactor: serves the sockets and the timers.
        now_ms: the wall clock, in ms since 1970.
        listeners: the ports to open.
        retention_policy: makes the policy of a topic.
        files: the file layer; the operating system's unless given.
        http_listeners: the HTTP ports to open.
        mount: says what they serve, before they open.
        recent_lines: the last lines of the log, for those who ask for them.

    Raises:
        HermesError: the data directory, a port or the registration can't be acquired; all of it
            is undone.

    Attributes:
        addresses: what the ports are bound to, as (host, port) or a UNIX socket's path.
        broker: what decides.
        coordination: its part in coordination.
        config: its settings.
        reactor, now_ms: as given.
        directory: its data directory.
        opened: what opening it has found, and `opening_seconds`: how long that took.
        flusher: schedules the flushes.
        connections: all of them.
        maintenance: what it does on its own.
        pools: its worker threads.
        in_thread: calls a function in one of those that wait for disks.
        web: what it serves over HTTP; None without a port for it.
        stopping: whether a stop has begun.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        config: BrokerConfig,
        reactor: Any,
        now_ms: Callable[[], int],
        listeners: Sequence[Listener],
        retention_policy: Callable[[str], IRetentionPolicy],
        files: FileLayer | None = None,
        *,
        http_listeners: Sequence[Listener] = (),
        mount: Callable[["WebServer", "ServingBroker"], None] = lambda web, run: None,
        recent_lines: RecentLines | None = None,
    ) -> None:
        self.addresses: list[Address] = []
        self.stopping = False
        self.config = self._config = config
        self.reactor = self._reactor = reactor
        self.now_ms = now_ms
        self._lines = LimitedLog(self._log, reactor.seconds)
        self.pools: list[ThreadPool] = []
        seconds = config.stop_timeout_ms / 1000
        self._patience = Patience(reactor, seconds, _DISK_PATIENCE * seconds)
        with ExitStack() as undo:
            undo.callback(self._stop_pools)
            in_thread = self.in_thread = self._threads("io", config.io_threads)
            flush_in_thread = self._threads("flush", config.flush_threads)
            self.directory = DataDirectory(
                config.log_dir,
                self._log_settings,
                files,
                max_open_segments=config.max_open_segments,
            )
            began = reactor.seconds()
            with ThreadPoolExecutor(config.io_threads) as workers:
                report = self.opened = self.directory.open(now_ms(), workers=workers)
            self.opening_seconds = reactor.seconds() - began
            undo.callback(self.directory.close, clean=False)
            self._report_opened(report)
            self.coordination = Coordination(config, reactor, in_thread, now_ms)
            undo.callback(self.coordination.stop)
            self.flusher = FlushScheduler(reactor, flush_in_thread, self._flush_policy)
            topics = TopicRegistry(
                self.directory,
                config,
                self._topic_created,
                self.coordination.topic_deleted,
            )
            self._report_more_partitions(topics)
            self._create_declared(topics)
            self.broker = Broker(
                Shared(
                    config,
                    self.directory,
                    topics,
                    self.flusher,
                    reactor,
                    now_ms,
                    in_thread,
                    recent_lines=recent_lines,
                )
            )
            self.broker.coordination_address = self.coordination.address_for_clients
            self.connections = Connections(self.broker, config, reactor, PageCache(in_thread))
            factory = BrokerFactory(self.connections)
            self.maintenance = Maintenance(
                self.directory,
                lru_cache(maxsize=None)(retention_policy),
                now_ms,
                reactor.seconds,
                in_thread,
                self.flusher.reopened,
            )
            self.coordination.start()
            self._ports = []
            for listener in listeners:
                opened = listener.open(factory)
                undo.callback(opened.port.stopListening)
                self._ports.append(opened.port)
                self.addresses.append(opened.address)
            self.web = self._serve_http(http_listeners, mount, undo) if http_listeners else None
            self.coordination.register(self.addresses, topics)
            undo.pop_all()
        self._tasks = list(self._periodic_tasks())

    # -- stop -----------------------------------------------------------------------------------

    @inlineCallbacks
    def stop(self) -> "Any":
        """Close the ports, finish what is under way, flush, write the marker.

        Returns:
            A Deferred that fires when everything is on disk and released, or can't be waited for.
        """
        self.stopping = True
        for task in self._tasks:
            task.stop()
        self._patience.begin()
        unregistered = self.coordination.unregister()
        is_registered = not (yield self._patience.for_clients(unregistered))
        if is_registered:
            self._log.warn("the broker's registration is not taken back in time; it will expire")
        for port in self._ports:
            yield port.stopListening()
        self.broker.topics.stopping = True
        yield self._drain()
        if self.web is not None:  # which has told until now that the broker stops
            yield self.web.stop()
        clean = yield self._close_directory()
        yield self._patience.for_disk(self.coordination.stop(), lambda: None)
        if not clean:
            self._log.critical("some logs were not closed cleanly; the next start recovers them")
        if not (is_registered or self._patience.is_exhausted):  # else a thread may never end
            self._stop_pools()

    def hurry(self) -> None:
        """Don't wait for clients any longer, when a stop is under way."""
        self._patience.hurry()

    @inlineCallbacks
    def _drain(self) -> "Any":
        drained = self.connections.drain()
        if not (yield self._patience.for_clients(drained)):
            self.connections.abort_all()
            # What threads check for them may still be appended.
            if not (yield self._patience.for_disk(drained, lambda: None)):
                self._log.critical("requests that were under way do not end; they are left behind")

    @inlineCallbacks
    def _close_directory(self) -> "Any":
        """Flush and close the logs; whether the marker was written."""
        flusher, directory = self.flusher, self.directory
        hung: list[Log] = []
        if not (yield self._patience.for_disk(flusher.stop(), lambda: flusher.flushing)):
            hung = flusher.flushing
            for log in hung:
                self._log.critical(
                    "the disk does not end a flush of {log}; it is left behind as it is",
                    log=log.name,
                )
        closed: Deferred[bool] = self._in_own_thread(directory.close, abandoned=hung)
        if not (yield self._patience.for_disk(closed, lambda: directory.closing)):
            self._log.critical(
                "the disk does not end the last flush of {what}; it is left behind as it is",
                what=str(directory.closing),
            )
            return False
        return (yield closed)

    def _in_own_thread(self, function: Callable[..., Any], **options: Any) -> "Deferred[Any]":
        """Call a function in a thread that no pool knows: theirs may all hang."""
        pool = _Threads(0, 1, name="hermes-close")
        pool.start()
        called = deferToThreadPool(self._reactor, pool, function, **options)

        def ended(result: Any) -> Any:
            pool.stop()
            return result

        return called.addBoth(ended)

    def _stop_pools(self) -> None:
        for pool in self.pools:
            pool.stop()
        self.pools.clear()

    # -- parts ----------------------------------------------------------------------------------

    def _threads(self, name: str, count: int) -> Callable[..., "Deferred[Any]"]:
        """Make a pool of threads; what calls a function in one of them."""
        pool = _Threads(0, count, name=f"hermes-{name}")
        pool.start()
        self.pools.append(pool)
        return partial(deferToThreadPool, self._reactor, pool)

    def _serve_http(
        self,
        listeners: Sequence[Listener],
        mount: Callable[["WebServer", "ServingBroker"], None],
        undo: ExitStack,
    ) -> "WebServer":
        """Open the HTTP ports."""
        from hermes.web import WebServer  # most brokers would only start later for it

        web = WebServer(self._reactor, self._config.http_hosts)
        undo.callback(web.stop)
        web.open(listeners)
        mount(web, self)
        return web

    def _periodic_tasks(self) -> Iterator[PeriodicTask]:
        config = self._config
        retention = config.retention_check_interval_ms / 1000
        first = min(retention, FIRST_RETENTION_SECONDS)
        for function, interval, delay in (
            (self.connections.sweep_idle, config.idle_timeout_ms / 1000, None),
            (self.connections.memory.sweep, _SWEEP_SECONDS, None),
            (self.broker.large_responses.sweep, _SWEEP_SECONDS, None),
            (self.maintenance.reopen_offline, _REOPEN_SECONDS, None),
            (self.maintenance.watch_clock, _WATCH_SECONDS, None),
            (self.maintenance.apply_retention, retention, first),
            (self._log_metrics, config.metrics_interval_ms / 1000, None),
        ):
            if interval > 0:
                yield PeriodicTask(
                    self._reactor, function, interval, interval if delay is None else delay
                )

    def _create_declared(self, topics: TopicRegistry) -> None:
        created, failed = topics.create_declared()
        if created:
            self._log.info(
                "created {count} of the topics that broker.yaml declares: {names}",
                count=len(created),
                names=printable(", ".join(created), _NAMES_LENGTH),
            )
        for topic, error in failed.items():
            self._log.error(
                "can't create {topic}, which broker.yaml declares: {error}",
                topic=topic,
                error=error,
            )

    def _topic_created(self, topic: str, partitions: int) -> None:
        self._lines.info(
            "created",
            "created topic {topic} ({count} partitions)",
            topic=topic,
            count=partitions,
        )
        self.coordination.topic_created(topic, partitions)

    def _log_metrics(self) -> None:
        self._log.info("metrics: {metrics}", metrics=self.broker.metrics.snapshot())

    def _log_settings(self, topic: str) -> LogSettings:
        settings = self._config.topic(topic)
        return LogSettings(
            segment_bytes=settings.segment_bytes,
            segment_age_ms=settings.segment_age_ms,
            # A log may hold larger messages, from before this limit was lowered.
            max_message_bytes=max(self._config.max_message_bytes, _BELIEVED_MESSAGE_BYTES),
        )

    def _flush_policy(self, topic: str) -> FlushPolicy:
        settings = self._config.topic(topic)
        # 0.7 looked for due logs at intervals, so a message waited for the later of the two.
        interval_ms = max(settings.flush_interval_ms, self._config.flush_check_interval_ms)
        return FlushPolicy(settings.flush_messages, interval_ms)

    def _report_more_partitions(self, topics: TopicRegistry) -> None:
        """Say which numbers of broker.yaml have no effect: a topic never loses partitions."""
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
        """Log what opening found that an operator should know."""
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
        for name in report.strange:
            self._log.warn("{name} is not part of a log; it is left alone", name=name)
