"""Clusters of several brokers, of Hermes and of Kafka, that may be killed and started anew."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.peers.kafka import KafkaBroker, KafkaPlace
from bench.support.processes import Program
from bench.support.servers import HermesBroker, ZooKeeper, free_port
from bench.support.usage import MEGABYTE, cpu_seconds, resident_bytes

__all__ = ["Cluster", "HermesCluster", "KafkaCluster"]

_PATIENCE_SECONDS = 120.0


class Cluster(ABC):
    """Some brokers, by their ids, from 1; a context manager.

    Attributes:
        bootstrap: all of them, for Kafka's clients.
    """

    def __init__(self, ports: list[int]) -> None:
        from confluent_kafka.admin import AdminClient

        self.bootstrap = ",".join(f"127.0.0.1:{each}" for each in ports)
        self.address = ("127.0.0.1", ports[0])
        self._running: dict[int, Program] = {}
        self._stack = ExitStack()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._numbers = range(1, len(ports) + 1)

    @abstractmethod
    def _start(self, number: int) -> Program:
        """Start a broker."""

    @abstractmethod
    def log_dir(self, number: int) -> Path:
        """Where a broker's partitions lie."""

    @abstractmethod
    def _started(self, broker: Any) -> None:
        """Wait until it serves."""

    def __enter__(self) -> Self:
        try:
            for number in self._numbers:
                self._running[number] = self._start(number)
            for each in self._running.values():
                self._started(each)
            self.wait_until(self._is_whole, "the brokers don't find each other")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for each in self._running.values():
            each.kill()  # what they have is not needed any more, nor anybody to take over
        self._stack.close()

    def kill(self, number: int) -> None:
        """End a broker without any warning."""
        self._running.pop(number).kill()

    def start(self, number: int) -> None:
        """Start it again with what it has, and wait until it serves."""
        broker = self._running[number] = self._start(number)
        self._started(broker)

    def cpu_seconds(self, but: int = 0) -> float:
        """What its brokers, those that run and all but one, have taken so far."""
        running = self._running.items()
        return sum(cpu_seconds(each.pid) for number, each in running if number != but)

    def resident_megabytes(self) -> list[float]:
        """Of each broker that runs."""
        return [resident_bytes(each.pid) / MEGABYTE for each in self._running.values()]

    def leader(self, topic: str) -> int:
        """Who leads the topic's only partition; -1 for nobody."""
        found: int = self.partition(topic).leader
        return found

    def least_stored_bytes(self, topic: str) -> int:
        """How large the smallest copy of the topic's only partition is."""
        return min(self.stored_bytes(number, topic) for number in self._numbers)

    def stored_bytes(self, number: int, topic: str) -> int:
        """How large a broker's copy of the topic's only partition is."""
        segments = (self.log_dir(number) / f"{topic}-0").glob("*.log")
        return sum(each.stat().st_size for each in segments)

    def partitions(self) -> list[Any]:
        """What is said of all partitions of all topics."""
        topics = self._admin.list_topics(timeout=60).topics.values()
        return [each for topic in topics for each in topic.partitions.values()]

    def wait_until_in_sync(self, topic: str) -> None:
        """Wait until each broker has all of the topic's only partition."""

        def is_in_sync() -> bool:
            partition = self.partition(topic)
            return partition.leader != -1 and len(partition.isrs) == len(self._numbers)

        self.wait_until(is_in_sync, f"{topic} isn't in sync")

    def wait_until(self, is_so: Callable[[], bool], otherwise: str) -> None:
        """Look again and again."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError(otherwise)
            time.sleep(0.05)

    def partition(self, topic: str) -> Any:
        """What is said of the topic's only partition."""
        return self._admin.list_topics(topic, timeout=60).topics[topic].partitions[0]

    def _is_whole(self) -> bool:
        return len(self._admin.list_topics(timeout=60).brokers) == len(self._numbers)


class HermesCluster(Cluster):
    """Hermes brokers and a ZooKeeper."""

    def __init__(self, directory: Path, count: int = 3, **settings: Any) -> None:
        self._directory = directory
        self._settings = settings
        self._ports = [free_port() for _ in range(count)]
        super().__init__(self._ports)
        self._zookeeper = self._stack.enter_context(ZooKeeper(directory / "zookeeper"))

    def _start(self, number: int) -> Program:
        return HermesBroker(
            self._directory / f"hermes-{number}",
            broker_id=number,
            coordination="zookeeper",
            zookeeper_connect=self._zookeeper.connect_string,
            kafka_listen=f"tcp:{self._ports[number - 1]}:interface=127.0.0.1",
            **self._settings,
        )

    def log_dir(self, number: int) -> Path:
        """See `Cluster`."""
        return self._directory / f"hermes-{number}" / "logs"

    def _started(self, broker: Any) -> None:
        """It was, when it was made."""

    def coordination_writes(self) -> int:
        """How many changes coordination has made so far."""
        return self._zookeeper.writes()


class KafkaCluster(Cluster):
    """Brokers of Kafka that are its controllers, too."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        self._directory = directory
        self._places = [KafkaPlace.free() for _ in range(count)]
        super().__init__([each.port for each in self._places])

    def _start(self, number: int) -> Program:
        return KafkaBroker(self._directory / f"kafka-{number}", self._places, number)

    def log_dir(self, number: int) -> Path:
        """See `Cluster`."""
        return self._directory / f"kafka-{number}" / "data"

    def _started(self, broker: Any) -> None:
        broker.wait_until_serving()
