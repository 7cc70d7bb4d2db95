"""The embedded coordination server in a process of its own, so that it can be killed and paused.

Run as a program it serves: `python embedded_coordination_process.py FILE PORT MIN_MS MAX_MS`.
"""

import os
import subprocess
import sys
from pathlib import Path

from server_process import ServerProcess

__all__ = ["EmbeddedCoordinationProcess"]


class EmbeddedCoordinationProcess(ServerProcess):
    """One embedded server.

    Args:
        directory: for its file.
        min_session_timeout_ms: the shortest that a client can get.
        max_session_timeout_ms: the longest that a client can get.
    """

    def __init__(
        self,
        directory: Path,
        min_session_timeout_ms: int = 200,
        max_session_timeout_ms: int = 60_000,
    ) -> None:
        super().__init__(directory)
        self._timeouts = (str(min_session_timeout_ms), str(max_session_timeout_ms))

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


def _serve(path: str, port: str, shortest_ms: str, longest_ms: str) -> None:
    from twisted.internet import reactor

    from hermes.config import ListenerConfig
    from hermes.coordination.embedded import EmbeddedCoordination

    service = EmbeddedCoordination(
        reactor,
        path,
        ListenerConfig(f"tcp:{port}:interface=127.0.0.1"),
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
