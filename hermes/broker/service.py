"""The broker as a Twisted service: what starts in which order, and stops in the other.

Start: descriptor limit, threads, the data directory (lock, load, recover), then the ports, so
that nobody is served before everything is readable, then the registration in ZooKeeper, where
there is one; last one line with the actual addresses and the ready file. Stop: the registration
taken back, so that clients go elsewhere, ports closed, answers under way finished, logs flushed,
the clean-shutdown marker written, the lock released. Nothing acknowledged is lost at any point;
what `stop_timeout` cuts off was not acknowledged. It is all in one class, though that is long: what
starts and what stops it are only seen to match when they stand together.
"""

import json
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IListeningPort
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from hermes._version import __version__
from hermes.broker.broker import Broker
from hermes.broker.coordinating import Coordination
from hermes.broker.factory import BrokerFactory
from hermes.broker.flushing import FlushPolicy, FlushScheduler
from hermes.broker.maintenance import Maintenance
from hermes.broker.pages import PageCache
from hermes.broker.regular import RegularTask
from hermes.broker.topics import TopicRegistry
from hermes.config import BrokerConfig
from hermes.errors import ConfigError, InvalidTopicError
from hermes.interfaces import IRetentionPolicy
from hermes.listening import Address, Listener
from hermes.logs import ModuleLogger
from hermes.plugins import load_plugin
from hermes.protocol import check_new_topic_name
from hermes.quoting import printable
from hermes.storage import DataDirectory, LogSettings, OpenReport

__all__ = ["BrokerService", "raise_descriptor_limit"]

#: Retention passes begin this long after the start, as in 0.7.
FIRST_RETENTION_SECONDS = 60.0

#: How often offline logs are tried again.
_REOPEN_SECONDS = 5.0

#: How often the wall clock is looked at, whether it was set.
_WATCH_SECONDS = 60.0

#: How often requests that make no progress are looked for while memory is short.
_LOOK_SECONDS = 1.0

#: Recovery takes any smaller message for one, whatever the limit of today.
_BELIEVED_MESSAGE_BYTES = 1_000_000


