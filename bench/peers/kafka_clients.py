"""Kafka's Python clients, against the mock cluster that librdkafka brings along.

confluent-kafka wraps librdkafka, a client in C; aiokafka has its hot loops compiled; kafka-python
is plain Python. The mock cluster (`test.mock.num.brokers`) is a broker in C that keeps messages in
memory, in threads of this process that don't hold the interpreter. It keeps a few megabytes of
each partition, which is what its consumers read. It answers unacknowledged produces as well, which
only librdkafka forgives: the others ask for an answer.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from bench.peers.system import NotInstalled
from bench.support.load import send_in_tasks

__all__ = ["CLIENTS", "AwaitingClient", "KafkaClient", "MockCluster"]

_PATIENCE_SECONDS = 30.0
_LINGER_MS = 5
_CONSUME_AT_ONCE = 1_000
_AWAITED_BATCH_BYTES = 1 << 20
#: What kafka-python is told of the cluster, whose answers about versions it doesn't understand.
_MOCK_API_VERSION = (0, 10, 2)


class MockCluster:
    """A cluster of one broker. Use it as a context manager.

    Attributes:
        address: `host:port` of its broker.
    """

    def __init__(self) -> None:
        """Start it.

        Raises:
            NotInstalled: confluent-kafka is missing.
        """
        if find_spec("confluent_kafka") is None:
            raise NotInstalled(
                "confluent-kafka brings the mock cluster: pip install confluent-kafka"
            )
        from confluent_kafka import Consumer, Producer

        self._owner = Producer(
            {"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 0}
        )
        (broker,) = self._owner.list_topics(timeout=_PATIENCE_SECONDS).brokers.values()
        self.address = f"{broker.host}:{broker.port}"
        self._observer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "bench", "log_level": 0}
        )

    def partitions(self, topic: str) -> list[tuple[int, int, int]]:
        """What a topic holds: partition, first offset, offset behind the last message, of each.

        A topic that isn't there is created.
        """
        from confluent_kafka import TopicPartition

        numbers = self._owner.list_topics(topic, timeout=_PATIENCE_SECONDS).topics[topic].partitions
        return [
            (
                number,
                *self._observer.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=_PATIENCE_SECONDS
                ),
            )
            for number in sorted(numbers)
        ]

    def end(self, topic: str) -> int:
        """How many messages the topic has received so far."""
        return sum(end for _number, _first, end in self.partitions(topic))

    def wait_for(self, topic: str, count: int) -> None:
        """Wait until the topic has received so many messages.

        Raises:
            TimeoutError: they don't come.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (end := self.end(topic)) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: {count} messages were sent and {end} arrived")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._observer.close()
        del self._owner  # ends the cluster


class KafkaClient(Protocol):
    """A client library. Every method measures: messages per second.

    Attributes:
        name: what pip calls it.
        module: what `import` calls it.
        messages: how many it is given per run, which takes it about a second.
    """

    name: str
    module: str
    messages: int

    def produce(self, cluster: MockCluster, payloads: list[bytes]) -> float:
        """Send one message a call, until all have arrived."""

    def consume(self, cluster: MockCluster) -> float:
        """Read what the cluster has kept of what was produced."""


@runtime_checkable
class AwaitingClient(Protocol):
    """A client for asyncio."""

    def produce_awaited(self, cluster: MockCluster, payloads: list[bytes]) -> float:
        """Send from many tasks at once, each of which awaits the outcome of every message."""


class _Confluent:
    """confluent-kafka."""

    name, module, messages = "confluent-kafka", "confluent_kafka", 500_000

    def produce(self, cluster: MockCluster, payloads: list[bytes]) -> float:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": cluster.address,
                "acks": 0,
                "linger.ms": _LINGER_MS,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        with _arrival(self, cluster) as timed:
            for number in range(self.messages):
                payload = payloads[number % len(payloads)]
                try:
                    producer.produce(self.name, payload)
                except BufferError:
                    producer.flush()
                    producer.produce(self.name, payload)
            producer.flush()
        return timed()

    def consume(self, cluster: MockCluster) -> float:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": cluster.address,
                "group.id": "bench",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        partitions = cluster.partitions(self.name)
        consumer.assign(
            [TopicPartition(self.name, each, first) for each, first, _end in partitions]
        )

        def some(left: int) -> int:
            received = consumer.consume(min(_CONSUME_AT_ONCE, left), 1.0)
            return sum(1 for message in received if message.value() and not message.error())

        try:
            return _rate_until(_held(partitions), some)
        finally:
            consumer.close()


