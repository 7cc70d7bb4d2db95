"""Where producers learn which partitions a topic has, and which broker leads each.

By asking the brokers of a list, or from ZooKeeper.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from hermes.client import conversations
from hermes.client.sync_producer import SyncProducer
from hermes.coordination.cluster_view import NodeFaults, leaders_of, read_brokers
from hermes.coordination.sessions import Session
from hermes.errors import (
    SILENT,
    BrokerUnavailableError,
    CoordinationError,
    NotLeaderError,
    RoutingError,
)
from hermes.protocol import (
    NOBODY,
    ErrorCode,
    MetadataRequest,
    PartitionLeader,
    TopicMetadata,
    error_for,
)
from hermes.security import PLAIN, ClientSecurity

_log = logging.getLogger(__name__)

# How long an incomplete answer is used before the brokers are asked again.
_INCOMPLETE_SECONDS: Final = 1.0


class Target(NamedTuple):
    """A partition by its name, whose broker leads it unless others have copies.

    Number -1 lets the broker choose.
    """

    broker_id: int
    partition: int


class Brokers:
    """Producers by broker id. None is removed: sets may be on their way. Threads may share it."""

    def __init__(self, make: Callable[[str, int], SyncProducer]) -> None:
        self._make = make
        self._by_id: dict[int, tuple[tuple[str, int], SyncProducer]] = {}
        # Connections to brokers whose id isn't known (yet).
        self._strangers: dict[tuple[str, int], SyncProducer] = {}

    def __getitem__(self, broker_id: int) -> SyncProducer:
        """Raises NotLeaderError for `NOBODY`, and for a broker that isn't known (yet)."""
        found = self._by_id.get(broker_id)
        if found is None:
            who = "nobody leads it" if broker_id == NOBODY else f"broker {broker_id} isn't known"
            raise NotLeaderError(f"{who} at the moment")
        return found[1]

    def __iter__(self) -> Iterator[tuple[int, SyncProducer]]:
        return ((number, self._by_id[number][1]) for number in sorted(self._by_id))

    def __len__(self) -> int:
        return len(self._by_id)

    def place(self, broker_id: int, host: str, port: int) -> None:
        """Note where a broker is; one that has moved gets a new producer."""
        former, address = self._by_id.get(broker_id), (host, port)
        if former is not None and former[0] == address:
            return
        made = self._strangers.pop(address, None) or self._make(host, port)
        self._by_id[broker_id] = address, made
        if former is not None:
            _log.info("broker %d is now at %s:%d", broker_id, host, port)
            left = former[1].channel.connection
            if left.has_unanswered or left.may_have_lost:
                made.channel.connection.may_have_lost = True
            former[1].close()

    def at(self, address: tuple[str, int]) -> SyncProducer:
        for known, producer in self._by_id.values():
            if known == address:
                return producer
        if address not in self._strangers:
            self._strangers[address] = self._make(*address)
        return self._strangers[address]

    def settle(self) -> None:
        """Make sure that they have read what was sent; see `SyncProducer.barrier`.

        Raises BrokerUnavailableError, once, also when a connection has ended before that, and later
        messages went over another one.
        """
        for _, broker in self:
            connection = broker.channel.connection
            try:
                if connection.has_unanswered:
                    broker.barrier()
            finally:
                may_have_lost, connection.may_have_lost = connection.may_have_lost, False
            if may_have_lost:
                raise BrokerUnavailableError(
                    f"{broker.address} closed a connection before it had answered; requests "
                    "without an answer that were sent over it may be lost"
                )

    def close(self) -> None:
        for broker in (*self._strangers.values(), *(broker for _, broker in self)):
            broker.close()


class TopicPartitions(NamedTuple):
    """The partitions of a topic.

    Attributes:
        targets: ordered; where counts are not known, partition -1 of each broker.
        is_counted: whether the targets are all the partitions, so that keys can choose.
        why_not: what to do about it when they are not.
        leaders: who leads partitions that aren't led by the broker in their name, or `NOBODY`.
    """

    targets: tuple[Target, ...]
    is_counted: bool
    why_not: Exception | None = None
    leaders: Mapping[Target, int] = MappingProxyType({})

    def leader(self, target: Target) -> int:
        return self.leaders.get(target, target.broker_id)


