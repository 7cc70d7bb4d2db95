"""Clients of Kafka's, each with its own library, behind one interface: what tests ask of all.

Only what a test is about is set; all else is each client's default.
"""

import asyncio
import base64
import json
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from kafka_4 import TOOLS, java_command
from server_process import DEADLINE_SECONDS

__all__ = [
    "CLIENTS",
    "CODECS",
    "Aiokafka",
    "Confluent",
    "Driven",
    "Got",
    "Java",
    "KafkaClient",
    "KafkaPython",
    "Sent",
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sent(NamedTuple):
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


class Got(NamedTuple):
    """A record that was consumed."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class KafkaClient(ABC):
    """One library. Settings have the names that Kafka's Java client gives them."""

    #: What it is called in tests' names.
    name: str

    #: Whether it lets a header have no value.
    has_null_headers = True

    #: Whether headers of different names keep their order.
    keeps_headers = True

    @abstractmethod
    def produce(
        self, address: str, topic: str, records: Sequence[Sent], **settings: object
    ) -> list[tuple[int, int]]:
        """Produce records; the partition and offset of each, as the broker said."""

    @abstractmethod
    def read(
        self, address: str, topics: Sequence[str], count: int, **settings: object
    ) -> list[Got]:
        """Read so many records of these topics from their beginning, in no group."""

    def close(self) -> None:
        """End what it runs beside the test; most run nothing."""
        return

    def __repr__(self) -> str:
        return self.name


class Confluent(KafkaClient):
    """confluent-kafka: librdkafka."""

    name = "confluent-kafka"

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], **settings: object
    ) -> list[tuple[int, int]]:
        """See `KafkaClient`."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": address, **_dotted(settings)})
        placed: dict[int, tuple[int, int]] = {}
        failures: list[Any] = []

        def note(number: int, error: Any, message: Any) -> None:
            if error is not None:
                failures.append(error)
            else:
                placed[number] = message.partition(), message.offset()

        for number, each in enumerate(records):
            more: dict[str, Any] = {}
            if each.timestamp_ms is not None:
                more["timestamp"] = each.timestamp_ms
            if each.partition is not None:
                more["partition"] = each.partition
            while True:
                try:
                    producer.produce(
                        topic,
                        each.value,
                        each.key,
                        headers=list(each.headers),
                        on_delivery=lambda error, message, number=number: note(
                            number, error, message
                        ),
                        **more,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(DEADLINE_SECONDS)
        assert not failures, failures[0]
        return [placed[number] for number in range(len(records))]

    def read(
        self, address: str, topics: Sequence[str], count: int, **settings: object
    ) -> list[Got]:
        """See `KafkaClient`."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": address, "group.id": "none", **_dotted(settings)})
        try:
            found = []
            for topic in topics:
                listed = consumer.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic]
                found += [
                    TopicPartition(topic, each, OFFSET_BEGINNING) for each in listed.partitions
                ]
            consumer.assign(found)
            got: list[Got] = []
            deadline = time.monotonic() + DEADLINE_SECONDS
            while len(got) < count and time.monotonic() < deadline:
                for each in consumer.consume(count - len(got), timeout=0.2):
                    assert each.error() is None, each.error()
                    got.append(
                        Got(
                            each.topic(),
                            each.partition(),
                            each.offset(),
                            each.timestamp()[1],
                            each.key(),
                            each.value(),
                            tuple(each.headers() or ()),
                        )
                    )
            return got
        finally:
            consumer.close()


class KafkaPython(KafkaClient):
    """kafka-python."""

    name = "kafka-python"
    has_null_headers = False

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], **settings: object
    ) -> list[tuple[int, int]]:
        """See `KafkaClient`."""
        from kafka import KafkaProducer
        from kafka_python_sockets import close_refused_sockets

        close_refused_sockets()
        producer = KafkaProducer(bootstrap_servers=address, **_plain(settings))
        try:
            futures = [
                producer.send(
                    topic,
                    value=each.value,
                    key=each.key,
                    headers=list(each.headers),
                    partition=each.partition,
                    timestamp_ms=each.timestamp_ms,
                )
                for each in records
            ]
            found = [each.get(timeout=DEADLINE_SECONDS) for each in futures]
            return [(each.partition, each.offset) for each in found]
        finally:
            producer.close()

    def read(
        self, address: str, topics: Sequence[str], count: int, **settings: object
    ) -> list[Got]:
        """See `KafkaClient`."""
        from kafka import KafkaConsumer
        from kafka_python_sockets import close_refused_sockets

        close_refused_sockets()
        consumer = KafkaConsumer(
            *topics,
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            group_id=None,
            **_plain(settings),
        )
        got: list[Got] = []
        deadline = time.monotonic() + DEADLINE_SECONDS
        try:
            while len(got) < count and time.monotonic() < deadline:
                got += map(_got, chain.from_iterable(consumer.poll(timeout_ms=200).values()))
            return got
        finally:
            consumer.close()


