"""Members of groups by each of Python's clients, each in a thread of its own."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka_python_sockets import close_refused_sockets

__all__ = ["READERS", "Reader"]


class Reader(ABC):
    """One member, from its creation to `stop`.

    Args:
        servers: where the broker is.
        group: the group.
        topic: what it reads.
        assignor: `range` or a sticky one.

    Attributes:
        values: what came, in its order.
        partitions: which it has now.
        failure: what has ended it.
    """

    def __init__(self, servers: str, group: str, topic: str, assignor: str) -> None:
        self.values: list[str] = []
        self.partitions: Collection[int] = ()
        self.failure: BaseException | None = None
        self._given = servers, group, topic, assignor
        self._stopping = threading.Event()
        self._wants_commit = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def commit(self) -> None:
        """Have it commit how far it has come; `has_committed` says when that is done."""
        self._wants_commit.set()

    @property
    def has_committed(self) -> bool:
        """Whether it has done so; a refusal is tried again."""
        return not self._wants_commit.is_set()

    def stop(self) -> None:
        """Leave the group, and end."""
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._read(*self._given)
        except BaseException as error:
            self.failure = error
        self.partitions = ()

    @abstractmethod
    def _read(self, servers: str, group: str, topic: str, assignor: str) -> None:
        """Read until told to stop."""


class ConfluentReader(Reader):
    """By confluent-kafka."""

    def _read(self, servers: str, group: str, topic: str, assignor: str) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": assignor,
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        while not self._stopping.is_set():
            for each in consumer.consume(50, 0.05):
                error = each.error()
                if error is not None:
                    raise confluent_kafka.KafkaException(error)
                self.values.append(each.value().decode())
            self.partitions = [each.partition for each in consumer.assignment()]
            if self._wants_commit.is_set():
                places = consumer.position(consumer.assignment())
                read = [each for each in places if each.offset >= 0]
                with suppress(confluent_kafka.KafkaException):
                    if read:
                        consumer.commit(offsets=read, asynchronous=False)
                    self._wants_commit.clear()
        consumer.close()


class KafkaPythonReader(Reader):
    """By kafka-python."""

    def _read(self, servers: str, group: str, topic: str, assignor: str) -> None:
        kinds = {"range": RangePartitionAssignor, "cooperative-sticky": None}
        kind = kinds[assignor] or CooperativeStickyAssignor
        close_refused_sockets()
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[kind],
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
        )
        while not self._stopping.is_set():
            # kafka-python 3.0 may forget an assignment that comes between two shorter polls.
            for records in consumer.poll(1000).values():
                self.values += [each.value.decode() for each in records]
            self.partitions = [each.partition for each in consumer.assignment()]
            if self._wants_commit.is_set():
                with suppress(kafka.errors.KafkaError):
                    consumer.commit()
                    self._wants_commit.clear()
        consumer.close()


class AiokafkaReader(Reader):
    """By aiokafka, which has no cooperative assignor; its sticky one is eager."""

    def _read(self, servers: str, group: str, topic: str, assignor: str) -> None:
        asyncio.run(self._read_soon(servers, group, topic, assignor))

    async def _read_soon(self, servers: str, group: str, topic: str, assignor: str) -> None:
        kind: Any = AioRange if assignor == "range" else AioSticky
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[kind],
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=1000,
        )
        await consumer.start()
        while not self._stopping.is_set():
            for records in (await consumer.getmany(timeout_ms=50)).values():
                self.values += [each.value.decode() for each in records]
            self.partitions = [each.partition for each in consumer.assignment()]
            if self._wants_commit.is_set():
                with suppress(aiokafka.errors.KafkaError):
                    await consumer.commit()
                    self._wants_commit.clear()
        await consumer.stop()


#: What reads, by what people call it.
READERS: dict[str, type[Reader]] = {
    "confluent-kafka": ConfluentReader,
    "kafka-python": KafkaPythonReader,
    "aiokafka": AiokafkaReader,
}
