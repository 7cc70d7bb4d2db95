"""What coordination says of a partition's copies: every change keeps what must hold of it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.errors import InvalidNodeError, LastReplicaError, WrongStateError
from hermes.protocol import NOBODY
from hermes.replication.state import (
    PartitionState,
    TopicReplicas,
    cancelled,
    expanded,
    first_state,
    forfeited,
    format_replicas,
    handed_over,
    led_by,
    left,
    moved,
    moving,
    parse_replicas,
    resigned,
    shrunk,
    unclean,
)

PATH = "/hermes/kafka/replicas/t"
ID = UUID(int=1)
STATE = PartitionState((1, 2, 3), 1, 0x77, 7, frozenset({1, 2, 3}))
WRITTEN: Mapping[str, Any] = {
    "id": str(ID),
    "later": {"rack": 1},
    "partitions": [
        {
            "replicas": [1, 2, 3],
            "leader": 1,
            "life": "77",
            "epoch": 7,
            "isr": [1, 2, 3],
            "adding": [],
            "removing": [],
            "observers": [4],
        },
        None,
    ],
}


def check(state: PartitionState) -> None:
    replicas = set(state.replicas)
    assert len(replicas) == len(state.replicas)
    assert state.isr
    assert state.isr <= replicas
    assert state.leader == NOBODY or state.leader in state.isr
    assert state.adding | state.removing <= replicas
    assert not state.adding & state.removing
    node = TopicReplicas(ID, (state,))
    assert parse_replicas(PATH, format_replicas(node)) == node


# -- each change ----------------------------------------------------------------------------------


def test_of_a_new_topic_who_is_there_has_everything() -> None:
    assert first_state((3, 1, 2), {1: 11, 2: 22}) == PartitionState(
        (3, 1, 2), 1, 11, 0, frozenset({1, 2})
    )
    assert first_state((3, 1), {}).leader == NOBODY


def test_who_becomes_leader_does_in_an_epoch_of_its_own_even_again() -> None:
    assert led_by(STATE, 2, 5) == replace(STATE, leader=2, life=5, epoch=8)
    assert led_by(STATE, 1, 5) == replace(STATE, life=5, epoch=8)
    assert handed_over(STATE, 1, 3, 5) == replace(STATE, leader=3, life=5, epoch=8)


def test_who_is_not_in_sync_never_leads_but_by_an_unclean_election() -> None:
    state = replace(STATE, isr=frozenset({1, 2}))
    with pytest.raises(WrongStateError, match="isn't in sync"):
        led_by(state, 3, 5)
    with pytest.raises(WrongStateError, match="has no copy"):
        unclean(state, 4, 5)
    after = unclean(state, 3, 5)
    assert after == PartitionState((1, 2, 3), 3, 5, 8, frozenset({3}), unclean_epoch=8)
    node = TopicReplicas(UUID(int=1), (led_by(after, 3, 6), STATE))
    assert parse_replicas(PATH, format_replicas(node)) == node, "it is remembered"


def test_only_the_leader_changes_who_else_is_in_sync() -> None:
    state = shrunk(STATE, 1, {3})
    assert state == replace(STATE, isr=frozenset({1, 2}))
    assert expanded(state, 1, {3}) == STATE
    for change in (shrunk, expanded):
        with pytest.raises(WrongStateError, match="doesn't lead"):
            change(STATE, 2, {3})
    with pytest.raises(WrongStateError, match="have no copy"):
        expanded(state, 1, {9})
    with pytest.raises(WrongStateError, match="it leaves"):
        shrunk(STATE, 1, {1})


def test_who_leaves_gives_up_leadership_in_the_same_change() -> None:
    assert left(STATE, 1) == replace(STATE, leader=NOBODY, life=0, isr=frozenset({2, 3}))
    assert left(STATE, 2) == replace(STATE, isr=frozenset({1, 3}))
    assert left(STATE, 9) is STATE
    with pytest.raises(LastReplicaError):
        left(replace(STATE, isr=frozenset({1})), 1)


def test_whose_copy_is_not_whole_begins_an_epoch_in_which_nothing_of_it_was_counted() -> None:
    assert forfeited(STATE, 2) == replace(STATE, epoch=8, isr=frozenset({1, 3}))
    assert forfeited(STATE, 1).leader == NOBODY
    out = replace(STATE, isr=frozenset({1, 3}))
    assert forfeited(out, 2) == replace(out, epoch=8)
    with pytest.raises(LastReplicaError):
        forfeited(replace(STATE, isr=frozenset({1})), 1)


def test_a_move_ends_in_one_change_once_all_it_adds_are_in_sync() -> None:
    state = moving(STATE, (2, 4))
    assert state.replicas == (2, 4, 1, 3)
    assert (state.adding, state.removing) == (frozenset({4}), frozenset({1, 3}))
    assert state.target == (2, 4)
    with pytest.raises(WrongStateError, match="lack something"):
        moved(state, 1, 2, 5)
    state = expanded(state, 1, {4})
    with pytest.raises(WrongStateError, match="can't lead"):
        moved(state, 1)
    assert moved(state, 1, 4, 5) == PartitionState((2, 4), 4, 5, 8, frozenset({2, 4}))


def test_a_move_is_cancelled_unless_only_who_it_adds_is_in_sync() -> None:
    state = expanded(moving(STATE, (4,)), 1, {4})
    assert cancelled(state) == replace(STATE, epoch=8)
    led = led_by(state, 4, 5)
    assert cancelled(led) == replace(STATE, leader=NOBODY, life=0, epoch=9)
    with pytest.raises(LastReplicaError):
        cancelled(replace(led, isr=frozenset({4})))


BROKERS = st.integers(1, 5)


@given(st.lists(st.tuples(st.integers(0, 10), BROKERS, BROKERS, st.permutations(range(1, 6)))))
def test_whatever_is_changed_in_whatever_order_keeps_what_must_hold(steps: list[Any]) -> None:
    state = STATE
    for kind, one, other, target in steps:
        changes: list[Callable[[], PartitionState]] = [
            partial(led_by, state, one, other),
            partial(handed_over, state, one, other, 5),
            partial(resigned, state, one),
            partial(unclean, state, one, 5),
            partial(shrunk, state, state.leader, {other}),
            partial(expanded, state, state.leader, {other}),
            partial(left, state, one),
            partial(forfeited, state, one),
            partial(moving, state, target[:one]),
            partial(moved, state, state.leader, other, 5),
            partial(cancelled, state),
        ]
        try:
            after = changes[kind]()
        except WrongStateError:
            continue
        check(after)
        assert after.epoch >= state.epoch
        if set(state.replicas) - set(after.replicas):
            assert after.epoch > state.epoch
        if (after.leader, after.life) not in {(state.leader, state.life), (NOBODY, 0)}:
            assert after.epoch > state.epoch
        state = after


# -- the node -------------------------------------------------------------------------------------


def test_what_is_written_is_read_and_what_a_later_version_added_is_kept() -> None:
    node = parse_replicas(PATH, json.dumps(WRITTEN).encode())
    assert json.loads(format_replicas(node)) == WRITTEN
    assert node.state_of(0) == replace(STATE, others={"observers": [4]})
    assert node.state_of(1) is None
    assert node.state_of(2) is None
    state = node.state_of(0)
    assert state is not None
    written = json.loads(format_replicas(node.with_state(2, left(state, 1))))
    assert written["later"] == {"rack": 1}
    assert written["partitions"][2]["observers"] == [4]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("isr", [], "in sync"),
        ("isr", [1, 9], "in sync"),
        ("leader", 2, None),
        ("leader", 9, "leader"),
        ("replicas", [], "different"),
        ("replicas", [1, 1], "different"),
        ("adding", [9], "move"),
        ("epoch", -1, "epoch"),
        ("epoch", True, "whole"),
        ("life", "xyz", ""),
        ("life", "-1", "life"),
    ],
)
def test_what_cannot_be_is_refused(key: str, value: object, why: str | None) -> None:
    partition = {**WRITTEN["partitions"][0], key: value}
    data = json.dumps({**WRITTEN, "partitions": [partition]}).encode()
    if why is None:
        assert parse_replicas(PATH, data).partitions[0] == replace(
            STATE, leader=2, others={"observers": [4]}
        )
        return
    with pytest.raises(InvalidNodeError, match=PATH) as caught:
        parse_replicas(PATH, data)
    assert why in str(caught.value)


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with pytest.raises(InvalidNodeError):
        parse_replicas(PATH, data)
