"""Child processes: started with their output in a file, ended by their own pid and nothing else."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Program", "ProgramFailed"]

_LOG_TAIL_LINES = 12


class ProgramFailed(Exception):  # noqa: N818 - "failed" says it
    """A program ended, or didn't become ready in time; the message ends with its last output."""


class Program:
    """A child process. Use it as a context manager: it is stopped however the block ends.

    Attributes:
        name: how messages call it.
        pid: its process id.
        log: the file with its standard output and error.
        started: when it was started, by `time.perf_counter`.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            name: how messages and the log file call it.
            arguments: the program and its arguments.
            directory: where its log goes, and its working directory.
            environment: variables beside those of this process.
        """
        self.name = name
        self.log = directory / f"{name}.out"
        self.started = time.perf_counter()
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                list(arguments),
                cwd=directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.pid = self._process.pid

    def wait_until(self, ready: Callable[[], Any], *, timeout_seconds: float, what: str) -> Any:
        """Poll for a condition while the program runs.

        Args:
            ready: returns something true when the condition holds.
            timeout_seconds: how long to poll.
            what: the condition, for the error message.

        Returns:
            What `ready` returned.

        Raises:
            ProgramFailed: the program ended or the time is up.
        """
        deadline = time.monotonic() + timeout_seconds
        while not (result := ready()):
            if self._process.poll() is not None:
                raise self._failure(f"ended with status {self._process.returncode} before {what}")
            if time.monotonic() > deadline:
                raise self._failure(f"took more than {timeout_seconds:g} s: {what}")
            time.sleep(0.002)
        return result

    def stop(self, *, timeout_seconds: float = 60) -> int:
        """End it with SIGTERM, and with SIGKILL when that takes too long.

        Returns:
            Its exit status, negative for a signal.
        """
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def kill(self) -> None:
        """End it without any warning."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _failure(self, what: str) -> ProgramFailed:
        tail = self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return ProgramFailed("\n  ".join([f"{self.name} (pid {self.pid}) {what}", *tail]))
