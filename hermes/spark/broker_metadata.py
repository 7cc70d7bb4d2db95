"""What one broker says it has: its id, its topics, their partitions and what these hold.

Each function asks once for a whole list; `ClusterReader` asks again.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hermes.client import EARLIEST, LATEST, SimpleConsumer
from hermes.errors import NotLeaderError, RoutingError, UnsupportedRequestVersionError
from hermes.protocol import MetadataRequest, PartitionLeader, TopicMetadata
from hermes.spark.offsets import TopicPartition


class Bounds(NamedTuple):
    """What a partition holds. `counts_messages`: whether offsets do, and not bytes."""

    earliest: int
    latest: int
    counts_messages: bool = False


#: A partition that nothing was written to.
EMPTY: Final = Bounds(0, 0)


class TopicShare(NamedTuple):
    """A broker's partitions of a topic, and how many its cluster has, where it knows that.

    `leaders`: of the partitions that have copies, wherever they are.
    """

    numbers: Sequence[int]
    total: int
    leaders: Sequence[PartitionLeader] = ()


def broker_id(consumer: SimpleConsumer) -> int:
    """The broker's id. Raises RoutingError if it is a Kafka 0.7."""
    try:
        return consumer.metadata([]).broker_id
    except UnsupportedRequestVersionError as error:
        raise RoutingError(
            f"{consumer.address} is a broker of Kafka 0.7, which doesn't report its id and "
            "partitions: give hermes.zookeeper instead of hermes.bootstrap.servers"
        ) from error


def topics(consumer: SimpleConsumer) -> list[str]:
    return [each.topic for each in consumer.metadata().topics]


def shares(consumer: SimpleConsumer, topics: list[str]) -> dict[str, TopicShare]:
    """What a broker has of each topic; the numbers of one that it doesn't know are ()."""
    return _shares(consumer.metadata(topics).topics)


def bounds(
    consumer: SimpleConsumer, partitions: list[TopicPartition]
) -> dict[TopicPartition, Bounds | None]:
    """What partitions hold; raises NotLeaderError for one that another broker leads."""
    if not consumer.supports(MetadataRequest.TYPE):
        return {each: offset_bounds(consumer, each) for each in partitions}
    described = consumer.metadata(sorted({each.topic for each in partitions})).topics
    held = {
        (topic.topic, each.partition): Bounds(
            each.earliest, each.high_watermark, topic.holds_records
        )
        for topic in described
        for each in topic.partitions
    }
    # What nothing was written to isn't told of; nor are another broker's partitions.
    untold = [each for each in partitions if (each.topic, each.partition) not in held]
    silent = {each.topic for each in untold}
    has = _shares(each for each in described if each.topic in silent)
    for each in untold:
        if any(each.partition == copy.partition for copy in has[each.topic].leaders):
            raise NotLeaderError(f"{each}: {consumer.address} doesn't lead it, or not for certain")
    missing = {each for each in untold if each.partition not in has[each.topic].numbers}
    return {
        each: None if each in missing else held.get((each.topic, each.partition), EMPTY)
        for each in partitions
    }


def _shares(described: Iterable[TopicMetadata]) -> dict[str, TopicShare]:
    found = {}
    for each in described:
        numbers = () if each.error else each.numbers
        has_any = numbers or each.leaders
        total = each.partition_count if has_any else 0
        found[each.topic] = TopicShare(numbers, total, each.leaders)
    return found


def offset_bounds(consumer: SimpleConsumer, partition: TopicPartition) -> Bounds:
    """What a partition holds, asked as Kafka 0.7 can be."""

    def ask(time_ms: int) -> int:
        found = consumer.get_offsets_before(partition.topic, partition.partition, time_ms)
        return next(iter(found), 0)

    return Bounds(ask(EARLIEST), ask(LATEST))
