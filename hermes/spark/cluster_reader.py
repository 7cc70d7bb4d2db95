"""Brokers, topics and partitions as a driver sees them, asked again when a broker doesn't answer.

One `ClusterReader` serves one planning, or one stream for as long as it runs. Brokers are found in
ZooKeeper, or are all listed; what one can't answer within the retries is the caller's error.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from hermes.client import EARLIEST, AppendTime, SimpleConsumer
from hermes.client.topic_metadata import add_leaders
from hermes.coordination.cluster_view import (
    NodeFaults,
    leaders_of,
    read_brokers,
    read_topics,
)
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition, GroupPaths, check_node_name
from hermes.coordination.sessions import Session
from hermes.errors import (
    SILENT,
    BrokerUnavailableError,
    CoordinationError,
    GroupActiveError,
    HermesError,
    NotLeaderError,
    OffsetOutOfRangeBrokerError,
    RoutingError,
    is_retriable,
)
from hermes.protocol import NOBODY, AppendTimesRequest, BoundaryRequest, PartitionLeader
from hermes.spark import broker_metadata
from hermes.spark.broker_metadata import Bounds
from hermes.spark.offsets import Offsets, TopicPartition
from hermes.spark.options import ConnectionOptions, RetryOptions

T = TypeVar("T")


_log = logging.getLogger(__name__)


def _with_copies(
    found: Mapping[int, Sequence[int]], leaders: Mapping[int, PartitionLeader]
) -> dict[int, Sequence[int]]:
    """Partitions by the brokers in their names, also those of which brokers have copies."""
    if not leaders:
        return dict(found)
    numbers = {broker_id: set(some) - set(leaders) for broker_id, some in found.items()}
    for number, each in leaders.items():
        numbers.setdefault(each.home, set()).add(number)
    return {broker_id: sorted(some) for broker_id, some in numbers.items()}


class ClusterReader:
    """The brokers of an address. Not for several threads.

    Every method raises, when the retries are used up: BrokerUnavailableError, BrokerTimeoutError,
    CoordinationUnavailableError, or the BrokerError that the broker answered with.
    """

    def __init__(self, address: ConnectionOptions, retries: RetryOptions) -> None:
        self._address = address
        self._retries = retries
        self._settings: dict[str, Any] | None = None
        self._session: Session | None = None
        self._consumers: dict[tuple[str, int], SimpleConsumer] = {}
        self._known: dict[int, tuple[str, int]] = {}
        self._leaders: dict[str, dict[TopicPartition, int]] = {}
        self._faults = NodeFaults(_log, "the cluster as ZooKeeper has it")

    # -- brokers and partitions -----------------------------------------------------------------

    def brokers(self) -> dict[int, tuple[str, int]]:
        """Where each broker listens now, by id. RoutingError for a Kafka 0.7, or two of an id."""
        return self._retried(self._learn)

    @property
    def are_listed(self) -> bool:
        return not self._address.zookeeper

    def topics(self) -> list[str]:
        if self._address.zookeeper:
            return self._retried(lambda: read_topics(self._zookeeper()))
        described = (
            self.ask(number, broker_metadata.topics) for number in self._retried(self._brokers)
        )
        return sorted({topic for topics in described for topic in topics})

    def partitions(
        self, topics: Iterable[str], *, whole: bool = False
    ) -> dict[str, list[TopicPartition]]:
        """Of each topic the partitions on the brokers that exist now, sorted; [] if it is unknown.

        Brokers that are listed are asked once for all topics. With `whole` they must have all of a
        topic's partitions between them, where they know how many a topic has in their cluster; else
        RoutingError.
        """
        topics = list(topics)
        found: dict[str, Mapping[int, Sequence[int]]] = {topic: {} for topic in topics}
        counts = dict.fromkeys(topics, 0)
        copies: dict[str, dict[int, PartitionLeader]] = {topic: {} for topic in topics}
        if self._address.zookeeper:
            for topic in topics:
                found[topic] = self._retried(partial(self._registered, topic))
        elif topics:
            for number in self._retried(self._brokers):
                shares = self.ask(number, partial(broker_metadata.shares, topics=topics))
                for topic, share in shares.items():
                    found[topic] = {**found[topic], number: share.numbers}
                    counts[topic] = max(counts[topic], share.total)
                    add_leaders(copies[topic], share.leaders)
            for topic, leaders in copies.items():
                found[topic] = _with_copies(found[topic], leaders)
            if whole:
                self._check_whole(found, counts)
        return {
            topic: [
                TopicPartition(topic, broker_id, number)
                for broker_id, numbers in sorted(found[topic].items())
                for number in numbers
            ]
            for topic in topics
        }

    # -- offsets --------------------------------------------------------------------------------

    def bounds(
        self, partitions: Iterable[TopicPartition], *, may_lack: bool = False
    ) -> dict[TopicPartition, Bounds | None]:
        """What partitions hold, as their brokers say; each broker is asked once.

        `may_lack` leaves out the partitions whose broker is unavailable: ZooKeeper lists a broker
        that was killed until its session times out. Of brokers that are listed all are needed.

        Returns:
            None for one that doesn't exist: a broker that starts is in ZooKeeper some moments
            before its topics are. Kafka 0.7 can't be asked for that, and is taken to have it.
        """
        found: dict[TopicPartition, Bounds | None] = {}
        by_broker: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            by_broker.setdefault(self.leader(each), []).append(each)
        for broker_id, listed in by_broker.items():
            try:
                found |= self._retried(partial(self._bounds, listed))
            except SILENT as error:
                if not (may_lack and self._address.zookeeper):
                    raise
                _log.warning("broker %d is registered, but unavailable: %s", broker_id, error)
        return found

    def _bounds(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Bounds | None]:
        """Ask once: who leads them may have changed since they were put together."""
        by_broker: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            by_broker.setdefault(self._leader(each), []).append(each)
        found: dict[TopicPartition, Bounds | None] = {}
        for broker_id, listed in by_broker.items():
            found |= broker_metadata.bounds(self._consumer(broker_id), listed)
        return found

    def earliest(self, partition: TopicPartition) -> int:
        """The first offset of a partition; 0 before anything was written to it."""
        return self._offset_before(partition, EARLIEST) or 0

    def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        """Where the messages appended at a time (ms since 1970) or later begin."""
        if time_ms <= 0:
            return self.earliest(partition)  # the time before would be one of the special ones
        found = self._offset_before(partition, time_ms - 1)
        return self.earliest(partition) if found is None else found

    def boundary(self, partition: TopicPartition, offset: int) -> int | None:
        """The largest offset, up to this one, where a message starts; None from Kafka 0.7."""

        def ask(consumer: SimpleConsumer) -> int | None:
            if not consumer.supports(BoundaryRequest.TYPE):
                return None
            return consumer.boundary_before(partition.topic, partition.partition, offset)

        return self.ask_leader(partition, ask)

    def append_times(
        self, partition: TopicPartition, start: int, end: int, interval_ms: int
    ) -> list[AppendTime]:
        """When a range was appended; nothing of Kafka 0.7, or if retention was quicker."""

        def ask(consumer: SimpleConsumer) -> list[AppendTime]:
            if not consumer.supports(AppendTimesRequest.TYPE):
                return []
            topic, number = partition.topic, partition.partition
            try:
                return consumer.append_times(topic, number, start, end, interval_ms)
            except OffsetOutOfRangeBrokerError:
                return []

        return self.ask_leader(partition, ask)

    def ask(self, broker_id: int, question: Callable[[SimpleConsumer], T]) -> T:
        """Ask a broker something that changes nothing, again if need be."""
        return self._retried(lambda: question(self._consumer(broker_id)))

    def ask_leader(self, partition: TopicPartition, question: Callable[[SimpleConsumer], T]) -> T:
        """The same of whoever leads a partition, also once another broker does."""
        return self._retried(lambda: question(self._consumer(self._leader(partition))))

    def leader(self, partition: TopicPartition) -> int:
        """The broker that leads a partition; -1 for nobody at the moment."""
        return self._retried(lambda: self._leader(partition))

    def address(self, partition: TopicPartition) -> tuple[str, int]:
        """Where a partition can be read now."""
        return self._retried(lambda: self._place(self._leader(partition)))

    def _leader(self, partition: TopicPartition) -> int:
        topic = partition.topic
        if topic not in self._leaders:
            self._leaders[topic] = self._read_leaders(topic)
        return self._leaders[topic].get(partition, partition.broker_id)

    def _read_leaders(self, topic: str) -> dict[TopicPartition, int]:
        if self._address.zookeeper:
            led = leaders_of(self._zookeeper(), topic, self._faults.note)
            return {TopicPartition(topic, *each): leader for each, leader in led.items()}
        known: dict[int, PartitionLeader] = {}
        failure: HermesError | None = None
        for number in self._brokers():
            try:
                share = broker_metadata.shares(self._consumer(number), [topic])[topic]
            except SILENT as error:  # others know it as well
                failure = error
            else:
                add_leaders(known, share.leaders)
        if failure is not None and not known:
            return {}
        return {TopicPartition(topic, each.home, n): each.leader for n, each in known.items()}

    # -- progress for monitoring ----------------------------------------------------------------

    def check_group(self, group: str) -> None:
        """Raise GroupActiveError if a group has members: its offsets are theirs."""
        check_node_name("groupId", group)
        if self._zookeeper().children(GroupPaths(group).ids):
            raise GroupActiveError(
                f"groupId: group {group!r} has members, whose offsets these are; choose another "
                "name"
            )

    def publish(self, group: str, offsets: Offsets) -> None:
        """Store offsets as a group's, for `hermes groups` and tools of Kafka 0.7.

        Nothing here ever reads them. What can't be stored, or is of a group that has members by
        now, is logged: the next time will do.
        """
        by_node = {
            (each.topic, BrokerPartition(each.broker_id, each.partition)): offset
            for each, offset in offsets.items()
        }
        try:
            store_offsets(self._zookeeper(), group, by_node)
        except CoordinationError as error:
            _log.warning("the progress of group %r is not published: %s", group, error)

    # -- within ---------------------------------------------------------------------------------

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()
        if self._session is not None:
            self._session.stop()
            self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _zookeeper(self) -> Session:
        if self._session is None:
            security = self._address.identity.coordination()
            session = Session(self._address.zookeeper, security=security)
            session.start()
            self._session = session
        return self._session

    def _registered(self, topic: str) -> Mapping[int, Sequence[int]]:
        led = leaders_of(self._zookeeper(), topic, self._faults.note)
        self._leaders[topic] = {
            TopicPartition(topic, *each): leader for each, leader in led.items()
        }
        found: dict[int, list[int]] = {}
        for each in led:
            found.setdefault(each.broker_id, []).append(each.partition)
        return found

    def _brokers(self) -> dict[int, tuple[str, int]]:
        return self._known or self._learn()

    def _learn(self) -> dict[int, tuple[str, int]]:
        if self._address.zookeeper:
            nodes = read_brokers(
                self._zookeeper(), self._faults.note, security=self._address.identity.security()
            )
            self._known = {number: (node.host, node.port) for number, node in nodes.items()}
        else:
            self._known = self._listed()
        if not self._known:
            raise BrokerUnavailableError(
                f"no broker is registered in ZooKeeper at {self._address.zookeeper}"
            )
        return self._known

    def _consumer(self, broker_id: int) -> SimpleConsumer:
        return self._connected(self._place(broker_id))

    def _place(self, broker_id: int) -> tuple[str, int]:
        if broker_id == NOBODY:
            raise NotLeaderError("nobody leads the partition at the moment")
        address = self._brokers().get(broker_id) or self._learn().get(broker_id)
        if address is None:
            known = ", ".join(map(str, self._known))
            raise BrokerUnavailableError(f"there is no broker {broker_id} now, but {known}")
        return address

    def _connected(self, address: tuple[str, int]) -> SimpleConsumer:
        if address not in self._consumers:
            if self._settings is None:
                self._settings = self._address.identity.security().settings()
            self._consumers[address] = SimpleConsumer(*address, **self._settings)
        return self._consumers[address]

    def _listed(self) -> dict[int, tuple[str, int]]:
        found: dict[int, tuple[str, int]] = {}
        for address in self._address.bootstrap:
            broker_id = broker_metadata.broker_id(self._connected(address))
            if broker_id in found:
                one, other = (f"{host}:{port}" for host, port in (found[broker_id], address))
                raise RoutingError(
                    f"{one} and {other} both say that they are broker {broker_id}: name each "
                    "broker once in hermes.bootstrap.servers, and give each its own id"
                )
            found[broker_id] = address
        return dict(sorted(found.items()))

    def _check_whole(
        self, found: Mapping[str, Mapping[int, Sequence[int]]], counts: Mapping[str, int]
    ) -> None:
        for topic, numbers in found.items():
            listed = {number for some in numbers.values() for number in some}
            if len(listed) < counts[topic]:
                raise RoutingError(
                    f"topic {topic!r} has {counts[topic]} partitions, of which the listed brokers "
                    f"have {len(listed)}: name the other brokers of the cluster in "
                    "hermes.bootstrap.servers, too, or give hermes.zookeeper instead. If they are "
                    "gone for good, choose partitions by assign"
                )

    def _offset_before(self, partition: TopicPartition, time_ms: int) -> int | None:
        def ask(consumer: SimpleConsumer) -> list[int]:
            return consumer.get_offsets_before(partition.topic, partition.partition, time_ms)

        return next(iter(self.ask_leader(partition, ask)), None)

    def _retried(self, attempt: Callable[[], T]) -> T:
        for left in range(self._retries.times, -1, -1):
            try:
                return attempt()
            except HermesError as error:
                if not left or not is_retriable(error):
                    raise
            threading.Event().wait(self._retries.seconds)
            self._leaders.clear()
            if self._address.zookeeper:
                self._known = {}  # the broker may be elsewhere by now
        raise AssertionError("the last attempt returns or raises")
