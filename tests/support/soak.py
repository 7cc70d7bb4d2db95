"""How long the long suites run, and from which seed; both can be set for all of them at once.

HERMES_SOAK_TIMES multiplies every usual count, so that 10 is ten times a night's run.
HERMES_SOAK_SEED repeats a run; without it each run has a seed of its own, which it prints.
"""

import os
import time
from typing import Any

__all__ = ["report", "seed", "times"]


def times(usual: int) -> int:
    """So many of something whose usual number is `usual`; at least one."""
    return max(1, round(usual * float(os.environ.get("HERMES_SOAK_TIMES", "1"))))


def seed() -> int:
    """The seed of this run."""
    return int(os.environ.get("HERMES_SOAK_SEED", time.time_ns() % 1_000_000))


def report(suite: str, **figures: Any) -> None:
    """Print what a suite did and found, a line for it."""
    print(f"\n{suite}: " + ", ".join(f"{k}={v}" for k, v in figures.items()))  # noqa: T201
