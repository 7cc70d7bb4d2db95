"""The topics as Kafka's clients see them: a UUID each, and partitions numbered through.

A partition of Hermes is a broker's own; Kafka's clients know one number for all brokers. A
`ClusterTopic` maps their numbers to places: a broker, and its own number of the partition. It only
ever grows, so that a key keeps its place.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from hermes.cluster.shared import Shared
from hermes.config.kinds import FORMAT_KAFKA
from hermes.coordination.kafka_topics import TopicNode
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.listeners import BrokerListeners, ListenerNode
from hermes.coordination.throttles import Throttle
from hermes.errors import (
    HermesError,
    NotLeaderError,
    StorageError,
    UnknownTopicError,
    WrongPartitionError,
)
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.partition.partition import Partition
from hermes.quoting import quoted
from hermes.replication.state import PartitionState, TopicReplicas
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import settled
from hermes.storage import Log

#: The name space of the UUIDs of topics that keep none: Kafka 0.7's, without coordination.
_NAMES: Final = UUID("0d1f86bc-53a4-5d0c-8a35-3fd1a0b5f5d7")


class ClusterTopic(NamedTuple):
    """One topic.

    Attributes:
        format: `0.7` or `kafka`.
        partitions: where each of Kafka's numbers is, from 0 on.
        keeps_id: whether it is the id that the topic has kept. Not of a topic that keeps none, nor
            where it can't be read: then there is another one meanwhile.
        copies: by Kafka's number who has copies, of the partitions that have, or had, several.
    """

    name: str
    id: UUID
    format: str
    partitions: tuple[BrokerPartition, ...]
    keeps_id: bool = True
    copies: tuple[PartitionState | None, ...] = ()

    def state(self, number: int) -> PartitionState | None:
        """Who has copies of a partition; None for one that never had several."""
        return self.copies[number] if 0 <= number < len(self.copies) else None

    def leader(self, number: int) -> int:
        """The broker that leads a partition, -1 for none; it need not live.

        Ask this, not the partition's place: that names where it was made, and never changes.
        """
        state = self.state(number)
        return self.partitions[number].broker_id if state is None else state.leader

    def replicas(self, number: int) -> tuple[int, ...]:
        """The brokers that have a copy, or are to get one; the preferred leader first."""
        state = self.state(number)
        return (self.partitions[number].broker_id,) if state is None else state.replicas

    def in_sync(self, number: int) -> tuple[int, ...]:
        """Those of the replicas that have all that is committed."""
        state = self.state(number)
        if state is None:
            return self.replicas(number)
        return tuple(each for each in state.replicas if each in state.isr)


class LiveBroker(NamedTuple):
    """A broker, as the clients of one listener reach it; `rack` is empty if it doesn't say."""

    id: int
    host: str
    port: int
    rack: str = ""


