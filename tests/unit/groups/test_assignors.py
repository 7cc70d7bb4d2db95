"""The assignors of the coordinator: even, complete, and as few moves as can be."""

from collections.abc import Mapping
from itertools import chain
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.groups.assignors import ASSIGNORS, Subscriptions, Target, range_, uniform
from hermes.groups.consumer_values import TopicIdPartition

ONE, TWO, THREE = (UUID(int=each) for each in (1, 2, 3))
SIZES = {ONE: 5, TWO: 3, THREE: 1}


def shown(target: Target) -> dict[str, list[tuple[int, int]]]:
    return {
        member: sorted((place.topic_id.int, place.partition) for place in places)
        for member, places in target.items()
    }


def test_range_gives_the_same_numbers_of_topics_of_one_size() -> None:
    wanted = Subscriptions(dict.fromkeys("ab", frozenset({ONE, TWO})), {ONE: 3, TWO: 3})
    assert shown(range_(wanted, {})) == {
        "a": [(1, 0), (1, 1), (2, 0), (2, 1)],
        "b": [(1, 2), (2, 2)],
    }


def test_uniform_moves_no_more_than_it_has_to() -> None:
    topics = frozenset({ONE, TWO})
    two = uniform(Subscriptions(dict.fromkeys("ab", topics), {ONE: 3, TWO: 3}), {})
    assert [len(each) for each in two.values()] == [3, 3]
    three = uniform(Subscriptions(dict.fromkeys("abc", topics), {ONE: 3, TWO: 3}), two)
    assert [len(each) for each in three.values()] == [2, 2, 2]
    assert three["a"] < two["a"]
    assert three["b"] < two["b"]
    back = uniform(Subscriptions(dict.fromkeys("ac", topics), {ONE: 3, TWO: 3}), three)
    assert three["a"] < back["a"]
    assert three["c"] < back["c"]


def test_uniform_evens_out_what_members_can_take() -> None:
    members = {"a": frozenset({ONE, TWO}), "b": frozenset({ONE}), "c": frozenset({TWO})}
    target = uniform(Subscriptions(members, {ONE: 2, TWO: 4}), {})
    assert sorted(len(each) for each in target.values()) == [2, 2, 2]


@pytest.mark.parametrize("name", ASSIGNORS)
@given(
    members=st.dictionaries(
        st.sampled_from("abcdefg"), st.frozensets(st.sampled_from([ONE, TWO, THREE])), min_size=1
    ),
    sizes=st.dictionaries(st.sampled_from([ONE, TWO, THREE]), st.integers(0, 9)),
    before=st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.frozensets(
            st.builds(TopicIdPartition, st.sampled_from([ONE, TWO, THREE]), st.integers(0, 9))
        ),
    ),
)
def test_everything_is_given_once_to_who_wants_it(
    name: str,
    members: Mapping[str, frozenset[UUID]],
    sizes: Mapping[UUID, int],
    before: Mapping[str, frozenset[TopicIdPartition]],
) -> None:
    wanted = Subscriptions(
        members, {k: sizes.get(k, 0) for k in frozenset[UUID]().union(*members.values())}
    )
    target = ASSIGNORS[name](wanted, before)
    assert target.keys() == members.keys()
    given_out = sorted(chain.from_iterable(target.values()))
    assert given_out == sorted(
        TopicIdPartition(topic, number)
        for topic, count in wanted.partitions.items()
        for number in range(count)
    )
    for member, places in target.items():
        assert {each.topic_id for each in places} <= members[member]
    if name == "uniform":
        assert uniform(wanted, target) == target
        _check_even(target, members)


def _check_even(target: Target, members: Mapping[str, frozenset[UUID]]) -> None:
    for member, places in target.items():
        for other in members:
            if any(each.topic_id in members[other] for each in places):
                assert len(places) <= len(target[other]) + 1, (member, other)
