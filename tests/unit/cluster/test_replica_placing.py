"""What copies a topic can't have, in Kafka's words, and what its node says of those it gets."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from replicated_bench import ReplicatedBench

from hermes.cluster.replica_placing import DEFAULT, ReplicaPlacing, copies_of, with_copies
from hermes.coordination.listeners import BrokerListeners, ListenerNode
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.replication.state import PartitionState, TopicReplicas, first_state, moving

ID = UUID(int=1)
LIVES = {0: 10, 1: 11, 2: 12}
PORT = ListenerNode("0", "a.example.org", 19092, False, "none")
ABLE = BrokerListeners((), (), (PORT,), replication=True)
EARLIER = BrokerListeners((), (), (PORT,))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ReplicatedBench]:
    bench = ReplicatedBench(tmp_path)
    registered(bench, ABLE)
    yield bench
    bench.close()


def registered(bench: ReplicatedBench, others: BrokerListeners) -> None:
    bench.cluster.topics._listeners = lambda: ABLE
    bench.cluster.topics.use({}, {1: others, 2: ABLE}, {}, LIVES)


def placing(bench: ReplicatedBench) -> ReplicaPlacing:
    return ReplicaPlacing(bench.shared, bench.cluster.topics)


def refusal(place: Callable[..., object], *asked: object) -> tuple[Code, str]:
    with pytest.raises(KafkaError) as raised:
        place(*asked)
    return raised.value.code, str(raised.value)


def test_as_many_copies_as_asked_for_or_else_as_the_setting_says(bench: ReplicatedBench) -> None:
    place = placing(bench).new

    assert [len(each) for each in place("t", 3, DEFAULT, None)] == [1, 1, 1]
    assert {frozenset(each) for each in place("t", 3, 3, None)} == {frozenset({0, 1, 2})}
    assert place("t", 2, DEFAULT, [[2, 0], [0, 1]]) == [[2, 0], [0, 1]]


@pytest.mark.parametrize(
    ("copies", "said"),
    [
        (4, "factor of 4 cannot be reached because only 3 broker(s) are registered"),
        (8, "There can be 7 copies of a partition at most, not 8."),
    ],
)
def test_there_are_not_more_copies_than_brokers(
    bench: ReplicatedBench, copies: int, said: str
) -> None:
    code, text = refusal(placing(bench).new, "t", 1, copies, None)
    assert code is Code.INVALID_REPLICATION_FACTOR
    assert said in text


def test_while_a_broker_keeps_no_copies_nobody_has_several(bench: ReplicatedBench) -> None:
    registered(bench, EARLIER)

    for assignment in (None, [[0, 2]]):
        code, text = refusal(placing(bench).new, "t", 1, DEFAULT if assignment else 2, assignment)
        assert code is Code.INVALID_REPLICATION_FACTOR
        assert "brokers [1] run a release that keeps no copies" in text
    assert len(placing(bench).new("t", 1, 1, None)) == 1


def test_a_topic_with_copies_has_as_many_partitions_as_its_node_has_room_for(
    bench: ReplicatedBench,
) -> None:
    code, text = refusal(placing(bench).new, "t", 5001, 2, None)
    assert (code, "5000 partitions at most" in text) == (Code.INVALID_PARTITIONS, True)
    assert len(placing(bench).new("t", 5000, 2, None)) == 5000


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ([[]], "an empty replica list"),
        ([[0, 0]], "the broker 0 more than once"),
        ([[0, 7]], "broker 7, but no such broker is registered"),
        ([[0, 1], [2]], "a partition with 1 replica(s), but this is not consistent"),
    ],
)
def test_what_is_assigned_wrongly_is_refused(
    bench: ReplicatedBench, assignment: list[list[int]], said: str
) -> None:
    code, text = refusal(placing(bench).new, "t", len(assignment), DEFAULT, assignment)
    assert code is Code.INVALID_REPLICA_ASSIGNMENT
    assert f"The manual partition assignment includes {said}" in text


def test_further_partitions_have_as_many_copies_as_the_first_will_have(
    bench: ReplicatedBench,
) -> None:
    state = moving(first_state((0, 1), LIVES), (2, 1, 0))
    bench.topic("t", state, first_state((1, 0), LIVES), 2)
    found = bench.cluster.topics.get("t")
    assert found is not None
    registered(bench, ABLE)

    assert copies_of(found) == [3, 2, 1]
    assert [len(each) for each in placing(bench).more(found, 3, 5, None)] == [3, 3]
    code, text = refusal(placing(bench).more, found, 3, 4, [[0, 1]])
    assert (code, "which have 3 replica(s)" in text) == (Code.INVALID_REPLICA_ASSIGNMENT, True)
    code, text = refusal(placing(bench).more, found, 3, 5, [[0, 1, 2]])
    assert "Attempted to add 2 additional partition(s), but only 1 assignment(s)" in text


def test_without_a_cluster_it_is_said_what_copies_need(bench: ReplicatedBench) -> None:
    bench.cluster.topics.has_cluster = False
    code, text = refusal(placing(bench).new, "t", 1, 4, None)
    assert code is Code.INVALID_REPLICATION_FACTOR
    assert text.endswith("need coordination and kafka_listen in each one's broker.yaml.")


def test_the_first_of_the_copies_lead_and_single_ones_have_no_state() -> None:
    node = with_copies(TopicReplicas(ID, ()), 0, [(0, 1), (2, 0)], LIVES)
    assert node is not None
    assert node.partitions == (
        PartitionState((0, 1), 0, 10, 0, frozenset({0, 1})),
        PartitionState((2, 0), 2, 12, 0, frozenset({0, 2})),
    )
    grown = with_copies(node, 3, [(1, 2)], LIVES)
    assert grown is not None
    assert grown.partitions == (*node.partitions, None, first_state((1, 2), LIVES))
    assert with_copies(TopicReplicas(ID, ()), 0, [(0,), (1,)], LIVES) is None
