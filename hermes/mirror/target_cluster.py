"""The target cluster: its brokers, the partitions of its topics, and what each has of the sources.

Its queries block: the planner's thread asks. `send` returns at once.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from hermes.client.mirrored import MirroredPartitions
from hermes.client.simple_consumer import SimpleConsumer
from hermes.config.kinds import FORMAT_KAFKA
from hermes.config.mirror import MirrorClusterAddress
from hermes.coordination.cluster_id import cluster_id, id_of_addresses
from hermes.coordination.cluster_view import (
    NodeFaults,
    leaders_of,
    read_brokers,
    read_partition_counts,
    record_names,
)
from hermes.coordination.kafka_topics import NOBODY
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.origins import TreeOrigins
from hermes.coordination.sessions import Session
from hermes.errors import (
    BrokerUnavailableError,
    ClientError,
    ConfigError,
    HermesError,
    NotAuthenticatedError,
    NotLeaderError,
    UnknownTopicError,
)
from hermes.mirror.figures import Problems
from hermes.mirror.kafka_cluster import KafkaCluster
from hermes.mirror.kafka_origins import KafkaOrigins, kafka_cluster_of
from hermes.mirror.links import open_link
from hermes.mirror.loop_guard import Origins
from hermes.mirror.senders import TargetSender
from hermes.mirror.source_claim import TargetAppend
from hermes.protocol import (
    MAX_MIRRORED_SETS,
    ClusterIdRequest,
    MetadataRequest,
    MirroredSet,
)
from hermes.security import ClientSecurity

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 10.0

_Address = tuple[str, int]


class TargetCluster:
    """Where a mirror writes to. The planner's thread calls all but `send`.

    Calls raise HermesError while a broker or coordination can't answer.

    Attributes:
        session: with its coordination; None without, and before `connect`.
        cluster_id: its UUID; empty before `connect`.
    """

    def __init__(self, address: MirrorClusterAddress, problems: Problems) -> None:
        self.address = address
        self.session: Session | None = None
        self.cluster_id = ""
        self._problems = problems
        self._kafka: KafkaCluster | None = None
        self._faults = NodeFaults(_log, "the mirror's target")
        self._known: dict[int, _Broker] = {}
        self._living: dict[int, _Address] = {}
        # Partitions stay known while their broker is away, so that what goes to them waits; but not
        # those that its topic had before it was deleted and made anew.
        self._partitions: dict[str, tuple[BrokerPartition, ...]] = {}
        # Of those of Kafka's format: the broker that leads them, -1 for nobody.
        self._leaders: dict[tuple[str, BrokerPartition], int] = {}

    def addresses(self) -> dict[int, _Address]:
        """Of the brokers that lived at the last look, by id."""
        return self._living

    def connect(self) -> None:
        if self.cluster_id:
            return
        if self.session is None:
            own, security = self.address.own, self.address.security
            if own is None:
                connect = self.address.zookeeper or coordination_of(self.address)
            else:
                connect = own.zookeeper
                security = own.security if own.has_own_coordination else security
            if connect:
                session = Session(connect, security=security)
                session.start()
                self.session = session
        self.cluster_id = cluster_id_of(self.session, self.address)

    def partitions(self, topic: str, wanted: int | None = None) -> tuple[BrokerPartition, ...]:
        """The partitions that a topic has, or will have, on all brokers, in order.

        `wanted`: of one of Kafka's format, as how many it is created where it isn't there; None for
        one of 0.7's.
        """
        if wanted is not None:
            return self._record_partitions(topic, wanted)
        counts = dict[int, int]()
        described: dict[int, int] = {}
        brokers = self._brokers()
        if self.session is not None:
            described = read_partition_counts(self.session, topic, self._faults.note)
        for broker_id in brokers:
            consumer = self._known[broker_id].consumer
            if consumer.supports(MetadataRequest.TYPE):
                (answer,) = consumer.metadata([topic]).topics
                if answer.partition_count:
                    counts[broker_id] = answer.partition_count
            elif self.session is None:
                raise ConfigError(
                    "target",
                    f"{consumer.address} is a Kafka 0.7, which doesn't tell its partitions: give "
                    "zookeeper instead of brokers",
                )
            else:
                counts[broker_id] = described.get(broker_id, 1)
        found = {BrokerPartition(b, n) for b, count in counts.items() for n in range(count)}
        known = self._partitions.get(topic, ())
        found |= {each for each in known if each.broker_id not in brokers}
        if not found:
            raise BrokerUnavailableError(f"no broker of the target can take topic {topic!r}")
        self._partitions[topic] = tuple(sorted(found))
        return self._partitions[topic]

    def _record_partitions(self, topic: str, wanted: int) -> tuple[BrokerPartition, ...]:
        brokers = self._brokers()
        found = self._numbers(topic, brokers) | self._listed(topic)
        if not found:
            consumer = self._known[min(brokers)].consumer
            consumer.create_topic(topic, {"format": FORMAT_KAFKA, "partitions": wanted})
            found = self._numbers(topic, brokers) | self._listed(topic)
        if not self._listed(topic):
            found |= set(self._partitions.get(topic, ()))
        if not found:
            raise BrokerUnavailableError(f"topic {topic!r} of the target has no partitions yet")
        self._partitions[topic] = tuple(sorted(found, key=lambda each: each.partition))
        return self._partitions[topic]

    def _listed(self, topic: str) -> set[BrokerPartition]:
        """Those that the cluster says a topic has, also of brokers that are away."""
        names = () if self.session is None else record_names(self.session, topic)
        return set(names) - {NOBODY}

    def _numbers(self, topic: str, brokers: Iterable[int]) -> set[BrokerPartition]:
        if self.session is not None:
            led = leaders_of(self.session, topic, self._faults.note)
            self._leaders |= {(topic, each): leader for each, leader in led.items()}
            return set(led)
        found = set()
        for broker_id in brokers:
            metadata = self._known[broker_id].consumer.metadata()
            counts = {each.topic: each.partition_count for each in metadata.topics}
            found |= {BrokerPartition(broker_id, n) for n in range(counts.get(topic, 0))}
        return found

    def _leader(self, topic: str, target: BrokerPartition) -> "_Broker":
        """Raises NotLeaderError: nobody leads it at the moment."""
        leader = self._leaders.get((topic, target), target.broker_id)
        if leader not in self._known:
            raise NotLeaderError(
                f"nobody leads partition {target} of topic {topic!r} of the target"
            )
        return self._known[leader]

    def origins(self, *, of_records: bool) -> Origins | None:
        """Where its topics come from, of one format; None where nobody can keep that."""
        if self.session is None:
            return None
        return _RecordOrigins(self) if of_records else TreeOrigins(self.session)

    @property
    def kafka(self) -> KafkaCluster | None:
        """The same cluster by Kafka's protocol; None where that isn't served, or nobody says."""
        if self._kafka is None and self.session is not None:
            security = self.address.security
            self._kafka = kafka_cluster_of(self.session, security, self._faults.note)
        return self._kafka

    def is_exact(self, topic: str, targets: Iterable[BrokerPartition]) -> bool:
        leaders = {self._leader(topic, each) for each in targets}
        return all(each.mirrored.is_supported() for each in leaders)

    def positions(self, topic: str) -> dict[BrokerPartition, dict[str, int]]:
        """Up to where each partition of a topic has each source, on disk."""
        found: dict[BrokerPartition, dict[str, int]] = {}
        by_leader: dict[_Broker, list[BrokerPartition]] = {}
        for target in self._partitions.get(topic, ()):
            by_leader.setdefault(self._leader(topic, target), []).append(target)
        for broker, led in by_leader.items():
            try:
                answer = broker.mirrored.positions(topic)
                told = {each.partition: each.positions for each in answer}
                for target in led:
                    if target.partition not in told and (topic, target) in self._leaders:
                        # Nothing was written to it; or others lead it, which is an error.
                        broker.mirrored.positions(topic, target.partition)
            except UnknownTopicError:
                continue
            found |= {each: told[each.partition] for each in led if each.partition in told}
        return found

    def open(self, sets: Sequence[tuple[BrokerPartition, MirroredSet]]) -> dict[int, HermesError]:
        """Tell partitions how far they are in sources, without a message.

        Returns what went wrong, by the place of the set.
        """
        failed: dict[int, HermesError] = {}
        by_leader: dict[_Broker, list[int]] = {}
        for place, (target, each) in enumerate(sets):
            try:
                leader = self._leader(each.topic, target)
            except NotLeaderError as error:
                failed[place] = error
            else:
                by_leader.setdefault(leader, []).append(place)
        for broker, places in by_leader.items():
            for first in range(0, len(places), MAX_MIRRORED_SETS):
                some = places[first : first + MAX_MIRRORED_SETS]
                try:
                    outcomes = broker.mirrored.send([sets[n][1] for n in some])
                except HermesError as error:
                    failed.update(dict.fromkeys(some, error))
                    continue
                answer = zip(some, outcomes, strict=True)
                failed.update({n: each.error for n, each in answer if each.error is not None})
        return failed

    def send(self, entries: Iterable[TargetAppend]) -> None:
        """Have entries sent, in this order; their claims get the outcomes."""
        for entry in entries:
            try:
                leader = self._leader(entry.topic, entry.target)
            except NotLeaderError as error:
                entry.claim.restart(entry.epoch, error)
            else:
                leader.sender.put(entry)

    def close(self) -> None:
        for broker in self._known.values():
            broker.close()
        if self._kafka is not None:
            self._kafka.close()
        if self.session is not None:
            self.session.stop()

    # -- inside ---------------------------------------------------------------------------------

    def _brokers(self) -> dict[int, _Address]:
        """The live brokers' addresses, by id; each is in `_known` then."""
        if self.session is not None:
            nodes = read_brokers(self.session, self._faults.note, security=self.address.security)
            self._faults.looked()
            found = {number: (node.host, node.port) for number, node in nodes.items()}
        else:
            brokers = () if self.address.own else self.address.brokers
            found = dict(_with_id(address, self.address.security) for address in brokers)
        own = self.address.own
        if own is not None and (own.broker_id in found or self.session is None):
            found[own.broker_id] = own.address
        if not found:
            raise BrokerUnavailableError(f"no broker of {self.address} is registered")
        for broker_id, address in found.items():
            self._place(broker_id, address)
        self._living = found
        return found

    def _place(self, broker_id: int, address: _Address) -> None:
        former = self._known.get(broker_id)
        if former is None or former.address != address:
            own, security = self.address.own, self.address.security
            if own is not None and address == own.address:
                security = own.security
            self._known[broker_id] = _Broker(broker_id, address, security, self._problems)
            if former is not None:
                former.close()


