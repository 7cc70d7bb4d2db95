"""The embedded coordination server in a process of its own, so that it can be killed and paused.

Run as a program it serves: `python embedded_coordination_process.py FILE PORT MIN_MS MAX_MS`, and
what `coordination_listen` says beside the endpoint, as JSON, with `users_file`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from certificates import Certificates
from server_process import ServerProcess

__all__ = ["EmbeddedCoordinationProcess", "SecureEmbeddedProcess"]


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
        self._security: Mapping[str, Any] = {}

    def start(self) -> None:
        """Start it, and wait until it serves."""
        arguments = [str(self.directory / "coordination.sqlite"), str(self.port), *self._timeouts]
        arguments.append(json.dumps(self._security))
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


class SecureEmbeddedProcess(EmbeddedCoordinationProcess):
    """One that is reached by TLS, and asks for users or certificates.

    Args:
        directory: for its files.
        certificates: it has the server's.
        users: passwords by name; None to ask for certificates of theirs.
    """

    def __init__(
        self, directory: Path, certificates: Certificates, users: Mapping[str, str] | None
    ) -> None:
        super().__init__(directory)
        tls = {
            "certificate": str(certificates.server.certificate),
            "key": str(certificates.server.key),
        }
        if users is None:
            authority = {"client_ca": str(certificates.ca), "client_certificate": "required"}
            self._security = {"authentication": "tls", "tls": {**tls, **authority}}
            return
        from hermes.security.users import Users

        known = Users.parse(b"")
        for name, password in users.items():
            known = known.with_user(name, password)
        path = directory / "users"
        path.touch(mode=0o600)
        path.write_bytes(known.encode())
        self._security = {"authentication": "scram", "tls": tls, "users_file": str(path)}


def _serve(path: str, port: str, shortest_ms: str, longest_ms: str, security: str) -> None:
    from twisted.internet import reactor
    from twisted.internet.threads import deferToThread

    from hermes.config.listeners import LISTENER
    from hermes.coordination.embedded import EmbeddedCoordination
    from hermes.security.users_file import UsersFile
    from hermes.server.authentication import Authentication

    given = json.loads(security)
    users_file = given.pop("users_file", None)
    users = None
    if users_file is not None:
        users = Authentication(UsersFile(users_file), reactor, deferToThread)  # type: ignore[arg-type]
    endpoint = f"tcp:{port}:interface=127.0.0.1"
    service = EmbeddedCoordination(
        reactor,
        path,
        LISTENER.parse({"endpoint": endpoint, **given}),
        tick_ms=100,
        min_session_timeout_ms=int(shortest_ms),
        max_session_timeout_ms=int(longest_ms),
        users=users,
    )
    service.startService()
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.callWhenRunning(print, "ready", flush=True)
    reactor.run()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
