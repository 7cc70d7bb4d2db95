"""A broker's own entries in ZooKeeper: itself, where it listens, and the topics that it has.

A thread keeps them as they should be: it is woken by new topics and by whatever happens to the
session, reads what exists, and corrects it. So there is one way only, be it the start, a
new topic, a connection that came back, or a session that expired.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any
from uuid import UUID

from hermes.coordination.acls import SHARED
from hermes.coordination.cluster_id import cluster_id
from hermes.coordination.cluster_view import read_listeners
from hermes.coordination.group_state import read_stored_offsets
from hermes.coordination.kafka_group_state import read_committed
from hermes.coordination.kafka_topics import (
    KAFKA_CHANGES,
    RECORD_TOPICS,
    TopicNode,
    record_topic_path,
)
from hermes.coordination.layout import (
    BROKER_IDS,
    BROKER_TOPICS,
    BrokerNode,
    broker_path,
    format_broker,
    format_number,
    parse_broker,
    topic_path,
)
from hermes.coordination.listeners import (
    HERMES_BROKERS,
    BrokerListeners,
    format_listeners,
    listeners_path,
)
from hermes.coordination.nodes import Node
from hermes.coordination.replicas import as_life
from hermes.coordination.sessions import Lease, Session
from hermes.coordination.topic_tree import TopicTree
from hermes.errors import (
    CoordinationError,
    CoordinationUnavailableError,
    IdInUseError,
    InvalidNodeError,
)
from hermes.quoting import quoted
from hermes.security import PLAIN, ClientSecurity

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0

#: How many topics are registered in one transaction: up to three operations each, within what a
#: server takes in one (1 MB; of the embedded one, 1,000 operations).
_TRANSACTION_TOPICS = 256

#: How often a transaction is tried in a row that others got in the way of.
_TRIES = 5

# The name of an operation of kazoo's transactions, and its arguments.
_Operation = tuple[Any, ...]


class BrokerRegistration:
    """Registers one broker for as long as it runs. Any thread may call.

    Args:
        host: what clients connect to; a name or an IPv4 address.
        topics: number of partitions by topic, of those that exist and hold messages of 0.7.
        record_topics: the same of those of Kafka's format that aren't a cluster's as a whole.
        listeners: where the broker listens, for other clients than 0.7's; None: they aren't
            registered.
        connect, session_timeout_seconds, connection_timeout_seconds: see `Session`.
        security: see `Session`; with a user, others can read the broker's nodes and not write them.
        now_ms: the wall clock, in ms since 1970.
        on_session: called with the id of the session, in any thread, whenever it is going to be
            registered in one; it must not block.

    Raises:
        ConfigError: the host can't be registered.

    Attributes:
        cluster_id: the cluster's UUID; empty until the broker was registered.
    """

    def __init__(
        self,
        broker_id: int,
        host: str,
        port: int,
        topics: Mapping[str, int],
        record_topics: Mapping[str, int] | None = None,
        *,
        connect: str,
        listeners: BrokerListeners | None = None,
        security: ClientSecurity = PLAIN,
        session_timeout_seconds: float = 6.0,
        connection_timeout_seconds: float = 6.0,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        on_session: Callable[[int], None] = lambda session_id: None,
    ) -> None:
        self._path = broker_path(broker_id)
        self._broker_id = broker_id
        self._value = format_broker(host, port, now_ms())
        self._topics = dict(topics)
        self._record_topics = dict(record_topics or {})
        self._left: dict[UUID, str] = {}  # topics to delete from among the cluster's
        self._withdrawn: set[str] = set()  # of topics; whoever lost an answer doesn't know of all
        self._listeners = (
            {} if listeners is None else {listeners_path(broker_id): format_listeners(listeners)}
        )
        self._on_session = on_session
        self._registered: dict[str, bytes] = {}
        self.cluster_id = ""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._is_user = security.user is not None
        self._session = Session(
            connect,
            security=security,
            session_timeout_seconds=session_timeout_seconds,
            connection_timeout_seconds=connection_timeout_seconds,
            on_change=self._session_changed,
        )
        self._thread = threading.Thread(target=self._run, name="hermes-registration", daemon=True)

    def start(self) -> None:
        """Register the broker with its topics, blocking; what comes later follows from a thread.

        A client that sees the broker must see its topics: without their partition counts a producer
        would send a key elsewhere than before. So they are written in one transaction, as far as
        that goes. Nothing happens once `stop_soon` was called.

        Raises:
            CoordinationUnavailableError: ZooKeeper can't be reached, or not for long enough.
            CoordinationNotAuthenticatedError, CoordinationNotAuthorizedError: it may not register.
            IdInUseError: another broker has this id. An entry that may be of an earlier life of
                this one is waited for first, up to one and a half session timeouts; so is a
                connection that is lost once it was there.
        """
        if self._stopping:
            return
        self._session.start()
        try:
            self._register_at_start()
            with suppress(CoordinationError):  # the thread tries again, and says what is wrong
                self._converge()
        except BaseException:
            self._session.stop()
            raise
        self._wake.set()
        self._thread.start()
        if self._stopping:  # perhaps too early for this session
            self._session.stop()

    def stop(self) -> None:
        """Deregister the broker and its topics. Idempotent."""
        self.stop_soon()
        if self._thread.is_alive():
            self._thread.join(_RETRY_SECONDS)
        self._session.stop()  # which ends what the thread may still wait for
        if self._thread.is_alive():
            self._thread.join()

    def stop_soon(self) -> None:
        """Register nothing more; `stop` follows. Doesn't block."""
        self._stopping = True
        self._wake.set()

    @property
    def is_registered(self) -> bool:
        """Whether the broker's entry was there when it was last looked at; any thread."""
        return self._session.session_id is not None and self._path in self._registered

    def lease_of(self, life: int) -> Lease | None:
        """How long the broker is registered for certain; None if it is in another session."""
        session_id = self._session.session_id
        if session_id is None or as_life(session_id) != life:
            return None
        return self._session.lease(session_id)

    def stored_offsets(self, limit: int) -> tuple[dict[tuple[str, str, int], int], bool]:
        """Read what groups have stored of this broker's partitions; blocks, in any thread.

        Groups of Hermes' own clients, of Kafka 0.7's clients and of current Kafka clients. Returns
        up to `limit` offsets by group, topic and partition, and whether these are all.
        """
        found, are_all = read_stored_offsets(self._session, self._broker_id, limit)
        of_kafka, are_all_too = read_committed(self._session, self._broker_id, limit - len(found))
        # Of a name that groups of both kinds have, what Hermes' has stored.
        return of_kafka | found, are_all and are_all_too

    def listeners_of_brokers(self) -> dict[int, BrokerListeners]:
        """Read where the brokers that live listen, by id; blocks, in any thread."""
        return read_listeners(self._session, lambda fault: _log.debug("left out: %s", fault))

    def node(self, path: str) -> Node | None:
        """Read any node; blocks, in any thread."""
        return self._session.get(path)

    def topic_created(self, topic: str, partitions: int, *, holds_records: bool = False) -> None:
        with self._lock:
            (self._record_topics if holds_records else self._topics)[topic] = partitions
        self._wake.set()

    def topic_deleted(self, topic: str, topic_id: UUID | None = None) -> None:
        """Deregister a topic, soon.

        `topic_id` is its UUID, if it may be among the cluster's topics and nobody else in this
        process keeps up with it there: it is deleted there, too.
        """
        with self._lock:
            if topic_id is not None:
                self._left[topic_id] = topic
            if self._topics.pop(topic, None) is not None:
                self._withdrawn.add(topic_path(topic, self._broker_id))
            if self._record_topics.pop(topic, None) is not None:
                self._withdrawn.add(record_topic_path(topic, self._broker_id))
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
            except Exception as error:
                if self._stopping:
                    return
                problem = self._problem(error, problem)

    def _problem(self, error: Exception, before: str) -> str:
        """Say what is wrong, unless that was said before; another fault must not end it all."""
        problem = str(error) or repr(error)
        if problem != before and isinstance(error, CoordinationError):
            _log.warning("broker %d is not registered: %s", self._broker_id, error)
        elif problem != before:
            _log.exception("broker %d is not registered: %s", self._broker_id, problem)
        return problem

    def _register_at_start(self) -> None:
        """Register, in spite of connections that are lost and of what an earlier life has left."""
        deadline = time.monotonic() + 1.5 * self._session.timeout_seconds
        in_use: IdInUseError | None = None
        problem: CoordinationError | None
        said = ""
        while True:
            try:
                other = self._register(self._registered)
                problem = in_use = other and self._in_use(other)
            except CoordinationUnavailableError as error:  # perhaps it was done: look again
                problem = in_use or error  # who has the id says more than a lost connection
            if problem is None:
                return
            left = deadline - time.monotonic()
            if left <= 0 or self._stopping:
                raise problem
            if said != str(problem):
                said = str(problem)
                hint = "; if that was this one, it waits for that session's end" if in_use else ""
                _log.info(
                    "retrying to register broker %d, for up to %d s: %s",
                    *(self._broker_id, round(left), f"{problem}{hint}"),
                )
            self._wake.wait(min(left, _RETRY_SECONDS))
            self._wake.clear()

    def _converge(self) -> None:
        if self._session.session_id is None:
            return  # woken again once there is a connection
        registered = self._registered
        if self._path not in registered:
            other = self._register(registered)
            if other is not None:
                raise self._in_use(other)
        wanted = self._wanted()
        with self._lock:
            withdrawn = self._withdrawn - wanted.keys()
        for path in withdrawn:
            if self._stopping:
                return
            self._session.delete_own(path)
            registered.pop(path, None)
            with self._lock:
                self._withdrawn.discard(path)
        missing = [each for each in wanted.items() if registered.get(each[0]) != each[1]]
        self._delete_stale_topics()
        problems: list[CoordinationError] = []
        for first in range(0, len(missing), _TRANSACTION_TOPICS):
            if self._stopping:
                return
            some = dict(missing[first : first + _TRANSACTION_TOPICS])
            self._register_topics(some, registered, problems)
        if problems:
            raise problems[0]
        if not self.cluster_id:
            if self._is_user:  # or the first who needs one would own it, or may not make it
                for path in SHARED:
                    self._session.ensure_path(path)
            self.cluster_id = cluster_id(self._session)

    def _delete_stale_topics(self) -> None:
        """Delete the cluster's nodes of topics that this broker no longer has.

        They are there if this broker has served clients of Kafka's in an earlier life.
        """
        with self._lock:
            left = dict(self._left)
        for topic_id, topic in left.items():
            if self._session.get(KAFKA_CHANGES) is not None:
                tree = TopicTree(self._session)

                def is_it(node: TopicNode, wanted: UUID = topic_id) -> bool:
                    return node.id == wanted

                try:
                    tree.delete(topic, is_it)
                    tree.has_deleted([topic_id], self._broker_id)
                except InvalidNodeError as fault:
                    _log.warning("left as it is: %s", fault)
            with self._lock:
                del self._left[topic_id]

    def _wanted(self) -> dict[str, bytes]:
        """What should be beside the broker's own entry, by path; what it listens on first."""
        with self._lock:
            topics = list(self._topics.items())
            record_topics = list(self._record_topics.items())
        number = self._broker_id
        return (
            self._listeners
            | {topic_path(name, number): format_number(count) for name, count in topics}
            | {
                record_topic_path(name, number): format_number(count)
                for name, count in record_topics
            }
        )

    def _register(self, registered: dict[str, bytes]) -> Node | None:
        """Register the broker itself; returns what another has registered instead."""
        # Nobody else can listen where this broker does, so an entry with its address is one that
        # it has left behind: its session has not expired yet. That one is replaced.
        session_id = self._session.session_id
        if session_id is not None:
            self._on_session(session_id)
        while True:
            if self._session.get(self._path) is None:
                self._register_with_topics(registered)
            other = self._session.create_ephemeral(self._path, self._value)
            if other is None:
                self._session.get(self._path, watch=True)  # if it is taken away, we want to know
                registered[self._path] = self._value
                return None
            if _address(self._path, other) != _address(self._path, Node(self._value, 0, 0)):
                if self._session.get(self._path, watch=True) is None:
                    continue  # it has just gone
                return other
            _log.warning("replacing what an earlier broker %d has left", self._broker_id)
            self._session.delete(self._path, other.version)

    def _register_with_topics(self, registered: dict[str, bytes]) -> None:
        """Register the broker, its listeners and first topics at once, if nothing is in the way."""
        values = dict(islice(self._wanted().items(), _TRANSACTION_TOPICS))
        self._session.ensure_path(BROKER_IDS)
        self._ensure_parents()
        try:
            operations = self._operations(values)
        except InvalidNodeError:
            return  # of one topic; they will follow each for itself
        # Should another have the id by now, nothing of all this is done.
        operations.append(("create", self._path, self._value, None, True))
        results = self._session.transact(partial(_fill, operations))
        if not any(isinstance(each, Exception) for each in results):
            registered.update(values)

    def _register_topics(
        self,
        values: Mapping[str, bytes],
        registered: dict[str, bytes],
        problems: list[CoordinationError],
    ) -> None:
        """Register topics in one transaction, or in smaller ones if something is in the way.

        `registered` gets those that are, `problems` what is wrong with the others.
        """
        try:
            self._transact(values)
            registered.update(values)
        except CoordinationUnavailableError:
            raise
        except CoordinationError as error:
            if len(values) == 1:
                problems.append(error)
                return
            each = list(values.items())
            for half in (each[: len(each) // 2], each[len(each) // 2 :]):
                self._register_topics(dict(half), registered, problems)

    def _transact(self, values: Mapping[str, bytes]) -> None:
        self._ensure_parents()
        errors: list[Any] = []
        for _ in range(_TRIES):
            operations = self._operations(values)
            if not operations:
                return
            results = self._session.transact(partial(_fill, operations))
            errors = [each for each in results if isinstance(each, Exception)]
            if not errors:
                return
        raise CoordinationError(f"{next(iter(values))}: ZooKeeper refuses it: {errors!r:.200}")

    def _ensure_parents(self) -> None:
        parents = {BROKER_TOPICS: True, HERMES_BROKERS: self._listeners}
        for path, is_needed in {**parents, RECORD_TOPICS: self._record_topics}.items():
            if is_needed:
                self._session.ensure_path(path)

    def _operations(self, values: Mapping[str, bytes]) -> list[_Operation]:
        found = dict(zip(values, self._session.get_all(list(values)), strict=True))
        parents = {path: path.rpartition("/")[0] for path in values if found[path] is None}
        has_parent = self._session.get_all(list(parents.values()))
        operations: list[_Operation] = [
            ("create", parent)
            for parent, node in zip(parents.values(), has_parent, strict=True)
            if node is None
        ]
        for path, value in values.items():
            node = found[path]
            if node is not None and node.owner == self._session.session_id:
                if node.value != value:
                    operations.append(("set_data", path, value, node.version))
                continue
            # The id is ours by now, so whatever has it is ours, from an earlier session.
            if node is not None:
                operations.append(("delete", path, node.version))
            operations.append(("create", path, value, None, True))
        return operations

    def _in_use(self, other: Node) -> IdInUseError:
        where = other.value.decode(errors="replace")
        return IdInUseError(
            f"broker id {self._broker_id} is in use: {self._path} is registered by "
            f"{quoted(where)}; give every broker a broker_id of its own"
        )


def _fill(operations: Iterable[_Operation], transaction: Any) -> None:
    for name, *arguments in operations:
        getattr(transaction, name)(*arguments)


def _address(path: str, node: Node) -> tuple[str, int] | None:
    try:
        broker: BrokerNode = parse_broker(path, node.value)
    except InvalidNodeError:
        return None
    return broker.host, broker.port