class MetadataProvider(Protocol):
    """Knows the brokers and the partitions of topics. Threads call it at the same time."""

    def partitions(self, topic: str) -> TopicPartitions:
        """The topic's partitions now; never empty. Raises HermesError when none can be known."""

    def forget(self, topic: str) -> None: ...

    def close(self) -> None: ...


class BrokerListMetadata:
    """A list of brokers, each asked how many partitions it has for a topic.

    Args:
        partition_counts: partitions on each broker by topic, "*" for others; where a topic is
            there, no broker is asked.
        search: finds out which brokers there are, by id; None if the list says so itself.
    """

    def __init__(
        self,
        brokers: Brokers,
        partition_counts: Mapping[str, int],
        max_age_seconds: float,
        search: Callable[[], Mapping[int, tuple[str, int]]] | None = None,
    ) -> None:
        self._brokers = brokers
        self._partition_counts = partition_counts
        self._max_age_seconds = max_age_seconds
        self._lock = threading.Lock()
        self._known: dict[str, tuple[TopicPartitions, float]] = {}
        self._search = search
        self._found: Mapping[int, tuple[str, int]] = {}
        self._found_until = -math.inf

    def partitions(self, topic: str) -> TopicPartitions:
        known = self._known.get(topic)
        if known is None or time.monotonic() >= known[1]:
            with self._lock:
                known = self._known.get(topic)
                if known is None or time.monotonic() >= known[1]:
                    known = self._ask(topic, known[0] if known else None)
                    self._known[topic] = known
        return known[0]

    def forget(self, topic: str) -> None:
        """What was known stays in use while brokers don't answer."""
        with self._lock:
            known = self._known.get(topic)
            if known is not None:
                self._known[topic] = (known[0], time.monotonic())
                self._found_until = -math.inf

    def close(self) -> None:
        """The brokers belong to the producer."""

    def _ask(self, topic: str, before: TopicPartitions | None) -> tuple[TopicPartitions, float]:
        targets: list[Target] = []
        why_not: Exception | None = None
        copies: dict[int, PartitionLeader] = {}
        count = 0
        for broker_id, broker in self._asked():
            try:
                numbers, described = self._numbers(topic, broker)
            except SILENT as error:
                why_not = error
                continue
            if numbers is None:
                targets.append(Target(broker_id, -1))
                why_not = RoutingError(
                    f"broker {broker_id} at {broker.address} does not report its partitions, so a "
                    f"key can't choose one: set partition_counts for topic {topic!r}"
                )
            else:
                targets += (Target(broker_id, number) for number in numbers)
            if described is not None and described.leaders:
                count = max(count, described.partition_count)
                add_leaders(copies, described.leaders)
        now = time.monotonic()
        if copies:
            if len(copies) == count:  # then it doesn't matter who doesn't answer
                why_not = None
            targets = [each for each in targets if each.partition not in copies]
            targets = sorted([*targets, *(Target(each.home, n) for n, each in copies.items())])
            leaders = {Target(each.home, n): each.leader for n, each in copies.items()}
            if why_not is None:
                found = TopicPartitions(tuple(targets), True, None, leaders)
                return found, now + self._max_age_seconds
        if why_not is None:
            return TopicPartitions(tuple(targets), is_counted=True), now + self._max_age_seconds
        if before is not None and before.is_counted:
            _log.warning("using the known partitions of topic %r: %s", topic, why_not)
            return before, now + _INCOMPLETE_SECONDS
        if not targets:
            raise why_not
        if isinstance(why_not, RoutingError):
            # Random choice must treat brokers alike, whether they report their partitions or not.
            targets = [Target(number, -1) for number in dict(targets)]
            return TopicPartitions(tuple(targets), False, why_not), now + self._max_age_seconds
        return TopicPartitions(tuple(targets), False, why_not), now + _INCOMPLETE_SECONDS

    def _asked(self) -> Iterable[tuple[int, SyncProducer]]:
        """The brokers that may have partitions, by id; found first, where they must be."""
        if self._search is None:
            return self._brokers
        now = time.monotonic()
        if now >= self._found_until:
            try:
                self._found = self._search()
            except SILENT:
                if not self._found:
                    raise  # else each of those known is asked, and says so itself
            for broker_id, address in self._found.items():
                self._brokers.place(broker_id, *address)
            if len(self._found) == 1:  # there are no others that a wait for it would hold up
                (only,) = self._found
                self._brokers[only].channel.connection.hold_off_seconds = 0.0
            self._found_until = now + self._max_age_seconds
        return [(broker_id, self._brokers[broker_id]) for broker_id in sorted(self._found)]

    def _numbers(
        self, topic: str, broker: SyncProducer
    ) -> tuple[Sequence[int] | None, TopicMetadata | None]:
        """None when they can't be known; and what the broker says of the topic, if it was asked."""
        configured = self._partition_counts.get(topic, self._partition_counts.get("*"))
        if configured is not None:
            return range(configured), None
        channel = broker.channel
        if MetadataRequest.TYPE not in channel.versions():
            return None, None
        described = channel.run(conversations.metadata([topic])).topics[0]
        if described.partition_count > 0:
            return described.numbers, described
        raise error_for(described.error or ErrorCode.UNKNOWN_TOPIC, f"topic {topic!r}")


