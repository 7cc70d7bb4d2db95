"""A broker without sockets: real files, threads that run at once, a clock that the test moves."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock, deferLater
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent, eventAsText, globalLogPublisher

from hermes.broker.connection import BrokerConnection, BrokerFactory
from hermes.broker.connections import Connections
from hermes.cluster.cluster import Cluster
from hermes.cluster.shared import Shared
from hermes.cluster.topic_registry import TopicRegistry
from hermes.config.loading import parse_broker_config
from hermes.coordination.listeners import BrokerListeners, ListenerNode
from hermes.interfaces import IAuthenticator
from hermes.partition.flush_queue import FlushPolicy
from hermes.partition.flush_threads import FlushThreads
from hermes.partition.flushing import FlushScheduler
from hermes.server.authentication import Authentication
from hermes.server.pages import PageCache
from hermes.server.policies import ListenerPolicy
from hermes.server.settings import Settings
from hermes.storage import DataDirectory, FileLayer, LogSettings
from hermes.v0_7.dispatching import Broker

__all__ = ["BrokerBench", "CountingClock", "HotPages", "answers", "log_lines"]


#: Of a listener that asks for nothing.
OPEN = ListenerPolicy()


class CountingClock(Clock):
    """A clock that knows how often something was put off.

    Attributes:
        put_off: how many calls were scheduled so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.put_off = 0

    def callLater(self, when: float, what: Any, *args: Any, **named: Any) -> Any:
        """See `Clock`."""
        self.put_off += 1
        return super().callLater(when, what, *args, **named)


class HotPages(PageCache):
    """All pages are in memory, also where the file system can't be asked: in a tmpfs."""

    def resident_until(self, fd: int, start: int, end: int) -> int:
        """See `PageCache.resident_until`."""
        return end


class BrokerBench:
    """A broker whose connections are strings.

    Args:
        directory: the data directory.
        in_thread: runs what belongs into worker threads; at once unless given.
        authenticator: knows users.
        files: the file layer of its logs; the operating system's unless given.
        settings: of broker.yaml.
    """

    def __init__(
        self,
        directory: Path,
        in_thread: "Callable[..., Deferred[Any]]" = maybeDeferred,
        authenticator: IAuthenticator | None = None,
        files: FileLayer | None = None,
        **settings: Any,
    ) -> None:
        self.clock = CountingClock()
        self.settings = Settings(
            parse_broker_config({"broker_id": 0, "log_dir": str(directory), **settings})
        )
        self.directory = DataDirectory(directory, self._log_settings, files)
        self.directory.open(0)
        self.flusher = FlushScheduler(
            self.clock, DeferredFlushes(maybeDeferred), lambda topic: FlushPolicy(1, 1000)
        )
        self.shared = Shared(
            self.settings,
            self.directory,
            TopicRegistry(self.directory, self.settings),
            self.flusher,
            self.clock,
            lambda: 1_800_000_000_000,
            in_thread,
        )
        node = ListenerNode("0", "kafka.example.org", 19092, False, "none")
        listeners = BrokerListeners((), (), (node,))
        self.cluster = Cluster(self.shared, lambda: listeners, lambda: "a-cluster")
        self.broker = Broker(self.shared, self.cluster)
        pages = HotPages(partial(deferLater, self.clock, 0))
        self.authentication = Authentication(authenticator, self.clock, in_thread)
        self.connections = Connections(
            self.broker, self.settings, self.clock, pages, self.authentication
        )

    def _log_settings(self, topic: str) -> LogSettings:
        config = self.settings.config.topic(topic)
        return LogSettings(format=config.format, segment_bytes=config.segment_bytes)

    def connect(
        self, policy: ListenerPolicy = OPEN, address: Any = None
    ) -> tuple[BrokerConnection, Any]:
        """A new connection, by default of a listener that asks for nothing, and its transport."""
        connection = BrokerFactory(self.connections, policy).buildProtocol(None)
        assert connection is not None
        transport = StringTransport(peerAddress=address)
        connection.makeConnection(transport)
        return connection, transport

    def turns(self, transport: Any = None) -> int:
        """Let the broker finish what it does in turns; how many of them it took.

        Args:
            transport: one that reads whatever it is sent.
        """
        before = self.clock.put_off
        self.clock.advance(0)
        while transport is not None and transport.producer is not None:
            transport.producer.resumeProducing()
            self.clock.advance(0)
        return self.clock.put_off - before

    def close(self) -> None:
        """Release the files."""
        self.flusher.stop()
        self.directory.close()


class DeferredFlushes(FlushThreads):
    """Flushes in what a test has for a thread.

    Args:
        in_thread: calls a function and returns its Deferred.
    """

    count = 1

    def __init__(self, in_thread: "Callable[..., Deferred[Any]]") -> None:
        self.report: Callable[[Any], None] = lambda outcomes: None
        self._in_thread = in_thread

    def submit(self, state: Any) -> None:
        self._in_thread(state.log.flush).addCallbacks(
            lambda end: self.report([(state, end, None)]),
            lambda failure: self.report([(state, None, failure.value)]),
        )

    def use(self, count: int) -> None:
        self.count = count


def flush_in(flusher: FlushScheduler, in_thread: "Callable[..., Deferred[Any]]") -> None:
    """Let flushes from now on run in something else."""
    flusher._threads = DeferredFlushes(in_thread)
    flusher._threads.report = flusher.report


def answers(transport: Any) -> list[bytes]:
    """What a connection was answered with, without the sizes; clears the transport."""
    data, position, found = transport.value(), 0, []
    transport.clear()
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        found.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return found


@contextmanager
def log_lines() -> Iterator[list[str]]:
    """Collect what Twisted's log would show, event by event, without times and tracebacks' frames.

    Yields:
        A list that fills.
    """
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        lines.append(eventAsText(event, includeTimestamp=False))

    globalLogPublisher.addObserver(observe)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observe)
