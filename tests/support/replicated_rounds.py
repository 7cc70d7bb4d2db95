"""A replicated topic under load, round by round; in the end everything is looked up."""

from collections.abc import Callable

from kafka_kills import read_all
from kafka_loads import PARTITIONS, TOPIC, LibrdkafkaLoad, Load
from replicated_cluster import ReplicatedCluster
from replicated_log import Watcher, differences, judge

__all__ = ["ReplicatedLoad"]

#: How many messages more must be acknowledged before the next round: each hits busy brokers.
_BETWEEN = 300


class ReplicatedLoad:
    """Producers and watchers of a topic with three copies, from now until `finish`.

    Args:
        cluster: without that topic.
        seed: of the producer.
        load: starts another producer, by the address of the brokers.
    """

    def __init__(
        self,
        cluster: ReplicatedCluster,
        seed: int,
        load: Callable[[str], Load] | None = None,
    ) -> None:
        self._cluster = cluster
        config = {"segment.bytes": "65536", "min.insync.replicas": "2"}
        cluster.create_topic(TOPIC, PARTITIONS, config=config)
        start = load or (lambda bootstrap: LibrdkafkaLoad(bootstrap, seed))
        self.load = start(cluster.bootstrap)
        self.watcher = Watcher(cluster.bootstrap, TOPIC, PARTITIONS)

    def go_on(self, count: int = _BETWEEN) -> None:
        """Wait until so many more messages are acknowledged."""
        try:
            self.load.wait_for_more(count)
        except AssertionError as error:
            error.add_note(f"{self._cluster.copies(TOPIC)}\n{self._cluster.said()}")
            raise

    def wait_until_in_sync(self) -> None:
        """Wait until no copy lacks anything."""
        self._cluster.wait_until_in_sync(TOPIC, PARTITIONS)

    def leader(self, number: int = 0, but: int = -1) -> int:
        """Who leads a partition."""
        return self._cluster.leader(TOPIC, number, but)

    def abandon(self) -> None:
        """End the clients, whatever holds."""
        self.watcher.stop()
        if isinstance(self.load, LibrdkafkaLoad):
            self.load.give_up()
        self.load.stop()

    def finish(self) -> int:
        """Send no more, look everything up, stop all brokers, and compare what they have.

        Returns:
            How many messages were acknowledged.
        """
        cluster, load = self._cluster, self.load
        load.stop()
        assert not load.failed, (len(load.failed), load.failed[:3], cluster.said())
        self.wait_until_in_sync()
        read = read_all(cluster.bootstrap)
        ends = {(number, messages[-1][0]) for number, messages in read.items()}
        cluster.wait_until(lambda: ends <= self.watcher.seen.keys(), "the watcher lags behind")
        self.watcher.stop()
        assert not self.watcher.errors, self.watcher.errors[:3]
        findings = judge(load.acknowledged, read, [self.watcher])
        assert not findings, (findings, cluster.said())
        cluster.close()
        log_dirs = {number: each.log_dir for number, each in cluster.brokers.items()}
        apart = differences(log_dirs, TOPIC, PARTITIONS)
        assert not apart, (apart, cluster.said())
        return len(load.acknowledged)
