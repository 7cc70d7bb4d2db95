"""`scripts/simulate` in the tests' own environment."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from fetched_tools import fetched

__all__ = ["Counts", "simulate"]

_HERE = Path(__file__).parent

_LINE = re.compile(
    r"(\d+) schedules, (\d+) events, (\d+) acknowledged, (\d+) elections, (\d+) cuts, (\d+) broken"
)


class Counts(NamedTuple):
    schedules: int
    events: int
    acknowledged: int
    elections: int
    cuts: int
    broken: int


def simulate(count: int, first_seed: int, *options: str) -> tuple[Counts, str]:
    """Run schedules: what the last line counts, and all that was printed."""
    program = fetched("HERMES_PORCUPINE", "porcupine-*/porcupine", "ensure_porcupine")
    environment = {
        **os.environ,
        "HERMES_PORCUPINE": str(program),
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join([str(_HERE), str(_HERE.parent / "support")]),
    }
    command = [sys.executable, str(_HERE / "simulate.py"), str(count), str(first_seed), *options]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    text = ended.stdout + ended.stderr
    found = _LINE.search(text)
    assert found is not None, text
    counts = Counts(*map(int, found.groups()))
    # By porcupine, too: it finds what broke no other rule.
    assert (ended.returncode == 0) == (not counts.broken), text
    return counts, text
