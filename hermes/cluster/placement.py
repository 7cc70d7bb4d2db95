"""Where new partitions are: on which broker of a cluster each is, by which of its numbers."""

from collections.abc import Collection, Sequence
from zlib import crc32

from hermes.coordination.kafka_topics import TopicNode
from hermes.coordination.layout import BrokerPartition
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.quoting import quoted


def numbered_places(
    live: Sequence[int], name: str, first: int, count: int, brokers: Sequence[int] | None
) -> tuple[BrokerPartition, ...]:
    """Place new partitions of a topic of Kafka's format, whose numbers all brokers share.

    Args:
        live: the brokers that live, ascending, of which each gets one in turns.
        first: the number of the first new partition.
        count: how many the topic has with them.
        brokers: on which broker each is, if that is said.
    """
    if brokers is not None:
        pairs = zip(brokers, range(first, count), strict=True)
        return tuple(BrokerPartition(*pair) for pair in pairs)
    start = crc32(name.encode())  # so that small topics don't all begin with the same one
    return tuple(
        BrokerPartition(live[(start + number) % len(live)], number)
        for number in range(first, count)
    )


def own_places(
    name: str,
    node: TopicNode,
    count: int,
    brokers: Sequence[int] | None,
    live: Collection[int],
) -> tuple[BrokerPartition, ...]:
    """Place new partitions of a topic of 0.7's format, each on a broker that has the topic.

    Args:
        count: how many to add; a broker numbers its own on.
        brokers: on which broker each is; unless given, on those that have fewest.

    Raises:
        KafkaError: a broker hasn't got the topic, or none that has lives.
    """
    own = {each: max(node.of(each)) + 1 for each in node.brokers - node.gone}
    if brokers is None:
        at_hand = {each: number for each, number in own.items() if each in live}
        if not at_hand:
            text = f"no broker that has topic {quoted(name)} is there now"
            raise KafkaError(Code.LEADER_NOT_AVAILABLE, text)
    else:
        at_hand = own
    places = []
    for number in range(count):
        broker_id = min(at_hand, key=lambda each: (at_hand[each], each))
        if brokers is not None:
            broker_id = brokers[number]
            if broker_id not in own:
                raise KafkaError(
                    Code.INVALID_REPLICA_ASSIGNMENT,
                    f"Broker {broker_id} hasn't got topic {quoted(name)}, which has Kafka 0.7's "
                    f"format: create it there first (hermes topics create).",
                )
        places.append(BrokerPartition(broker_id, at_hand[broker_id]))
        at_hand[broker_id] += 1
    return tuple(places)
