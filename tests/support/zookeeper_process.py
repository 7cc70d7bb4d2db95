"""Real ZooKeepers as processes, from the Debian package `zookeeper`, on free loopback ports."""

import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from certificates import Certificates
from server_process import DEADLINE_SECONDS, ServerProcess, free_ports
from short_lived_jvm import JAVA_OPTIONS

__all__ = [
    "ZOOKEEPER_JAR",
    "SecureZooKeeperProcess",
    "ZooKeeperEnsemble",
    "ZooKeeperProcess",
    "four_letter_word",
]

#: Where Debian puts the server; its manifest names the jars that it needs.
ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")


# What TLS needs beside those jars: Debian's manifests don't name it.
_TLS_JARS = [Path(f"/usr/share/java/{name}.jar") for name in ("netty-resolver", "netty-codec")]


class ZooKeeperProcess(ServerProcess):
    """One ZooKeeper, which stands alone unless `more` says otherwise.

    Args:
        directory: for its files.
        tick_ms: the unit of its time; session timeouts are 2 to 20 of these unless given.
        min_session_timeout_ms: the shortest that a client can get.
        max_session_timeout_ms: the longest that a client can get.
        more: further settings.
    """

    def __init__(
        self,
        directory: Path,
        tick_ms: int = 100,
        min_session_timeout_ms: int = 200,
        max_session_timeout_ms: int = 60_000,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(directory)
        settings = {
            "tickTime": tick_ms,
            "minSessionTimeout": min_session_timeout_ms,
            "maxSessionTimeout": max_session_timeout_ms,
            "dataDir": "data",  # below where it starts: it reads paths as ISO 8859-1
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **(more or {}),
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (directory / "zoo.cfg").write_text(text, encoding="utf-8")

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self.launch()
        self.wait_until_it_serves()

    def launch(self) -> None:
        """Start it."""
        java = shutil.which("java")
        if java is None or not ZOOKEEPER_JAR.exists():
            raise RuntimeError(
                "these tests need a real ZooKeeper. Install Debian's: apt-get install zookeeper"
            )
        with open(self.directory / "output", "ab") as output:
            self._process = subprocess.Popen(
                [
                    *(java, "-Xmx128m", *JAVA_OPTIONS),
                    *("-cp", os.pathsep.join(map(str, (ZOOKEEPER_JAR, *_TLS_JARS)))),
                    *("org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"),
                ],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_until_it_serves(self) -> None:
        """Wait until it answers, which one of an ensemble does once most of them run."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                if four_letter_word(self.port, "srvr").startswith("Zookeeper version"):
                    return
            except OSError:
                pass
            time.sleep(0.05)  # between two looks; there is nothing that could tell
        self._fail()

    def _fail(self) -> None:
        self.kill()
        output = (self.directory / "output").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"ZooKeeper does not serve:\n{output}")


def recipe() -> dict[str, object]:
    """What docs/security.md says that a ZooKeeper with TLS is set to, but for its port."""
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```properties zookeeper\n(.*?)```", page, re.DOTALL)
    settings = dict(line.split("=", 1) for line in block.splitlines())
    del settings["secureClientPort"]
    return settings


class SecureZooKeeperProcess(ZooKeeperProcess):
    """One that is reached by TLS only, with the settings that docs/security.md has.

    Args:
        directory: for its files.
        certificates: it has the server's.
        asks_for_certificates: whether clients need one.
    """

    def __init__(
        self, directory: Path, certificates: Certificates, asks_for_certificates: bool = False
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        pair = certificates.server
        together = directory / "server.pem"
        together.touch(mode=0o600)
        together.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())
        shutil.copy(certificates.ca, directory / "ca.pem")
        more = recipe()
        if asks_for_certificates:
            more["ssl.clientAuth"] = "need"
        super().__init__(directory, more=more)
        text = (directory / "zoo.cfg").read_text(encoding="utf-8")
        secure = re.sub("^clientPort", "secureClientPort", text, flags=re.MULTILINE)
        (directory / "zoo.cfg").write_text(secure, encoding="utf-8")
        self._certificates = certificates

    def wait_until_it_serves(self) -> None:
        """Wait until it shakes hands."""
        context = ssl.create_default_context(cafile=self._certificates.ca)
        client = self._certificates.client("waiting")
        context.load_cert_chain(client.certificate, client.key)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                with (
                    socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection,
                    context.wrap_socket(connection, server_hostname="127.0.0.1") as secure,
                ):
                    secure.sendall(b"srvr")
                    if secure.recv(4):
                        return
            except OSError:
                pass
            time.sleep(0.05)  # between two looks; there is nothing that could tell
        self._fail()


class ZooKeeperEnsemble:
    """Several that agree among themselves.

    Args:
        directory: for their files.
        count: how many.
        given: further settings.

    Attributes:
        servers: each of them.
    """

    def __init__(
        self, directory: Path, count: int = 3, given: Mapping[str, object] | None = None
    ) -> None:
        ports = free_ports(2 * count)
        peers = {
            f"server.{number + 1}": f"127.0.0.1:{ports[2 * number]}:{ports[2 * number + 1]}"
            for number in range(count)
        }
        more = {"initLimit": 100, "syncLimit": 50, **(given or {}), **peers}
        self.servers = []
        for number in range(count):
            place = directory / str(number + 1)
            (place / "data").mkdir(parents=True)
            (place / "data" / "myid").write_text(f"{number + 1}\n", encoding="utf-8")
            self.servers.append(ZooKeeperProcess(place, more=more))

    @property
    def address(self) -> str:
        """`host:port,host:port,...`."""
        return ",".join(each.address for each in self.servers)

    def start(self) -> None:
        """Start them, and wait until all serve."""
        for each in self.servers:
            each.launch()
        for each in self.servers:
            each.wait_until_it_serves()

    def kill(self) -> None:
        """End them all."""
        for each in self.servers:
            each.kill()


def four_letter_word(port: int, word: str) -> str:
    """Ask a server on the loopback interface a four-letter word; its whole answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(word.encode())
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts).decode()
