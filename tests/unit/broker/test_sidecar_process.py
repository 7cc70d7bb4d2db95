"""A program beside the broker: started again when it ends, and ended with whoever runs it."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.logger import formatEvent, globalLogPublisher

from hermes.broker.sidecar_process import SidecarProcess

PATIENCE = 60.0

# Says its settings, and runs until its input ends.
GOOD = """
import sys
print("INFO settings", sys.stdin.readline().strip(), flush=True)
sys.stdin.read()
print("WARNING goodbye", flush=True)
"""


# Nobody reads what it writes in the end.
ORPHAN = """
import sys
print("INFO settings", sys.stdin.readline().strip(), flush=True)
sys.stdin.read()
open("ended", "w").close()
"""


class Lines:
    """What was logged, to wait for."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self.all: list[tuple[str, str]] = []

    def __call__(self, event: Any) -> None:
        if event["log_namespace"] == "hermes.broker.sidecar_process":
            with self._news:
                self.all.append((event["log_level"].name, formatEvent(event)))
                self._news.notify_all()

    def wait_for(self, text: str, count: int = 1) -> str:
        def found() -> list[str]:
            return [line for _, line in self.all if text in line]

        with self._news:
            assert self._news.wait_for(lambda: len(found()) >= count, PATIENCE), self.all
            return found()[count - 1]


@pytest.fixture
def lines() -> Iterator[Lines]:
    lines = Lines()
    globalLogPublisher.addObserver(lines)
    yield lines
    globalLogPublisher.removeObserver(lines)


@pytest.fixture
def make(lines: Lines) -> Iterator[Callable[[str], SidecarProcess]]:
    made: list[SidecarProcess] = []

    def companion(script: str) -> SidecarProcess:
        made.append(
            SidecarProcess("mirror", [sys.executable, "-c", script], first_pause_seconds=0.01)
        )
        return made[-1]

    yield companion
    for each in made:
        each.stop(PATIENCE)
        assert each.pid is None


def test_it_gets_its_settings_and_ends_when_it_is_told(
    make: Callable[[str], SidecarProcess], lines: Lines
) -> None:
    companion = make(GOOD)
    companion.use(b'{"a": 1}')
    lines.wait_for('mirror: settings {"a": 1}')
    companion.stop(PATIENCE)
    lines.wait_for("mirror: goodbye")
    assert ("warn", "mirror: goodbye") in lines.all
    assert not [line for _, line in lines.all if "has ended" in line]
    companion.use(b"{}")
    assert companion.pid is None


def test_it_is_started_again_when_it_ends(
    make: Callable[[str], SidecarProcess], lines: Lines
) -> None:
    make("import sys; print('trouble'); sys.exit(3)").use(b"{}")
    lines.wait_for("the mirror has ended, with status 3; it starts again in 0.01 s")
    lines.wait_for("the mirror has ended, with status 3; it starts again in 0.04 s")
    assert ("info", "mirror: trouble") in lines.all


def test_it_is_started_again_when_it_is_killed(
    make: Callable[[str], SidecarProcess], lines: Lines
) -> None:
    companion = make(GOOD)
    companion.use(b"{}")
    lines.wait_for("mirror: settings")
    pid = companion.pid
    assert pid is not None
    companion._process.kill()  # type: ignore[union-attr]
    lines.wait_for("by signal 9")
    lines.wait_for("mirror: settings", 2)
    assert companion.pid not in (None, pid)


def test_other_settings_replace_the_process(
    make: Callable[[str], SidecarProcess], lines: Lines
) -> None:
    companion = make(GOOD)
    companion.use(b"one")
    lines.wait_for("settings one")
    companion.use(b"one")
    companion.use(b"two")
    lines.wait_for("settings two")
    companion.use(None)
    lines.wait_for("goodbye", 2)
    companion.use(b"three")
    lines.wait_for("settings three")
    assert not [line for _, line in lines.all if "has ended" in line]


def test_one_that_does_not_end_is_killed(
    make: Callable[[str], SidecarProcess], lines: Lines
) -> None:
    companion = make("import time; print('here', flush=True); time.sleep(3600)")
    companion.use(b"{}")
    lines.wait_for("here")
    companion.stop(0.05)
    lines.wait_for("does not end and is killed")
    assert companion.pid is None


def test_it_ends_with_whoever_runs_it(tmp_path: Any) -> None:
    """Also when that is killed."""
    script = f"""
import sys, time
from hermes.broker.sidecar_process import SidecarProcess
from twisted.logger import globalLogBeginner, textFileLogObserver
globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)])
SidecarProcess("mirror", [sys.executable, "-c", {ORPHAN!r}]).use(b"x")
time.sleep(3600)
"""
    outer = subprocess.Popen(
        [sys.executable, "-u", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE
    )
    assert outer.stdout is not None
    with outer.stdout:
        while b"settings x" not in outer.stdout.readline():
            pass
        outer.kill()
        outer.wait(PATIENCE)
    pause, ended = threading.Event(), tmp_path / "ended"
    for _ in range(6000):
        if ended.exists():
            return
        pause.wait(0.01)
    pytest.fail("it runs on")


def test_a_program_that_is_not_there_is_said(lines: Lines) -> None:
    companion = SidecarProcess("mirror", ["/nowhere"], first_pause_seconds=0.01)
    companion.use(b"{}")
    lines.wait_for("it can't be started: [Errno 2]", 2)
    companion.stop(PATIENCE)
