"""Retries: how long, how often, and how the pauses grow."""

import pytest
from twisted.internet.task import Clock

from hermes.client.sending import Retries, RetryRules


def pauses(rules: RetryRules, chance: float = 0.0) -> list[float]:
    """All pauses, each waited for; tries take no time."""
    clock = Clock()
    retries = Retries(rules, clock.seconds, lambda: chance)
    found: list[float] = []
    while (pause := retries.next_pause()) is not None:
        found.append(pause)
        clock.advance(pause)
    assert retries.count == len(found)
    return found


def test_pauses_double_up_to_a_second_within_the_time() -> None:
    found = pauses(RetryRules(10.0, 0.1))
    assert found[:5] == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert set(found[4:]) == {1.0}
    assert 9.0 <= sum(found) < 10.0


def test_chance_lengthens_a_pause_by_half_at_most() -> None:
    assert pauses(RetryRules(10.0, 0.1, 2), chance=1.0) == pytest.approx([0.15, 0.3])


def test_a_longer_first_pause_stays() -> None:
    assert pauses(RetryRules(20.0, 6.0)) == [6.0, 6.0, 6.0]


def test_a_count_is_a_cap() -> None:
    assert pauses(RetryRules(1000.0, 0.1, 3)) == [0.1, 0.2, 0.4]
    assert pauses(RetryRules(1000.0, 0.1, 0)) == []


def test_no_pause_still_grows() -> None:
    assert len(pauses(RetryRules(120.0, 0.0))) < 200


def test_the_time_left_counts_from_the_start() -> None:
    clock = Clock()
    retries = Retries(RetryRules(10.0, 0.1), clock.seconds)
    clock.advance(7.0)
    assert retries.seconds_left == 3.0
    clock.advance(4.0)
    assert retries.seconds_left == -1.0
    assert retries.next_pause() is None
