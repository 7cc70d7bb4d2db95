"""The embedded coordination server in a process of its own, so that it can be killed and paused.

Run as a program it serves: `python embedded_coordination_process.py FILE PORT MIN_MS MAX_MS`.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from zookeeper_process import free_port

__all__ = ["EmbeddedCoordinationProcess"]

_DEADLINE_SECONDS = 60.0


class EmbeddedCoordinationProcess:
    """One embedded server; has what `ZooKeeperProcess` has.

    Args:
        directory: for its file.
        min_session_timeout_ms: the shortest that a client can get.
        max_session_timeout_ms: the longest that a client can get.

    Attributes:
        port: where it listens, on the loopback interface, across restarts.
    """

    def __init__(
        self,
        directory: Path,
        min_session_timeout_ms: int = 200,
        max_session_timeout_ms: int = 60_000,
    ) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._timeouts = (str(min_session_timeout_ms), str(max_session_timeout_ms))
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

    def start(self) -> None:
        """Start it, and wait until it serves."""
        arguments = [str(self.directory / "coordination.sqlite"), str(self.port), *self._timeouts]
        process = self._process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert process.stdout is not None
        with process.stdout as output:
            if output.readline() != b"ready\n":
                self.kill()
                raise RuntimeError("the embedded coordination server does not start")

    def stop(self) -> None:
        """Stop it, if it runs."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without any warning."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it do nothing, until `resume`."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            process.wait(_DEADLINE_SECONDS)


def _serve(path: str, port: str, shortest_ms: str, longest_ms: str) -> None:
    from twisted.internet import reactor

    from hermes.coordination.embedded import EmbeddedCoordination

    service = EmbeddedCoordination(
        reactor,
        path,
        f"tcp:{port}:interface=127.0.0.1",
        tick_ms=100,
        min_session_timeout_ms=int(shortest_ms),
        max_session_timeout_ms=int(longest_ms),
    )
    service.startService()
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.callWhenRunning(print, "ready", flush=True)
    reactor.run()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
