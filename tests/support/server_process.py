"""A server as a process that tests may end, pause and start again."""

import os
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path

__all__ = ["DEADLINE_SECONDS", "ServerProcess", "free_port", "free_ports"]

#: How long anything may take before a test fails: a JVM, too, on a machine with much else to do.
DEADLINE_SECONDS = 240.0


class ServerProcess(ABC):
    """One server on the loopback interface.

    Args:
        directory: for its files; made when it is missing.

    Attributes:
        directory: as given.
        port: where it listens, across restarts.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it serves."""

    def stop(self) -> None:
        """Stop it, if it runs."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without any warning."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it do nothing, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            process.wait(DEADLINE_SECONDS)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on just now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many of them, all different."""
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [listener.getsockname()[1] for listener in listeners]
