"""Moves end in one change, and leadership goes to who has everything."""

from dataclasses import replace

from hermes.protocol import NOBODY
from hermes.replication.leading import LeaderSettings, Leading
from hermes.replication.messages import ReplicaFetch
from hermes.replication.moving import (
    HAND_OVER_SECONDS,
    HandOver,
    PreferredLeader,
    finished_move,
    successor,
)
from hermes.replication.state import PartitionState, moving

STATE = PartitionState((1, 2, 3), 1, 11, 7, frozenset({1, 2, 3}))
LIVES = {1: 11, 2: 22, 3: 33, 4: 44}


def leading(state: PartitionState = STATE, **ends: int) -> Leading:
    leader = Leading(1, state, 0, 0, LeaderSettings(), 100)
    for broker, end in ends.items():
        number = int(broker[1:])
        leader.fetched(ReplicaFetch(number, LIVES[number], 7, end, 7, 0, 1), 20, 101)
    return leader


def test_a_move_ends_once_all_that_it_adds_are_in_sync() -> None:
    state = moving(STATE, (1, 4))
    assert finished_move(leading(STATE), LIVES) is None
    assert finished_move(leading(state), LIVES) is None
    both = replace(state, isr=frozenset({1, 2, 3, 4}))
    assert finished_move(leading(both), LIVES) == replace(
        STATE, replicas=(1, 4), isr=frozenset({1, 4}), epoch=8
    )


def test_a_leader_that_is_moved_away_hands_over_with_that() -> None:
    state = replace(moving(STATE, (2, 4)), isr=frozenset({1, 2, 4}))
    after = replace(STATE, replicas=(2, 4), isr=frozenset({2, 4}), epoch=8)
    leader = leading(state, _2=20, _4=20)
    assert finished_move(leader, LIVES) == replace(after, leader=2, life=22)
    lives = {1: 11, 4: 44}
    assert finished_move(leader, lives) == replace(after, leader=4, life=44)
    assert finished_move(leader, {1: 11}) is None, "nobody is there to lead"


def test_nobodys_copy_is_taken_before_another_has_said_that_it_has_everything() -> None:
    """Its disk may have been lost while it was in sync."""
    state = replace(moving(STATE, (2, 4)), isr=frozenset({1, 2, 4}))
    after = replace(STATE, replicas=(2, 4), isr=frozenset({2, 4}), epoch=8, leader=4, life=44)
    assert finished_move(leading(state), LIVES) is None
    assert finished_move(leading(state, _4=20), LIVES) == after
    behind = leading(state, _2=19, _4=20)
    behind.high_watermark = 20
    assert finished_move(behind, LIVES) == after
    assert finished_move(leading(state, _4=20), {**LIVES, 4: 55}) is None, "it has begun anew"


def test_the_successor_is_in_sync_and_has_the_most() -> None:
    assert successor(leading(_2=10, _3=15), LIVES) == 3
    assert successor(leading(_2=10, _3=15), {1: 11, 2: 22}) == 2
    assert successor(leading(), LIVES) == 2
    assert successor(leading(replace(STATE, isr=frozenset({1}))), LIVES) == NOBODY


def test_leadership_goes_back_to_who_is_preferred_and_has_been_in_sync_for_long() -> None:
    state = replace(STATE, replicas=(2, 1, 3))
    preferred = PreferredLeader()
    assert preferred.due(leading(), LIVES, 100) == NOBODY
    assert preferred.due(leading(state), LIVES, 100) == NOBODY
    assert preferred.due(leading(state), LIVES, 160) == 2
    away = leading(replace(state, isr=frozenset({1, 3})))
    assert preferred.due(away, LIVES, 170) == NOBODY
    assert preferred.due(leading(state), LIVES, 171) == NOBODY
    other_life = {**LIVES, 2: 23}
    assert preferred.due(leading(state), other_life, 231) == NOBODY


def test_a_hand_over_waits_for_the_successor_and_not_for_ever() -> None:
    for must in (False, True):
        hand_over = HandOver(2, 100, must=must)
        assert not hand_over.is_due(committed(leading(_2=19)), 20, 100.5)
        assert hand_over.is_due(committed(leading(_2=20)), 20, 100.5)
        late = 100 + HAND_OVER_SECONDS
        assert hand_over.is_due(leading(_2=19), 20, late) is must
        assert hand_over.is_over(late) is not must


def test_a_hand_over_waits_until_producers_can_be_told_that_all_is_committed() -> None:
    hand_over = HandOver(2, 100, must=True)
    both = leading(_2=20, _3=19)
    both.advance(20, LIVES, 100.5)
    assert not hand_over.is_due(both, 20, 100.5)
    both.fetched(ReplicaFetch(3, LIVES[3], 7, 20, 7, 0, 1), 20, 100.6)
    both.advance(20, LIVES, 100.6)
    assert hand_over.is_due(both, 20, 100.6)

    # Nothing is, where too few are in sync.
    few = leading(replace(STATE, isr=frozenset({1, 2})), _2=20)
    few.settings = LeaderSettings(min_insync=3)
    few.advance(20, LIVES, 100.5)
    assert hand_over.is_due(few, 20, 100.5)


def committed(leader: Leading) -> Leading:
    leader.high_watermark = 20
    return leader
