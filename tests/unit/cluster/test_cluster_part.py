"""What a broker does for its part in a cluster, as what it is told of the cluster changes."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from broker_bench import BrokerBench
from memory_coordination import MemoryCoordination
from twisted.internet.defer import Deferred, succeed

from hermes.cluster.cluster_part import RETRY_SECONDS, ClusterPart
from hermes.cluster.cluster_topics import ClusterTopics
from hermes.cluster.local_partitions import LocalPartitions
from hermes.cluster.topic_cluster import ClusterState
from hermes.coordination.kafka_topics import DeletedTopic, TopicNode, topic_node_path
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.listeners import BrokerListeners
from hermes.coordination.replicas import replicas_path
from hermes.coordination.topic_tree import TopicTree, TreeContents
from hermes.errors import CoordinationUnavailableError
from hermes.protocol import encode_message_set
from hermes.replication.state import TopicReplicas, first_state
from hermes.storage import TopicEntries

ID = UUID(int=1)


class Reached:
    """Stands in for coordination, which can be out of reach; what it was told is in `said`."""

    def __init__(self) -> None:
        self.is_reached = True
        self.said: list[Any] = []

    def publish_local(self, local: Mapping[str, LocalPartitions]) -> None:
        """It is what it was."""

    def do(self, change: Callable[[Any], Any]) -> Awaitable[Any]:
        done: Deferred[Any] = self.refreshed()
        return done.addCallback(lambda _: change(self))

    def has_deleted(self, topic_ids: Any, broker_id: int) -> None:
        self.said += topic_ids

    def refreshed(self) -> "Deferred[None]":
        refreshed: Deferred[None] = succeed(None)
        if not self.is_reached:
            refreshed.addCallback(lambda _: _raise(CoordinationUnavailableError("out of reach")))
        return refreshed


def _raise(error: Exception) -> None:
    raise error


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BrokerBench]:
    bench = BrokerBench(tmp_path)
    yield bench
    bench.close()


def topics_of(bench: BrokerBench) -> ClusterTopics:
    return ClusterTopics(
        bench.shared, lambda: BrokerListeners(()), lambda: "a-cluster", has_cluster=True
    )


def part_of(
    bench: BrokerBench,
    reached: Reached,
    use_values: Callable[[Mapping[str, bytes]], None] = lambda values: None,
    topics: ClusterTopics | None = None,
) -> ClusterPart:
    def follow(on_state: Any) -> Any:
        return reached

    cluster = bench.cluster
    topics = topics or topics_of(bench)
    return ClusterPart(bench.shared, topics, cluster.changes, cluster.deletions, use_values, follow)


def test_a_topic_that_takes_a_deleted_ones_name_is_not_deleted_for_it(bench: BrokerBench) -> None:
    reached, topics = Reached(), bench.shared.topics
    part = part_of(bench, reached)
    topics.for_produce("t", 0)
    reached.is_reached = False
    deleted = {ID: DeletedTopic("t", "0.7", frozenset({0}))}
    part.on_state(ClusterState(TreeContents(1, {}, deleted), {}))
    bench.turns()
    assert not topics.exists("t")
    log = topics.for_produce("t", 0)
    hello = encode_message_set([b"hello"])
    log.append([hello], len(hello), 1, 0)
    reached.is_reached = True
    bench.clock.advance(RETRY_SECONDS)
    bench.turns()
    assert reached.said == [ID]
    assert topics.for_fetch("t", 0) is log
    part.stop()


def test_what_could_not_be_used_is_tried_again_though_nothing_changes(bench: BrokerBench) -> None:
    used: list[Mapping[str, bytes]] = []
    part = part_of(bench, Reached(), used.append)
    values = {"/a": b"value"}
    part.on_state(ClusterState(TreeContents(1, {}, {}), {}, values))
    part.try_later()
    bench.clock.advance(RETRY_SECONDS)
    assert used == [values, values]
    bench.clock.advance(RETRY_SECONDS)
    assert used == [values, values]
    part.stop()


def test_a_topic_that_can_not_be_read_is_not_taken_for_deleted(bench: BrokerBench) -> None:
    """Else groups would lose their offsets in it, and begin anew once it is mended."""
    session, gone = MemoryCoordination().session(), list[str]()
    tree, topics = TopicTree(session), topics_of(bench)
    topics.on_gone(gone.append)
    part = part_of(bench, Reached(), topics=topics)
    tree.prepare()
    node = TopicNode(ID, "kafka", (BrokerPartition(7, 0),))
    tree.create("t", node)
    known = tree.read()
    part.on_state(ClusterState(known, {}))
    session.set(topic_node_path("t"), b"nonsense")
    known = tree.read()
    part.on_state(ClusterState(known, {}))
    assert topics.get("t") is None
    assert not topics.is_gone("t", ID)
    tree.create("other", replace(node, id=UUID(int=2)))
    known = tree.read(known)
    part.on_state(ClusterState(known, {}))
    assert topics.names() == ["other"]
    assert not topics.is_gone("t", ID)
    assert gone == []
    session.delete(topic_node_path("t"), -1)
    part.on_state(ClusterState(tree.read(), {}))
    assert topics.is_gone("t", ID)
    assert gone == ["t"]
    part.stop()


def test_a_topic_is_not_taken_for_one_of_single_copies_where_its_copies_can_not_be_read(
    bench: BrokerBench,
) -> None:
    """The broker that made a partition may have none of it any more: who leads it isn't known."""
    session = MemoryCoordination().session()
    tree, topics = TopicTree(session), topics_of(bench)
    part = part_of(bench, Reached(), topics=topics)
    tree.prepare()
    moved = TopicReplicas(ID, (first_state((1, 2), {1: 10, 2: 20}),))
    tree.create("t", TopicNode(ID, "kafka", (BrokerPartition(0, 0),)), moved)
    session.set(replicas_path("t"), b"nonsense")
    known = tree.read()
    part.on_state(ClusterState(known, {}))
    bench.turns()
    assert topics.get("t") is None
    assert bench.directory.get("t", 0) is None
    assert not topics.is_gone("t", ID)
    tree.change("t", lambda node: node and replace(node, settings={"retention_time": "1h"}))
    known = tree.read(known)
    part.on_state(ClusterState(known, {}))
    assert topics.get("t") is None
    part.stop()


def test_settings_of_many_topics_are_written_together(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a broker learns of them that is new in its cluster, each in a file with all of them."""
    written: list[int] = []
    write_entries = bench.directory.write_entries

    def counted(entries: TopicEntries) -> None:
        written.append(len(entries))
        write_entries(entries)

    monkeypatch.setattr(bench.directory, "write_entries", counted)
    part = part_of(bench, Reached())
    settings = {"retention_time": "1h"}
    nodes = {f"t{number}": TopicNode(uuid4(), "kafka", (), settings) for number in range(500)}
    nodes["odd"] = TopicNode(uuid4(), "kafka", (), {"no such": "setting"})
    part.on_state(ClusterState(TreeContents(1, nodes, {}), {}))
    while len(bench.settings.entries) < len(nodes) - 1:
        bench.turns()
    assert bench.settings.entries.keys() == nodes.keys() - {"odd"}
    assert bench.settings.config.topic("t499").retention_time_ms == 3_600_000
    assert len(written) < 50
    part.stop()
