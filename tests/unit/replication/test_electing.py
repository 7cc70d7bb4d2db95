"""Who may make itself leader, and in which order."""

from dataclasses import replace

import pytest

from hermes.protocol import NOBODY
from hermes.replication.electing import Electing, Refusals
from hermes.replication.state import PartitionState

STATE = PartitionState((1, 2, 3), 1, 11, 7, frozenset({1, 2, 3}))
LIVES = {1: 11, 2: 22, 3: 33}
NONE_LEADS = replace(STATE, leader=NOBODY, life=0, isr=frozenset({2, 3}))


def test_while_a_leader_is_registered_nobody_else_may() -> None:
    assert Electing(2).due_at(STATE, LIVES, Refusals(), 5) is None


def test_in_sync_replicas_take_turns_in_the_order_of_preference() -> None:
    lives = {2: 22, 3: 33}
    assert Electing(2).due_at(STATE, lives, Refusals(), 5) == 5
    assert Electing(3).due_at(STATE, lives, Refusals(), 5) == 5.15
    assert Electing(3).due_at(STATE, {3: 33}, Refusals(), 5) == 5, "who isn't there has no turn"
    assert Electing(2).due_at(NONE_LEADS, LIVES, Refusals(), 5) == 5


def test_a_turn_counts_from_when_there_was_none_to_lead() -> None:
    electing = Electing(3)
    assert electing.due_at(NONE_LEADS, LIVES, Refusals(), 5) == 5.15
    assert electing.due_at(NONE_LEADS, LIVES, Refusals(), 5.1) == 5.15
    assert electing.due_at(STATE, LIVES, Refusals(), 5.2) is None
    assert electing.due_at(NONE_LEADS, LIVES, Refusals(), 6) == 6.15
    later = replace(NONE_LEADS, epoch=9)
    assert electing.due_at(later, LIVES, Refusals(), 7) == 7.15


def test_who_is_not_in_sync_or_not_registered_never_may() -> None:
    assert Electing(1).due_at(NONE_LEADS, LIVES, Refusals(), 5) is None
    assert Electing(2).due_at(NONE_LEADS, {3: 33}, Refusals(), 5) is None


@pytest.mark.parametrize(
    ("times", "may"),
    [((1.0,), False), ((1.0, 1.25), True), ((1.0, 1.4), False), ((0, 1, 1.2), True)],
)
def test_two_refused_connections_in_a_row_are_of_a_process_that_is_gone(
    times: tuple[float, ...], may: bool
) -> None:
    refusals, electing = Refusals(), Electing(2)
    assert electing.due_at(STATE, LIVES, refusals, 0) is None
    for time in times:
        refusals.refused(1, time)
    assert (electing.due_at(STATE, LIVES, refusals, 5) is not None) is may
    refusals.answered(1)
    assert electing.due_at(STATE, LIVES, refusals, 5) is None


def test_who_has_begun_an_epoch_since_is_not_gone() -> None:
    """Else two that suspect each other would take leadership from each other for ever."""
    refusals, electing = Refusals(), Electing(2)
    assert electing.due_at(STATE, LIVES, refusals, 0) is None
    for time in (1.0, 1.1):
        refusals.refused(1, time)
    assert electing.due_at(STATE, LIVES, refusals, 2) == 2
    again = replace(STATE, epoch=8)
    assert electing.due_at(again, LIVES, refusals, 2.5) is None
    for time in (3.0, 3.1):
        refusals.refused(1, time)
    assert electing.due_at(again, LIVES, refusals, 4) == 4
