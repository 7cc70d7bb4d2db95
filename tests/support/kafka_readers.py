"""Members of groups by each of Python's clients, each in a thread of its own."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyPartitionAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

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
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Commit, leave the group, and end."""
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
        if self.partitions:
            places = consumer.position(consumer.assignment())
            read = [each for each in places if each.offset >= 0]
            if read:
                consumer.commit(offsets=read, asynchronous=False)
        consumer.close()


class KafkaPythonReader(Reader):
    """By kafka-python."""

    def _read(self, servers: str, group: str, topic: str, assignor: str) -> None:
        kinds = {"range": RangePartitionAssignor, "cooperative-sticky": None}
        kind = kinds[assignor] or CooperativeStickyPartitionAssignor
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
            for records in consumer.poll(50).values():
                self.values += [each.value.decode() for each in records]
            self.partitions = [each.partition for each in consumer.assignment()]
        if self.partitions:
            consumer.commit()
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
        if self.partitions:
            await consumer.commit()
        await consumer.stop()


#: What reads, by what people call it.
READERS: dict[str, type[Reader]] = {
    "confluent-kafka": ConfluentReader,
    "kafka-python": KafkaPythonReader,
    "aiokafka": AiokafkaReader,
}