class ZooKeeperMetadata:
    """The partitions registered in ZooKeeper; read again on changes.

    As in Kafka 0.7, a topic that no broker has yet is sent to partition 0 of any of them.
    """

    def __init__(
        self,
        connect: str,
        brokers: Brokers,
        *,
        security: ClientSecurity = PLAIN,
        coordination_security: ClientSecurity = PLAIN,
        session_timeout_seconds: float,
        connection_timeout_seconds: float,
    ) -> None:
        self._brokers = brokers
        self._known: dict[str, TopicPartitions] = {}
        self._stale: dict[str, TopicPartitions] = {}
        self._changes = 0
        self._lock = threading.Lock()
        self._faults = NodeFaults(_log, "the producer's view of the brokers")
        self._security = security
        self._session = Session(
            connect,
            security=coordination_security,
            session_timeout_seconds=session_timeout_seconds,
            connection_timeout_seconds=connection_timeout_seconds,
            on_change=self._changed,
        )
        self._session.start(_log.warning)

    def partitions(self, topic: str) -> TopicPartitions:
        """What was known stays in use while ZooKeeper doesn't answer."""
        known = self._known.get(topic)
        if known is not None:
            return known
        with self._lock:
            known = self._known.get(topic)
            return known if known is not None else self._learn(topic)

    def forget(self, topic: str) -> None:
        known = self._known.pop(topic, None)
        if known is not None:
            self._stale[topic] = known

    def close(self) -> None:
        self._session.stop()

    def _changed(self) -> None:
        """Called in kazoo's threads, so nothing may wait here."""
        self._changes += 1
        for topic in list(self._known):
            self.forget(topic)

    def _learn(self, topic: str) -> TopicPartitions:
        changes, before = self._changes, self._stale.get(topic)
        if before is not None and self._session.session_id is None:
            return before  # when the connection is back, `_changed` is called
        try:
            partitions = self._read(topic)
        except (CoordinationError, BrokerUnavailableError) as error:  # a broker may be restarting
            if before is None:
                raise
            _log.warning("using the known partitions of topic %r: %s", topic, error)
            return before
        self._stale[topic] = self._known[topic] = partitions
        if changes != self._changes:  # looked at last: what changes from now on forgets it
            self.forget(topic)
        return partitions

    def _read(self, topic: str) -> TopicPartitions:
        note = self._faults.note
        brokers = read_brokers(self._session, note, watch=True, security=self._security)
        led = leaders_of(self._session, topic, note, watch=True)
        for broker_id, node in brokers.items():
            self._brokers.place(broker_id, node.host, node.port)
        leaders = {
            Target(*each): leader for each, leader in led.items() if leader != each.broker_id
        }
        targets = [
            each
            for each in (Target(*name) for name in led)
            if each.broker_id in brokers or each in leaders
        ]
        if not targets:
            targets = [Target(broker_id, 0) for broker_id in brokers]
        if not targets:
            raise BrokerUnavailableError(
                f"no broker is registered in ZooKeeper, for topic {topic!r}"
            )
        return TopicPartitions(tuple(targets), is_counted=True, leaders=leaders)


def add_leaders(known: dict[int, PartitionLeader], told: Iterable[PartitionLeader]) -> None:
    """Keep what is known best of a topic's leaders, by partition: that of the largest epoch."""
    for each in told:
        before = known.get(each.partition)
        if before is None or before.epoch < each.epoch:
            known[each.partition] = each
