"""Schedules of the simulator: they repeat exactly, nothing breaks in them, and each rule is needed.

More of them run in `tests/soak/test_simulation_long.py`, and the mutations that take many seeds;
`scripts/simulate` runs any.
"""

import os
import subprocess
import sys
from pathlib import Path

from schedule import MUTATIONS, load
from simulations import simulate

load()

#: Within so many seeds those rules are found that don't wait for the soak.
_QUICK = 50

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


#: Names those of the rules that no seed needs, of all that are found within few.
_FIND = """
import sys
from schedule import MUTATIONS, load, run_schedule
load()
for name, each in MUTATIONS.items():
    if each.seeds <= int(sys.argv[1]):
        if not any(run_schedule(seed, name).broken for seed in range(each.seeds)):
            print(name)
"""


def run(program: str, *arguments: object) -> list[str]:
    """Run a program beside the simulator, which needs to know its hashes; the lines it prints."""
    paths = os.pathsep.join(str(TESTS / each) for each in ("support", "simulation"))
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": paths}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    ended = subprocess.run(
        command, env=environment, cwd=TESTS.parent, check=True, capture_output=True, text=True
    )
    return ended.stdout.splitlines()


def traces(*seeds: int) -> dict[str, str]:
    return {line.split()[0]: line for line in run(_RUN, *seeds)}


def test_a_seed_is_one_run_whatever_ran_before() -> None:
    first, again = traces(3, 5, 8, 14), traces(14, 8, 5, 3)
    assert first == again
    assert len(set(first.values())) == 4


def test_nothing_breaks_in_a_thousand_schedules() -> None:
    counts, text = simulate(1000, 0)

    assert not counts.broken, text
    assert counts.schedules == 1000
    assert counts.acknowledged > 20 * 1000, "else it tests nothing"
    assert counts.elections > 1000


def test_broken_rules_are_found() -> None:
    """In one process, since many would compute longer to begin than to find them."""
    assert sum(each.seeds <= _QUICK for each in MUTATIONS.values()) > 30
    assert run(_FIND, _QUICK) == []
