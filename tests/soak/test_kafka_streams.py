"""Kafka Streams counts words, at least once, while it and its broker are killed."""

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hermes_testkit import BrokerProcess
from kafka_4 import java_command
from server_process import DEADLINE_SECONDS, free_port
from soak import report, seed, times

pytestmark = pytest.mark.soak

LINES, COUNTS, PARTITIONS = "lines", "counts", 3
WORDS = [f"word{number}" for number in range(40)]

#: What Streams names the topic between the two halves of `WordCount.java`.
REPARTITIONED = "wordcount-words-repartition"


class WordCount:
    """The application as a process, and what it has written so far.

    Args:
        servers: where the broker is.
        state: the directory of its stores.
    """

    def __init__(self, servers: str, state: Path) -> None:
        self._servers = servers
        self.state = state
        self.latest: dict[str, int] = {}
        self._reader = Consumer({"bootstrap.servers": servers, "group.id": "-", "log_level": 0})
        self._reader.assign([TopicPartition(COUNTS, number, 0) for number in range(PARTITIONS)])

    def start(self) -> None:
        given = [self._servers, "wordcount", str(self.state), LINES, COUNTS, "200", "1000"]
        jars = Path(os.environ["HERMES_STREAMS_JARS"])
        self._log = (self.state.parent / "wordcount.log").open("ab")
        self._process = subprocess.Popen(
            java_command("WordCount.java", *given, jars=jars),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def end(self, *, kill: bool) -> None:
        (self._process.kill if kill else self._process.terminate)()
        self._process.wait(DEADLINE_SECONDS)
        self._log.close()

    def wait_for(self, expected: Counter[str]) -> None:
        """Wait until it has counted at least what was produced.

        Raises:
            AssertionError: it doesn't come to that.
        """
        end = time.monotonic() + DEADLINE_SECONDS
        while any(self.latest.get(word, 0) < count for word, count in expected.items()):
            assert time.monotonic() < end, f"counted {self.latest}, not {expected}"
            assert self._process.poll() is None, "it ended by itself"
            for each in self._reader.consume(500, 0.2):
                if each.error() is None:
                    count = int.from_bytes(each.value(), "big")
                    self.latest[each.key().decode()] = count

    def close(self) -> None:
        self._reader.close()
        if self._process.poll() is None:
            self.end(kill=True)


def produce(servers: str, words: list[str]) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in range(0, len(words), 4):
        producer.produce(LINES, " ".join(words[number : number + 4]))
    assert producer.flush(DEADLINE_SECONDS) == 0


def purged_to(servers: str) -> list[int]:
    """Where the partitions of the topic between the two halves begin."""
    reader = Consumer({"bootstrap.servers": servers, "group.id": "-", "log_level": 0})
    try:
        places = [TopicPartition(REPARTITIONED, number) for number in range(PARTITIONS)]
        return [reader.get_watermark_offsets(each, DEADLINE_SECONDS)[0] for each in places]
    finally:
        reader.close()


def wait_until_purged(servers: str, before: list[int]) -> list[int]:
    """Wait until what was counted has been deleted from between the halves."""
    end = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            now = purged_to(servers)
        except KafkaException:  # no broker for a moment
            now = before
        if all(new > old for new, old in zip(now, before, strict=True)):
            return now
        assert time.monotonic() < end, f"purged up to {now}, as before"


def test_word_counts(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """Counts reach what was produced through kills; a lost store is restored from its changelog."""
    number, rounds = seed(), times(30)
    random = Random(number)
    port = free_port()
    servers = f"127.0.0.1:{port}"
    listen = f"tcp:{port}:interface=127.0.0.1"
    broker = start_broker(kafka_listen=listen, group_initial_rebalance_delay="0s")
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for made in admin.create_topics(
        [NewTopic(each, PARTITIONS) for each in (LINES, COUNTS)]
    ).values():
        made.result(DEADLINE_SECONDS)
    expected: Counter[str] = Counter()
    application = WordCount(servers, tmp_path / "state")
    application.start()
    try:
        purged = [0] * PARTITIONS
        for turn in range(rounds):
            words = [random.choice(WORDS) for _ in range(400)] + WORDS
            produce(servers, words)
            expected.update(words)
            if turn % 3 == 1:
                broker.kill()
                broker.start()
            if turn % 3 == 2:
                application.end(kill=True)
                if random.random() < 0.5:
                    shutil.rmtree(application.state)
                application.start()
            application.wait_for(expected)
            if turn % 5 == 4:
                purged = wait_until_purged(servers, purged)

        # A stop in good order has committed all: nothing is counted again after it.
        application.end(kill=False)
        shutil.rmtree(application.state)
        application.start()
        counted = Counter(application.latest)
        produce(servers, WORDS)
        application.wait_for(counted + Counter(WORDS))
        assert application.latest == dict(counted + Counter(WORDS))
        application.end(kill=False)
    finally:
        application.close()
    over = sum((counted - expected).values())
    report("Kafka Streams", seed=number, rounds=rounds, words=expected.total(), again=over)
