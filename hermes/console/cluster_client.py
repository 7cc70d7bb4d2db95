"""Connections of the console to brokers and coordination.

Made when first needed, shared by the console's threads. A broker that could not be reached is left
alone for a moment, so that it doesn't hold up every page.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

from hermes.client import SimpleConsumer, SyncProducer
from hermes.client.kafka_groups import ElsewhereError, KafkaGroups
from hermes.client.kafka_replicas import KafkaReplicas
from hermes.config.addresses import BrokerAddress
from hermes.coordination.cluster_view import read_brokers, read_listeners, suitable_listeners
from hermes.coordination.sessions import Session
from hermes.errors import (
    BrokerNotTrustedError,
    ClientError,
    CoordinationError,
    HermesError,
    InvalidNodeError,
    NotAuthenticatedError,
)
from hermes.protocol import BrokerMetadata, MetadataRequest, TopicMetadata
from hermes.security import PLAIN, ClientSecurity

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_TIMEOUT_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 2.0
# How long a broker, or coordination, that failed is not asked again.
_LEFT_ALONE_SECONDS: Final = 5.0
# How long it may take until a broker that has come or gone is noticed.
_REGISTERED_SECONDS: Final = 5.0
_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class BrokerState:
    """What one broker answered; `metadata` is None if there was an error.

    `broker_id`: -1 while it isn't known. `is_registered`: whether coordination lists it.
    """

    broker_id: int
    address: BrokerAddress
    metadata: BrokerMetadata | None
    error: str = ""
    is_registered: bool = False

    @property
    def topics(self) -> Sequence[TopicMetadata]:
        return self.metadata.topics if self.metadata else ()

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for topic in self.topics for each in topic.partitions)

    def supports(self, request_type: int) -> bool:
        versions = self.metadata.request_versions if self.metadata else ()
        return any(number == request_type for number, _ in versions)


class _Failure(NamedTuple):
    at: float
    error: HermesError


class ClusterClient:
    """A broker and those registered beside it, or all brokers of a ZooKeeper.

    Methods may block, and may be called in any thread.

    Args:
        broker: a broker's address; None if `zookeeper` is given.
        zookeeper: where brokers register; empty to ask the broker.
        security: for the given broker, and for all else unless the next two say otherwise.
        elsewhere: makes the security for other brokers; may block, and raise HermesError.
        coordination: makes the ZooKeeper address (empty for none) and its security; likewise.
        broker_id: of the given broker, if known: it is then asked at that address alone, however
            it is registered.
        kafka: where that broker serves Kafka's clients, and the security for that; None to look it
            up in coordination.
    """

    def __init__(
        self,
        broker: BrokerAddress | None,
        zookeeper: str = "",
        clock: Callable[[], float] = time.monotonic,
        *,
        security: ClientSecurity = PLAIN,
        elsewhere: Callable[[], ClientSecurity] | None = None,
        coordination: Callable[[], tuple[str, ClientSecurity]] | None = None,
        broker_id: int | None = None,
        kafka: tuple[str, int, ClientSecurity] | None = None,
    ) -> None:
        self._broker = broker
        self._zookeeper = zookeeper
        self._clock = clock
        self._security = security
        self._elsewhere = elsewhere or (lambda: security)
        self._coordination = coordination or self._asked_coordination
        self._broker_id = broker_id
        self._kafka = kafka
        self._lock = threading.Lock()
        self._session_lock = threading.Lock()
        self._consumers: dict[BrokerAddress, SimpleConsumer] = {}
        self._failures: dict[object, _Failure] = {}
        self._session: Session | None = None
        self._registered: tuple[float, dict[int, BrokerAddress]] = (-_REGISTERED_SECONDS, {})
        self._pool: ThreadPoolExecutor | None = None
        self._is_closed = False
        self.faults: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self._broker) if self._broker else self._zookeeper

    # -- brokers --------------------------------------------------------------------------------

    def read(self, topics: Sequence[str] | None = None) -> list[BrokerState]:
        """Ask all brokers for the metadata of topics (None for all), in parallel.

        Returns a state for each broker, by id, also for those that don't answer.
        """
        registered = self._registered_brokers()
        addresses = dict.fromkeys(registered.values())
        if self._broker is not None:
            addresses = {self._broker: None, **addresses}
        ids = {address: broker_id for broker_id, address in registered.items()}

        def ask(address: BrokerAddress) -> BrokerState:
            return self._ask(address, ids.get(address, -1), topics)

        states: dict[int, BrokerState] = {}
        unknown: list[BrokerState] = []
        for state in self._side_by_side(ask, list(addresses)):
            if state.broker_id < 0:
                unknown.append(state)
            # The broker that was given is also among the registered ones, maybe by another name.
            elif state.broker_id not in states:
                states[state.broker_id] = state
        found = [*unknown, *(states[number] for number in sorted(states))]
        return [replace(each, is_registered=each.broker_id in registered) for each in found]

    def consumer(self, address: BrokerAddress) -> SimpleConsumer:
        """The shared connection to a broker; short requests only."""
        with self._lock:
            self._check_open()
            if address not in self._consumers:
                self._consumers[address] = self.own_consumer(address)
            return self._consumers[address]

    def own_consumer(self, address: BrokerAddress) -> SimpleConsumer:
        """A new connection for long requests, which the caller closes."""
        return self._client(SimpleConsumer, address)

    def own_producer(self, address: BrokerAddress) -> SyncProducer:
        """A new connection for messages, which the caller closes."""
        return self._client(SyncProducer, address)

    def _client(self, kind: Callable[..., _T], address: BrokerAddress) -> _T:
        security = self._security if address == self._broker else self._elsewhere()
        return kind(
            *address,
            timeout_seconds=_TIMEOUT_SECONDS,
            connect_timeout_seconds=_CONNECT_SECONDS,
            **security.settings(),
        )

    def ask(self, address: BrokerAddress, question: Callable[[SimpleConsumer], _T]) -> _T:
        """Ask a broker something, unless it failed a moment ago: that error is raised again."""
        return self._sparing(address, lambda: self._asked(address, question))

    def _asked(self, address: BrokerAddress, question: Callable[[SimpleConsumer], _T]) -> _T:
        consumer = self.consumer(address)
        try:
            return question(consumer)
        except (NotAuthenticatedError, BrokerNotTrustedError):
            # A password or a certificate may be another one by now: the next connection reads it.
            with self._lock:
                if self._consumers.get(address) is consumer:
                    del self._consumers[address]
            consumer.close()
            raise

    def _ask(
        self, address: BrokerAddress, broker_id: int, topics: Sequence[str] | None
    ) -> BrokerState:
        try:
            metadata = self.ask(address, lambda consumer: _metadata(consumer, topics))
        except HermesError as error:
            return BrokerState(broker_id, address, None, str(error))
        return BrokerState(metadata.broker_id, address, metadata)

    def _side_by_side(
        self, ask: Callable[[BrokerAddress], BrokerState], addresses: Sequence[BrokerAddress]
    ) -> list[BrokerState]:
        if len(addresses) < 2:
            return [ask(address) for address in addresses]
        with self._lock:
            self._check_open()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "hermes-console-brokers")
            pool = self._pool
        return list(pool.map(ask, addresses))

    def _registered_brokers(self) -> dict[int, BrokerAddress]:
        """The brokers that coordination lists; while it doesn't answer, what was known, or none."""
        read_at, known = self._registered
        if self._clock() - read_at < _REGISTERED_SECONDS:
            return known
        faults: list[str] = []
        try:
            nodes = read_brokers(
                self.session(),
                lambda fault: faults.append(str(fault)),
                security=self._elsewhere(),
            )
        except HermesError:
            return known  # whoever asks for the session says why
        self.faults = tuple(faults)
        found = {number: BrokerAddress(node.host, node.port) for number, node in nodes.items()}
        if self._broker is not None and self._broker_id in found:
            found[self._broker_id] = self._broker
        self._registered = self._clock(), found
        return found

    def elsewhere(self) -> ClientSecurity:
        return self._elsewhere()

    @property
    def own(self) -> tuple[int, tuple[str, int], ClientSecurity] | None:
        if self._broker is None or self._broker_id is None:
            return None
        return self._broker_id, (self._broker.host, self._broker.port), self._security

    # -- coordination ---------------------------------------------------------------------------

    def session(self) -> Session:
        """The session with ZooKeeper, started when first needed. Raises HermesError."""
        if self._session is not None:
            return self._session
        with self._session_lock:
            if self._session is None:
                self._session = self._sparing("session", self._start_session)
            return self._session

    def coordination_error(self) -> str:
        """Why groups can't be shown; empty when they can."""
        try:
            self.session()
        except HermesError as error:
            return str(error)
        return ""

    def _start_session(self) -> Session:
        self._check_open()
        connect, security = self._coordination()
        if not connect:
            raise CoordinationError("there is no coordination")
        session = Session(
            connect,
            security=security,
            session_timeout_seconds=10.0,
            connection_timeout_seconds=5.0,
        )
        session.start()
        return session

    def _asked_coordination(self) -> tuple[str, ClientSecurity]:
        if self._zookeeper:
            return self._zookeeper, self._security
        assert self._broker is not None
        return self.consumer(self._broker).coordination(), self._security

    # -- by Kafka's protocol --------------------------------------------------------------------

    def with_kafka_groups(self, work: Callable[[KafkaGroups], _T]) -> _T:
        """Do something with the coordinators of groups of Kafka's clients.

        `work` is called a second time where the given broker doesn't have what it asks for and
        others may. It must change nothing before that turns out. Raises HermesError: what `work`
        raises; or no coordinator can be reached.
        """
        if self._kafka is not None:
            host, port, security = self._kafka
            own = KafkaGroups([(host, port)], _TIMEOUT_SECONDS, security, is_alone=True)
            with closing(own):
                try:
                    return work(own)
                except ElsewhereError:
                    pass  # it is another broker's
        places, brings = self._kafka_places("groups of Kafka's clients are changed through it")
        with closing(KafkaGroups(places, _TIMEOUT_SECONDS, brings)) as groups:
            return work(groups)

    def with_kafka_replicas(self, work: Callable[[KafkaReplicas], _T]) -> _T:
        """Do something with brokers that have copies, or may change who has. Raises as above."""
        if self._kafka is not None:
            host, port, security = self._kafka
            places, elsewhere = [(host, port)], self._elsewhere()
        else:
            places, security = self._kafka_places("copies are looked at and changed through it")
            elsewhere = security
        asked = KafkaReplicas(places, _TIMEOUT_SECONDS, security, elsewhere)
        with closing(asked) as replicas:
            return work(replicas)

    def _kafka_places(self, purpose: str) -> tuple[list[tuple[str, int]], ClientSecurity]:
        brings = self._elsewhere()
        found = read_listeners(self.session(), lambda fault: None)
        nodes = [node for each in found.values() for node in suitable_listeners(each.kafka, brings)]
        if not nodes:
            raise ClientError(
                f"no registered broker has a kafka_listen for this console: {purpose}"
            )
        return [(each.host, each.port) for each in nodes], brings

    # -- both -----------------------------------------------------------------------------------

    def _sparing(self, whom: object, ask: Callable[[], _T]) -> _T:
        failure = self._failures.get(whom)
        if failure is not None and self._clock() - failure.at < _LEFT_ALONE_SECONDS:
            raise failure.error
        try:
            answer = ask()
        except (ClientError, CoordinationError) as error:
            if not isinstance(error, InvalidNodeError):
                self._failures[whom] = _Failure(self._clock(), error)
            raise
        self._failures.pop(whom, None)
        return answer

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientError("the console is being stopped")

    def close(self) -> None:
        """Disconnect; calls of other threads end with an error. Idempotent."""
        with self._lock:
            self._is_closed = True
            consumers, pool = list(self._consumers.values()), self._pool
        for consumer in consumers:
            consumer.close()
        with self._session_lock:
            if self._session is not None:
                self._session.stop()
        if pool is not None:
            pool.shutdown()


def _metadata(consumer: SimpleConsumer, topics: Sequence[str] | None) -> BrokerMetadata:
    if not consumer.supports(MetadataRequest.TYPE):
        raise ClientError("a broker of Kafka 0.7: it can't be asked for its topics")
    return consumer.metadata(topics)