class _RecordOrigins:
    """Where topics of Kafka's format come from, kept from when brokers serve Kafka's clients.

    Without a listener for these nobody reads such topics from here. It is asked for each time: when
    a mirror begins, there may be no broker yet.
    """

    def __init__(self, target: TargetCluster) -> None:
        self._target = target
        self._found: KafkaOrigins | None = None

    def read(self, topic: str) -> Mapping[str, str]:
        kept = self._kept()
        return {} if kept is None else kept.read(topic)

    def add(self, topic: str, origins: Mapping[str, str]) -> list[str]:
        kept = self._kept()
        return [] if kept is None else kept.add(topic, origins)

    def remove(self, topic: str, clusters: list[str]) -> None:
        kept = self._kept()
        if kept is not None:
            kept.remove(topic, clusters)

    def _kept(self) -> KafkaOrigins | None:
        kafka = self._target.kafka
        if self._found is None and kafka is not None:
            self._found = KafkaOrigins(kafka)
        return self._found


class _Broker:
    def __init__(
        self, broker_id: int, address: _Address, security: ClientSecurity, problems: Problems
    ) -> None:
        self.address = address
        self.consumer = _consumer(address, security)
        self.mirrored = MirroredPartitions(
            *address, timeout_seconds=_TIMEOUT_SECONDS, security=security
        )
        self.sender = TargetSender(
            f"target broker {broker_id}", partial(open_link, *address, security), problems
        )

    def close(self) -> None:
        self.sender.stop()
        self.mirrored.close()
        self.consumer.close()


