"""Where new partitions are: on which broker of a cluster each is, by which of its numbers."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, zip_longest
from zlib import crc32

from hermes.coordination.kafka_topics import TopicNode
from hermes.coordination.layout import BrokerPartition
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.quoting import quoted


def spread(
    racks: Mapping[int, str], name: str, first: int, count: int, copies: int
) -> list[tuple[int, ...]]:
    """Choose the brokers of new partitions of a topic of Kafka's format, the leader first.

    Each broker leads one in turns. Copies go into different racks, as long as there are any, and to
    different brokers with each round, so that no two brokers share all of theirs.

    Args:
        racks: the brokers that live, and where each stands; at least as many as copies.
        first: the number of the first new partition.
        count: how many the topic has with them.
    """
    ring = _racks_in_turns(racks)
    start = crc32(name.encode())  # so that small topics don't all begin with the same one
    turns = range(start % len(ring) + first, start % len(ring) + count)
    return [_copies(ring, racks, turn, copies) for turn in turns]


def _racks_in_turns(racks: Mapping[int, str]) -> list[int]:
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    rounds = zip_longest(*(by_rack[each] for each in sorted(by_rack)))
    return [each for each in chain.from_iterable(rounds) if each is not None]


def _copies(
    ring: Sequence[int], racks: Mapping[int, str], turn: int, copies: int
) -> tuple[int, ...]:
    leader = turn % len(ring)
    chosen, used = [ring[leader]], Counter([racks[ring[leader]]])
    others = [*ring[leader + 1 :], *ring[:leader]]
    shift = turn // len(ring) % max(len(others), 1)
    others = [*others[shift:], *others[:shift]]
    while len(chosen) < copies:
        following = min(others, key=lambda each: used[racks[each]])
        others.remove(following)
        chosen.append(following)
        used[racks[following]] += 1
    return tuple(chosen)


def numbered_places(
    assignment: Sequence[Sequence[int]], first: int = 0
) -> tuple[BrokerPartition, ...]:
    """The places of partitions of Kafka's format, whose numbers all brokers share."""
    return tuple(BrokerPartition(each[0], number) for number, each in enumerate(assignment, first))


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
