"""Who in a group gets which partitions: computed alike by every member, Kafka 0.7's included.

For each topic, the partitions and the streams of the whole group are put in order, and each stream
takes a contiguous range: with 5 partitions and 2 streams the first takes 3, the second 2. Order
is that of *texts*: broker 10 comes before broker 2, and stream 10 before stream 2. No member tells
another what is whose; they agree because they see the same tree.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from hermes.coordination.layout import BrokerPartition, Subscription
from hermes.errors import ConfigError

#: Topic -> partition -> the stream that it belongs to, as `<consumer id>-<number>`.
Assignment = dict[str, dict[BrokerPartition, str]]


def stream_ids(consumer_id: str, count: int) -> list[str]:
    """The names of a member's streams of one topic."""
    return [f"{consumer_id}-{number}" for number in range(count)]


def assign(
    partitions_of: Mapping[str, Mapping[int, Sequence[int]]],
    members: Mapping[str, Subscription],
    on_fault: Callable[[str, ConfigError], object],
) -> Assignment:
    """Compute the assignment of several topics.

    Args:
        partitions_of: topic -> broker id -> the numbers of its partitions, for every topic that
            matters.
        members: consumer id -> what it wants, for every member of the group.
        on_fault: hears of a member whose filter nobody can evaluate; it is taken to want nothing.

    Returns:
        The stream of every partition; topics that nobody wants are left out.
    """
    wanted: dict[str, dict[str, int]] = {}
    for consumer_id, subscription in members.items():
        try:
            wanted[consumer_id] = {t: subscription.streams_of(t) for t in partitions_of}
        except ConfigError as error:
            on_fault(consumer_id, error)
    assignment: Assignment = {}
    for topic, by_broker in partitions_of.items():
        streams = [
            stream
            for consumer_id, streams_of in wanted.items()
            for stream in stream_ids(consumer_id, streams_of[topic])
        ]
        partitions = [
            BrokerPartition(broker_id, number)
            for broker_id, numbers in by_broker.items()
            for number in numbers
        ]
        if streams:
            assignment[topic] = assign_topic(partitions, streams)
    return assignment


def assign_topic(
    partitions: Iterable[BrokerPartition], streams: Iterable[str]
) -> dict[BrokerPartition, str]:
    """Compute the assignment of one topic.

    Args:
        partitions: all of the topic, in any order.
        streams: all that want it, in any order; at least one.

    Returns:
        The stream of each partition, in 0.7's order of partitions.
    """
    ordered = sorted(partitions, key=lambda each: _java_order(str(each)))
    takers = sorted(set(streams), key=_java_order)
    share, extras = divmod(len(ordered), len(takers))
    assigned: dict[BrokerPartition, str] = {}
    start = 0
    for position, stream in enumerate(takers):
        end = start + share + (position < extras)
        assigned.update(dict.fromkeys(ordered[start:end], stream))
        start = end
    return assigned


def _java_order(text: str) -> bytes:
    """Java compares UTF-16 units, Python code points: they differ above U+FFFF."""
    return text.encode("utf-16-be", "surrogatepass")
