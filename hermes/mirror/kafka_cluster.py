"""A cluster that a mirror reaches by Kafka's protocol: where it is, and what is asked of it."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from hermes.client.kafka_asking import KafkaAsker
from hermes.coordination.layout import BrokerPartition
from hermes.errors import BrokerError, BrokerUnavailableError, ClientError, HermesError
from hermes.protocol import NOBODY
from hermes.security import ClientSecurity

#: As a kind of resource.
TOPIC_RESOURCE: Final = 2

_TIMEOUT_SECONDS: Final = 10.0

#: Only what was committed, of transactions.
READ_COMMITTED: Final = 1

_CREATE_MS: Final = 10_000

#: A topic, and Kafka's number of one of its partitions.
Place = tuple[str, int]

_Address = tuple[str, int]
_T = TypeVar("_T")


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
        """What it is known by; BrokerUnavailableError where who answers doesn't know that yet."""
        if not self._id:
            self._id = self.look(()).cluster_id
        if not self._id:
            raise BrokerUnavailableError("who answers doesn't know its cluster's id yet")
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

    def create_topic(
        self, name: str, count: int, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with so many partitions, unless there is one."""
        configs = [{"name": key, "value": value} for key, value in (settings or {}).items()]
        asked = {"name": name, "num_partitions": count, "replication_factor": -1}
        answer = self.ask_any(
            "CreateTopics",
            7,
            topics=[{**asked, "assignments": (), "configs": configs}],
            timeout=_CREATE_MS,
            validate_only=False,
        )
        (found,) = answer.topics
        if not found.error_code or found.error_code.name.upper() != "TOPIC_ALREADY_EXISTS":
            check(found.error_code, f"topic {name!r}", found.error_message)

    def ask_coordinator(self, group: str, name: str, version: int, **values: Any) -> Any:
        answer = self.ask_any("FindCoordinator", 4, coordinator_keys=[group])
        (found,) = answer.coordinators
        check(found.error_code, f"group {group!r}", found.error_message)
        return self._asker((found.host, found.port)).ask(name, version, **values)

    def committed(
        self, group: str, places: Iterable[Place] | None = None, *, stable: bool = False
    ) -> dict[Place, int]:
        """Where a group is in some partitions, or in all; those without an offset are left out.

        `stable`: refuse while transactions may still move it.
        """
        topics = None
        if places is not None:
            topics = [
                {"name": name, "partition_indexes": numbers}
                for name, numbers in _by_topic(places).items()
            ]
            if not topics:
                return {}
        groups = [{"group_id": group, "topics": topics}]
        answer = self.ask_coordinator(group, "OffsetFetch", 8, groups=groups, require_stable=stable)
        (found,) = answer.groups
        check(found.error_code, f"group {group!r}")
        offsets: dict[Place, int] = {}
        for topic in found.topics:
            for each in topic.partitions:
                check(each.error_code, f"group {group!r}, {topic.name}")
                if each.committed_offset >= 0:
                    offsets[topic.name, each.partition_index] = each.committed_offset
        return offsets

    def commit(self, group: str, offsets: Mapping[Place, int]) -> dict[Place, Any]:
        """Commit for a group without members; Kafka's error for each partition that is refused."""
        if not offsets:
            return {}
        topics = _by_topic(
            (
                topic,
                {
                    "partition_index": number,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                },
            )
            for (topic, number), offset in offsets.items()
        )
        answer = self.ask_coordinator(
            group,
            "OffsetCommit",
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": name, "partitions": some} for name, some in topics.items()],
        )
        return {
            (topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code
        }

    def offset_at(self, place: Place, leader: int, time_ms: int) -> int:
        """As `find_offset`, at the broker that leads the partition."""
        return find_offset(partial(self.ask, leader), place, time_ms)

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


def find_offset(ask: Callable[..., Any], place: Place, time_ms: int) -> int:
    """An offset by a time, or by ListOffsets' words for where a partition begins or ends.

    `ask`: as `KafkaAsker.ask`, the broker that leads the partition.
    """
    topic, number = place
    partition = {"partition_index": number, "current_leader_epoch": -1, "timestamp": time_ms}
    topics = [{"name": topic, "partitions": [partition]}]
    answer = ask("ListOffsets", 7, replica_id=-1, isolation_level=READ_COMMITTED, topics=topics)
    (found,) = answer.topics[0].partitions
    check(found.error_code, f"{topic} {number}")
    return int(found.offset)


def _by_topic(entries: Iterable[tuple[str, _T]]) -> dict[str, list[_T]]:
    found: dict[str, list[_T]] = {}
    for topic, each in entries:
        found.setdefault(topic, []).append(each)
    return found
