"""Kafka Streams counts words, at least once and exactly once; it and its brokers are killed."""

import os
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from coordination_servers import ServerProcess
from hermes_testkit import BrokerProcess
from kafka_4 import java_command
from replicated_cluster import ReplicatedCluster
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
        guarantee: Streams' name for it.

    Attributes:
        counts: of each word, in order; those that were committed, if it commits.
    """

    def __init__(self, servers: str, state: Path, guarantee: str = "at_least_once") -> None:
        self._servers = servers
        self._guarantee = guarantee
        self.state = state
        self.counts: defaultdict[str, list[int]] = defaultdict(list)
        self._reader = Consumer({"bootstrap.servers": servers, "group.id": "-", "log_level": 0})
        self._reader.assign([TopicPartition(COUNTS, number, 0) for number in range(PARTITIONS)])

    def start(self) -> None:
        given = [self._servers, "wordcount", str(self.state), LINES, COUNTS, "200", "1000"]
        given.append(self._guarantee)
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

    @property
    def latest(self) -> Counter[str]:
        """The last count of each word."""
        return Counter({word: counts[-1] for word, counts in self.counts.items()})

    def wait_for(self, expected: Counter[str]) -> None:
        """Wait until it has counted at least what was produced."""
        self._read_while(lambda: not expected <= self.latest)

    def wait_for_some(self, more: int) -> None:
        """Wait until it has written so many more counts."""
        wanted = self._written() + more
        self._read_while(lambda: self._written() < wanted)

    def _written(self) -> int:
        return sum(map(len, self.counts.values()))

    def _read_while(self, is_missing: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE_SECONDS
        while is_missing():
            assert time.monotonic() < end, f"it has counted {self.latest} only"
            assert self._process.poll() is None, "it ended by itself"
            for each in self._reader.consume(500, 0.2):
                if each.error() is None:
                    count = int.from_bytes(each.value(), "big")
                    self.counts[each.key().decode()].append(count)

    def close(self) -> None:
        self._reader.close()
        if self._process.poll() is None:
            self.end(kill=True)


def create_topics(servers: str, copies: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topics = [NewTopic(each, PARTITIONS, copies) for each in (LINES, COUNTS)]
    for made in admin.create_topics(topics).values():
        made.result(DEADLINE_SECONDS)


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
    port = free_port()
    servers = f"127.0.0.1:{port}"
    listen = f"tcp:{port}:interface=127.0.0.1"
    broker = start_broker(kafka_listen=listen, group_initial_rebalance_delay="0s")
    create_topics(servers)
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
        counted = application.latest
        produce(servers, WORDS)
        application.wait_for(counted + Counter(WORDS))
        assert application.latest == counted + Counter(WORDS)
        application.end(kill=False)
    finally:
        application.close()
    over = sum((counted - expected).values())
    report("Kafka Streams", seed=number, rounds=rounds, words=expected.total(), again=over)


class _One:
    """A broker without coordination."""

    def __init__(self, start_broker: Callable[..., BrokerProcess]) -> None:
        port = free_port()
        self.servers = f"127.0.0.1:{port}"
        listen = f"tcp:{port}:interface=127.0.0.1"
        self._broker = start_broker(kafka_listen=listen, group_initial_rebalance_delay="0s")

    def befall(self, random: Random) -> str:
        self._broker.kill()
        self._broker.start()
        return "broker"


class _Three:
    """Brokers with three copies of everything, Streams' own topics among them."""

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

    def befall(self, random: Random) -> str:
        numbers = list(self._cluster.brokers)
        killed = random.choice((numbers, [random.choice(numbers)], [random.choice(numbers)]))
        for each in killed:
            self._cluster.kill(each)
        self._cluster.start_together(killed)
        for topic in (LINES, COUNTS):
            self._cluster.wait_until_in_sync(topic, PARTITIONS)
        return "brokers" if killed is numbers else "one of the brokers"


@pytest.mark.parametrize("count", [1, 3])
def test_word_counts_exactly_once(
    start_broker: Callable[..., BrokerProcess],
    coordination_server: Callable[[str], ServerProcess],
    tmp_path: Path,
    count: int,
) -> None:
    """Each count of each word is committed once, in order, whoever is killed meanwhile."""
    number, rounds = seed(), times(50)
    random = Random(f"{number} {count}")
    with ExitStack() as stack:
        brokers: _One | _Three = _One(start_broker)
        if count == 3:
            tree = f"{coordination_server('embedded').address}/streams"
            brokers = _Three(tmp_path / "cluster", tree)
            stack.callback(brokers.close)
        create_topics(brokers.servers, copies=count)
        application = WordCount(brokers.servers, tmp_path / "state", "exactly_once_v2")
        application.start()
        stack.callback(application.close)
        expected, killed = Counter[str](), Counter[str]()
        for _ in range(rounds):
            words = [random.choice(WORDS) for _ in range(400)]
            produce(brokers.servers, words)
            expected.update(words)
            application.wait_for_some(random.randrange(1, 300))
            whom = random.choice(("application", "broker", "both"))
            if whom != "broker":
                application.end(kill=True)
                if random.random() < 0.3:
                    shutil.rmtree(application.state, ignore_errors=True)  # or it has begun none
            if whom != "application":
                killed[brokers.befall(random)] += 1
            if whom != "broker":
                application.start()
                killed["application"] += 1
        application.wait_for(expected)
        application.end(kill=False)
        for word, counts in application.counts.items():
            assert counts == list(range(1, expected[word] + 1)), word
    report("Streams, exactly once", seed=number, brokers=count, words=expected.total(), **killed)
