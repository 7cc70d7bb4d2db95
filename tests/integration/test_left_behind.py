"""What the tests start ends with them, however they end."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
DEADLINE_SECONDS = 300

#: Starts the guard and a process that leads a session of its own; says that one's id.
PROGRAM = """
import subprocess, sys
from left_behind import Guard

guard = Guard()
sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(sleeper.pid, flush=True)
sys.stdin.readline()
sleeper.kill()
sleeper.wait()
print(guard.close())
"""

#: As one of pytest's workers: started by a program with a guard of its own.
IN_A_WORKER = f"""
import subprocess, sys
from left_behind import Guard

guard = Guard()
subprocess.run([sys.executable, "-c", {PROGRAM!r}])
print(guard.close())
"""


@pytest.fixture(params=[PROGRAM, IN_A_WORKER], ids=["alone", "in a worker"])
def program(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
    ) as process:
        yield process
        process.kill()


def test_what_was_started_ends_when_its_starter_is_killed(program: subprocess.Popen[str]) -> None:
    assert program.stdout is not None
    sleeper = os.pidfd_open(int(program.stdout.readline()))
    try:
        program.send_signal(signal.SIGKILL)
        assert select.select([sleeper], [], [], DEADLINE_SECONDS)[0]
    finally:
        os.close(sleeper)


def test_a_tidy_run_leaves_nothing(program: subprocess.Popen[str]) -> None:
    _started, *left = program.communicate("\n", DEADLINE_SECONDS)[0].splitlines()
    assert set(left) == {"[]"}, left


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_that_leaves_a_process_behind_fails_and_names_it(
    tmp_path: Path, workers: int
) -> None:
    (tmp_path / "conftest.py").write_text(
        (SUPPORT.parent / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    (tmp_path / "test_it.py").write_text(
        "import subprocess, left_behind\n"
        "left_behind._GRACE_SECONDS = 0.0\n"
        "def test_it():\n"
        "    subprocess.Popen(['sleep', '1000']).returncode = 0\n",
        encoding="utf-8",
    )
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            f"-n{workers}",
            "-p",
            "no:randomly",
            "-p",
            "no:cacheprovider",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout + ran.stderr
    assert "sleep 1000" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("1 passed")
