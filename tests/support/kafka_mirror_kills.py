"""Kill source, target and mirror again and again while a topic of Kafka's format is mirrored.

An idempotent producer fills the source. Each kill comes when the target holds a certain part of all
that will be sent. In the end each partition of the target must hold the records of the source's, in
order: a Hermes that keeps positions of sources each once; any other some of them several times, but
then each time all that followed. Of a Hermes whose brokers keep copies the leader is killed.
"""

import itertools
import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer
from kafka_4 import KafkaProcess
from kafka_mirrors import Copied, create, ends, records
from mirror_clusters import Clusters, eventually
from mirror_kills import kill_in_turn
from replicated_cluster import ReplicatedCluster
from server_process import free_port

__all__ = ["KafkaMirrorKills", "Leaders"]

_TOPIC = "numbers"
_PARTITIONS = 2
_PAYLOAD_BYTES = 90
_WAITING_MESSAGES = 20_000
# So slow that kills meet what is on its way.
_THROTTLE = "2MiB"


@dataclass
class KafkaMirrorKills:
    """One run.

    Args:
        clusters: makes what is needed.
        source, target: `hermes` or `kafka`; the target also `copies`.
        messages: how many are sent.
        kills: how many kills there are.
        seed: of what is killed, and when.
        copies: the target, where its brokers keep copies.

    Attributes:
        deeds: how often each was killed.
        repeated: how many messages the target has more than once.
    """

    clusters: Clusters
    source: str
    target: str
    messages: int
    kills: int
    seed: int
    copies: ReplicatedCluster | None = None
    deeds: Counter[str] = field(default_factory=Counter)
    repeated: int = 0

    def run(self) -> None:
        """Run it all; raises AssertionError for whatever isn't as it must be."""
        chance = random.Random(self.seed)
        source, source_address, _ = self._cluster("source", self.source)
        target, target_address, place = self._cluster("target", self.target)
        create(source_address, _TOPIC, _PARTITIONS, retention_ms="-1")
        mirror = self.clusters.process(
            {
                "name": "m",
                "sources": [{"name": "far", "kafka": [source_address]}],
                "target": place,
                "whitelist": _TOPIC,
                "throttle": _THROTTLE,
            }
        )
        victims = {"mirror": mirror, "target": target, "source": source}
        if self.copies is not None:
            # Who begins anew knows no more than the new leader says.
            victims["mirror and target"] = _Both(mirror, target)
        producer = _Numbers(source_address, self.messages)
        producer.start()
        try:
            kill_in_turn(
                victims,
                self.kills,
                chance,
                self.deeds,
                lambda part: _held(target_address) >= round(self.messages * part),
            )
        finally:
            producer.join()
        assert producer.failure is None
        self._compare(source_address, target_address)
        mirror.wait_for_line("mirror m begins")
        assert mirror.stop() == 0

    def _cluster(self, name: str, kind: str) -> tuple[Any, str, dict[str, Any]]:
        """A cluster, its Kafka listener's address, and what a mirror knows it by as its target."""
        if kind == "copies":
            assert self.copies is not None
            leaders = Leaders(self.copies, _TOPIC, _PARTITIONS)
            return leaders, self.copies.bootstrap, {"zookeeper": self.copies.coordination}
        if kind == "kafka":
            kafka = self.clusters.started(KafkaProcess(self.clusters.directory / name))
            return kafka, kafka.address, {"kafka": [kafka.address]}
        address = f"127.0.0.1:{free_port()}"
        listener = f"tcp:{address.rpartition(':')[2]}:interface=127.0.0.1"
        hermes = self.clusters.cluster(name, kafka_listen=listener)
        return hermes, address, {"zookeeper": hermes.connect}

    def _compare(self, source: str, target: str) -> None:
        sent = records(source, _TOPIC, _PARTITIONS)
        assert sorted(_number(each) for one in sent for each in one) == list(range(self.messages))
        eventually(
            lambda: all(
                there and there[-1] == each[-1]
                for there, each in zip(_last(target), sent, strict=True)
            ),
            "not everything arrived",
        )
        for there, each in zip(records(target, _TOPIC, _PARTITIONS), sent, strict=True):
            if self.target != "kafka":
                assert there == each, "more than there was to mirror, or less, or in another order"
            else:
                self.repeated += _repeats(there, each)


class Leaders:
    """Whoever leads one partition after the other, as something to kill."""

    def __init__(self, cluster: ReplicatedCluster, topic: str, partitions: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = itertools.cycle(range(partitions))
        self._killed = -1

    def kill(self) -> None:
        """Kill a leader, and wait until another one leads."""
        partition = next(self._partitions)
        self._killed = self._cluster.leader(self._topic, partition)
        self._cluster.kill(self._killed)
        self._cluster.leader(self._topic, partition, but=self._killed)

    def start(self) -> None:
        """Start it again, and wait until it has all."""
        self._cluster.start(self._killed)
        self._cluster.wait_until_in_sync(self._topic, len(self._cluster.copies(self._topic)))


class _Both:
    """Two things that are killed and started one after the other."""

    def __init__(self, one: Any, other: Any) -> None:
        self._two = one, other

    def kill(self) -> None:
        for each in self._two:
            each.kill()

    def start(self) -> None:
        for each in self._two:
            each.start()


def _repeats(there: Sequence[Copied], sent: Sequence[Copied]) -> int:
    """How many come again; each that does is one of those before, and its followers follow it."""
    places = {_number(each): n for n, each in enumerate(sent)}
    reached = 0
    following = 0
    for each in there:
        place = places[_number(each)]
        assert each == sent[place]
        assert place == following or place < reached, "something is missing, or came too early"
        following, reached = place + 1, max(reached, place + 1)
    assert reached == len(sent), "something is missing"
    return len(there) - len(sent)


def _number(record: Copied) -> int:
    assert record.value is not None
    return int(record.value.partition(b":")[0])


def _held(target: str) -> int:
    return sum(max(each, 0) for each in ends(target, _TOPIC, _PARTITIONS))


def _last(target: str) -> list[list[Copied]]:
    found = ends(target, _TOPIC, _PARTITIONS)
    if min(found) < 1:
        return [[] for _ in found]
    return records(target, _TOPIC, _PARTITIONS, last=1)


class _Numbers(threading.Thread):
    """Sends numbers to one partition after the other, each until it is acknowledged."""

    def __init__(self, address: str, messages: int) -> None:
        super().__init__(daemon=True)
        self.failure: BaseException | None = None
        self._messages = messages
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "batch.size": 16_384,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 200,
                "queue.buffering.max.messages": _WAITING_MESSAGES,
            }
        )

    def run(self) -> None:
        try:
            for number in range(self._messages):
                value = (b"%d:" % number).ljust(_PAYLOAD_BYTES, b".")
                key = b"%d" % (number % 100)
                while True:
                    try:
                        self._producer.produce(
                            _TOPIC, value, key, number % _PARTITIONS, self._delivered
                        )
                        break
                    except BufferError:
                        self._producer.poll(0.05)
                self._producer.poll(0)
            assert self._producer.flush(240) == 0
        except BaseException as error:
            self.failure = error
            raise

    def _delivered(self, error: Any, _message: Any) -> None:
        assert error is None, error
