"""Three brokers of Kafka 4, each its own controller, too."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafka_4 import KafkaProcess
from server_process import free_port

__all__ = ["KafkaCluster"]

#: A dead broker is noticed soon, and nothing moves by itself.
_SETTINGS = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.replication.factor": 3,
    "log.initial.task.delay.ms": 3_600_000,
}


class KafkaCluster:
    """Brokers with the ids 1 to 3.

    Attributes:
        addresses: where they are, by their ids.
    """

    def __init__(self, directory: Path) -> None:
        controllers = [free_port() for _ in range(3)]
        self._brokers = {
            number: KafkaProcess(
                directory / str(number), _SETTINGS, node=number, controllers=controllers
            )
            for number in (1, 2, 3)
        }
        self.addresses = {number: each.address for number, each in self._brokers.items()}

    def begin(self) -> None:
        """Start them all, and wait until they serve."""
        with ThreadPoolExecutor(len(self._brokers)) as pool:
            for each in [pool.submit(broker.start) for broker in self._brokers.values()]:
                each.result()

    def close(self) -> None:
        """End them all."""
        for each in self._brokers.values():
            each.kill()

    def start(self, number: int) -> None:
        """Start one that was killed."""
        self._brokers[number].start()

    def kill(self, number: int) -> None:
        """End one without any warning."""
        self._brokers[number].kill()

    def pause(self, number: int) -> None:
        """Let one do nothing, until `resume`."""
        self._brokers[number].pause()

    def resume(self, number: int) -> None:
        """Let it go on."""
        self._brokers[number].resume()
