"""Kill source, target and mirror again and again while messages flow, and compare the two logs.

A producer fills the source, as fast as that takes it. Each kill comes when the target holds a
certain part of all that will be sent, so that it meets messages on their way. In the end each
partition of the target must hold, byte for byte, what that of the source holds: everything, in
order, nothing twice.
"""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

from mirror_clusters import (
    ClusterProcess,
    Clusters,
    MirrorProcess,
    eventually,
    mirror_settings,
)

from hermes.client import FetchRequest, SimpleConsumer, SyncProducer
from hermes.errors import HermesError
from hermes.protocol import Acks, ProduceRequest, encode_message_set

__all__ = ["MirrorKills", "kill_in_turn"]

_TOPIC = "numbers"
_PARTITIONS = 2
_BATCH = 250
_PAYLOAD_BYTES = 90
_MESSAGE_BYTES = _PAYLOAD_BYTES + 10
_FETCH_BYTES = 4 << 20


def kill_in_turn(
    victims: Mapping[str, Any],
    kills: int,
    chance: random.Random,
    deeds: Counter[str],
    has: Callable[[float], bool],
) -> None:
    """Kill and start the victims, each as often, in any order.

    Args:
        deeds: counts the kills, by victim.
        has: whether the target has such a part of all that is sent; each kill waits for one.
    """
    order = [list(victims)[n % len(victims)] for n in range(kills)]
    chance.shuffle(order)
    for number, name in enumerate(order, 1):
        part = (number - chance.random()) / (kills + 1)
        eventually(partial(has, part), f"the target does not get on after {dict(deeds)}")
        victims[name].kill()
        victims[name].start()
        deeds[name] += 1


@dataclass
class MirrorKills:
    """One run.

    Args:
        clusters: makes what is needed.
        messages: how many are sent.
        kills: how many kills there are.
        seed: of what is killed, and when.
        embedded: whether the target's broker runs the mirror.

    Attributes:
        deeds: how often each was killed.
    """

    clusters: Clusters
    messages: int
    kills: int
    seed: int
    embedded: bool = False
    deeds: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        """Run it all; raises AssertionError for whatever isn't as it must be."""
        chance = random.Random(self.seed)
        source = self.clusters.cluster("source")
        mirror: MirrorProcess | _Embedded
        if self.embedded:
            target = self.clusters.cluster("target", mirror=mirror_settings(source))
            mirror = _Embedded(target)
        else:
            target = self.clusters.cluster("target")
            mirror = self.clusters.mirror(source, target)
        victims = {"mirror": mirror, "target": target, "source": source}
        producer = _Producer(source, self.messages)
        producer.start()
        try:
            sent_bytes = self.messages * _MESSAGE_BYTES
            kill_in_turn(
                victims,
                self.kills,
                chance,
                self.deeds,
                lambda part: _held(target) >= round(sent_bytes * part),
            )
        finally:
            producer.join()
        assert producer.failure is None
        eventually(lambda: _ends(source) == _ends(target), "not everything arrived")
        self._compare(source, target)
        if isinstance(mirror, MirrorProcess):  # before that a signal just ends it
            mirror.wait_for_line("mirror m begins")
        assert mirror.stop() == 0

    def _compare(self, source: ClusterProcess, target: ClusterProcess) -> None:
        numbers: set[int] = set()
        for partition in range(_PARTITIONS):
            sent, got = (_Content(each, partition) for each in (source, target))
            assert got.size == sent.size, "more than there was to mirror, or less"
            assert got.digest == sent.digest, "other bytes, or in another order"
            numbers |= got.numbers
        assert numbers == set(range(self.messages)), "messages are missing"


class _Embedded:
    """The mirror that a broker runs."""

    def __init__(self, target: ClusterProcess) -> None:
        self._target = target

    def kill(self) -> None:
        """End it, if it runs."""
        lines = [line for line in self._target.lines if "the mirror runs as process" in line]
        with suppress(ProcessLookupError):
            os.kill(int(lines[-1].rpartition(" ")[2]), signal.SIGKILL)

    def start(self) -> None:
        """The broker does that."""

    def stop(self) -> int:
        """End it with its broker; the broker's exit status."""
        return self._target.stop()


class _Producer(threading.Thread):
    """Sends numbers, each batch until it is acknowledged."""

    def __init__(self, source: ClusterProcess, messages: int) -> None:
        super().__init__(daemon=True)
        self.failure: BaseException | None = None
        self._port = source.port
        self._messages = messages

    def run(self) -> None:
        try:
            for first in range(0, self._messages, _BATCH):
                numbers = range(first, min(first + _BATCH, self._messages))
                payloads = [b"%d:" % each for each in numbers]
                self._send(first // _BATCH % _PARTITIONS, encode_message_set(_padded(payloads)))
        except BaseException as error:
            self.failure = error
            raise

    def _send(self, partition: int, message_set: bytes) -> None:
        def sent() -> bool:
            try:
                with SyncProducer("127.0.0.1", self._port) as producer:
                    request = ProduceRequest(_TOPIC, partition, message_set)
                    (result,) = producer.send_acknowledged([request], Acks.FLUSHED)
            except HermesError:
                return False  # it is down
            return not isinstance(result, Exception)

        eventually(sent, "the source does not come back")


def _padded(payloads: list[bytes]) -> list[bytes]:
    return [each.ljust(_PAYLOAD_BYTES, b".") for each in payloads]


def _ends(cluster: ClusterProcess) -> list[int]:
    return [cluster.end(_TOPIC, each) for each in range(_PARTITIONS)]


def _held(cluster: ClusterProcess) -> int:
    return sum(max(each, 0) for each in _ends(cluster))


class _Content:
    """What a partition holds: its bytes in short, and the numbers in it."""

    def __init__(self, cluster: ClusterProcess, partition: int) -> None:
        digest, self.numbers, self.size = sha256(), set[int](), 0
        with SimpleConsumer("127.0.0.1", cluster.port) as consumer:
            while True:
                request = FetchRequest(_TOPIC, partition, self.size, _FETCH_BYTES)
                messages = consumer.fetch(request)
                if messages.next_offset == self.size:
                    break
                for message, _ in messages:
                    digest.update(message.payload)
                    self.numbers.add(int(message.payload.partition(b":")[0]))
                self.size = messages.next_offset
        self.digest = digest.hexdigest()
