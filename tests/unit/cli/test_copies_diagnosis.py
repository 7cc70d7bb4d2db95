"""`hermes doctor` says what is wrong with copies of partitions."""

from uuid import UUID

from memory_coordination import MemoryCoordination

from hermes.cli.copies_diagnosis import find_about_copies
from hermes.coordination.replicas import ReplicaTree
from hermes.replication.state import NOBODY, PartitionState, TopicReplicas


def of(*replicas: int, leader: int = 1, isr: tuple[int, ...] = ()) -> PartitionState:
    return PartitionState(replicas, leader, 11, 5, frozenset(isr or replicas))


def found(*states: PartitionState, embedded: bool = False) -> list[tuple[bool, str]]:
    session = MemoryCoordination().session()
    tree = ReplicaTree(session)
    tree.prepare()
    session.ensure_path("/hermes/kafka/changes")
    if states:
        assert tree.create("clicks", TopicReplicas(UUID(int=1), states))
    return list(find_about_copies(session, {1, 2, 3}, is_embedded=embedded))


def test_where_there_are_no_copies_nothing_is_said() -> None:
    assert found(embedded=True) == []
    assert found(of(1), embedded=True) == []


def test_what_is_well_is_counted() -> None:
    assert found(of(1, 2), of(2, 1, leader=2)) == [(True, "2 partitions have several copies")]


def test_what_is_not_led_or_in_sync_is_named() -> None:
    states = [of(1, 2, isr=(1,)), *[of(7, 1, leader=7)] * 6, of(2, 3, leader=NOBODY)]
    _, unled, behind, *_ = found(*states)
    assert unled[1].startswith(
        "nobody leads clicks-1, clicks-2, clicks-3, clicks-4, clicks-5 and 2"
    )
    assert behind == (
        False,
        "copies aren't in sync of clicks-0: `hermes replicas list --problems` tells why",
    )


def test_one_process_of_coordination_and_one_leader_are_problems() -> None:
    _, uneven, single = found(*[of(1, 2)] * 9, embedded=True)
    assert uneven == (False, "broker 1 leads 9 of them: spread it by `hermes replicas elect`")
    assert "three ZooKeepers" in single[1]
