"""Loops around confluent-kafka with retries: members come and go, and nothing is lost."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from hermes import RecordRetries, RetryMessage
from hermes.client import SimpleConsumer
from hermes.client.fetching import FetchRequest
from hermes.client.retrying import letter_of
from hermes.testing import RunningKafka, running_kafka

COUNT = 60
DELAYS = ("50ms", "300ms")


def stored(error: Any, _: Any) -> None:
    if error is not None:
        raise KafkaException(error)


class Loop:
    """The loop of docs/retries.md, in a thread.

    Attributes:
        seen: what was handled, or failed.
        assigned: how many partitions it has.
    """

    def __init__(self, kafka: RunningKafka, handle: Callable[[RetryMessage], None]) -> None:
        self.seen: list[RetryMessage] = []
        self.assigned = 0
        self.error: BaseException | None = None
        self._servers = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        self._handle = handle
        self._ends = threading.Event()
        self._abandons = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self, *, abandon: bool = False) -> None:
        """Leave the group; without storing the offset of the record in hand, to abandon it."""
        self._abandons = abandon
        self._ends.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self.error is None

    def _run(self) -> None:
        retries = RecordRetries("g", ["orders"], delays=DELAYS)
        producer = Producer(self._servers)
        consumer = Consumer(
            {
                **self._servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.offset.store": False,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        try:
            consumer.subscribe(retries.topics)
            while not self._ends.is_set():
                self._turn(retries, consumer, producer)
        except BaseException as error:
            self.error = error
        finally:
            consumer.close()

    def _turn(self, retries: RecordRetries, consumer: Consumer, producer: Producer) -> None:
        assignment = consumer.assignment()
        self.assigned = len(assignment)
        consumer.resume(retries.due(assignment))
        record = consumer.poll(0.05)
        if record is None or record.error():
            return
        place = record.topic(), record.partition(), record.offset()
        order = retries.take(*place, record.value(), record.key(), record.headers())
        if order.is_early:
            consumer.pause([TopicPartition(*place)])
            consumer.seek(TopicPartition(*place))
            return
        self.seen.append(order.message)
        try:
            self._handle(order.message)
        except Exception as error:
            failed = order.failed(error)
            producer.produce(*failed[:3], headers=failed.headers, on_delivery=stored)
            producer.flush()
        if not self._abandons:
            consumer.store_offsets(record)


def number_of(message: RetryMessage) -> int:
    return int(message.message)


def fails(message: RetryMessage) -> None:
    """Every fifth always, every third once."""
    number = number_of(message)
    if number % 5 == 0 or (number % 3 == 0 and message.attempt == 1):
        raise ValueError(f"no {number}")


def wait(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def dead(kafka: RunningKafka) -> list[int]:
    found = []
    with SimpleConsumer(kafka.host, kafka.port) as client:
        for partition in range(4):
            for message, _ in client.fetch(FetchRequest("orders.g.dead", partition, 0, 1 << 20)):
                letter = letter_of(message)
                assert letter is not None
                assert (letter.attempts, letter.reason) == (3, f"ValueError: no {letter.offset}")
                found.append(int(letter.payload or b""))
    return found


def test_members_that_come_and_go_lose_nothing() -> None:
    ladder = RecordRetries("g", ["orders"], delays=DELAYS)
    topics = dict.fromkeys([*ladder.topics, *ladder.dead_topics], 4)
    topics["orders"] = 1  # so that an offset is a number
    with running_kafka(topics=topics) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        for number in range(COUNT):
            producer.produce("orders", b"%d" % number, b"k%d" % (number % 7))
        assert producer.flush(60) == 0
        first = Loop(kafka, fails)
        wait(lambda: any(each.attempt == 2 for each in first.seen))
        second = Loop(kafka, fails)
        wait(lambda: second.assigned)
        first.stop(abandon=True)
        third = Loop(kafka, fails)
        hopeless = {number for number in range(COUNT) if number % 5 == 0}
        loops = first, second, third

        def handled() -> set[int]:
            seen = [each for loop in loops for each in loop.seen]
            good = [each for each in seen if number_of(each) % 5]
            return {number_of(each) for each in good if number_of(each) % 3 or each.attempt > 1}

        wait(lambda: handled() == set(range(COUNT)) - hopeless)
        wait(lambda: set(dead(kafka)) == hopeless)
        second.stop()
        third.stop()
        attempts = Counter((number_of(each), each.attempt) for loop in loops for each in loop.seen)
        for number in range(COUNT):
            most = 3 if number % 5 == 0 else 2 if number % 3 == 0 else 1
            tries = {attempt for other, attempt in attempts if other == number}
            assert tries == set(range(1, most + 1)), "each attempt was made, whoever made it"
