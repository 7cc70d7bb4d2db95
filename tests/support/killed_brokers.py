"""One broker or three, which are killed under a program that uses them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from random import Random

from confluent_kafka.admin import AdminClient, NewTopic
from hermes_testkit import BrokerProcess
from replicated_cluster import ReplicatedCluster
from server_process import DEADLINE_SECONDS, free_port

__all__ = ["KilledBrokers", "OneBroker", "ThreeBrokers"]


class KilledBrokers(ABC):
    """Attributes:
    servers: where they are.
    copies: how many each topic has.
    """

    servers: str
    copies: int

    @abstractmethod
    def create_topic(self, name: str, partitions: int) -> None: ...

    @abstractmethod
    def befall(self, random: Random) -> str:
        """Kill some, and start them again; says which."""


class OneBroker(KilledBrokers):
    """A broker without coordination."""

    copies = 1

    def __init__(self, start_broker: Callable[..., BrokerProcess]) -> None:
        port = free_port()
        self.servers = f"127.0.0.1:{port}"
        listen = f"tcp:{port}:interface=127.0.0.1"
        self._broker = start_broker(kafka_listen=listen, group_initial_rebalance_delay="0s")

    def create_topic(self, name: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        admin.create_topics([NewTopic(name, partitions)])[name].result(DEADLINE_SECONDS)

    def befall(self, random: Random) -> str:
        self._broker.kill()
        self._broker.start()
        return "broker"


class ThreeBrokers(KilledBrokers):
    """Brokers with three copies of everything, also of what programs create.

    Args:
        directory: for all that they keep.
        coordination: `host:port/chroot` of a tree of their own.
    """

    copies = 3

    def __init__(self, directory: Path, coordination: str) -> None:
        self._cluster = ReplicatedCluster(
            directory,
            coordination,
            replica_lag_time="2s",
            default_replication_factor=3,
            group_initial_rebalance_delay="0s",
        )
        self.servers = self._cluster.bootstrap
        self.close = self._cluster.close
        self._topics: dict[str, int] = {}

    def create_topic(self, name: str, partitions: int) -> None:
        self._cluster.create_topic(name, partitions)
        self._topics[name] = partitions

    def befall(self, random: Random) -> str:
        numbers = list(self._cluster.brokers)
        killed = random.choice((numbers, [random.choice(numbers)], [random.choice(numbers)]))
        for each in killed:
            self._cluster.kill(each)
        self._cluster.start_together(killed)
        for name, partitions in self._topics.items():
            self._cluster.wait_until_in_sync(name, partitions)
        return "brokers" if killed is numbers else "one of the brokers"
