"""The topics as Kafka's clients see them: a UUID each, and partitions numbered through.

A partition of Hermes is a broker's own; Kafka's clients know one number for all brokers. A
`KafkaTopic` is the mapping between the two: what stands at Kafka's number is a broker and its
partition. It only ever grows, so that a key keeps its place.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from twisted.internet.defer import Deferred

from hermes.broker.changing import Changes
from hermes.broker.clients import Client
from hermes.broker.shared import Shared
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.listeners import BrokerListeners, ListenerNode
from hermes.errors import NotLeaderError, UnknownTopicError, WrongPartitionError
from hermes.quoting import quoted
from hermes.storage import Log

#: The name space of the UUIDs of topics that keep none: Kafka 0.7's, without coordination.
_NAMES: Final = UUID("0d1f86bc-53a4-5d0c-8a35-3fd1a0b5f5d7")


class KafkaTopic(NamedTuple):
    """One topic.

    Attributes:
        name: its name.
        id: its UUID.
        format: what its logs hold: `0.7` or `kafka`.
        partitions: where each of Kafka's numbers is, from 0 on.
    """

    name: str
    id: UUID
    format: str
    partitions: tuple[BrokerPartition, ...]


class KafkaBroker(NamedTuple):
    """One broker, as the clients of one listener reach it.

    Attributes:
        id: its number.
        host: a name or an address.
        port: its port.
    """

    id: int
    host: str
    port: int


class KafkaTopics:
    """Knows the topics. Lives in the reactor's thread.

    Args:
        shared: the broker's logs and settings.
        changes: makes changes.
        listeners: tells where this broker listens.
        cluster_id: tells the cluster's UUID; empty while it isn't known.
    """

    def __init__(
        self,
        shared: Shared,
        changes: Changes,
        listeners: Callable[[], BrokerListeners],
        cluster_id: Callable[[], str],
    ) -> None:
        self._shared = shared
        self._changes = changes
        self._registry = shared.topics
        self._directory = shared.directory
        self._broker_id = shared.config.broker_id
        self._listeners = listeners
        self._cluster_id = cluster_id
        self._topics: dict[str, KafkaTopic] = {}
        self._by_id: dict[UUID, KafkaTopic] = {}
        for name in self._registry.names():
            self._look_at(name)
        self._registry.on_change(self._look_at)

    # -- what there is --------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """The cluster's UUID as text; empty while it isn't known."""
        return self._cluster_id()

    @property
    def controller_id(self) -> int:
        """The broker that takes admin requests: each does, so this one."""
        return self._broker_id

    def brokers(self, asked: ListenerNode) -> list[KafkaBroker]:
        """List the brokers that live, by their ids, as clients of a listener reach them."""
        found = self._listeners().like_kafka(asked)
        return [] if found is None else [KafkaBroker(self._broker_id, found.host, found.port)]

    def names(self) -> list[str]:
        """List the topics, sorted."""
        return sorted(self._topics)

    def get(self, name: str) -> KafkaTopic | None:
        """Find a topic by its name."""
        return self._topics.get(name)

    def by_id(self, topic_id: UUID) -> KafkaTopic | None:
        """Find a topic by its UUID."""
        return self._by_id.get(topic_id)

    def log(self, topic: str, number: int) -> Log:
        """Find the log of a partition by Kafka's number; make it if it wasn't written to yet.

        Raises:
            UnknownTopicError: there is no such topic.
            WrongPartitionError: it has no such partition.
            NotLeaderError: the partition is another broker's.
            TooManyTopicsError, TopicBeingDeletedError, BrokerStoppingError, StorageError: the log
                can't be made now.
        """
        found = self._topics.get(topic)
        if found is None:
            raise UnknownTopicError(f"there is no topic {quoted(topic)}")
        if not 0 <= number < len(found.partitions):
            count = len(found.partitions)
            raise WrongPartitionError(
                f"topic {quoted(topic)} has partitions 0 to {count - 1}, not {number}"
            )
        broker_id, partition = found.partitions[number]
        if broker_id != self._broker_id:
            raise NotLeaderError(
                f"partition {number} of topic {quoted(topic)} is on broker {broker_id}"
            )
        log = self._directory.get(topic, partition)
        return self._registry.for_produce(topic, partition) if log is None else log

    # -- changes --------------------------------------------------------------------------------

    def create(
        self, name: str, partitions: int, settings: Mapping[str, str], client: Client
    ) -> "Deferred[KafkaTopic]":
        """Create a topic with Kafka's format.

        Args:
            name: its name.
            partitions: how many it has in the whole cluster; -1 for `num_partitions`.
            settings: further settings of the topic, each as broker.yaml would have it.
            client: who wants it, for the log.

        Returns:
            A Deferred of the topic; it fails with HermesError when it is refused.
        """
        count = self._shared.config.num_partitions if partitions == -1 else partitions
        texts = {**settings, "format": "kafka", "partitions": str(count)}
        created = self._changes.create_topic(name, texts, client)
        return created.addCallback(lambda _: self._topics[name])

    # -- inside ---------------------------------------------------------------------------------

    def _look_at(self, name: str) -> None:
        """A topic of this broker was created, has more partitions, or is gone."""
        before = self._topics.pop(name, None)
        if before is not None:
            self._by_id.pop(before.id, None)
        if self._registry.exists(name):
            count = self._registry.partition_count(name)
            places = tuple(BrokerPartition(self._broker_id, each) for each in range(count))
            found = KafkaTopic(name, self._id_of(name), self._registry.format(name), places)
            self._topics[name] = self._by_id[found.id] = found

    def _id_of(self, name: str) -> UUID:
        for log in self._registry.partitions(name):
            if log.topic_id is not None:
                return log.topic_id
        return uuid5(_NAMES, f"{self._cluster_id()}/{name}")
