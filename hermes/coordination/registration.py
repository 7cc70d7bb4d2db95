"""A broker's own entries in ZooKeeper: itself, and the topics that it has.

A thread keeps them as they should be: it is woken by new topics and by whatever happens to the
session, looks at what is there, and sets it right. So there is one way only, be it the start, a
new topic, a connection that came back, or a session that expired.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from hermes.coordination.layout import (
    BrokerNode,
    broker_path,
    format_broker,
    format_number,
    parse_broker,
    topic_path,
)
from hermes.coordination.sessions import Node, Session
from hermes.errors import (
    CoordinationError,
    CoordinationUnavailableError,
    IdInUseError,
    InvalidNodeError,
)

__all__ = ["BrokerRegistration"]

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


class BrokerRegistration:
    """Registers one broker for as long as it runs. Any thread may call.

    Args:
        broker_id: the broker's id.
        host: what clients connect to; a name or an IPv4 address.
        port: its port.
        topics: number of partitions by topic, of those that exist.
        connect: see `Session`.
        session_timeout_seconds: see `Session`.
        connection_timeout_seconds: see `Session`.
        now_ms: the wall clock, in ms since 1970.

    Raises:
        ConfigError: the host can't be registered.
    """

    def __init__(
        self,
        broker_id: int,
        host: str,
        port: int,
        topics: Mapping[str, int],
        *,
        connect: str,
        session_timeout_seconds: float = 6.0,
        connection_timeout_seconds: float = 6.0,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._path = broker_path(broker_id)
        self._broker_id = broker_id
        self._value = format_broker(host, port, now_ms())
        self._topics = dict(topics)
        self._registered: dict[str, int] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._session = Session(
            connect,
            session_timeout_seconds=session_timeout_seconds,
            connection_timeout_seconds=connection_timeout_seconds,
            on_change=self._session_changed,
        )
        self._thread = threading.Thread(target=self._run, name="hermes-registration", daemon=True)

    def start(self) -> None:
        """Register the broker, blocking; its topics follow from a thread.

        Raises:
            CoordinationUnavailableError: ZooKeeper can't be reached, or not for long enough.
            IdInUseError: another broker has this id. An entry that may be of an earlier life of
                this one is waited for first, up to one and a half session timeouts; so is a
                connection that is lost once it was there.
        """
        self._session.start()
        try:
            self._register_at_start()
        except BaseException:
            self._session.stop()
            raise
        self._wake.set()
        self._thread.start()

    def stop(self) -> None:
        """Take the broker and its topics out of sight. Idempotent."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._session.stop()

    def topic_created(self, topic: str, partitions: int) -> None:
        """Announce a new topic, soon."""
        with self._lock:
            self._topics[topic] = partitions
        self._wake.set()

    def topic_deleted(self, topic: str) -> None:
        """Take back a topic, soon."""
        with self._lock:
            self._topics.pop(topic, None)
        self._wake.set()

    # -- inside ---------------------------------------------------------------------------------

    def _session_changed(self) -> None:
        self._registered = {}  # to be looked at again; a new object, as the thread reads the old
        self._wake.set()

    def _run(self) -> None:
        problem = ""
        while True:
            self._wake.wait(_RETRY_SECONDS if problem else None)
            self._wake.clear()
            if self._stopping:
                return
            try:
                self._converge()
                if problem:
                    _log.warning("broker %d is registered again", self._broker_id)
                problem = ""
            except CoordinationError as error:
                if str(error) != problem:
                    _log.warning("broker %d is not registered: %s", self._broker_id, error)
                problem = str(error)

    def _register_at_start(self) -> None:
        """Register, in spite of connections that are lost and of what an earlier life has left."""
        deadline = time.monotonic() + 1.5 * self._session.timeout_seconds
        while True:
            try:
                other = self._register(watch=True)
                problem: CoordinationError | None = other and self._in_use(other)
            except CoordinationUnavailableError as error:  # perhaps it was done: look again
                problem = error
            if problem is None:
                return
            left = deadline - time.monotonic()
            if left <= 0:
                raise problem
            _log.info("registering broker %d is tried again: %s", self._broker_id, problem)
            self._wake.wait(min(left, _RETRY_SECONDS))
            self._wake.clear()

    def _converge(self) -> None:
        """Set right what isn't as it should be."""
        if self._session.session_id is None:
            return  # woken again once there is a connection
        registered = self._registered
        if self._path not in registered:
            other = self._register(watch=True)
            if other is not None:
                raise self._in_use(other)
            registered[self._path] = -1
        with self._lock:
            wanted = {topic_path(name, self._broker_id): n for name, n in self._topics.items()}
        for path in registered.keys() - wanted.keys() - {self._path}:
            self._session.delete_own(path)
            del registered[path]
        for path, count in wanted.items():
            if registered.get(path) != count:
                self._register_topic(path, format_number(count))
                registered[path] = count

    def _register(self, *, watch: bool) -> Node | None:
        """Register the broker itself; returns what another has registered instead.

        Nobody else can listen where this broker does, so an entry with its address is one that
        it has left behind: its session has not expired yet. That one is replaced.
        """
        while True:
            other = self._session.create_ephemeral(self._path, self._value)
            if other is None:
                self._session.get(self._path, watch=watch)  # if it is taken away, we want to know
                return None
            if _address(self._path, other) != _address(self._path, Node(self._value, 0, 0)):
                if self._session.get(self._path, watch=watch) is None:
                    continue  # it has just gone
                return other
            _log.warning("replacing what an earlier broker %d has left", self._broker_id)
            self._session.delete(self._path, other.version)

    def _register_topic(self, path: str, value: bytes) -> None:
        # The id is ours by now, so whatever stands under it is ours, from an earlier session.
        while (other := self._session.create_ephemeral(path, value)) is not None:
            self._session.delete(path, other.version)

    def _in_use(self, other: Node) -> IdInUseError:
        where = other.value.decode(errors="replace")
        return IdInUseError(
            f"broker id {self._broker_id} is in use: {self._path} is registered by {where!r}; "
            "give every broker a broker_id of its own"
        )


def _address(path: str, node: Node) -> tuple[str, int] | None:
    try:
        broker: BrokerNode = parse_broker(path, node.value)
    except InvalidNodeError:
        return None
    return broker.host, broker.port
