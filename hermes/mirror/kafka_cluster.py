"""A cluster that a mirror reaches by Kafka's protocol: where it is, and what is asked of it."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from hermes.client.kafka_asking import KafkaAsker
from hermes.coordination.layout import BrokerPartition
from hermes.errors import BrokerError, BrokerUnavailableError, ClientError, HermesError
from hermes.protocol import NOBODY
from hermes.security import ClientSecurity

#: As a kind of resource.
TOPIC_RESOURCE: Final = 2

_TIMEOUT_SECONDS: Final = 10.0

_Address = tuple[str, int]


class KafkaPartition(BrokerPartition):
    """A partition of a topic of Kafka's format, by Kafka's number, whoever has it: of broker 0."""

    __slots__ = ()

    def __str__(self) -> str:
        return str(self.partition)


def kafka_partition(number: int) -> KafkaPartition:
    return KafkaPartition(0, number)


class KafkaTopic(NamedTuple):
    """`leaders`: by the partition's number who leads it, or `NOBODY`."""

    topic_id: UUID | None
    leaders: Mapping[int, int]


class ClusterLook(NamedTuple):
    """A cluster at one moment; Kafka's own topics are left out."""

    cluster_id: str
    brokers: Mapping[int, _Address]
    topics: Mapping[str, KafkaTopic]


class RefusedError(BrokerError):
    """A broker answers with an error; `name` is Kafka's for it."""

    def __init__(self, what: str, code: Any, reason: str | None = None) -> None:
        self.name = code.name.upper()
        super().__init__(f"{what}: {reason or self.name}")


def check(code: Any, what: str, reason: str | None = None) -> None:
    if code:
        raise RefusedError(what, code, reason)


class KafkaCluster:
    """Threads may share it. Everything raises HermesError where nobody answers, or refuses."""

    def __init__(self, addresses: Sequence[_Address], security: ClientSecurity) -> None:
        self.security = security
        self._given = list(addresses)
        self._lock = threading.Lock()
        self._askers: dict[_Address, KafkaAsker] = {}
        self._brokers: Mapping[int, _Address] = {}
        self._id = ""

    def close(self) -> None:
        with self._lock:
            for asker in self._askers.values():
                asker.close()

    def cluster_id(self) -> str:
        if not self._id:
            self._id = self.look(()).cluster_id
        return self._id

    def look(self, topics: Sequence[str] | None = None) -> ClusterLook:
        """Look at the brokers, and at some topics or all; one that isn't there is left out."""
        asked = None if topics is None else [{"topic_id": None, "name": each} for each in topics]
        found = self.ask_any("Metadata", 12, topics=asked, allow_auto_topic_creation=False)
        brokers = {each.node_id: (each.host, each.port) for each in found.brokers}
        self._brokers = brokers
        known = {
            each.name: KafkaTopic(
                each.topic_id,
                {
                    p.partition_index: p.leader_id if p.leader_id in brokers else NOBODY
                    for p in each.partitions
                },
            )
            for each in found.topics
            if each.name and not each.error_code and not each.is_internal
        }
        return ClusterLook(found.cluster_id or "", brokers, known)

    def ask_any(self, name: str, version: int, **values: Any) -> Any:
        """Ask one broker after the other, until one answers."""
        failure: HermesError = ClientError("no brokers are given")
        for address in dict.fromkeys((*self._brokers.values(), *self._given)):
            try:
                return self._asker(address).ask(name, version, **values)
            except HermesError as error:
                failure = error
        raise failure

    def ask(self, broker_id: int, name: str, version: int, **values: Any) -> Any:
        address = self._brokers.get(broker_id)
        if address is None:
            raise BrokerUnavailableError(f"broker {broker_id} isn't there now")
        return self._asker(address).ask(name, version, **values)

    def ask_coordinator(self, group: str, name: str, version: int, **values: Any) -> Any:
        answer = self.ask_any("FindCoordinator", 4, coordinator_keys=[group])
        (found,) = answer.coordinators
        check(found.error_code, f"group {group!r}", found.error_message)
        return self._asker((found.host, found.port)).ask(name, version, **values)

    def offset_at(self, topic: str, number: int, leader: int, time_ms: int) -> int:
        """An offset by a time, or by ListOffsets' words for where a partition begins or ends."""
        partition = {"partition_index": number, "current_leader_epoch": -1, "timestamp": time_ms}
        topics = [{"name": topic, "partitions": [partition]}]
        given = {"replica_id": -1, "isolation_level": 1, "topics": topics}
        answer = self.ask(leader, "ListOffsets", 7, **given)
        (found,) = answer.topics[0].partitions
        check(found.error_code, f"{topic} {number}")
        return int(found.offset)

    def topic_settings(self, topic: str) -> Any:
        asked = {"resource_type": TOPIC_RESOURCE, "resource_name": topic}
        resource = {**asked, "configuration_keys": None}
        answer = self.ask_any("DescribeConfigs", 4, resources=[resource])
        (found,) = answer.results
        check(found.error_code, f"topic {topic!r}", found.error_message)
        return found.configs

    def _asker(self, address: _Address) -> KafkaAsker:
        with self._lock:
            if address not in self._askers:
                made = KafkaAsker(*address, _TIMEOUT_SECONDS, self.security)
                self._askers[address] = made
            return self._askers[address]
