"""A target some of whose partitions nobody leads, and some of whose brokers are gone."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from memory_coordination import MemoryCoordination

from hermes.config.mirror import MirrorClusterAddress
from hermes.coordination.cluster_id import id_of_addresses
from hermes.coordination.kafka_topics import TopicNode, format_topic, topic_node_path
from hermes.coordination.layout import BROKER_IDS, BrokerPartition
from hermes.coordination.listeners import (
    BrokerListeners,
    ListenerNode,
    format_listeners,
    listeners_path,
)
from hermes.errors import BrokerUnavailableError, NotLeaderError
from hermes.mirror import target_cluster
from hermes.mirror.figures import Problems
from hermes.mirror.planning_queries import empty_set
from hermes.mirror.target_cluster import TargetCluster, cluster_id_of
from hermes.security import PLAIN


@pytest.fixture
def target() -> Iterator[TargetCluster]:
    problems = Problems(logging.getLogger("test"))
    made = TargetCluster(MirrorClusterAddress("west", brokers=(("localhost", 1),)), problems)
    yield made
    made.close()


def test_a_partition_that_lost_its_leader_meanwhile_fails_by_itself(target: TargetCluster) -> None:
    partition = BrokerPartition(0, 0)
    failed = target.open([(partition, empty_set("clicks", partition, "s", 0, 0))])
    assert [type(each) for each in failed.values()] == [NotLeaderError]


def test_only_brokers_that_are_registered_are_asked_what_they_have(target: TargetCluster) -> None:
    session: Any = MemoryCoordination().session()
    target.session = session
    for broker_id in (0, 1):
        session.put(f"{BROKER_IDS}/{broker_id}", b"h-1:localhost:%d" % (1 + broker_id))
    look(target)
    assert target.addresses() == {0: ("localhost", 1), 1: ("localhost", 2)}
    session.delete(f"{BROKER_IDS}/1", -1)
    look(target)
    assert target.addresses() == {0: ("localhost", 1)}


def look(target: TargetCluster) -> None:
    with pytest.raises(BrokerUnavailableError):  # nobody listens there
        target.partitions("clicks", 1)


class Consumer:
    """Of the broker at a port, which has as many partitions as `counts` says."""

    counts: ClassVar[dict[int, int]] = {}
    is_hermes = True
    known_id = ""

    def __init__(self, host: str, port: int, **settings: Any) -> None:
        self.address, self._port = f"{host}:{port}", port

    def supports(self, request: int) -> bool:
        return self.is_hermes

    def cluster_id(self) -> str:
        return self.known_id

    def metadata(self, topics: list[str]) -> Any:
        return SimpleNamespace(topics=[SimpleNamespace(partition_count=self.counts[self._port])])

    def close(self) -> None: ...

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *exception: object) -> None: ...


def test_a_topic_that_was_made_anew_has_other_partitions(
    target: TargetCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_cluster, "SimpleConsumer", Consumer)
    session: Any = MemoryCoordination().session()
    target.session = session
    for broker_id in (0, 1):
        session.put(f"{BROKER_IDS}/{broker_id}", b"h-1:localhost:%d" % (1 + broker_id))
    Consumer.counts = {1: 2, 2: 1}
    before = tuple(BrokerPartition(*each) for each in ((0, 0), (0, 1), (1, 0)))
    assert target.partitions("clicks") == before
    Consumer.counts = {1: 1, 2: 1}
    after = (before[0], before[2])
    assert target.partitions("clicks") == after
    session.delete(f"{BROKER_IDS}/1", -1)
    assert target.partitions("clicks") == after  # what goes there waits


def test_so_has_one_of_kafkas_format(target: TargetCluster) -> None:
    session: Any = MemoryCoordination().session()
    target.session = session
    for broker_id in (0, 1):
        session.put(f"{BROKER_IDS}/{broker_id}", b"h-1:localhost:%d" % (1 + broker_id))
    for home in (0, 1):
        partitions = (BrokerPartition(home, 0), BrokerPartition(1, 1))
        node = TopicNode(uuid4(), "kafka", partitions)
        session.put(topic_node_path("clicks"), format_topic(node))
        assert target.partitions("clicks", 2) == partitions
    session.delete(f"{BROKER_IDS}/1", -1)
    assert target.partitions("clicks", 2) == partitions  # what goes there waits


def test_origins_are_kept_from_when_brokers_serve_kafkas_clients(
    target: TargetCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, Any] = {}
    made = SimpleNamespace(read=kept.get, add=kept.setdefault)
    monkeypatch.setattr(target_cluster, "KafkaOrigins", lambda cluster: made)
    session: Any = MemoryCoordination().session()
    session.security = PLAIN
    target.session = session
    origins = target.origins(of_records=True)  # asked for once, before any broker is there
    assert origins is not None
    assert (origins.read("clicks"), origins.add("clicks", {"east": "m"})) == ({}, [])
    origins.remove("clicks", ["east"])
    session.put(f"{BROKER_IDS}/0", b"h-1:localhost:1")
    listener = ListenerNode("k", "localhost", 2, False, "none")
    session.put(listeners_path(0), format_listeners(BrokerListeners([], kafka=[listener])))
    origins.add("clicks", {"east": "m"})
    assert (kept, origins.read("clicks")) == ({"clicks": {"east": "m"}}, {"east": "m"})


def test_a_cluster_that_does_not_know_its_id_yet_is_not_taken_for_another(
    target: TargetCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_cluster, "SimpleConsumer", Consumer)
    with pytest.raises(BrokerUnavailableError, match="its cluster's id"):
        cluster_id_of(None, target.address)
    monkeypatch.setattr(Consumer, "known_id", "an id")
    assert cluster_id_of(None, target.address) == "an id"
    monkeypatch.setattr(Consumer, "is_hermes", False)
    assert cluster_id_of(None, target.address) == id_of_addresses(target.address.brokers)
