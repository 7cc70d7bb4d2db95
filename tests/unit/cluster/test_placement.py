"""Which brokers get the copies of new partitions: racks and brokers in turns, leaders spread."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.cluster.placement import numbered_places, spread
from hermes.coordination.layout import BrokerPartition

CLUSTERS = st.dictionaries(st.integers(0, 50), st.sampled_from(["a", "b", "c"]), min_size=1)


def test_copies_are_on_brokers_in_turns_and_their_partners_change() -> None:
    placed = spread(dict.fromkeys((1, 2, 3), ""), "t", 0, 6, 2)

    assert Counter(each[0] for each in placed) == {1: 2, 2: 2, 3: 2}
    assert set(placed) == {(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)}


def test_copies_are_in_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "c"}

    for number, brokers in enumerate(spread(racks, "t", 0, 30, 3)):
        assert {racks[each] for each in brokers} == {"a", "b", "c"}, number


@given(CLUSTERS, st.text("abc", max_size=3), st.integers(1, 7), st.integers(1, 40))
def test_no_rack_has_two_copies_while_another_has_none(
    racks: dict[int, str], name: str, copies: int, count: int
) -> None:
    copies = min(copies, len(racks))
    placed = spread(racks, name, 0, count, copies)

    leaders = Counter(each[0] for each in placed)
    assert len(placed) == count
    assert max(leaders.values()) - min(leaders[each] for each in racks) <= 1
    for brokers in placed:
        assert len(set(brokers)) == len(brokers) == copies
        used, sizes = Counter(racks[each] for each in brokers), Counter(racks.values())
        free = [each for each in sizes if used[each] < sizes[each]]
        assert all(used[each] + 1 >= max(used.values()) for each in free)


@given(CLUSTERS, st.integers(0, 20), st.integers(0, 20))
def test_a_topic_that_grows_is_placed_as_one_made_at_once(
    racks: dict[int, str], first: int, more: int
) -> None:
    copies = min(3, len(racks))
    grown = spread(racks, "t", 0, first, copies) + spread(racks, "t", first, first + more, copies)
    assert grown == spread(racks, "t", 0, first + more, copies)


@pytest.mark.parametrize("first", [0, 3])
def test_a_place_is_the_first_replica_with_the_number_of_kafka(first: int) -> None:
    assert numbered_places([(2, 1), (1, 2)], first) == (
        BrokerPartition(2, first),
        BrokerPartition(1, first + 1),
    )
