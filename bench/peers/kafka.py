"""What Kafka's clients are measured on beside Hermes: Kafka 4, and librdkafka's mock cluster."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench.peers.system import NotInstalled
from bench.support.processes import Program
from bench.support.servers import Address, free_port

__all__ = [
    "KafkaBroker",
    "KafkaPlace",
    "MockBroker",
    "create_topics",
    "java",
    "partitions_by_broker",
]

_ROOT = Path(__file__).resolve().parents[2]
_LEADERS_SECONDS = 60.0
# Metadata, version 1, of no topic: int32 size | int16 3 | int16 1 | int32 correlation | int16 -1
# (no client id) | int32 count of topics
_METADATA = bytes.fromhex("0000000e 0003 0001 00000001 ffff 00000000")


def _jars() -> Path:
    """Where `scripts/environment.sh` puts Kafka for the tests."""
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(os.environ.get("HERMES_CACHE") or Path(caches, "hermes"))
    found = sorted(folder.glob("kafka-[0-9]*"))
    if not found or shutil.which("java") is None:
        raise NotInstalled("Kafka needs Java, and bash -c '. scripts/environment.sh; ensure_kafka'")
    return found[-1]


def java(*heap: str) -> list[str]:
    """A JVM with Kafka's classes, as its own scripts start it, but for the log.

    Args:
        heap: options for its size.

    Raises:
        NotInstalled: Kafka or Java is missing.
    """
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", *heap, "-server", "-XX:+UseG1GC", quiet, "-cp", f"{_jars()}/*"]


class KafkaPlace(NamedTuple):
    """Where a broker of Kafka listens: for clients, and as a controller."""

    port: int
    controller_port: int

    @classmethod
    def free(cls) -> Self:
        """One that nobody has just now."""
        return cls(free_port(), free_port())


class KafkaBroker(Program):
    """One Kafka 4, broker and controller at once, with its default settings and its default heap.

    It keeps its data when it is started again in its directory.

    Attributes:
        address: where it listens.
        version: its version.
    """

    def __init__(self, directory: Path, places: Sequence[KafkaPlace] = (), number: int = 1) -> None:
        """Start it; alone, it serves then.

        Args:
            directory: its own; the configuration and the data go there.
            places: of all brokers of its cluster, if there are others; each then serves once most
                of them run, and its `wait_until_serving` is to be called.
            number: which of these it is, from 1.

        Raises:
            NotInstalled: Kafka or Java is missing.
        """
        self.version = _jars().name.removeprefix("kafka-")
        directory.mkdir(parents=True, exist_ok=True)
        is_alone = not places
        places = places or [KafkaPlace.free()]
        place, kept = places[number - 1], min(len(places), 3)
        self.address: Address = ("127.0.0.1", place.port)
        voters = ",".join(
            f"{each}@127.0.0.1:{other.controller_port}" for each, other in enumerate(places, 1)
        )
        (directory / "server.properties").write_text(
            f"process.roles=broker,controller\nnode.id={number}\nlog.dirs=data\n"
            f"controller.quorum.voters={voters}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{place.port},"
            f"CONTROLLER://127.0.0.1:{place.controller_port}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
            f"offsets.topic.num.partitions=1\noffsets.topic.replication.factor={kept}\n"
            f"transaction.state.log.replication.factor={kept}\n"
            "transaction.state.log.min.isr=1\n"
        )
        started = java("-Xmx1G", "-Xms1G")
        storage = ("kafka.tools.StorageTool", "format", "-t", "hermes-beside-KafkaQ")
        if not (directory / "data").exists():
            subprocess.run(
                [*started, *storage, "-c", "server.properties"],
                cwd=directory,
                check=True,
                stdout=subprocess.DEVNULL,
            )
        command = [*started, "kafka.Kafka", "server.properties"]
        super().__init__("kafka", command, directory=directory)
        if is_alone:
            self.wait_until_serving()

    def wait_until_serving(self) -> None:
        """Wait until it answers, or stop it and say why not."""
        try:
            self.wait_until(self._serves, timeout_seconds=60, what="serving")
        except BaseException:
            self.stop()
            raise

    def _serves(self) -> bool:
        try:
            with socket.create_connection(self.address, timeout=10) as connection:
                connection.sendall(_METADATA)
                # int32 size | int32 correlation | int32 count of brokers
                answer = connection.makefile("rb").read(12)
        except OSError:
            return False
        return answer[8:] not in (b"", bytes(4))


class MockBroker(Program):
    """librdkafka's mock cluster of one broker.

    Attributes:
        address: where it listens.
    """

    def __init__(self, directory: Path) -> None:
        """Start it and wait until it serves.

        Args:
            directory: where its log goes.

        Raises:
            NotInstalled: confluent-kafka is missing.
        """
        if find_spec("confluent_kafka") is None:
            raise NotInstalled(
                "confluent-kafka brings the mock cluster: pip install confluent-kafka"
            )
        directory.mkdir(parents=True, exist_ok=True)
        ready = directory / "ready.json"
        command = [sys.executable, "-m", "bench.baselines.mock_cluster", str(ready)]
        environment = {"PYTHONPATH": str(_ROOT)}
        super().__init__("mock", command, directory=directory, environment=environment)
        try:
            self.wait_until(ready.exists, timeout_seconds=60, what="serving")
        except BaseException:
            self.stop()
            raise
        host, port = json.loads(ready.read_text())
        self.address: Address = (host, port)


def create_topics(
    address: Address,
    names: Sequence[str],
    partitions: int = 1,
    copies: int = 1,
    **settings: object,
) -> None:
    """Create topics, and wait until all their partitions have a leader.

    Args:
        address: of Kafka, or of Hermes for Kafka's clients.
        names: the topics'.
        partitions: how many each has.
        copies: how many there are of each partition.
        settings: of the topics, with underscores.

    Raises:
        NotInstalled: confluent-kafka is missing.
    """
    admin = _admin(address)
    from confluent_kafka.admin import NewTopic

    config = {name.replace("_", "."): str(value) for name, value in settings.items()}
    asked = admin.create_topics(
        [NewTopic(name, partitions, copies, config=config) for name in names], request_timeout=120
    )
    for outcome in asked.values():
        outcome.result()
    deadline = time.monotonic() + _LEADERS_SECONDS
    while True:
        found = admin.list_topics(timeout=60).topics
        led = sum(
            each.leader >= 0
            for name in names
            if name in found
            for each in found[name].partitions.values()
        )
        if led == len(names) * partitions:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{led} of {len(names) * partitions} partitions have a leader")
        time.sleep(0.1)


def partitions_by_broker(address: Address, topic: str) -> dict[int, list[int]]:
    """Which of a topic's partitions each broker leads, by the brokers' ids.

    Args:
        address: of one of them.
        topic: the topic's name.
    """
    found: dict[int, list[int]] = {}
    partitions = _admin(address).list_topics(timeout=60).topics[topic].partitions
    for number, partition in partitions.items():
        found.setdefault(partition.leader, []).append(number)
    return found


def _admin(address: Address) -> Any:
    if find_spec("confluent_kafka") is None:
        raise NotInstalled("topics are made by confluent-kafka: pip install confluent-kafka")
    from confluent_kafka.admin import AdminClient

    host, port = address
    return AdminClient({"bootstrap.servers": f"{host}:{port}"})
