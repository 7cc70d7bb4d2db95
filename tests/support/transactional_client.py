"""A process that makes one transaction after the other with librdkafka, until its input ends.

`address topic partitions name life how seed`: `how` is "assign", or both the protocol and the name
of the group by which it subscribes to the topic; that one's offsets are committed with the
transactions. It polls and sends within each, and tells what a `transactional_history.History`
needs, a line of JSON when one begins, when it is about to be committed, and when it is over.
"""

import json
import sys
import threading
import time
from random import Random
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)

_PATIENCE_SECONDS = 10.0


class _Client:
    """A producer and a consumer, which are replaced when nobody knows how things are."""

    def __init__(
        self, address: str, topic: str, partitions: str, name: str, life: str, how: str, seed: str
    ) -> None:
        self._address, self._topic, self._name, self._life = address, topic, name, life
        self._partitions = range(int(partitions))
        self._group = None if how == "assign" else how
        self._random = Random(seed)
        self._count = self._clients = self._moves = 0
        self._is_over = threading.Event()
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    def _wait_for_the_end(self) -> None:
        sys.stdin.read()
        self._is_over.set()

    def run(self) -> None:
        """Go on until the input ends."""
        while not self._is_over.is_set():
            if self._producer is not None:
                self._transact()
                continue
            try:
                self._begin_anew()
            except KafkaException as error:
                self._tell(error=error.args[0].str())
        if self._consumer is not None:
            self._consumer.close()

    # -- beginning --------------------------------------------------------------------------------

    def _begin_anew(self) -> None:
        """What the producer before has left open is ended by that."""
        settings = {
            "bootstrap.servers": self._address,
            "socket.timeout.ms": 6000,  # a broker that sleeps is given up so soon
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        transactional = {"transactional.id": self._name, "transaction.timeout.ms": 15_000}
        producer = Producer({**settings, **transactional, "linger.ms": 0})
        producer.init_transactions(_PATIENCE_SECONDS)
        self._producer = producer
        if self._consumer is not None:
            self._consumer.close()
        group: dict[str, Any] = {"group.id": self._group or self._name}
        if self._group == "consumer":
            group["group.protocol"] = self._group
        else:
            group["session.timeout.ms"] = 6000
        self._consumer = Consumer(
            {
                **settings,
                **group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.poll.interval.ms": 6000,
                "fetch.wait.max.ms": 100,
            }
        )
        self._clients += 1
        self._steps: list[list[Any]] = []
        self._next: dict[int, int] = {}  # where it reads on, by partition
        if self._group is None:
            self._assign()
        else:
            moved = dict.fromkeys(("on_assign", "on_revoke", "on_lost"), self._moved)
            self._consumer.subscribe([self._topic], **moved)

    def _assign(self) -> None:
        """Read other partitions: those that it has read so far from where it is."""
        assert self._consumer is not None
        chosen = self._random.sample(self._partitions, self._random.randint(1, 3))
        self._next = {each: self._next[each] for each in chosen if each in self._next}
        start = OFFSET_BEGINNING if self._random.random() < 0.2 else OFFSET_END
        self._consumer.assign(
            [TopicPartition(self._topic, each, self._next.get(each, start)) for each in chosen]
        )
        self._tell_moved(set(self._partitions) - self._next.keys())

    def _moved(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """A group's partitions go round: what was polled of them can't be committed any more."""
        self._moves += 1
        moved = {each.partition for each in places}
        for each in moved:
            self._next.pop(each, None)
            self._first.pop(each, None)
        self._tell_moved(moved)

    def _tell_moved(self, partitions: set[int]) -> None:
        self._steps.append(["assign", sorted(partitions)])

    # -- a transaction ----------------------------------------------------------------------------

    def _transact(self) -> None:
        producer, random = self._producer, self._random
        assert producer is not None
        if self._group is None and random.random() < 0.05:
            self._assign()
        plan = [
            self._value() if random.random() < 0.6 else None for _ in range(random.randint(1, 6))
        ]
        sends = [[random.choice(self._partitions), each] for each in plan if each is not None]
        self._first: dict[int, int] = {}  # what it has polled first, by partition
        moves = self._moves
        self._tell(
            process=f"{self._name}.{self._life}.{self._clients}",
            group=self._group,
            begin=time.monotonic_ns(),
            outcome="aborted",
            steps=[["send", *each, None] for each in sends],
        )
        outcome, told = "aborted", None
        try:
            producer.begin_transaction()
            for each in plan:
                if each is None:
                    self._poll()
                else:
                    self._send(producer, *sends.pop(0))
            is_moved = self._moves != moves and any(step[0] == "poll" for step in self._steps)
            if self._group is not None and not is_moved:
                self._send_offsets(producer)
            if not is_moved and random.random() < 0.8:
                outcome = "unknown"
                self._tell(outcome=outcome, steps=self._steps)
                self._end(producer.commit_transaction)
                outcome = "committed"
            else:
                self._end(producer.abort_transaction)
        except KafkaException as error:
            told = error.args[0].str()
            outcome = self._failed(producer, error, outcome)
        self._tell(end=time.monotonic_ns(), outcome=outcome, steps=self._steps, error=told)
        self._steps = []
        if outcome == "aborted" and self._producer is not None:
            self._rewind()

    def _value(self) -> str:
        self._count += 1
        return f"{self._name}.{self._life}-{self._count}"

    def _send(self, producer: Producer, partition: int, value: str) -> None:
        step: list[Any] = ["send", partition, value, None]
        self._steps.append(step)

        def delivered(error: object, message: Any) -> None:
            if error is None:
                step[3] = message.offset()

        producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)

    def _poll(self) -> None:
        assert self._consumer is not None
        found, moves = [], self._moves
        for each in self._consumer.consume(200, 0.03):
            if each.error() is None:
                partition, offset = each.partition(), each.offset()
                found.append([partition, offset, each.value().decode()])
                self._first.setdefault(partition, offset)
                self._next[partition] = offset + 1
        if found:
            self._steps.append(["poll", found])
            if self._moves != moves:  # before they came or after it
                self._tell_moved(set(self._partitions))

    def _send_offsets(self, producer: Producer) -> None:
        assert self._consumer is not None
        offsets = [TopicPartition(self._topic, each, self._next[each]) for each in self._first]
        if offsets:
            group = self._consumer.consumer_group_metadata()
            self._end(lambda seconds: producer.send_offsets_to_transaction(offsets, group, seconds))
            if self._random.random() < 0.01:  # others get its partitions before it commits
                self._is_over.wait(self._random.uniform(0, 12))

    def _end(self, call: Any) -> None:
        """Call it again while that may help: the same call goes on with what is under way."""
        while True:
            try:
                call(_PATIENCE_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _failed(self, producer: Producer, error: KafkaException, outcome: str) -> str:
        if error.args[0].txn_requires_abort():
            try:
                self._end(producer.abort_transaction)
                return "aborted"
            except KafkaException:
                pass
        self._producer = None
        return outcome

    def _rewind(self) -> None:
        """Read again what was polled in vain."""
        assert self._consumer is not None
        try:
            for partition, offset in self._first.items():
                self._consumer.seek(TopicPartition(self._topic, partition, offset))
                self._next[partition] = offset
        except KafkaException as error:
            self._tell(error=error.args[0].str())
            self._producer = None

    @staticmethod
    def _tell(**line: Any) -> None:
        print(json.dumps(line), flush=True)  # noqa: T201


if __name__ == "__main__":
    _Client(*sys.argv[1:]).run()
