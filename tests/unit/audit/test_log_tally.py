"""Ranges of a log in any order."""

import random
from collections.abc import Iterable

import pytest

from hermes.audit.events import CountsEvent
from hermes.audit.log_tally import Hole, LogTally


def tally(numbers: Iterable[int]) -> LogTally:
    """Of ranges of ten messages, the n-th from 10 n on."""
    made = LogTally("clicks", "0-0", 1000)
    for n in numbers:
        windows = {(1000, 7): (10, n)}
        body = CountsEvent("clicks", log="0-0", start=10 * n, end=10 * n + 10, windows=windows)
        made.add(1, 1000 * n, body)
    return made


def count(made: LogTally) -> int:
    return sum(count for count, _ in made.tallies().values())


@pytest.mark.parametrize("seed", range(5))
def test_what_comes_late_fills_its_hole(seed: int) -> None:
    late = random.Random(seed).sample(range(1, 900), 3)
    made = tally([*(n for n in range(900) if n not in late), *late])
    assert (made.holes(), count(made), made.end) == ([], 9000, 9000)


def test_what_never_comes_is_a_hole_and_costs_no_more_than_that() -> None:
    made = tally(n for n in range(20_000) if n != 5)
    assert made.holes() == [Hole("clicks", "0-0", 50, 60, "unknown")]
    assert (count(made), made.end) == (199_990, 200_000)
    assert len(made._ranges) <= 1024
