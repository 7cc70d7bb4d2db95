"""What a broker follows and changes in coordination, a look at a time."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from memory_coordination import MemoryCoordination
from twisted.internet.defer import Deferred, maybeDeferred

from hermes.cluster.local_partitions import LocalPartitions
from hermes.cluster.topic_cluster import ClusterState, TopicCluster
from hermes.coordination.kafka_topics import TopicNode, format_topic, topic_node_path
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.listeners import HERMES_BROKERS, BrokerListeners, format_listeners
from hermes.coordination.replicas import replicas_path


@pytest.fixture
def coordination() -> MemoryCoordination:
    return MemoryCoordination()


class Following:
    """A broker's thread, a look at a time; `told` is what it has said of the cluster."""

    def __init__(self, coordination: MemoryCoordination, **local: LocalPartitions) -> None:
        self.told: list[ClusterState] = []

        def from_thread(call: Callable[[], None]) -> None:
            call()

        def in_thread(call: Callable[..., Any], *args: Any) -> "Deferred[Any]":
            return maybeDeferred(call, *args)

        connect = coordination.session
        self.cluster = TopicCluster(5, connect, from_thread, in_thread, self.told.append)
        self.cluster.publish_local(local)

    def look(self) -> ClusterState:
        self.cluster._wake.clear()
        tree = self.cluster._connected()
        assert tree is not None
        self.cluster._look(tree, 0)
        return self.told[-1]


def look_of(coordination: MemoryCoordination, **local: LocalPartitions) -> ClusterState:
    """What a broker knows once it has looked, and has published what it has."""
    return Following(coordination, **local).look()


def test_a_topic_whose_node_is_broken_keeps_no_other_from_being_known(
    coordination: MemoryCoordination,
) -> None:
    coordination.session().put(topic_node_path("broken"), b"nonsense")
    mine = LocalPartitions("0.7", None, (0,))
    state = look_of(coordination, broken=mine, sound=mine)
    assert state.contents.topics.keys() == {"sound"}
    left = coordination.session().get(topic_node_path("broken"))
    assert left is not None
    assert left.value == b"nonsense"


@pytest.mark.parametrize("name", ["9" * 5000, "007", "0x1", "\N{ARABIC-INDIC DIGIT THREE}"])
def test_a_node_that_is_no_brokers_keeps_no_broker_from_being_known(
    coordination: MemoryCoordination, name: str
) -> None:
    listeners = format_listeners(BrokerListeners(()))
    for each in (name, "4"):
        coordination.session().put(f"{HERMES_BROKERS}/{each}", listeners)
    assert look_of(coordination).brokers.keys() == {4}


def test_a_fault_ends_a_look_and_not_the_following() -> None:
    looks: list[None] = []

    def connect(on_change: Callable[[], None]) -> None:
        looks.append(None)
        cluster._wake.set()
        if len(looks) == 1:
            raise ValueError("a fault of ours")
        cluster._stopping = True

    unused: Any = None
    failed: list[Callable[[], None]] = []
    cluster = TopicCluster(5, connect, failed.append, unused, unused)
    cluster._run()
    assert len(looks) == 2
    assert len(failed) == 1


@pytest.mark.parametrize("broken", [topic_node_path("t"), replicas_path("t")])
def test_a_topic_is_known_again_once_somebody_has_mended_its_node(
    coordination: MemoryCoordination, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = coordination.session()
    node = TopicNode(UUID(int=1), "kafka", (BrokerPartition(7, 0),))
    session.put(topic_node_path("t"), format_topic(node))
    session.put(broken, b"nonsense")
    following = Following(coordination)
    assert following.look().contents.topics == {}
    assert following.look().contents.unreadable == {"t"}
    assert len(following.told) == 1
    assert len(caplog.records) == 1
    if broken == topic_node_path("t"):
        session.set(broken, format_topic(node))
    else:
        session.delete(broken, -1)
    assert following.cluster._wake.is_set()
    assert following.look().contents.topics == {"t": node}
    assert following.told[-1].contents.unreadable == set()


def test_a_fault_of_who_is_told_leaves_nobody_waiting(coordination: MemoryCoordination) -> None:
    """Else whoever created a topic in that moment would never be answered."""
    following = Following(coordination)

    def fails(state: ClusterState) -> None:
        raise ValueError("a fault of ours")

    following.cluster._on_state = fails
    refreshed: list[object] = []
    following.cluster.refreshed().addCallback(refreshed.append)
    tree = following.cluster._connected()
    assert tree is not None
    with pytest.raises(ValueError, match="a fault of ours"):
        following.cluster._look(tree, 1)
    assert refreshed == [None]
