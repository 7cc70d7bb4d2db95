"""Kafka Streams counts words, at least once and exactly once; it and its brokers are killed."""

import os
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from hermes_testkit import BrokerProcess
from java_application import JavaApplication, kill_some
from kafka_4 import java_command
from killed_brokers import KilledBrokers, OneBroker
from server_process import DEADLINE_SECONDS
from soak import report, seed, times

pytestmark = pytest.mark.soak

LINES, COUNTS, PARTITIONS = "lines", "counts", 3
WORDS = [f"word{number}" for number in range(40)]

#: What Streams names the topic between the two halves of `WordCount.java`.
REPARTITIONED = "wordcount-words-repartition"


class WordCount(JavaApplication):
    """Counts the words of lines.

    Args:
        servers: where the brokers are.
        state: the directory of its stores.
        guarantee: Streams' name for it.

    Attributes:
        loses_state: whether it has no stores when it starts.
    """

    loses_state = False

    def __init__(self, servers: str, state: Path, guarantee: str = "at_least_once") -> None:
        super().__init__(servers, COUNTS, PARTITIONS, state.parent / "wordcount.log")
        self.state = state
        given = [servers, "wordcount", str(state), LINES, COUNTS, "200", "1000", guarantee]
        jars = Path(os.environ["HERMES_STREAMS_JARS"])
        self._command = java_command("WordCount.java", *given, jars=jars)

    def start(self) -> None:
        if self.loses_state:
            shutil.rmtree(self.state, ignore_errors=True)  # it may not have begun any
        self.launch(self._command)

    def counts(self) -> dict[str, list[int]]:
        """Those of each word, in order."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for word, count in self.messages:
            assert word is not None
            assert count is not None
            found[word.decode()].append(int.from_bytes(count, "big"))
        return found

    def latest(self) -> Counter[str]:
        """The last count of each word."""
        return Counter({word: counts[-1] for word, counts in self.counts().items()})

    def wait_for(self, expected: Counter[str]) -> None:
        """Wait until it has counted at least what was produced."""
        self.read_until(lambda: expected <= self.latest())


def create_topics(brokers: KilledBrokers) -> None:
    for each in (LINES, COUNTS):
        brokers.create_topic(each, PARTITIONS)


def produce(servers: str, words: list[str]) -> None:
    settings = {"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0}
    producer = Producer(settings)
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
    broker = OneBroker(start_broker)
    servers = broker.servers
    create_topics(broker)
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
                broker.befall(random)
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
        counted = application.latest()
        produce(servers, WORDS)
        application.wait_for(counted + Counter(WORDS))
        assert application.latest() == counted + Counter(WORDS)
        application.end(kill=False)
    finally:
        application.close()
    over = sum((counted - expected).values())
    report("Kafka Streams", seed=number, rounds=rounds, words=expected.total(), again=over)


def test_word_counts_exactly_once(brokers: KilledBrokers, tmp_path: Path) -> None:
    """Each count of each word is committed once, in order, whoever is killed meanwhile."""
    number, rounds = seed(), times(50)
    random = Random(f"{number} {brokers.copies}")
    create_topics(brokers)
    application = WordCount(brokers.servers, tmp_path / "state", "exactly_once_v2")
    try:
        application.start()
        expected, killed = Counter[str](), Counter[str]()
        for _ in range(rounds):
            words = [random.choice(WORDS) for _ in range(400)]
            produce(brokers.servers, words)
            expected.update(words)
            application.read_some(random.randrange(1, 300))
            assert application.latest() <= expected, "counted twice"
            application.loses_state = random.random() < 0.3
            killed[kill_some(random, application, brokers)] += 1
        application.wait_for(expected)
        application.end(kill=False)
        for word, counts in application.counts().items():
            assert counts == list(range(1, expected[word] + 1)), word
    finally:
        application.close()
    of = brokers.copies
    report("Streams, exactly once", seed=number, of=of, words=expected.total(), **killed)
