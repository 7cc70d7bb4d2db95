"""Deadlines: each name is due once, at its last time, and nothing is kept of what was put off."""

import random

from broker_bench import log_lines
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from hermes.groups.deadlines import Deadlines


def test_what_is_put_off_and_back_again_leaves_nothing_behind() -> None:
    """As a group's does with each rebalance: nearer while it lasts, and far again."""
    clock, due = Clock(), list[str]()
    deadlines = Deadlines(clock, due.append)
    for _ in range(1000):
        deadlines.set("a group", clock.seconds() + 45)
        deadlines.set("a group", clock.seconds() + 3)
        deadlines.set("a group", clock.seconds() + 45)
        clock.advance(1)
    assert len(deadlines) < 100
    assert not due
    clock.advance(60)
    assert due == ["a group"]
    assert len(deadlines) == 0


def test_names_that_are_given_up_leave_nothing_behind() -> None:
    clock, due = Clock(), list[str]()
    deadlines = Deadlines(clock, due.append)
    for number in range(1000):
        deadlines.set(f"group {number}", clock.seconds() + 1800)
        deadlines.set(f"group {number}", None)
    deadlines.set("a group", 1)
    assert len(deadlines) < 100
    clock.advance(2)
    assert due == ["a group"]
    deadlines.stop()
    assert clock.getDelayedCalls() == []


def test_a_fault_in_one_that_is_due_keeps_none_of_the_others_from_being_so() -> None:
    clock, due = Clock(), list[str]()

    def fail(name: str) -> None:
        due.append(name)
        raise ValueError("a fault")

    deadlines = Deadlines(clock, fail)
    for number, name in enumerate("abc"):
        deadlines.set(name, 5.0 + number // 2)
    with log_lines() as lines:
        clock.advance(5)
        clock.advance(1)
    assert due == ["a", "b", "c"]
    assert sum("a fault" in line for line in lines) == 3


@given(st.randoms(use_true_random=False))
def test_each_is_due_once_and_at_its_last_time(chance: random.Random) -> None:
    clock, due, expected = Clock(), list[str](), dict[str, float]()
    deadlines = Deadlines(clock, due.append)
    for _ in range(100):
        name = chance.choice("abc")
        at = chance.choice((None, clock.seconds() + chance.randrange(20)))
        deadlines.set(name, at)
        expected.pop(name, None)
        if at is not None:
            expected[name] = at
        clock.advance(chance.choice((0, 0, 1, 5)))
        late = {each for each, at in expected.items() if at <= clock.seconds()}
        assert sorted(due) == sorted(late)
        for each in late:
            del expected[each]
        due.clear()
    deadlines.stop()
    assert clock.getDelayedCalls() == []