class ClusterTopics:
    """The topics, and the brokers that live. Lives in the reactor's thread.

    Without coordination they are this broker's own. With it they are what `use` is told; until then
    there are none.

    Args:
        listeners: tells where this broker listens.
        cluster_id: tells the cluster's UUID; empty while it isn't known.

    Attributes:
        is_known: whether it is known which topics there are.
        revision: another number whenever topics or their partitions have changed.
        lives: of the brokers that are registered the session in which each is.
        throttles: how fast brokers make copies, of those for which it is set.
    """

    def __init__(
        self,
        shared: Shared,
        listeners: Callable[[], BrokerListeners],
        cluster_id: Callable[[], str],
        *,
        has_cluster: bool = False,
    ) -> None:
        self._shared = shared
        self._registry = shared.topics
        self._directory = shared.directory
        self._log = LimitedLog(ModuleLogger(), shared.clock.seconds)
        self._broker_id = shared.config.broker_id
        self._listeners = listeners
        self._cluster_id = cluster_id
        self._topics: dict[str, ClusterTopic] = {}
        self._by_id: dict[bytes, ClusterTopic] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}  # as long as nothing changes
        self._brokers: Mapping[int, BrokerListeners] = {}
        self._nodes: Mapping[str, TopicNode] = {}
        self._replicas: Mapping[str, TopicReplicas] = {}
        self._unreadable: Set[str] = frozenset()
        self._known_brokers: tuple[BrokerListeners, ListenerNode, list[LiveBroker]] | None = None
        self.revision = 0
        self._gone_observers: list[Callable[[str], None]] = []
        self.live = frozenset({self._broker_id})
        self.lives: Mapping[int, int] = {}
        self.throttles: Mapping[int, Throttle] = {}
        self.has_cluster = has_cluster
        self.is_known = not has_cluster
        if not has_cluster:
            for name in self._registry.names():
                self._look_at(name)
            self._registry.on_change(self._look_at)

    # -- what there is --------------------------------------------------------------------------

    @property
    def broker_id(self) -> int:
        return self._broker_id

    @property
    def cluster_id(self) -> str:
        return self._cluster_id()

    @property
    def controller_id(self) -> int:
        """The broker that takes admin requests: each does, so this one."""
        return self._broker_id

    @property
    def broker_ids(self) -> list[int]:
        """The brokers that live and serve Kafka's clients, ascending."""
        return sorted(self.live)

    def registered(self) -> Mapping[int, BrokerListeners]:
        """What the brokers that live say of themselves, those without Kafka's protocol, too."""
        return {**self._brokers, self._broker_id: self._listeners()}

    def brokers(self, asked: ListenerNode) -> Sequence[LiveBroker]:
        own = self._listeners()
        known = self._known_brokers
        if known is not None and known[0] is own and known[1] == asked:
            return known[2]
        found = []
        for broker_id, listeners in sorted(self.registered().items()):
            like = listeners.matching_kafka(asked)
            if like is not None:
                found.append(LiveBroker(broker_id, like.host, like.port, listeners.rack))
        self._known_brokers = own, asked, found
        return found

    def listeners(self) -> Sequence[ListenerNode]:
        return self._listeners().kafka

    def names(self) -> list[str]:
        return sorted(self._topics)

    def get(self, name: str) -> ClusterTopic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: UUID) -> ClusterTopic | None:
        return self._by_id.get(topic_id.bytes)

    def asked(self, topic: str | bytes | UUID) -> ClusterTopic | None:
        """A topic by what a request calls it: its name, or its id, perhaps as bytes."""
        if isinstance(topic, str):
            return self._topics.get(topic)
        return self._by_id.get(topic if isinstance(topic, bytes) else topic.bytes)

    def throttle_of(self, broker_id: int) -> tuple[float, float]:
        """Bytes a second that a broker sends of what it leads, and fetches, for moves."""
        leader, follower = self.throttles.get(broker_id, Throttle())
        return math.inf if leader is None else leader, math.inf if follower is None else follower

    def owns(self, topic: str, partition: int) -> bool:
        """Whether a partition is this broker's, by its own number; so is one of no known topic."""
        found = self._topics.get(topic) if self.has_cluster else None
        if found is None or found.format != FORMAT_KAFKA:
            return True
        state = found.state(partition)
        if state is not None:
            return self._broker_id in state.replicas
        return BrokerPartition(self._broker_id, partition) in found.partitions

    def check_here(self, topic: str, partition: int) -> None:
        """Raise NotLeaderError where a partition that there is has no place on this broker."""
        found = self._topics.get(topic)
        if found is None or self.owns(topic, partition):
            return
        if 0 <= partition < len(found.partitions):
            raise _elsewhere(found, partition)

    def led_by(self, topic: ClusterTopic, number: int) -> tuple[int, int] | None:
        """Who leads a partition, and in which epoch; None for one that never had several copies.

        This broker's own copy may know of a later epoch than what it has read of all topics.
        """
        state = topic.state(number)
        if state is None:
            return None
        copy = self._shared.partitions.get(topic.name, number)
        known = None if copy is None else copy.leadership
        if known is not None and known.epoch > state.epoch:
            return known.leader, known.epoch
        return state.leader, state.epoch

    def log(self, topic: str, number: int) -> Log:
        """The log of a partition by Kafka's number; made if it wasn't written to yet.

        Raises:
            UnknownTopicError, WrongPartitionError: there is none.
            NotLeaderError: another broker leads it.
            TooManyTopicsError, TopicBeingDeletedError, BrokerStoppingError, StorageError: the log
                can't be made now, or what lies in its place is another topic's.
        """
        found = self._topics.get(topic)
        if found is None:
            raise UnknownTopicError(f"there is no topic {quoted(topic)}")
        if not 0 <= number < len(found.partitions):
            count = len(found.partitions)
            raise WrongPartitionError(
                f"topic {quoted(topic)} has partitions 0 to {count - 1}, not {number}"
            )
        if found.state(number) is not None:
            return self._led(found, number)
        if found.leader(number) != self._broker_id:
            raise _elsewhere(found, number)
        partition = found.partitions[number].partition
        log = self._directory.get(topic, partition)
        if log is None:
            return self._make(found, partition)
        if self.has_cluster and log.topic_id != found.id:
            log.adopt_topic_id(found.id)
        if self.has_cluster and (
            log.format.name != found.format or (log.topic_id or found.id) != found.id
        ):
            raise StorageError(
                f"{log.name} is not of the topic that the cluster has by this name; move its "
                "directory away to go on with an empty partition"
            )
        return log

    def _led(self, topic: ClusterTopic, number: int) -> Log:
        """The log of a partition that has copies, if this broker leads it for certain."""
        copy = self._shared.partitions.get(topic.name, number)
        if copy is None or copy.leadership is None:
            raise NotLeaderError(
                f"partition {number} of topic {quoted(topic.name)} is led by broker "
                f"{topic.leader(number)}"
            )
        copy.leadership.check()
        return copy.log

    def partition(self, topic: str, number: int) -> Partition:
        """The partition whose log `log` finds; raises what that raises."""
        found = self._partitions.get((topic, number))
        if found is None or self._directory.get(topic, found.log.partition) is not found.log:
            found = self._shared.partitions.of(self.log(topic, number))
            self._partitions[topic, number] = found
        elif found.leadership is not None:
            found.leadership.check()
        return found

    def any_copy(self, topic: str, number: int) -> Partition:
        """The same, also where this broker's copy doesn't lead: for those who compare copies."""
        found = self._topics.get(topic)
        if found is None or found.state(number) is None:
            return self.partition(topic, number)
        copy = self._shared.partitions.get(topic, number)
        if copy is None:
            raise NotLeaderError(f"this broker has no copy of {quoted(topic)}-{number}")
        return copy

    def _make(self, topic: ClusterTopic, partition: int) -> Log:
        if topic.format == FORMAT_KAFKA:
            return self._registry.create_numbered(topic.name, partition, topic.id)
        return self._registry.for_produce(topic.name, partition)

    async def make(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Make directories of this broker's partitions. What fails is made when it is needed."""

        def make(pair: tuple[str, int]) -> Log | None:
            try:
                return self.log(*pair)
            except HermesError as error:
                self._log.warn(
                    "not made",
                    "{topic}-{number} can't be made now: {error}",
                    topic=pair[0],
                    number=pair[1],
                    error=error,
                )
                return None

        await settled(cooperatively(self._shared.scheduler, partitions, make))

    def sizes(self, name: str, numbers: Collection[int] | None) -> list[tuple[int, int, int]]:
        """How large this broker's partitions of a topic are; `numbers` are Kafka's, None for all.

        Returns (number, size in bytes, how many offsets aren't visible yet) of each that has a log.
        """
        found = self._topics.get(name)
        sizes: list[tuple[int, int, int]] = []
        if found is None:
            return sizes
        for number, place in enumerate(found.partitions):
            is_here = self._broker_id in found.replicas(number)
            if is_here and (numbers is None or number in numbers):
                log = self._directory.get(name, place.partition)
                if log is not None:
                    lag = log.end_offset - log.high_watermark
                    sizes.append((number, log.size_bytes, lag))
        return sizes

    # -- what is told ---------------------------------------------------------------------------

    def use(
        self,
        nodes: Mapping[str, TopicNode],
        brokers: Mapping[int, BrokerListeners],
        replicas: Mapping[str, TopicReplicas] = MappingProxyType({}),
        lives: Mapping[int, int] = MappingProxyType({}),
        unreadable: Set[str] = frozenset(),
    ) -> None:
        """Have the topics and the live brokers be those of coordination.

        A node that hasn't changed is the same object as before. `unreadable`: topics that are there
        and can't be used; they aren't deleted.
        """
        self.lives = lives
        self._brokers, self._known_brokers = brokers, None
        serving = {each for each, listeners in brokers.items() if listeners.kafka}
        self.live = frozenset({self._broker_id, *serving})
        self.is_known = True
        before, self._unreadable = self._topics.keys() | self._unreadable, unreadable
        for name in before - nodes.keys():
            self._forget(name)
            if name not in unreadable:
                self._tell_gone(name)
        used, self._nodes = self._nodes, nodes
        used_replicas, self._replicas = self._replicas, replicas
        for name, node in nodes.items():
            copies = replicas.get(name)
            if used.get(name) is node and used_replicas.get(name) is copies:
                continue
            found = ClusterTopic(
                name,
                node.id,
                node.format,
                node.partitions,
                copies=copies.partitions if copies is not None and copies.id == node.id else (),
            )
            known = self._topics.get(name)
            if known != found:
                self._know(found)
                if known is not None and known.id != found.id:
                    self._tell_gone(name)

    def on_gone(self, observer: Callable[[str], None]) -> None:
        """Have `observer` called with each topic that is deleted, or is another one by now."""
        self._gone_observers.append(observer)

    def _tell_gone(self, name: str) -> None:
        for each in self._gone_observers:
            each(name)

    def is_gone(self, name: str, topic_id: UUID) -> bool:
        """Whether a topic is deleted; another one may have its name by now."""
        found = self._topics.get(name)
        if found is not None and found.format == FORMAT_KAFKA and not found.keeps_id:
            return False
        if name in self._unreadable:
            return False
        return self.is_known and (found is None or found.id != topic_id)

    def _know(self, topic: ClusterTopic) -> None:
        self._forget(topic.name)
        self._topics[topic.name] = self._by_id[topic.id.bytes] = topic
        self._changed()

    def _forget(self, name: str) -> None:
        before = self._topics.pop(name, None)
        if before is not None:
            if self._by_id.get(before.id.bytes) is before:  # else a copy of it has its id
                del self._by_id[before.id.bytes]
            self._changed()

    def _changed(self) -> None:
        self._partitions.clear()
        self.revision += 1

    def _look_at(self, name: str) -> None:
        """A topic of this broker was created, has more partitions, or is gone."""
        self._forget(name)
        if self._registry.exists(name):
            count = self._registry.partition_count(name)
            places = tuple(BrokerPartition(self._broker_id, each) for each in range(count))
            kept = self._kept_id(name)
            topic_id = kept or uuid5(_NAMES, f"{self._cluster_id()}/{name}")
            log_format = self._registry.format(name)
            self._know(ClusterTopic(name, topic_id, log_format, places, kept is not None))
        else:
            self._tell_gone(name)

    def _kept_id(self, name: str) -> UUID | None:
        for log in self._registry.partitions(name):
            if log.topic_id is not None:
                return log.topic_id
        return None


def _elsewhere(topic: ClusterTopic, number: int) -> NotLeaderError:
    where = f"on broker {topic.leader(number)}"
    return NotLeaderError(f"partition {number} of topic {quoted(topic.name)} is {where}")
