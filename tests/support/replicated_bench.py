"""A broker of a cluster, for Kafka's clients, whose coordination is a tree in memory."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from kafka_bench import KafkaBench
from memory_coordination import MemoryCoordination

from hermes.coordination.kafka_topics import TopicNode
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.listeners import BrokerListeners, ListenerNode
from hermes.coordination.topic_tree import TopicTree
from hermes.replication.state import PartitionState, TopicReplicas

__all__ = ["ReplicatedBench"]

_LISTENERS = BrokerListeners(
    kafka=(ListenerNode("0", "a.example.org", 19092, False, "none"),),
    listeners=(),
    replication=True,
)


class ReplicatedBench(KafkaBench):
    """Broker 0; what it asks of coordination is done, and read back, at once.

    Attributes:
        lives: the registered brokers, each with its session.
        earlier: those of a release that keeps no copies.
        reads: how often everything was read, which a change ends with.
    """

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        self.tree = TopicTree(MemoryCoordination().session())
        self.tree.prepare()
        self.lives = {0: 10, 1: 11, 2: 12}
        self.earlier = set[int]()
        self.reads = 0
        self.cluster.topics.has_cluster = True
        self.cluster.topics._listeners = lambda: _LISTENERS
        part: Any = SimpleNamespace(cluster=SimpleNamespace(do=self._do))
        self.cluster.replica_changes._part = part
        self.refresh()

    def refresh(self) -> None:
        contents = self.tree.read()
        brokers = {
            each: _LISTENERS._replace(replication=each not in self.earlier) for each in self.lives
        }
        self.cluster.topics.use(contents.topics, brokers, contents.replicas, self.lives)
        self.cluster.topics.throttles = self.tree.throttles()
        self.reads += 1

    async def _do(self, change: Callable[[TopicTree], Any]) -> Any:
        result = change(self.tree)
        self.refresh()
        return result

    def topic(self, name: str, *states: PartitionState | int, form: str = "kafka") -> UUID:
        """Make a topic: each partition with its copies, or on a broker that has its only one."""
        homes = [each if isinstance(each, int) else each.replicas[0] for each in states]
        places = tuple(BrokerPartition(each, number) for number, each in enumerate(homes))
        node = TopicNode(uuid4(), form, places, {})
        copies = tuple(None if isinstance(each, int) else each for each in states)
        known = TopicReplicas(node.id, copies) if any(copies) else None
        assert self.tree.create(name, node, known)
        self.refresh()
        return node.id

    def state(self, name: str, number: int = 0) -> PartitionState | None:
        node = self.tree.replicas.read([name]).get(name)
        return None if node is None else node.state_of(number)
