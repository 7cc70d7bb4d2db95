"""Who is to have copies: as few moves as it takes, over racks, and over brokers."""

from collections import Counter

import pytest

from hermes.client.kafka_replicas import Partition
from hermes.client.replica_plans import load_of, onto, with_copies, without
from hermes.errors import ClientError
from hermes.protocol import NOBODY

ONE_RACK = {1: "", 2: "", 3: ""}
RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}


def partition(number: int, *replicas: int, in_sync: tuple[int, ...] = ()) -> Partition:
    return Partition(("t", number), replicas[0], 3, replicas, frozenset(in_sync or replicas))


def test_more_copies_go_to_other_racks_and_then_to_whom_has_the_fewest() -> None:
    known = [partition(0, 1), partition(1, 1), partition(2, 2)]
    assert with_copies(known, 3, known, RACKS) == {
        ("t", 0): (1, 3, 4),
        ("t", 1): (1, 3, 2),
        ("t", 2): (2, 4, 1),
    }
    assert with_copies(known[:1], 1, known, RACKS) == {}
    with pytest.raises(ClientError, match="add brokers first"):
        with_copies(known, 5, known, RACKS)


def test_fewer_copies_leave_the_leader_and_two_racks() -> None:
    known = [partition(0, 1, 2, 3), partition(1, 3, 1, 2)]
    assert with_copies(known, 2, known, RACKS) == {("t", 0): (1, 3), ("t", 1): (3, 1)}


def test_those_go_first_that_are_down_or_lack_something() -> None:
    away = [partition(0, 1, 9, 3), partition(1, 1, 2, 3, in_sync=(1, 2))]
    assert with_copies(away, 2, away, ONE_RACK) == {("t", 0): (1, 3), ("t", 1): (1, 2)}


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    known = [partition(number, 1 + number % 3, 1 + (number + 1) % 3) for number in range(12)]
    plan = onto(4, known, {**ONE_RACK, 4: ""})
    moved = {**{each.place: each.replicas for each in known}, **plan}
    assert Counter(each for target in moved.values() for each in target) == dict.fromkeys(
        (1, 2, 3, 4), 6
    )
    assert len(plan) == 6
    for place, target in plan.items():
        before = next(each.replicas for each in known if each.place == place)
        assert len(set(before) - set(target)) == 1
        assert [each for each in target if each != 4] == [
            each for each in before if each in target
        ], "whoever stays keeps its place"


def test_a_new_broker_takes_nothing_where_a_rack_would_lose_its_copy() -> None:
    known = [partition(number, 1, 3) for number in range(8)]
    plan = onto(2, known, {1: "a", 2: "a", 3: "b"})
    assert set(plan.values()) == {(2, 3)}
    assert onto(4, [partition(0, 1, 3)], {1: "a", 3: "b", 4: "c"}) == {}


def test_a_broker_that_has_its_share_gets_nothing() -> None:
    known = [partition(0, 1, 2), partition(1, 2, 1)]
    assert onto(1, known, {1: "", 2: ""}) == {}
    assert onto(3, [], ONE_RACK) == {}


def test_a_broker_is_left_nothing_and_its_heirs_are_in_its_places() -> None:
    known = [partition(0, 1, 3), partition(1, 3, 1), partition(2, 4, 2)]
    plan = without(3, known, RACKS)
    assert plan == {("t", 0): (1, 4), ("t", 1): (4, 1)}
    assert without(3, known, {1: "a", 2: "a", 4: "b"}) == plan, "whether it is there or not"


def test_a_broker_that_nobody_can_inherit_from_stays() -> None:
    with pytest.raises(ClientError, match="t:0 has 3 copies, and there are 2 other brokers"):
        without(1, [partition(0, 1, 2, 3)], ONE_RACK)


def test_of_a_move_under_way_its_target_counts() -> None:
    moving = Partition(
        ("t", 0), NOBODY, 3, (2, 3, 1), frozenset({1}), frozenset({2}), frozenset({1})
    )
    assert moving.target == (2, 3)
    assert load_of([moving]) == {2: 1, 3: 1}
    assert without(1, [moving], ONE_RACK) == {}
    assert without(2, [moving], ONE_RACK) == {("t", 0): (1, 3)}
