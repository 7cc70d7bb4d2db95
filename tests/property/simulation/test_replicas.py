"""A replicated partition in the simulator: nothing breaks, and each rule is needed.

The mutations that take few seeds are here; `tests/soak/test_simulation_long.py` runs all of them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from schedule import MUTATIONS, load

TESTS = Path(__file__).parents[2]

load()
_QUICK = [name for name, each in MUTATIONS.items() if each.scene == "replicas" and each.seeds <= 50]

_RUN = """
import sys
from schedule import run_schedule
first, count, mutation = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] or None
acknowledged = elections = 0
for seed in range(first, first + count):
    outcome = run_schedule(seed, mutation, scene="replicas")
    acknowledged += outcome.acknowledged
    elections += outcome.elections
    if outcome.broken is not None:
        print("broken", seed, outcome.broken)
        break
else:
    print("whole", acknowledged, elections)
"""


def run(first: int, count: int, mutation: str = "") -> list[str]:
    paths = os.pathsep.join(str(TESTS / each) for each in ("support", "simulation"))
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": paths}
    command = [sys.executable, "-c", _RUN, str(first), str(count), mutation]
    ended = subprocess.run(
        command, env=environment, cwd=TESTS.parent, check=True, capture_output=True, text=True
    )
    return ended.stdout.split()


def test_nothing_breaks_and_enough_is_acknowledged_for_that_to_mean_something() -> None:
    told, acknowledged, elections = run(0, 60)
    assert told == "whole"
    assert int(acknowledged) > 20 * 60
    assert int(elections) > 60


@pytest.mark.parametrize("name", _QUICK)
def test_a_broken_rule_is_found(name: str) -> None:
    assert run(0, MUTATIONS[name].seeds, name)[0] == "broken"
