"""examples/spark-cluster does what its README says."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from short_lived_jvm import ANY_JAVA_OPTIONS

pytestmark = pytest.mark.nightly

RECIPE = Path(__file__).parents[2] / "examples" / "spark-cluster" / "run.py"
DEADLINE_SECONDS = 1200.0


def processes_of(folder: Path) -> Iterator[str]:
    """The command lines that name a folder."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
        if str(folder) in command:
            yield command


def test_both_workers_read_and_nothing_is_left(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(RECIPE), "--messages", "10000"],
        cwd=tmp_path,
        env={**os.environ, **ANY_JAVA_OPTIONS, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    read = re.findall(r"^(work-\d) +(\d+) messages", ran.stdout, re.MULTILINE)
    assert {worker for worker, _ in read} == {"work-0", "work-1"}
    assert sum(int(count) for _, count in read) == 10_000
    assert not list(tmp_path.iterdir())
    assert not list(processes_of(tmp_path))


def test_nothing_of_it_outlives_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, str(RECIPE)],
        env={**os.environ, **ANY_JAVA_OPTIONS, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as recipe:
        assert recipe.stdout is not None
        assert recipe.stdout.readline().startswith("master ")
        assert len(list(processes_of(tmp_path))) >= 3
        recipe.kill()
    deadline = time.monotonic() + 60
    while left := list(processes_of(tmp_path)):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)  # between two looks
