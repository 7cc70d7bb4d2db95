"""Who is to have which partition: the assignors of the coordinator, by Kafka's names.

An assignor gets what each member subscribes to, how many partitions each topic has, and the target
assignment so far; it returns the next one. It knows neither epochs nor who has what at the moment.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from hermes.groups.consumer_values import TopicIdPartition

Target = dict[str, frozenset[TopicIdPartition]]


class Subscriptions(NamedTuple):
    """What there is to share, and among whom.

    Attributes:
        members: the UUIDs of the topics that each member subscribes to, by member id, static
            members first, in a stable order.
        partitions: how many partitions each topic has.
    """

    members: Mapping[str, frozenset[UUID]]
    partitions: Mapping[UUID, int]


def uniform(wanted: Subscriptions, before: Mapping[str, Collection[TopicIdPartition]]) -> Target:
    """Give each member as many partitions as any other, and have as few as possible move.

    Where members subscribe to different topics, nobody has two more than one who could take one.
    """
    shares = _kept(wanted, before)
    given = {place for share in shares.values() for place in share}
    topics = frozenset[UUID]().union(*wanted.members.values())
    free = [each for each in _places(topics, wanted.partitions) if each not in given]
    if len(set(wanted.members.values())) == 1:
        _share_alike(shares, free)
    else:
        _share_by_subscription(shares, free, wanted)
    return {member: frozenset(share) for member, share in shares.items()}


def _kept(
    wanted: Subscriptions, before: Mapping[str, Collection[TopicIdPartition]]
) -> dict[str, dict[TopicIdPartition, None]]:
    """What members may keep, in the order of partitions; nothing has two of them."""
    taken: set[TopicIdPartition] = set()
    shares: dict[str, dict[TopicIdPartition, None]] = {}
    for member, topics in wanted.members.items():
        share = [
            each
            for each in sorted(before.get(member, ()), key=_in_order)
            if each.topic_id in topics
            and each.partition < wanted.partitions.get(each.topic_id, 0)
            and each not in taken
        ]
        taken.update(share)
        shares[member] = dict.fromkeys(share)
    return shares


def _share_alike(
    shares: dict[str, dict[TopicIdPartition, None]], free: list[TopicIdPartition]
) -> None:
    count = len(free) + sum(map(len, shares.values()))
    quota, extra = divmod(count, len(shares))
    quotas = {}
    # Members that have more keep one more, as far as that goes.
    for member in sorted(shares, key=lambda each: -len(shares[each])):
        quotas[member] = quota + (extra > 0)
        extra -= extra > 0
    for member, share in shares.items():
        while len(share) > quotas[member]:
            free.append(share.popitem()[0])
    left = iter(sorted(free, key=_in_order))
    for member, share in shares.items():
        for place in islice(left, quotas[member] - len(share)):
            share[place] = None


class _Least:
    """Finds the member with the fewest partitions, as these numbers change."""

    def __init__(self, members: Sequence[str], loads: Mapping[str, int]) -> None:
        self._loads = loads
        self._heap = [(loads[member], number, member) for number, member in enumerate(members)]
        heapq.heapify(self._heap)

    def find(self) -> str:
        load, number, member = self._heap[0]
        while load != self._loads[member]:
            heapq.heapreplace(self._heap, (self._loads[member], number, member))
            load, number, member = self._heap[0]
        return member

    def lowered(self, member: str) -> None:
        heapq.heappush(self._heap, (self._loads[member], len(self._heap), member))


def _share_by_subscription(
    shares: dict[str, dict[TopicIdPartition, None]],
    free: list[TopicIdPartition],
    wanted: Subscriptions,
) -> None:
    able: dict[UUID, list[str]] = {}
    for member, topics in wanted.members.items():
        for topic in topics:
            able.setdefault(topic, []).append(member)
    loads = {member: len(share) for member, share in shares.items()}
    by_topic: dict[UUID, list[TopicIdPartition]] = {}
    for place in free:
        by_topic.setdefault(place.topic_id, []).append(place)
    # Topics that few members want come first, so that others can be evened out around them.
    for topic in sorted(by_topic, key=lambda each: (len(able[each]), each)):
        least = _Least(able[topic], loads)
        for place in by_topic[topic]:
            member = least.find()
            shares[member][place] = None
            loads[member] += 1
    while _even_out(shares, loads, able):  # each move lessens the sum of the loads' squares
        pass


def _even_out(
    shares: dict[str, dict[TopicIdPartition, None]],
    loads: dict[str, int],
    able: Mapping[UUID, list[str]],
) -> bool:
    """Move partitions to members with fewer, topic by topic; returns whether any had to."""
    owners: dict[UUID, list[tuple[TopicIdPartition, str]]] = {}
    for member, share in shares.items():
        for place in share:
            owners.setdefault(place.topic_id, []).append((place, member))
    has_moved = False
    for topic, places in owners.items():
        least = _Least(able[topic], loads)
        for place, member in places:
            other = least.find()
            if loads[other] + 1 < loads[member]:
                del shares[member][place]
                shares[other][place] = None
                loads[other] += 1
                loads[member] -= 1
                least.lowered(member)
                has_moved = True
    return has_moved


def range_(wanted: Subscriptions, _before: Mapping[str, Collection[TopicIdPartition]]) -> Target:
    """Give each member consecutive partitions of each topic: the same of topics of one size."""
    shares: dict[str, list[TopicIdPartition]] = {member: [] for member in wanted.members}
    for topic, count in sorted(wanted.partitions.items()):
        able = [member for member, topics in wanted.members.items() if topic in topics]
        first = 0
        for number, member in enumerate(able):
            end = first + count // len(able) + (number < count % len(able))
            shares[member] += [TopicIdPartition(topic, each) for each in range(first, end)]
            first = end
    return {member: frozenset(share) for member, share in shares.items()}


def _in_order(place: TopicIdPartition) -> tuple[int, int]:
    """By its topic's number and its own: UUIDs take long to compare, and there may be thousands."""
    return place.topic_id.int, place.partition


def _places(topics: Iterable[UUID], partitions: Mapping[UUID, int]) -> Iterable[TopicIdPartition]:
    for topic in sorted(topics, key=lambda each: each.int):
        yield from (TopicIdPartition(topic, number) for number in range(partitions.get(topic, 0)))


#: All of them, by name.
ASSIGNORS: Final[
    Mapping[str, Callable[[Subscriptions, Mapping[str, Collection[TopicIdPartition]]], Target]]
] = {"uniform": uniform, "range": range_}