class BrokerService(Service):
    """One broker, from its configuration to its sockets.

    Attributes:
        config: its settings.
        broker: what decides, while the service runs.
        factory: its connections, while the service runs.
        addresses: what the ports are bound to, as (host, port) or a UNIX socket's path.
    """

    name = "hermes"
    _log = ModuleLogger()

    def __init__(
        self,
        config: BrokerConfig,
        reactor: Any,
        *,
        ready_file: str | None = None,
        on_fatal: Callable[[str], None] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Prepare, without touching anything.

        Args:
            config: the broker's settings.
            reactor: serves the sockets and the timers.
            ready_file: written once all ports are open, whatever the configuration says.
            on_fatal: called with a reason when the broker can't go on after it has started; stops
                the reactor unless given.
            now_ms: the wall clock, in ms since 1970.
        """
        self.config = config
        self.broker: Broker | None = None
        self.factory: BrokerFactory | None = None
        self.addresses: list[Address] = []
        self._reactor = reactor
        self.on_fatal = on_fatal or (lambda _: reactor.stop())
        self._ready_file = ready_file or config.ready_file
        self._now_ms = now_ms
        self._directory: DataDirectory | None = None
        self._flusher: FlushScheduler | None = None
        self._coordination: Coordination | None = None
        self._ports: list[IListeningPort] = []
        self._tasks: list[RegularTask] = []
        self._pools: list[ThreadPool] = []
        self._listeners = [Listener(reactor, "listen", text) for text in config.listen]
        _check_topics(config)
        for topic in ("", *config.topics):
            self._retention_policy(topic)  # a wrong plugin fails before anything starts

    # -- start ----------------------------------------------------------------------------------

    def startService(self) -> None:
        """Open the data directory, then the ports.

        Raises:
            HermesError: the data directory, a port or the registration can't be had; everything
                is undone.
        """
        raise_descriptor_limit()
        if self._ready_file and not os.access(Path(self._ready_file).parent, os.W_OK):
            raise ConfigError("ready_file", f"can't write into the directory of {self._ready_file}")
        try:
            self._open()
            self._listen()
            assert self._coordination is not None
            assert self.broker is not None
            self._coordination.register(self.addresses, self.broker.topics)
        except BaseException:
            self._undo()
            raise
        super().startService()  # type: ignore[no-untyped-call]
        self._start_tasks()
        # Not before the reactor runs: from then on signals are handled as well.
        self._reactor.callWhenRunning(self._register)

    def _open(self) -> None:
        config = self.config
        flush_threads = self._pool("flush", config.flush_threads)
        io_threads = self._pool("io", config.io_threads)
        in_thread = self._caller(io_threads)
        directory = DataDirectory(
            config.log_dir, self._log_settings, max_open_segments=config.max_open_segments
        )
        with ThreadPoolExecutor(config.io_threads) as workers:
            report = directory.open(self._now_ms(), workers=workers)
        self._directory = directory
        self._report_opened(report)
        self._coordination = Coordination(config, self._reactor, in_thread, self._now_ms)
        self._flusher = FlushScheduler(
            self._reactor, self._caller(flush_threads), self._flush_policy
        )
        self.broker = Broker(
            config,
            directory,
            TopicRegistry(
                directory,
                config,
                self._coordination.topic_created,
                self._coordination.topic_deleted,
            ),
            self._flusher,
            clock=self._reactor,
            now_ms=self._now_ms,
            in_thread=in_thread,
        )
        self.factory = BrokerFactory(self.broker, config, self._reactor, PageCache(in_thread))
        self._maintenance = Maintenance(
            directory,
            lru_cache(maxsize=None)(self._retention_policy),
            self._now_ms,
            self._reactor.seconds,
            in_thread,
            self._flusher.reopened,
        )

    def _listen(self) -> None:
        assert self._coordination is not None
        assert self.factory is not None
        self._coordination.start()
        for listener in self._listeners:
            opened = listener.open(self.factory)
            self._ports.append(opened.port)
            self.addresses.append(opened.address)

    def _start_tasks(self) -> None:
        assert self.factory is not None
        assert self.broker is not None
        config = self.config
        self._regularly(self.factory.sweep_idle, config.idle_timeout_ms / 1000)
        self._regularly(self.factory.memory.look, _LOOK_SECONDS)
        self._regularly(self.broker.large_answers.look, _LOOK_SECONDS)
        self._regularly(self._maintenance.reopen_offline, _REOPEN_SECONDS)
        self._regularly(self._maintenance.watch_clock, _WATCH_SECONDS)
        interval = config.retention_check_interval_ms / 1000
        self._regularly(
            self._maintenance.apply_retention, interval, min(interval, FIRST_RETENTION_SECONDS)
        )
        self._regularly(self._log_metrics, config.metrics_interval_ms / 1000)

    def _register(self) -> None:
        if self._coordination is None or self.broker is None:
            return  # stopped before it ran
        registered = self._coordination.register_embedded(self.addresses, self.broker.topics)
        registered.addCallbacks(lambda _: self._announce(), self._registration_failed)

    def _registration_failed(self, failure: Failure) -> None:
        self._log.critical(
            "the broker can't be registered and stops: {error}", error=failure.getErrorMessage()
        )
        self.on_fatal(failure.getErrorMessage())

    def _announce(self) -> None:
        if not self.running:
            return
        if self._ready_file:
            try:
                _write_ready_file(
                    Path(self._ready_file), self.config, self.addresses, self._coordination
                )
            except OSError as error:
                self._log.error("can't write the ready file: {error}", error=str(error))
        where = ", ".join(_text(address) for address in self.addresses)
        self._log.info(
            "broker {broker_id} is ready: Hermes {version} listening on {where}, logs in {log_dir}",
            broker_id=self.config.broker_id,
            version=__version__,
            where=where,
            log_dir=str(self.config.log_dir),
        )

    # -- stop -----------------------------------------------------------------------------------

    @inlineCallbacks
    def stopService(self) -> "Any":
        """Close the ports, finish what is under way, flush, write the marker.

        Returns:
            A Deferred that fires when everything is on disk and released.
        """
        super().stopService()  # type: ignore[no-untyped-call]
        if self._directory is None or self.factory is None or self._flusher is None:
            return
        for task in self._tasks:
            task.stop()
        assert self._coordination is not None
        yield self._coordination.unregister()
        for port in self._ports:
            yield port.stopListening()
        assert self.broker is not None
        self.broker.topics.stopping = True
        yield self._drain()
        yield self._flusher.stop()
        directory, self._directory = self._directory, None
        clean = yield deferToThreadPool(self._reactor, self._pools[0], directory.close)
        yield self._coordination.stop()
        if not clean:
            self._log.critical("some logs were not closed cleanly; the next start recovers them")
        self._stop_pools()
        if self._ready_file:
            Path(self._ready_file).unlink(missing_ok=True)
        self._log.info("broker {broker_id} has stopped", broker_id=self.config.broker_id)

    @inlineCallbacks
    def _drain(self) -> "Any":
        assert self.factory is not None
        drained = self.factory.drain()
        cut = self._reactor.callLater(self.config.stop_timeout_ms / 1000, self.factory.abort_all)
        yield drained
        if cut.active():
            cut.cancel()

    def _undo(self) -> None:
        """After a failed start: release what was taken, and write no marker."""
        for port in self._ports:
            port.stopListening()
        self._ports.clear()
        if self._coordination is not None:
            self._coordination.stop()
        if self._directory is not None:
            self._directory.close(clean=False)
            self._directory = None
        self._stop_pools()

    def _stop_pools(self) -> None:
        for pool in self._pools:
            pool.stop()
        self._pools.clear()

    # -- parts ----------------------------------------------------------------------------------

    def _pool(self, name: str, threads: int) -> ThreadPool:
        pool = ThreadPool(0, threads, name=f"hermes-{name}")
        pool.start()
        self._pools.append(pool)
        return pool

    def _caller(self, pool: ThreadPool) -> Callable[..., "Deferred[Any]"]:
        reactor = self._reactor
        return lambda function, *args: deferToThreadPool(reactor, pool, function, *args)

    def _regularly(
        self, function: Callable[[], Any], interval: float, first: float | None = None
    ) -> None:
        """Call `function` every `interval` seconds, for the first time after `first`."""
        if interval > 0:
            delay = interval if first is None else first
            self._tasks.append(RegularTask(self._reactor, function, interval, delay))

    def _log_settings(self, topic: str) -> LogSettings:
        settings = self.config.topic(topic)
        return LogSettings(
            segment_bytes=settings.segment_bytes,
            segment_age_ms=settings.segment_age_ms,
            # A log may hold larger messages, from before this limit was lowered.
            max_message_bytes=max(self.config.max_message_bytes, _BELIEVED_MESSAGE_BYTES),
        )

    def _flush_policy(self, topic: str) -> FlushPolicy:
        settings = self.config.topic(topic)
        # 0.7 looked for due logs at intervals, so a message waited for the later of the two.
        interval_ms = max(settings.flush_interval_ms, self.config.flush_check_interval_ms)
        return FlushPolicy(settings.flush_messages, interval_ms)

    def _retention_policy(self, topic: str) -> IRetentionPolicy:
        settings = self.config.topic(topic)
        policy: IRetentionPolicy = load_plugin(
            "hermes.retention", settings.retention_policy, IRetentionPolicy, settings.retention
        )
        return policy

    def _report_opened(self, report: OpenReport) -> None:
        """Log what opening found that an operator should know."""
        for (topic, partition), reason in report.offline.items():
            self._log.error(
                "{topic}-{partition} is out of service: {reason}",
                topic=printable(topic),
                partition=partition,
                reason=printable(reason),
            )
        for (topic, partition), recovery in report.recovered.items():
            if recovery.dropped_bytes or recovery.bad_ranges:
                self._log.warn(
                    "recovered {topic}-{partition}: dropped {dropped} bytes behind offset {end}; "
                    "damaged messages kept at {bad}",
                    topic=printable(topic),
                    partition=partition,
                    dropped=recovery.dropped_bytes,
                    end=recovery.valid_end,
                    bad=list(recovery.bad_ranges),
                )
        for name in report.strange:
            self._log.warn("{name} is no part of a log; it is left alone", name=printable(name))

    def _log_metrics(self) -> None:
        assert self.broker is not None
        self._log.info("metrics: {metrics}", metrics=self.broker.metrics.snapshot())


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files as far as the hard limit allows.

    Returns:
        The limit now in force.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return soft
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _check_topics(config: BrokerConfig) -> None:
    """Refuse names under `topics` that could never be created."""
    for topic in config.topics:
        last = config.topic(topic).partitions - 1
        try:
            check_new_topic_name(topic, config.max_topic_name_length, len(f"-{last}"))
        except InvalidTopicError as error:
            raise ConfigError(f"topics.{topic}", str(error)) from error


def _text(address: Address) -> str:
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"


def _write_ready_file(
    path: Path,
    config: BrokerConfig,
    addresses: list[Address],
    coordination: Coordination | None,
) -> None:
    """Write the ready file at once: whoever sees it sees all of it."""
    listen = [
        {"path": address} if isinstance(address, str) else {"host": address[0], "port": address[1]}
        for address in addresses
    ]
    content = {
        "broker_id": config.broker_id,
        "version": __version__,
        "pid": os.getpid(),
        "listen": listen,
        "log_dir": str(Path(config.log_dir).absolute()),
        "zookeeper_connect": None if coordination is None else coordination.connect_string,
    }
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
    os.replace(temporary, path)
