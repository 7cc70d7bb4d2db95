"""`hermes doctor` says what is wrong with copies of partitions."""

from collections.abc import Mapping
from uuid import UUID

import pytest
from memory_coordination import MemoryCoordination

from hermes.cli.copies_diagnosis import find_about_copies
from hermes.coordination.kafka_topics import TopicNode, format_topic, topic_node_path
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.listeners import BrokerListeners
from hermes.coordination.replicas import ReplicaTree
from hermes.protocol import NOBODY
from hermes.replication.state import PartitionState, TopicReplicas

ID = UUID(int=1)


def of(
    *replicas: int, leader: int = 1, isr: tuple[int, ...] = (), adding: tuple[int, ...] = ()
) -> PartitionState:
    in_sync = frozenset(isr or replicas) - set(adding)
    return PartitionState(replicas, leader, 11, 5, in_sync, frozenset(adding))


def found(
    *states: PartitionState,
    embedded: bool = False,
    racks: Mapping[int, str] | None = None,
    settings: Mapping[str, str] | None = None,
    too_old: int = 0,
    transactional: PartitionState | None = None,
) -> list[tuple[str, str]]:
    """What is said beside how many there are; first where there are none."""
    session = MemoryCoordination().session()
    tree = ReplicaTree(session)
    tree.prepare()
    session.ensure_path("/hermes/kafka/changes")
    session.ensure_path("/hermes/kafka/topics")
    if states:
        assert tree.create("clicks", TopicReplicas(ID, states))
    node = TopicNode(ID, "kafka", (BrokerPartition(1, 0),), settings or {})
    session.create(topic_node_path("clicks"), format_topic(node))
    if transactional is not None:
        session.create(topic_node_path("__transaction_state"), format_topic(node))
        assert tree.create("__transaction_state", TopicReplicas(ID, (transactional,)))
    brokers = {
        number: BrokerListeners((), replication=number != too_old, rack=rack)
        for number, rack in (racks or {1: "", 2: "", 3: ""}).items()
    }
    told = find_about_copies(session, brokers, None, is_embedded=lambda: embedded)
    return [(level, text) for level, text in told if "have several copies" not in text]


def test_where_there_are_no_copies_nothing_is_said() -> None:
    assert found(embedded=True) == []
    assert found(of(1), embedded=True) == []


def test_of_what_is_well_nothing_is_said() -> None:
    assert found(of(1, 2), of(2, 1, leader=2)) == []
    assert found(of(1, 2, 3), of(2, 1, 3, leader=2), racks={1: "a", 2: "b", 3: "c"}) == []


def test_transactional_ids_want_copies() -> None:
    states = of(1, 2), of(2, 1, leader=2)
    ((level, text),) = found(*states, transactional=of(1))
    assert level == "notice"
    assert "--topics __transaction_state --replicas 3" in text
    assert found(*states, transactional=of(3, 2, leader=3)) == []


def test_what_is_not_led_or_in_sync_is_named() -> None:
    states = [of(1, 2, isr=(1,)), *[of(7, 1, leader=7)] * 6, of(2, 3, leader=NOBODY)]
    unled, behind = found(*states)
    assert unled == (
        "problem",
        "nobody leads clicks-1, clicks-2, clicks-3, clicks-4, clicks-5 and 2 more: "
        "`hermes replicas list --problems` tells why",
    )
    assert behind == (
        "problem",
        "copies aren't in sync of clicks-0: `hermes replicas list --problems` tells why",
    )


def test_a_move_to_a_broker_that_is_not_there_is_a_problem() -> None:
    assert found(of(1, 2, 3, adding=(3,))) == []
    ((level, text),) = found(of(1, 2, 9, adding=(9,)))
    assert level == "problem"
    assert text.startswith("moves of clicks-0 wait for broker 9, which isn't registered: start it")


def test_more_in_sync_than_there_are_brokers_is_a_problem() -> None:
    away = of(1, 8, 9, isr=(1,))
    assert ("acks=all is refused; start them" in found(away)[1][1]) is True
    settings = {"min_insync_replicas": "1"}
    assert len(found(away, settings=settings)) == 1  # only that copies aren't in sync
    ((level, text),) = found(of(1, 2, 3), settings={"min_insync_replicas": "3"})
    assert (level, "lower it, or add a copy" in text) == ("notice", True)


@pytest.mark.parametrize(
    ("racks", "says"),
    [
        ({1: "a", 2: "a", 3: "b"}, ("problem", "all copies are in one rack of clicks-0: move one")),
        ({1: "a", 2: "b", 3: ""}, ("notice", "broker 3 says no rack")),
        ({1: "a", 2: "a", 3: "a"}, ("notice", "all brokers are in rack a")),
    ],
)
def test_copies_in_one_rack_are_named(racks: dict[int, str], says: tuple[str, str]) -> None:
    ((level, text),) = found(of(1, 2), racks=racks)
    assert level == says[0]
    assert text.startswith(says[1])


def test_one_that_leads_most_is_a_problem_and_what_to_do_depends_on_who_is_preferred() -> None:
    ((level, text),) = found(*[of(2, 1)] * 9)
    assert (level, text) == (
        "problem",
        "broker 1 leads 9 of them: spread it by `hermes replicas elect`",
    )
    ((_, text),) = found(*[of(1, 2)] * 9)
    assert "put others first with `hermes replicas move`" in text


def test_a_broker_that_keeps_no_copies_is_told_of() -> None:
    ((level, text),) = found(of(1, 2), too_old=3)
    assert level == "notice"
    assert text.startswith("broker 3 can't keep copies")


def test_one_process_of_coordination_is_a_problem() -> None:
    ((level, text),) = found(of(1, 2), embedded=True)
    assert (level, "three ZooKeepers" in text) == ("problem", True)
