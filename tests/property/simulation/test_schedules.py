"""Schedules of the simulator: they repeat exactly, and nothing breaks in them.

More of them run in `tests/soak/test_simulation_long.py`; `scripts/simulate` runs any.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from schedule import run_schedule

#: How many seeds of today's cluster run here, and how many in one test.
SEEDS, AT_ONCE = 240, 30

TESTS = Path(__file__).parents[2]

#: Runs what it is given the seeds of, in that order, and prints a digest of each trace.
_RUN = """
import sys
from hashlib import sha256
from schedule import run_schedule
for seed in map(int, sys.argv[1:]):
    outcome = run_schedule(seed, traced=True)
    assert outcome.broken is None, outcome.broken
    trace = "\\n".join(outcome.trace)
    print(seed, outcome.events, outcome.acknowledged, sha256(trace.encode()).hexdigest())
"""


def traces(*seeds: int) -> dict[str, str]:
    paths = os.pathsep.join(str(TESTS / each) for each in ("support", "simulation"))
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": paths}
    command = [sys.executable, "-c", _RUN, *map(str, seeds)]
    ended = subprocess.run(
        command, env=environment, cwd=TESTS.parent, check=True, capture_output=True, text=True
    )
    return {line.split()[0]: line for line in ended.stdout.splitlines()}


def test_a_seed_is_one_run_whatever_ran_before() -> None:
    first, again = traces(3, 5, 6, 8), traces(8, 6, 5, 3)
    assert first == again
    assert len(set(first.values())) == 4


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_nothing_breaks(first: int) -> None:
    acknowledged = 0
    for seed in range(first, first + AT_ONCE):
        outcome = run_schedule(seed, scene="today")
        trace = "\n".join(outcome.trace[-100:])
        assert outcome.broken is None, f"seed {seed}: {outcome.broken}\n{trace}"
        acknowledged += outcome.acknowledged
    assert acknowledged > 20 * AT_ONCE, "else it tests nothing"
