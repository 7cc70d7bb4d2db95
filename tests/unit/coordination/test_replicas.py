"""Topics' replicas in coordination: changes by compare-and-set, and what is known of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from memory_coordination import MemoryCoordination, MemorySession

from hermes.coordination.kafka_topics import KAFKA_CHANGES
from hermes.coordination.replicas import ReplicaTree, directory_path, replicas_path
from hermes.coordination.topic_tree import TopicTree
from hermes.errors import CoordinationUnavailableError, InvalidNodeError, WrongStateError
from hermes.replication.state import PartitionState, TopicReplicas, led_by, left

STATE = PartitionState((1, 2), 1, 0x77, 7, frozenset({1, 2}))
NODE = TopicReplicas(UUID(int=1), (STATE, STATE))


@pytest.fixture
def session() -> MemorySession:
    session = MemoryCoordination().session()
    TopicTree(session).prepare()
    return session


@pytest.fixture
def tree(session: MemorySession) -> ReplicaTree:
    tree = ReplicaTree(session)
    tree.prepare()
    assert tree.create("t", NODE)
    return tree


def test_a_topic_is_made_once(tree: ReplicaTree) -> None:
    assert tree.create("t", NODE), "a second try of the same"
    assert not tree.create("t", replace(NODE, id=UUID(int=2)))
    assert tree.topics() == ["t"]
    assert tree.read(["t", "u"]) == {"t": NODE}


def test_a_change_tells_the_new_state_and_its_version_and_is_noted(
    session: MemorySession, tree: ReplicaTree
) -> None:
    noted = session.get(KAFKA_CHANGES)
    assert noted is not None
    assert tree.change("t", 1, lambda found: left(found, 1)) == (left(STATE, 1), 1)
    node = tree.read_certainly("t")
    assert node is not None
    assert (node.partitions, node.version) == ((STATE, left(STATE, 1)), 1)
    now = session.get(KAFKA_CHANGES)
    assert now is not None
    assert (now.version, now.value) == (noted.version + 1, b"t")


def test_a_change_that_changes_nothing_writes_nothing(tree: ReplicaTree) -> None:
    assert tree.change("t", 0, lambda found: found) == (STATE, 0)


def test_a_change_of_another_partition_is_in_nobodys_way(tree: ReplicaTree) -> None:
    def make(found: PartitionState) -> PartitionState:
        if not others:
            others.append(tree.change("t", 1, lambda each: left(each, 2)))
        return led_by(found, 2, 5)

    others: list[object] = []
    assert tree.change("t", 0, make) == (led_by(STATE, 2, 5), 2)
    node = tree.read_certainly("t")
    assert node is not None
    assert node.partitions == (led_by(STATE, 2, 5), left(STATE, 2))


def test_of_what_another_has_changed_is_decided_anew(tree: ReplicaTree) -> None:
    def make(found: PartitionState) -> PartitionState:
        seen.append(found)
        if len(seen) == 1:
            tree.change("t", 0, lambda each: left(each, 1))
        if found != STATE:
            raise WrongStateError("another was quicker")
        return led_by(found, 2, 5)

    seen: list[PartitionState] = []
    with pytest.raises(WrongStateError, match="quicker"):
        tree.change("t", 0, make)
    assert seen == [STATE, left(STATE, 1)]


@pytest.mark.parametrize(("topic", "number"), [("t", 2), ("t", -1), ("u", 0)])
def test_what_is_not_there_is_not_changed(tree: ReplicaTree, topic: str, number: int) -> None:
    with pytest.raises(WrongStateError, match="isn't there"):
        tree.change(topic, number, lambda found: found)


def test_a_write_whose_answer_is_lost_is_known_by_a_read_after_a_sync(
    session: MemorySession, tree: ReplicaTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(fill: Callable[[Any], object]) -> list[Any]:
        session_transact(fill)
        raise CoordinationUnavailableError("no answer came")

    session_transact = session.transact
    monkeypatch.setattr(session, "transact", lose)
    with pytest.raises(CoordinationUnavailableError):
        tree.change("t", 0, lambda found: left(found, 1))
    node = tree.read_certainly("t")
    assert node is not None
    assert node.state_of(0) == left(STATE, 1)


def test_a_node_that_cannot_be_understood_is_left_out_and_told(
    session: MemorySession, tree: ReplicaTree
) -> None:
    session.put(replicas_path("bad"), b"{}")
    faults: dict[str, InvalidNodeError] = {}
    assert tree.read(["bad", "t"], faults.__setitem__) == {"t": NODE}
    assert faults.keys() == {"bad"}
    assert replicas_path("bad") in str(faults["bad"])


def test_a_brokers_directory_is_kept(session: MemorySession, tree: ReplicaTree) -> None:
    assert tree.directory(1) is None
    for number in (5, 5, 6):
        tree.keep_directory(1, UUID(int=number))
        assert tree.directory(1) == UUID(int=number)
    session.set(directory_path(1), b"\xff")
    with pytest.raises(InvalidNodeError, match=directory_path(1)):
        tree.directory(1)
