"""The servers that load is put on: a Hermes broker, a ZooKeeper, the baselines; all processes."""

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.support.processes import Program

__all__ = ["Address", "Baseline", "HermesBroker", "ZooKeeper", "free_port", "log_bytes"]

Address = tuple[str, int]

#: The checkout, from which baselines are started as `python -m bench...`.
_ROOT = Path(__file__).resolve().parents[2]

#: Where Debian puts ZooKeeper; its manifest names the jars that it needs.
_ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")

#: The endings of segments; one that follows an unflushed one is called so until that is flushed.
_SEGMENTS = (".kafka", ".unflushed")


class HermesBroker(Program):
    """`twistd -n hermes` on a free loopback port, with its default settings but for what is given.

    Attributes:
        address: where it listens.
        kafka_address: where it listens for Kafka's clients; None without `kafka_listen`.
        log_dir: its data directory.
        start_seconds: from the start of the process until all ports were open.
    """

    def __init__(
        self,
        directory: Path,
        *,
        program: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        start_timeout_seconds: float = 120,
        **settings: Any,
    ) -> None:
        """Start it and wait until its ports are open.

        Args:
            directory: its own; the configuration and the data directory go there.
            program: what takes the arguments of `twistd` in its place.
            environment: variables beside those of this process.
            start_timeout_seconds: how long it may take until its ports are open.
            settings: keys of broker.yaml.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.log_dir = directory / "logs"
        configuration = {
            "broker_id": 0,
            "listen": "tcp:0:interface=127.0.0.1",
            "coordination": "none",
            "log_dir": str(self.log_dir),
            **settings,
        }
        config, ready = directory / "broker.yaml", directory / "ready.json"
        config.write_text(yaml.safe_dump(configuration))
        ready.unlink(missing_ok=True)
        twistd = program or (str(Path(sys.executable).with_name("twistd")),)
        command = [*twistd, "--nodaemon", "--pidfile=", "hermes", "--config", str(config)]
        super().__init__(
            "hermes",
            [*command, "--ready-file", str(ready)],
            directory=directory,
            environment=environment,
        )
        try:
            self.wait_until(
                ready.exists, timeout_seconds=start_timeout_seconds, what="opening its ports"
            )
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.perf_counter() - self.started
        ports = json.loads(ready.read_text())
        (listening, *_), kafka = ports["listen"], ports.get("kafka_listen") or []
        self.address: Address = (listening["host"], listening["port"])
        self.kafka_address: Address | None = None
        if kafka:
            self.kafka_address = (kafka[0]["host"], kafka[0]["port"])

    def stored_bytes(self, topic: str, partition: int = 0) -> int:
        """How large a partition's log is on disk, flushed or not."""
        return log_bytes(self.log_dir / f"{topic}-{partition}")

    def first_segment(self, topic: str, partition: int = 0) -> Path:
        """The file with the beginning of a partition's log."""
        return min((self.log_dir / f"{topic}-{partition}").glob("*.kafka"))


class ZooKeeper(Program):
    """Debian's ZooKeeper, alone, on a free loopback port, with its default settings.

    Attributes:
        connect_string: `host:port`.
    """

    def __init__(self, directory: Path) -> None:
        """Start it and wait until it serves.

        Args:
            directory: its own; the configuration and the data go there.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        self.connect_string = f"127.0.0.1:{self._port}"
        (directory / "zoo.cfg").write_text(
            f"dataDir={directory / 'data'}\nclientPort={self._port}\n"
            "clientPortAddress=127.0.0.1\ntickTime=2000\nadmin.enableServer=false\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = ["java", "-Xmx256m", "-cp", str(_ZOOKEEPER_JAR), main, "zoo.cfg"]
        super().__init__("zookeeper", command, directory=directory)
        try:
            self.wait_until(self._serves, timeout_seconds=60, what="serving")
        except BaseException:
            self.stop()
            raise

    @staticmethod
    def is_installed() -> bool:
        """Whether there is one to start."""
        return _ZOOKEEPER_JAR.exists() and shutil.which("java") is not None

    def writes(self) -> int:
        """How many changes it has made so far, ends of sessions among them."""
        line = next(each for each in self._asked().splitlines() if each.startswith("Zxid: "))
        return int(line.removeprefix("Zxid: "), 16)

    def _serves(self) -> bool:
        try:
            return self._asked().startswith("Zookeeper")
        except OSError:
            return False

    def _asked(self) -> str:
        with socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection:
            connection.sendall(b"srvr")
            return connection.makefile(encoding="ascii").read()


class Baseline(Program):
    """One of the programs of `bench.baselines`.

    Attributes:
        address: where it listens.
        file: what it appends to, or serves.
    """

    def __init__(
        self, name: str, *, directory: Path, file: Path, arguments: Sequence[str] = ()
    ) -> None:
        """Start it and wait until it listens.

        Args:
            name: the module's name below `bench.baselines`.
            directory: where its log goes.
            file: what it appends to, or serves.
            arguments: of the program, beside the file.
        """
        directory.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        super().__init__(
            name,
            [sys.executable, "-m", f"bench.baselines.{name}", "--file", str(file), *arguments],
            directory=directory,
            environment={"PYTHONPATH": path},
        )
        self.file = file
        try:
            line = self.wait_until(self._first_line, timeout_seconds=30, what="listening")
        except BaseException:
            self.stop()
            raise
        self.address: Address = ("127.0.0.1", json.loads(line)["port"])

    def _first_line(self) -> str:
        line, newline, _rest = self.log.read_text().partition("\n")
        return line if newline else ""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def log_bytes(directory: Path) -> int:
    """The size of a partition's log on disk, from its directory, flushed or not."""
    files = directory.iterdir()
    return sum(file.stat().st_size for file in files if file.suffix in _SEGMENTS)
