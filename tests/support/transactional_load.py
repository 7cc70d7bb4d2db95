"""Transactions of a producer through whatever befalls its brokers, and what must hold of them.

Each transaction writes its own number once to every partition, and commits an offset of a group.
What was committed is read once, whole and in order; what was aborted, never; what nobody knows,
whole or not at all.
"""

import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from threading import Thread
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka_4 import java_command
from server_process import DEADLINE_SECONDS

__all__ = ["GROUP", "JavaTransactionalLoad", "TransactionalLoad", "read_committed"]

GROUP = "loaders"

#: The partition whose offset each transaction commits: its own number.
_SOURCE = TopicPartition("source", 0)
_SECONDS = 10.0


class _Load:
    """What it does goes on in a thread.

    Attributes:
        committed, aborted, unknown: transactions' numbers, by what became of them.
        errors: what it met, and how often.
        has_offsets: whether each commits a group's offset.
    """

    has_offsets = True

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.unknown: list[int] = []
        self.errors: Counter[str] = Counter()
        self._is_over = False
        self._thread = Thread(target=self._run, name="transactional load")

    def _run(self) -> None:
        raise NotImplementedError

    def go_on(self, count: int = 5) -> None:
        """Wait until so many more are committed."""
        wanted, deadline = len(self.committed) + count, time.monotonic() + DEADLINE_SECONDS
        while len(self.committed) < wanted:
            assert self._thread.is_alive(), f"the load has failed: {self.errors}"
            assert time.monotonic() < deadline, f"no transactions: {self.errors}"
            time.sleep(0.01)  # between two looks

    def finish(self) -> None:
        self._is_over = True
        self._thread.join()

    def judge(self, found: Mapping[int, list[int]], offset: int | None = None) -> None:
        """Check what was read of each partition, and the group's offset, if there is one."""
        committed, aborted = set(self.committed), set(self.aborted)
        for partition, numbers in found.items():
            counts = Counter(numbers)
            assert not committed - counts.keys(), f"lost in {partition}"
            assert not aborted & counts.keys(), f"aborted, and read in {partition}"
            assert max(counts.values()) == 1, f"twice in {partition}"
            assert numbers == sorted(numbers), f"out of order in {partition}"
        whole = [set(numbers) for numbers in found.values()]
        assert all(each == whole[0] for each in whole), "a transaction is torn"
        assert offset in (None, max(whole[0]))


class TransactionalLoad(_Load):
    """A thread that makes one transaction after the other, of which each third is aborted.

    `with_offsets`: whether each commits a group's offset. With librdkafka 2.14 that may wait for
    ever once the broker has died that coordinated the group (its issues 5456 and 5511).
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: Iterable[int], *, with_offsets: bool
    ) -> None:
        super().__init__()
        self.topic = topic
        self.has_offsets = with_offsets
        self.partitions = tuple(partitions)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": "load",
            "transaction.timeout.ms": 60_000,
            "message.timeout.ms": 50_000,
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
        self._group = consumer.consumer_group_metadata()
        consumer.close()
        self._producer: Producer | None = None
        self._number = 0
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            self._number += 1
            try:
                self._transact(self._number)
            except KafkaException as error:
                self._failed(self._number, error.args[0])

    def _transact(self, number: int) -> None:
        if self._producer is None:
            producer = Producer(self._settings)
            producer.init_transactions(DEADLINE_SECONDS)
            self._producer = producer
        producer = self._producer
        producer.begin_transaction()
        self._state = "under way"
        for each in self.partitions:
            producer.produce(self.topic, b"%d" % number, partition=each)
        if self.has_offsets:
            offset = TopicPartition(_SOURCE.topic, _SOURCE.partition, number)
            producer.send_offsets_to_transaction([offset], self._group, _SECONDS)
        if number % 3 == 0:
            producer.abort_transaction(DEADLINE_SECONDS)
            self.aborted.append(number)
            return
        self._state = "committing"
        self._again(producer.commit_transaction)
        self.committed.append(number)

    def _again(self, end: Any) -> None:
        """End it, again while that may help: the same call goes on with what is under way."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                end(_SECONDS)
                return
            except KafkaException as error:
                failure: KafkaError = error.args[0]
                if not failure.retriable() or time.monotonic() > deadline:
                    raise

    def _failed(self, number: int, failure: KafkaError) -> None:
        self.errors[failure.str()] += 1
        if failure.txn_requires_abort() and self._producer is not None:
            try:
                self._again(self._producer.abort_transaction)
                self.aborted.append(number)
                return
            except KafkaException:
                pass
        # A new one ends what this one has left.
        self._producer = None
        (self.unknown if self._state == "committing" else self.aborted).append(number)


class JavaTransactionalLoad(_Load):
    """The same by Java's client, in a process of its own; each commits a group's offset."""

    def __init__(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
        super().__init__()
        count = str(len(tuple(partitions)))
        self._process = subprocess.Popen(
            java_command("TransactionalLoad.java", bootstrap, topic, count, GROUP),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self._thread.start()

    def _run(self) -> None:
        with self._process as process:
            for line in process.stdout or ():
                became, _, rest = line.strip().partition(" ")
                if became == "error":
                    self.errors[rest] += 1
                else:
                    getattr(self, became).append(int(rest))

    def finish(self) -> None:
        """Let it end what it has begun."""
        assert self._process.stdin is not None
        self._process.stdin.write("end")
        self._process.stdin.close()
        super().finish()
        assert self._process.returncode == 0


def read_committed(bootstrap: str, topic: str, partitions: Iterable[int]) -> dict[int, list[int]]:
    """What a reader of what was committed finds in each partition, up to its end."""
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
    found: dict[int, list[int]] = {each: [] for each in partitions}
    left, deadline = set(found), time.monotonic() + DEADLINE_SECONDS
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in found])
        while left:
            assert time.monotonic() < deadline, f"partitions {left} don't end"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found[message.partition()].append(int(message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    finally:
        consumer.close()
    return found


def group_offset(bootstrap: str) -> int:
    """What the transactions have committed of the group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "log_level": 0,
            "isolation.level": "read_committed",
        }
    )
    try:
        (found,) = consumer.committed([_SOURCE], DEADLINE_SECONDS)
        return int(found.offset)
    finally:
        consumer.close()
