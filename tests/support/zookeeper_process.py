"""A real ZooKeeper as a process, from the Debian package `zookeeper`, on a free loopback port."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

__all__ = ["ZOOKEEPER_JAR", "ZooKeeperProcess", "four_letter_word", "free_port"]

#: Where Debian puts the server; its manifest names the jars that it needs.
ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")

_DEADLINE_SECONDS = 60.0


class ZooKeeperProcess:
    """One ZooKeeper that stands alone.

    Args:
        directory: for its files.
        tick_ms: the unit of its time; session timeouts are 2 to 20 of these unless given.
        min_session_timeout_ms: the shortest that a client can get.
        max_session_timeout_ms: the longest that a client can get.

    Attributes:
        port: where it listens, on the loopback interface, across restarts.
    """

    def __init__(
        self,
        directory: Path,
        tick_ms: int = 100,
        min_session_timeout_ms: int = 200,
        max_session_timeout_ms: int = 60_000,
    ) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        settings = {
            "tickTime": tick_ms,
            "minSessionTimeout": min_session_timeout_ms,
            "maxSessionTimeout": max_session_timeout_ms,
            "dataDir": directory / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (directory / "zoo.cfg").write_text(text, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it serves."""
        java = shutil.which("java")
        if java is None or not ZOOKEEPER_JAR.exists():
            raise RuntimeError(
                "these tests need a real ZooKeeper. Install Debian's: apt-get install zookeeper"
            )
        with open(self.directory / "output", "ab") as output:
            self._process = subprocess.Popen(
                [
                    *(java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
                    *("-cp", str(ZOOKEEPER_JAR)),
                    *("org.apache.zookeeper.server.ZooKeeperServerMain", "zoo.cfg"),
                ],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._wait_until_it_serves(self._process)

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

    def _wait_until_it_serves(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            try:
                if four_letter_word(self.port, "srvr").startswith("Zookeeper version"):
                    return
            except OSError:
                pass
            time.sleep(0.05)  # between two looks; there is nothing that could tell
        self.kill()
        output = (self.directory / "output").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"ZooKeeper does not serve:\n{output}")


def free_port() -> int:
    """A port of the loopback interface that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def four_letter_word(port: int, word: str) -> str:
    """Ask a server on the loopback interface a four-letter word; its whole answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(word.encode())
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts).decode()
