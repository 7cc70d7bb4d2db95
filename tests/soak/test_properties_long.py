"""The property tests with twenty times as many examples, and a seed of this run's own."""

import subprocess
import sys
from pathlib import Path

import pytest
from soak import report, seed

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2]


def test_properties_hold_for_many_more_examples() -> None:
    number = seed()
    options = ("-q", "--hypothesis-profile=soak", f"--randomly-seed={number}")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/property"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    report("properties", seed=number, result=ran.stdout.strip().rpartition("\n")[2])
    assert ran.returncode == 0, ran.stdout + ran.stderr
