"""Small batches of Kafka's own clients: Java's producer, and a hundred topics; beside Kafka.

- `ProducerPerformance`, Kafka's own tool, with its defaults but acks=all: 200-byte messages to one
  partition as fast as it can, by its own clock without its first tenth, which warms up.
- confluent-kafka with its defaults: one producer, messages in turns to a hundred topics of a
  partition; then the same while a consumer reads them, until it has them all.

Hermes flushes before it acknowledges and before a message is visible, Kafka doesn't.
"""

import re
import subprocess
import time
from collections import defaultdict
from contextlib import suppress
from importlib.util import find_spec

from bench.peers.kafka import create_topics, java
from bench.support.load import make_payloads
from bench.support.report import Row, ratio_row, skipped_row
from bench.support.servers import Address
from bench.support.settings import Settings
from bench.support.sides import HERMES, KAFKA, hermes_and_kafka
from bench.support.usage import cpu_seconds

__all__ = ["measure"]

_TOPICS = 100
_PATIENCE_SECONDS = 120.0
_CONSUME_AT_ONCE = 10_000
_MILLION = 1e6


def measure(settings: Settings) -> list[Row]:
    """Each in turns on both; the first round warms up."""
    if find_spec("confluent_kafka") is None:
        return [skipped_row("small batches", "pip install confluent-kafka")]
    count = int(settings.messages * _MILLION)
    rates: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    costs: defaultdict[tuple[str, str], float] = defaultdict(float)
    with settings.workspace() as directory, hermes_and_kafka(directory) as sides:
        if KAFKA not in sides.running:
            return sides.missing
        for number in range(settings.rounds + 1):
            for place, (what, topic_count, run) in enumerate(_KINDS):
                for name, side in sides.running.items():
                    topics = [f"small-{number}-{place}-{each}" for each in range(topic_count)]
                    create_topics(side.address, topics)
                    before = cpu_seconds(side.pid)
                    rate = run(_listed(side.address), topics, count)
                    if number:
                        rates[what, name].append(rate)
                        costs[what, name] += cpu_seconds(side.pid) - before
    whole = settings.rounds * count / _MILLION
    return [
        ratio_row(
            what,
            "messages/s",
            rates[what, HERMES],
            rates[what, KAFKA],
            beside_name=KAFKA,
            at_least=1.0,
            note="the brokers' processor time: "
            + ", ".join(
                f"{name} {costs[what, name] / whole:.2f} us a message" for name in (HERMES, KAFKA)
            ),
        )
        for what, _, _ in _KINDS
    ]


def _java(address: str, topics: list[str], count: int) -> float:
    tool = [
        "org.apache.kafka.tools.ProducerPerformance",
        "--bootstrap-server",
        address,
    ]
    sizes = {"num-records": count, "warmup-records": count // 10, "record-size": 200}
    options = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    last = ["--topic", *topics, "--throughput", "-1", "--command-property", "acks=all"]
    done = subprocess.run(
        [*java("-Xmx512M"), *tool, *options, *last],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    found = re.findall(r" records sent, ([\d.]+) records/sec.*99\.9th", done.stdout)
    if done.returncode or not found:
        raise RuntimeError(f"ProducerPerformance: {done.stdout[-600:]}")
    return float(found[-1])


def _produce(address: str, topics: list[str], count: int) -> float:
    started = time.perf_counter()
    _Sender(address, topics, count).finish()
    return count / (time.perf_counter() - started)


def _through(address: str, topics: list[str], count: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    own = {"bootstrap.servers": address, "group.id": "bench"}
    consumer = Consumer({**own, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        consumer.consume(1, 0.5)  # which connects
        started = time.perf_counter()
        sender, received = _Sender(address, topics, count), 0
        while received < count:
            sender.go_on()
            received += len(consumer.consume(_CONSUME_AT_ONCE, 0.0 if sender.left else 0.05))
            if time.perf_counter() - started > _PATIENCE_SECONDS:
                raise TimeoutError(f"{count - received} messages did not come")
        taken = time.perf_counter() - started
        sender.finish()
        return count / taken
    finally:
        consumer.close()


class _Sender:
    """Sends a number of messages to topics in turns.

    Attributes:
        left: how many are still to be sent.
    """

    def __init__(self, address: str, topics: list[str], count: int) -> None:
        from confluent_kafka import Producer

        self.left = count
        self._failures = failures = list[object]()
        self._topics = topics
        self._payloads = make_payloads(1_000)

        def note(error: object, _message: object) -> None:
            if error is not None:
                failures.append(error)

        self._producer = Producer({"bootstrap.servers": address, "on_delivery": note})

    def go_on(self) -> None:
        """Send until the client's queue is full, or a while."""
        with suppress(BufferError):
            for _ in range(min(self.left, _CONSUME_AT_ONCE)):
                payload = self._payloads[self.left % len(self._payloads)]
                self._producer.produce(self._topics[self.left % len(self._topics)], payload)
                self.left -= 1
        self._producer.poll(0)

    def finish(self) -> None:
        """Send the rest, and wait until all are acknowledged."""
        while self.left:
            self.go_on()
            if self.left:
                self._producer.poll(0.005)
        left = self._producer.flush(_PATIENCE_SECONDS)
        if left or self._failures:
            raise RuntimeError(f"{left} messages are left, {len(self._failures)} failed")


def _listed(address: Address) -> str:
    host, port = address
    return f"{host}:{port}"


_KINDS = (
    ("Java's ProducerPerformance, acks=all", 1, _java),
    (f"produce to {_TOPICS} topics", _TOPICS, _produce),
    (f"through {_TOPICS} topics", _TOPICS, _through),
)
