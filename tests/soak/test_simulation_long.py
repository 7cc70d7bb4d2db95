"""Very many schedules of simulated clusters: HERMES_SOAK_TIMES times 100,000."""

import pytest
from schedule import run_schedule
from soak import times

pytestmark = pytest.mark.soak

_FIRST = 1_000_000  # so that these are others than the usual ones


@pytest.mark.parametrize("thousand", range(times(100)))
def test_nothing_breaks(thousand: int) -> None:
    for seed in range(_FIRST + 1000 * thousand, _FIRST + 1000 * (thousand + 1)):
        outcome = run_schedule(seed)
        trace = "\n".join(outcome.trace[-100:])
        assert outcome.broken is None, f"seed {seed}, {outcome.scene}: {outcome.broken}\n{trace}"
