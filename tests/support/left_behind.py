"""Ends what the tests have started, also when the tests themselves are killed.

Every process inherits a mark in its environment from the one that runs the tests. A guard beside
that one waits for its end, whichever that is, and ends what still has the mark then: no list of
processes has to be kept, and what a JVM or a shell has started is found as well. Where a run starts
others (pytest's workers), what these start has the marks of both.

Run as a program it is the guard: `python left_behind.py PID MARK`.
"""

import os
import secrets
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["Guard"]

_VARIABLE = "HERMES_TESTS"

#: How long what was asked to end may take before it counts as left behind.
_GRACE_SECONDS = 30.0


class Guard:
    """Marks what this process starts from now on, and starts the process that looks after it."""

    def __init__(self) -> None:
        mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._outer = os.environ.get(_VARIABLE)
        self._process = subprocess.Popen(
            [sys.executable, "-E", "-S", __file__, str(os.getpid()), mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is not for it
            text=True,
        )
        self._mark = mark
        os.environ[_VARIABLE] = f"{self._outer} {mark}" if self._outer else mark

    def close(self) -> list[str]:
        """End what is left, and the guard.

        Returns:
            The command lines of what was left behind, once it had some time to end by itself.
        """
        if self._outer is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = self._outer
        deadline = time.monotonic() + _GRACE_SECONDS
        while _marked(self._mark) and time.monotonic() < deadline:
            time.sleep(0.05)  # between two looks; there is nothing that could tell
        left, _ = self._process.communicate()
        return left.splitlines()


def _marked(mark: str) -> list[int]:
    """The ids of the running processes that have the mark."""
    variable, wanted = f"{_VARIABLE}=".encode(), mark.encode()
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = file.read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended, or is another user's
        marks = (each.removeprefix(variable) for each in environment if each.startswith(variable))
        if any(wanted in each.split() for each in marks):
            found.append(int(file.parent.name))
    return found


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "?"
    return f"{pid}: {' '.join(words)}"


def _guard(pid: int, mark: str) -> None:
    """Wait until a process ends or closes its end of stdin; then end what has the mark."""
    watched = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(sys.stdin, select.POLLIN)
    poll.poll()
    while found := _marked(mark):
        for each in found:
            command = _command(each)
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                continue
            if not select.select([watched], [], [], 0)[0]:
                print(command, flush=True)  # noqa: T201 - to the one that closes the guard
        time.sleep(0.01)  # until they are gone, and what they started meanwhile


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2])
