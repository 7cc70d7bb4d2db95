"""A target that is written to by Kafka's protocol; it knows nothing of sources' positions."""

from collections.abc import Iterable, Sequence
from functools import partial

from hermes.config.mirror import MirrorClusterAddress
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.errors import BrokerUnavailableError, ConfigError, HermesError, UnknownTopicError
from hermes.mirror.figures import Problems
from hermes.mirror.kafka_cluster import (
    KafkaCluster,
    KafkaTopic,
    kafka_partition,
)
from hermes.mirror.kafka_link import KafkaLink
from hermes.mirror.kafka_origins import KafkaOrigins
from hermes.mirror.loop_guard import Origins
from hermes.mirror.senders import TargetSender
from hermes.mirror.source_claim import TargetAppend
from hermes.protocol import NOBODY, MirroredSet

_Address = tuple[str, int]


class KafkaTarget:
    """As `TargetCluster`, of which it takes the place."""

    session: Session | None = None

    def __init__(self, address: MirrorClusterAddress, problems: Problems) -> None:
        self.address = address
        self.cluster_id = ""
        self._problems = problems
        self.kafka = self._cluster = KafkaCluster(address.kafka, address.security)
        self._topics: dict[str, KafkaTopic] = {}
        self._addresses: dict[int, _Address] = {}
        self._senders: dict[int, TargetSender] = {}

    def addresses(self) -> dict[int, _Address]:
        """Of brokers that keep positions of sources: none."""
        return {}

    def connect(self) -> None:
        if not self.cluster_id:
            self.cluster_id = self._cluster.cluster_id()

    def partitions(self, topic: str, wanted: int | None = None) -> tuple[BrokerPartition, ...]:
        if wanted is None:
            raise ConfigError(
                "target", f"{topic!r} has 0.7's format: mirror it to a cluster by its `brokers`"
            )
        look = self._cluster.look([topic])
        if topic not in look.topics:
            self._cluster.create_topic(topic, wanted)
            look = self._cluster.look([topic])
        found = look.topics.get(topic)
        if found is None or NOBODY in found.leaders.values():
            raise BrokerUnavailableError(f"topic {topic!r} of the target has no leaders now")
        for broker_id, address in look.brokers.items():
            self._place(broker_id, address)
        self._topics[topic] = found  # once its leaders have senders: others send meanwhile
        return tuple(map(kafka_partition, sorted(found.leaders)))

    def origins(self, *, of_records: bool) -> Origins:
        return KafkaOrigins(self._cluster)

    def is_exact(self, topic: str, targets: Iterable[BrokerPartition]) -> bool:
        return False

    def positions(self, topic: str) -> dict[BrokerPartition, dict[str, int]]:
        return {}

    def open(self, sets: Sequence[tuple[BrokerPartition, MirroredSet]]) -> dict[int, HermesError]:
        return {}

    def send(self, entries: Iterable[TargetAppend]) -> None:
        for entry in entries:
            leader = self._topics[entry.topic].leaders.get(entry.target.partition)
            if leader is None:
                what = f"partition {entry.target} of topic {entry.topic!r} of the target"
                entry.claim.restart(entry.epoch, UnknownTopicError(f"{what} is gone"))
            else:
                self._senders[leader].put(entry)

    def close(self) -> None:
        for sender in self._senders.values():
            sender.stop()
        self._cluster.close()

    # -- inside ---------------------------------------------------------------------------------

    def _place(self, broker_id: int, address: _Address) -> None:
        if self._addresses.get(broker_id) == address:
            return
        former = self._senders.get(broker_id)
        self._addresses[broker_id] = address
        self._senders[broker_id] = TargetSender(
            f"target broker {broker_id}",
            partial(KafkaLink, *address, self.address.security),
            self._problems,
        )
        if former is not None:
            former.stop()
