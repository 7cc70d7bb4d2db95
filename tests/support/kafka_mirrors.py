"""What mirrors of topics of Kafka's format are tried with: topics of every kind, and their records.

Clusters are known by the address of a Kafka listener alone, so that each may be Hermes or Kafka.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from mirrored_pair import eventually

from hermes.config.mirror import parse_mirror_config
from hermes.mirror import Mirror

__all__ = ["Copied", "create", "ends", "eventually", "kafka_mirror", "produce", "records"]


class Copied(NamedTuple):
    """A record, but for its offset."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def kafka_mirror(
    stack: ExitStack, source: str, target: Mapping[str, Any], guard: Any = None, **settings: Any
) -> Mirror:
    """Start a mirror of a cluster by the address of its Kafka listener."""
    values = {
        "name": "m",
        "sources": [{"name": "east", "kafka": [source]}],
        "target": dict(target),
        **settings,
    }
    made = Mirror(parse_mirror_config(values), make_guard=guard)
    made.start()
    stack.callback(made.stop)
    return made


def create(address: str, topic: str, partitions: int = 3, **config: str) -> None:
    """Create a topic; settings by their names with `_` for `.`."""
    admin = AdminClient({"bootstrap.servers": address})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(topic, partitions, replication_factor=1, config=settings)
    admin.create_topics([new])[topic].result(60)


def produce(
    address: str,
    topic: str,
    sent: Iterable[tuple[int, Copied]],
    **settings: Any,
) -> None:
    """Produce records, each to its partition, and wait until they are acknowledged."""
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": address, **settings})
    for partition, each in sent:
        producer.produce(
            topic,
            each.value,
            each.key,
            partition,
            timestamp=each.timestamp_ms,
            headers=list(each.headers),
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not errors


def ends(address: str, topic: str, partitions: int) -> list[int]:
    """Where each partition ends; -1 for one that can't be asked."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "ends"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=5)[1]
            for each in range(partitions)
        ]
    except KafkaException:
        return [-1] * partitions
    finally:
        consumer.close()


def records(address: str, topic: str, partitions: int, *, last: int = 0) -> list[list[Copied]]:
    """All records of each partition, or so many at its end; of transactions what was committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    start = -2000 - last if last else 0
    consumer.assign([TopicPartition(topic, each, start) for each in range(partitions)])
    found: list[list[Copied]] = [[] for _ in range(partitions)]
    at_end: set[int] = set()
    try:
        while len(at_end) < partitions:
            message = consumer.poll(60)
            assert message is not None, f"{topic} can't be read"
            partition = message.partition()
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                at_end.add(partition)
                continue
            found[partition].append(
                Copied(
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    message.timestamp()[1],
                )
            )
    finally:
        consumer.close()
    return found


def arrived(address: str, topic: str, expected: Sequence[Sequence[Copied]]) -> Callable[[], bool]:
    """Whether a topic has exactly what is expected."""

    def look() -> bool:
        counts = [len(each) for each in expected]
        return ends(address, topic, len(expected)) == counts and (
            records(address, topic, len(expected)) == [list(each) for each in expected]
        )

    return look