class Aiokafka(KafkaClient):
    """aiokafka."""

    name = "aiokafka"

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], **settings: object
    ) -> list[tuple[int, int]]:
        """See `KafkaClient`."""

        async def run() -> list[tuple[int, int]]:
            from aiokafka import AIOKafkaProducer

            async with AIOKafkaProducer(bootstrap_servers=address, **_plain(settings)) as producer:
                futures = [
                    await producer.send(
                        topic,
                        value=each.value,
                        key=each.key,
                        headers=list(each.headers),
                        partition=each.partition,
                        timestamp_ms=each.timestamp_ms,
                    )
                    for each in records
                ]
                found = await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_SECONDS)
                return [(each.partition, each.offset) for each in found]

        return asyncio.run(run())

    def read(
        self, address: str, topics: Sequence[str], count: int, **settings: object
    ) -> list[Got]:
        """See `KafkaClient`."""

        async def run() -> list[Got]:
            from aiokafka import AIOKafkaConsumer

            consumer = AIOKafkaConsumer(
                *topics,
                bootstrap_servers=address,
                auto_offset_reset="earliest",
                **_plain(settings),
            )
            got: list[Got] = []
            deadline = time.monotonic() + DEADLINE_SECONDS
            async with consumer:
                while len(got) < count and time.monotonic() < deadline:
                    batches = await consumer.getmany(timeout_ms=200)
                    got += map(_got, chain.from_iterable(batches.values()))
            return got

        return asyncio.run(run())


class Driven(KafkaClient):
    """A library of another language, in a process that is started once and lives until `close`.

    KafkaDriver.java says what it understands.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def command(self) -> list[str]:
        """What starts the process."""

    def ask(self, **asked: object) -> dict[str, Any]:
        """Let the process do something; its answer.

        Raises:
            RuntimeError: it failed; the text says how.
        """
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    self.command(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    encoding="utf-8",
                )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            records = []
            while True:
                line = self._process.stdout.readline()
                answer: dict[str, Any] = json.loads(line or '{"error": "the process has ended"}')
                if "record" not in answer:
                    break
                records.append(answer["record"])
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return {"records": records, **answer}

    def produce(
        self, address: str, topic: str, records: Sequence[Sent], **settings: object
    ) -> list[tuple[int, int]]:
        """See `KafkaClient`."""
        shown = [
            {
                "key": _base64(each.key),
                "value": _base64(each.value),
                "timestamp": each.timestamp_ms,
                "partition": each.partition,
                "headers": [[key, _base64(value)] for key, value in each.headers],
            }
            for each in records
        ]
        known = {"bootstrap.servers": address, **_dotted(settings)}
        answer = self.ask(do="produce", settings=known, topic=topic, records=shown)
        return [(partition, offset) for partition, offset in answer["placed"]]

    def read(
        self, address: str, topics: Sequence[str], count: int, **settings: object
    ) -> list[Got]:
        """See `KafkaClient`."""
        known = {"bootstrap.servers": address, **_dotted(settings)}
        answer = self.ask(do="read", settings=known, topics=list(topics), count=count)
        return [self.got(each) for each in answer["records"]]

    @staticmethod
    def got(shown: dict[str, Any]) -> Got:
        """A record as the process shows it."""
        return Got(
            shown["topic"],
            shown["partition"],
            shown["offset"],
            shown["timestamp"],
            _bytes(shown["key"]),
            _bytes(shown["value"]),
            tuple((key, _bytes(value)) for key, value in shown["headers"]),
        )

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate(timeout=DEADLINE_SECONDS)

    def kill(self) -> None:
        """End it as a power switch would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


class Java(Driven):
    """Kafka's own client."""

    name = "java"

    def command(self) -> list[str]:
        """See `Driven`."""
        return java_command("KafkaDriver.java", heap="512m")

    def tool(self, name: str, *arguments: str, given: str = "") -> str:
        """Run a console tool by its script's name; what it printed.

        Raises:
            AssertionError: its exit status wasn't 0.
        """
        main = TOOLS[name]
        answer = self.ask(do="tool", main=main, arguments=arguments, given=given)
        printed: str = answer["printed"]
        assert answer["status"] == 0, f"{name} {arguments}:\n{printed}{answer['complained']}"
        return printed


#: All of them.
CLIENTS: tuple[type[KafkaClient], ...] = (Confluent, KafkaPython, Aiokafka, Java)


def _dotted(settings: dict[str, object]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def _plain(settings: dict[str, object]) -> dict[str, Any]:
    """The same settings for clients in Python, which have no codec where others have `none`."""
    return {name: None if value == "none" else value for name, value in settings.items()}


def _got(record: Any) -> Got:
    headers = tuple((key, value) for key, value in record.headers)
    return Got(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        headers,
    )


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
