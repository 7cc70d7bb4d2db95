"""Spring moves messages from topic to topic exactly once; it and its brokers are killed."""

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from java_application import JavaApplication, kill_some
from kafka_4 import java_command
from killed_brokers import KilledBrokers
from server_process import DEADLINE_SECONDS
from soak import report, seed, times

pytestmark = pytest.mark.soak

GIVEN, MOVED, STARTS, PARTITIONS = "given", "moved", "starts", 3


class Mover(JavaApplication):
    """Listeners in a container, with a transaction manager.

    Args:
        servers: where the brokers are.
        directory: for what it says.
    """

    starts = 0

    def __init__(self, servers: str, directory: Path) -> None:
        super().__init__(servers, MOVED, PARTITIONS, directory / "spring.log")
        given = [servers, GIVEN, MOVED, STARTS]
        jars = Path(os.environ["HERMES_SPRING_JARS"])
        self._command = java_command("SpringMover.java", *given, jars=jars)

    def start(self) -> None:
        self.starts += 1
        self.launch(self._command)


def produce(servers: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for each in numbers:
        producer.produce(GIVEN, str(each), partition=each % PARTITIONS)
    assert producer.flush(DEADLINE_SECONDS) == 0


def started(servers: str) -> int:
    """How often it has said that it has started."""
    reader = Consumer({"bootstrap.servers": servers, "group.id": "-", "log_level": 0})
    try:
        reader.assign([TopicPartition(STARTS, 0, 0)])
        return sum(each.error() is None for each in reader.consume(10_000, 5.0))
    finally:
        reader.close()


def test_messages_are_moved_exactly_once(brokers: KilledBrokers, tmp_path: Path) -> None:
    number, rounds = seed(), times(20)
    random = Random(f"{number} {brokers.copies}")
    for name, partitions in ((GIVEN, PARTITIONS), (MOVED, PARTITIONS), (STARTS, 1)):
        brokers.create_topic(name, partitions)
    mover, given, killed = Mover(brokers.servers, tmp_path), 0, Counter[str]()
    try:
        mover.start()
        for _ in range(rounds):
            produce(brokers.servers, range(given, given + 300))
            given += 300
            mover.read_some(random.randrange(1, 250))
            killed[kill_some(random, mover, brokers)] += 1
        mover.read_until(lambda: len(mover.messages) >= given)
        mover.end(kill=False)
        numbers = [int(value or b"") for _, value in mover.messages]
        for partition in range(PARTITIONS):
            own = [each for each in numbers if each % PARTITIONS == partition]
            assert own == list(range(partition, given, PARTITIONS))
        assert 1 <= started(brokers.servers) <= mover.starts
    finally:
        mover.close()
    report("Spring, exactly once", seed=number, of=brokers.copies, messages=given, **killed)
