"""A broken schedule is shrunk to the faults that break it."""

from typing import NamedTuple

import pytest
from shrinking import shrunk


class Outcome(NamedTuple):
    events: int
    faults: int
    broken: str | None


class Schedule:
    """Breaks once it had all of some faults; each of its events is one."""

    def __init__(self, needed: set[int]) -> None:
        self.needed = needed
        self.runs = 0

    def run(self, without: frozenset[int], limit: int) -> Outcome:
        self.runs += 1
        left = set(self.needed)
        for number in range(limit):
            if number not in without:
                left.discard(number)
            if not left:
                return Outcome(number + 1, number + 1, "broken")
        return Outcome(limit, limit, None)


@pytest.mark.parametrize("needed", [{0}, {3, 17}, {0, 1, 2, 90}, set(range(40, 50)), {99}])
def test_only_what_breaks_it_is_left(needed: set[int]) -> None:
    schedule = Schedule(needed)

    found = shrunk(schedule.run(frozenset(), 100), schedule.run)

    assert found.outcome.broken
    assert set(range(found.outcome.faults)) - found.without == needed


def test_it_ends_after_so_many_runs() -> None:
    schedule = Schedule(set(range(0, 1000, 2)))

    shrunk(schedule.run(frozenset(), 1000), schedule.run, tries=20)

    assert schedule.runs == 21