def coordination_of(cluster: MirrorClusterAddress) -> str:
    """Where coordination is; empty where there is none. HermesError: no broker answers."""
    failure: HermesError | None = None
    for address in cluster.brokers:
        try:
            with _consumer(address, cluster.security) as consumer:
                try:
                    return consumer.coordination()
                except (BrokerUnavailableError, TimeoutError, NotAuthenticatedError):
                    raise
                except HermesError:
                    return ""  # it takes no part in any, or is a Kafka 0.7
        except HermesError as error:
            failure = error
    raise failure or ClientError("no brokers are given")


def cluster_id_of(session: Session | None, cluster: MirrorClusterAddress) -> str:
    """The UUID of a cluster; without coordination, and if it is no Hermes, one of its addresses.

    Raises HermesError: nobody says it (yet). By another one, all of it would be mirrored again.
    """
    if session is not None:
        return cluster_id(session)
    address, security = cluster.brokers[0], cluster.security
    if cluster.own is not None:
        address, security = cluster.own.address, cluster.own.security
    with _consumer(address, security) as consumer:
        if not consumer.supports(ClusterIdRequest.TYPE):
            return id_of_addresses(cluster.brokers)
        found = consumer.cluster_id()
    if not found:
        raise BrokerUnavailableError(f"{cluster} doesn't know its cluster's id yet")
    return found


def _consumer(address: _Address, security: ClientSecurity) -> SimpleConsumer:
    return SimpleConsumer(*address, timeout_seconds=_TIMEOUT_SECONDS, **security.settings())


def _with_id(address: _Address, security: ClientSecurity) -> tuple[int, _Address]:
    """The id of a broker; 0 for a Kafka 0.7, which doesn't report it."""
    with _consumer(address, security) as consumer:
        if not consumer.supports(MetadataRequest.TYPE):
            return 0, address
        return consumer.metadata([]).broker_id, address
