"""Transactional clients in processes of their own, through whatever befalls them and brokers."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka_4 import java_command
from kafka_loads import PARTITIONS, TOPIC
from replicated_cluster import ReplicatedCluster
from server_process import DEADLINE_SECONDS
from transactional_history import Assigned, History, Message, Polled, Sent, Step, Transaction

__all__ = ["CLIENTS", "TransactedCluster", "TransactionalClients"]

#: So long a client may tell nothing once it has begun: librdkafka may wait for ever (its issues
#: 5456 and 5511). It does no harm to kill one that was merely slow.
_PATIENCE_SECONDS = 40.0

#: How clients come to partitions: they assign themselves some, or are in a group of a protocol.
_HOW = ("assign", "classic", "classic", "consumer", "consumer")


def _librdkafka(*arguments: str) -> Sequence[str]:
    return [sys.executable, str(Path(__file__).with_name("transactional_client.py")), *arguments]


def _java(*arguments: str) -> Sequence[str]:
    return java_command("TransactionalClient.java", *arguments, heap="128m")


#: The commands that run a client; librdkafka's speaks the protocols before KIP-890, Java's that.
CLIENTS = {"java": _java, "librdkafka": _librdkafka}


class _Client:
    """One process after the other with the same transactional id, and what they have told."""

    def __init__(self, command: Callable[[int], Sequence[str]], news: threading.Condition) -> None:
        self._command = command
        self._news = news
        self.transactions: list[Transaction] = []
        self.committed = 0  # messages
        self.errors: Counter[str] = Counter()
        self._lives = 0
        self.start()

    def start(self) -> None:
        """Begin anew, after a kill."""
        self._lives += 1
        self._told: dict[str, Any] = {}  # of the transaction that is under way
        self.process = subprocess.Popen(
            self._command(self._lives),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self.told_at = inf  # it is waited for: Java takes long to start on a loaded machine
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def kill(self) -> None:
        """End it without any warning, and note what it had told."""
        self.process.kill()
        self._wait()
        if "begin" in self._told:
            self._note(end=time.monotonic_ns())

    def stop(self) -> None:
        """Let it end what it has begun."""
        assert self.process.stdin is not None
        self.process.stdin.write("end")
        self.process.stdin.close()
        try:
            self.process.wait(_PATIENCE_SECONDS / 2)
            self._wait()
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            assert self.process.returncode == 0, f"a client has failed: {self.errors}"

    def _wait(self) -> None:
        self.process.wait(DEADLINE_SECONDS)
        self._reader.join()
        for each in (self.process.stdin, self.process.stdout):
            assert each is not None
            each.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                return  # it was killed while it told that
            self.told_at = time.monotonic()
            told = json.loads(line)
            if error := told.pop("error", None):
                self.errors[error] += 1
            self._told |= told
            if "end" in told:
                self._note()

    def _note(self, **more: Any) -> None:
        told = self._told | more
        self._told = {}
        steps = [_step(*each) for each in told.pop("steps")]
        transaction = Transaction(steps=steps, **told)
        with self._news:
            self.transactions.append(transaction)
            if transaction.outcome == "committed":
                self.committed += sum(1 for _ in transaction.sent)
            self._news.notify_all()


def _step(kind: str, *what: Any) -> Step:
    if kind == "send":
        return Sent(*what)
    if kind == "poll":
        return Polled([Message(*each) for each in what[0]])
    return Assigned(what[0])


class TransactionalClients:
    """Clients that send to a topic's partitions and poll them, from now until `check`.

    Args:
        bootstrap: where the brokers are that have the topic.
        seed: what the clients do.
        client: one of `CLIENTS`.

    Attributes:
        stalls: how many were killed since they waited for ever.
    """

    def __init__(self, bootstrap: str, seed: int, client: str) -> None:
        self._bootstrap = bootstrap
        self._random = Random(seed)
        self._news = threading.Condition()
        self.stalls = 0

        def command(number: int, how: str, life: int) -> Sequence[str]:
            name = f"client-{number}"
            chance = f"{seed} {number} {life}"
            place = (bootstrap, TOPIC, str(PARTITIONS))
            return CLIENTS[client](*place, name, str(life), how, chance)

        self._clients = [
            _Client(partial(command, number, how), self._news) for number, how in enumerate(_HOW)
        ]

    @property
    def transactions(self) -> list[Transaction]:
        """Those that are over."""
        return [one for each in self._clients for one in each.transactions]

    def counts(self) -> Counter[str]:
        """How many transactions have come to what."""
        return Counter(each.outcome for each in self.transactions)

    def go_on(self, count: int) -> None:
        """Wait until so many more messages are committed; who waits for ever begins anew."""
        wanted = self._committed() + count
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self._committed() < wanted:
            for each in self._clients:
                assert each.process.poll() is None, f"a client has failed: {each.errors}"
                if time.monotonic() > each.told_at + _PATIENCE_SECONDS:
                    self.stalls += 1
                    each.kill()
                    each.start()
            assert time.monotonic() < deadline, f"no transactions: {self.errors()}"
            with self._news:
                self._news.wait(1.0)

    def _committed(self) -> int:
        return sum(each.committed for each in self._clients)

    def errors(self) -> Counter[str]:
        """What the clients have met, and how often."""
        return sum((each.errors for each in self._clients), Counter())

    def kill_one(self) -> None:
        """Kill a client; another begins where it was."""
        client = self._random.choice(self._clients)
        client.kill()
        client.start()

    def abandon(self) -> None:
        """End the clients, whatever holds."""
        for each in self._clients:
            if each.process.poll() is None:
                each.kill()

    def check(self) -> None:
        """Let the clients end, once brokers are well, and look at all that they did."""
        for each in self._clients:
            each.stop()
        findings = History(self.transactions, _read_committed(self._bootstrap)).findings()
        assert not findings, {kind: (len(each), each[:3]) for kind, each in findings.items()}


class TransactedCluster:
    """A topic with three copies that transactional clients use, from now until `check`.

    Args:
        cluster: without that topic.
        seed: what the clients do.
        client: one of `CLIENTS`.
    """

    def __init__(self, cluster: ReplicatedCluster, seed: int, client: str) -> None:
        self.cluster = cluster
        cluster.create_topic(TOPIC, PARTITIONS, config={"min.insync.replicas": "2"})
        self.clients = TransactionalClients(cluster.bootstrap, seed, client)

    def go_on(self, count: int = 50) -> None:
        """Wait until so many more messages are committed."""
        try:
            self.clients.go_on(count)
        except AssertionError as error:
            error.add_note(f"{self.cluster.copies(TOPIC)}\n{self.cluster.said()}")
            raise

    def wait_until_in_sync(self) -> None:
        """Wait until no copy lacks anything, of the topic or of the transactions' state."""
        self.cluster.wait_until_in_sync(TOPIC, PARTITIONS)
        self.cluster.wait_until_in_sync("__transaction_state", 16)

    def leader(self, number: int = 0, but: int = -1) -> int:
        """Who leads a partition."""
        return self.cluster.leader(TOPIC, number, but)


def _read_committed(bootstrap: str) -> list[Message]:
    """What a reader of what was committed finds in each partition, once no transaction is open."""
    places = [TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in range(PARTITIONS)]
    _wait_until_decided(bootstrap, places)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found, left = [], set(range(PARTITIONS))
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        consumer.assign(places)
        while left:
            assert time.monotonic() < deadline, f"partitions {left} don't end"
            for each in consumer.consume(1000, 1.0):
                error = each.error()
                if error is None:
                    found.append(Message(each.partition(), each.offset(), each.value().decode()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(each.partition())
    finally:
        consumer.close()
    return found


def _wait_until_decided(bootstrap: str, places: Iterable[TopicPartition]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + DEADLINE_SECONDS
    asked = {each: OffsetSpec.latest() for each in places}

    def ends(level: IsolationLevel) -> list[int]:
        found = admin.list_offsets(asked, isolation_level=level)
        return [each.result(DEADLINE_SECONDS).offset for each in found.values()]

    while True:
        with suppress(KafkaException):  # leaders may change
            if ends(IsolationLevel.READ_UNCOMMITTED) == ends(IsolationLevel.READ_COMMITTED):
                return
        assert time.monotonic() < deadline, "transactions stay open"
        time.sleep(0.1)  # between two looks
