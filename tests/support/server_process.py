"""A server as a process that tests may end, pause and start again."""

import itertools
import os
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, suppress
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


def _ports() -> Iterator[int]:
    """Ports for this process, round and round: none is told twice soon.

    The system takes those of outgoing connections, and of whoever binds port 0, from a range of its
    own: one of these could be gone before a server has it. So these are below that, and each of
    several test processes has a part.
    """
    begin = 10_240
    try:
        end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        end = 0
    count = (end - begin) // _PARTS
    if count < _PARTS:
        yield from itertools.repeat(0)  # as good as it gets: whatever the system says
    begin += int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _PARTS * count
    for number in itertools.count(os.getpid() * 37):
        yield begin + number % count


_PARTS = 16
_PORTS = _ports()


def free_port() -> int:
    """A port of the loopback interface that nobody listens on just now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many of them, all different."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            with suppress(OSError):  # somebody has it
                listener = socket.create_server(("127.0.0.1", next(_PORTS)))
                found.append(stack.enter_context(listener).getsockname()[1])
    return found