class _KafkaPython:
    """kafka-python."""

    name, module, messages = "kafka-python", "kafka", 50_000

    def produce(self, cluster: MockCluster, payloads: list[bytes]) -> float:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=cluster.address,
            acks=1,
            linger_ms=_LINGER_MS,
            api_version=_MOCK_API_VERSION,
        )
        try:
            with _arrival(self, cluster) as timed:
                for number in range(self.messages):
                    producer.send(self.name, payloads[number % len(payloads)])
                producer.flush(_PATIENCE_SECONDS)
            return timed()
        finally:
            producer.close(timeout=_PATIENCE_SECONDS)

    def consume(self, cluster: MockCluster) -> float:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=cluster.address,
            enable_auto_commit=False,
            api_version=_MOCK_API_VERSION,
        )
        partitions = cluster.partitions(self.name)
        consumer.assign([TopicPartition(self.name, each) for each, _first, _end in partitions])
        for each, first, _end in partitions:
            consumer.seek(TopicPartition(self.name, each), first)

        def some(left: int) -> int:
            received = consumer.poll(1_000, max_records=min(_CONSUME_AT_ONCE, left))
            return sum(1 for records in received.values() for record in records if record.value)

        try:
            return _rate_until(_held(partitions), some)
        finally:
            consumer.close()


class _Aiokafka:
    """aiokafka."""

    name, module, messages = "aiokafka", "aiokafka", 100_000

    def produce(self, cluster: MockCluster, payloads: list[bytes]) -> float:
        return asyncio.run(self._produce(cluster, payloads))

    def produce_awaited(self, cluster: MockCluster, payloads: list[bytes]) -> float:
        return asyncio.run(self._produce_awaited(cluster, payloads))

    def consume(self, cluster: MockCluster) -> float:
        return asyncio.run(self._consume(cluster))

    async def _produce(self, cluster: MockCluster, payloads: list[bytes]) -> float:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(
            bootstrap_servers=cluster.address, acks=1, linger_ms=_LINGER_MS
        ) as producer:
            with _arrival(self, cluster) as timed:
                for number in range(self.messages):
                    await producer.send(self.name, payloads[number % len(payloads)])
                await producer.flush()
            return timed()

    async def _produce_awaited(self, cluster: MockCluster, payloads: list[bytes]) -> float:
        from aiokafka import AIOKafkaProducer

        # With its own 16 KB a batch it would reach a fifth of this.
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.address,
            acks=1,
            linger_ms=_LINGER_MS,
            max_batch_size=_AWAITED_BATCH_BYTES,
        ) as producer:
            send = partial(producer.send_and_wait, self.name)
            with _arrival(self, cluster) as timed:
                await send_in_tasks(send, payloads, self.messages)
            return timed()

    async def _consume(self, cluster: MockCluster) -> float:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        partitions = cluster.partitions(self.name)
        async with AIOKafkaConsumer(
            bootstrap_servers=cluster.address, enable_auto_commit=False
        ) as consumer:
            consumer.assign([TopicPartition(self.name, each) for each, _first, _end in partitions])
            for each, first, _end in partitions:
                consumer.seek(TopicPartition(self.name, each), first)
            left = held = _held(partitions)
            started = time.perf_counter()
            while left > 0:
                received = await consumer.getmany(timeout_ms=1_000, max_records=_CONSUME_AT_ONCE)
                left -= sum(1 for records in received.values() for each in records if each.value)
                if time.perf_counter() - started > _PATIENCE_SECONDS:
                    raise TimeoutError(f"{left} of {held} messages don't come")
            return held / (time.perf_counter() - started)


CLIENTS: tuple[KafkaClient, ...] = (_Confluent(), _Aiokafka(), _KafkaPython())


@contextmanager
def _arrival(client: KafkaClient, cluster: MockCluster) -> Iterator[Callable[[], float]]:
    """Time a block, and what the cluster then needs to have everything; call for the rate."""
    before = cluster.end(client.name)
    started = time.perf_counter()
    rates: list[float] = []
    yield lambda: rates[0]
    cluster.wait_for(client.name, before + client.messages)
    rates.append(client.messages / (time.perf_counter() - started))


def _held(partitions: list[tuple[int, int, int]]) -> int:
    return sum(end - first for _number, first, end in partitions)


def _rate_until(count: int, some: Callable[[int], int]) -> float:
    """Take messages until there were so many; `some` takes a few and says how many."""
    left = count
    started = time.perf_counter()
    while left > 0:
        left -= some(left)
        if time.perf_counter() - started > _PATIENCE_SECONDS:
            raise TimeoutError(f"{left} of {count} messages don't come")
    return count / (time.perf_counter() - started)
