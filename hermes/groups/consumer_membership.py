"""The members of a consumer group, as they are stored with the group, and their bytes.

A coordinator that starts again, or gets a group from another one, goes on with them: each at its
epoch, with its partitions. So no epoch goes back, and nobody gets what another one still reads.

Deflated JSON (zlib's format), as `membership` has it for classic groups. Partitions are
[topic, epoch, [numbers]], a topic is its position in the list of all UUIDs; and what members
subscribe to is a position in a list of lists, since it is the same for most:

    {"kind": "consumer", "epoch": 7, "assignment_epoch": 7, "ids": ["<32 digits>", ...],
     "topics": {"<name>": [id, number of partitions]}, "lists": [["<name>", ...], ...],
     "members": [[what `StoredConsumer` has, in its order; the target null where it is what is
     assigned], ...]}
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from hermes.groups.consumer_values import (
    ConsumerMembership,
    Reconciliation,
    StoredConsumer,
    TopicIdPartition,
    TopicSize,
)

#: What a membership may weigh to be stored: as much as `membership` has. A partition's number and
#: what else is small is deflated to a few bytes.
_MOST_BYTES: Final = 192 * 1024
_MEMBER_BYTES: Final = 48
_PLACE_BYTES: Final = 3
#: A topic, beside its name: its UUID, which does not deflate to less than half of its digits.
_TOPIC_BYTES: Final = 24

#: What stands in JSON under "kind", which tells this from the membership of a classic group.
KIND: Final = "consumer"


def can_be_stored(membership: ConsumerMembership) -> bool:
    """Whether it is small enough; else its members have to join again."""
    lists = {id(names): names for e in membership.members for names in (e.topics, e.matched)}
    size = _weight(membership.topics) + _TOPIC_BYTES * len(membership.topics)
    size += sum(map(_weight, set(lists.values())))
    for each in membership.members:
        names = (each.member_id, each.instance_id, each.rack_id, each.client_id, each.client_host)
        size += _MEMBER_BYTES + _weight((*names, each.regex, each.assignor))
        size += _PLACE_BYTES * sum(map(len, (each.assigned, each.revoking, each.target)))
    return size <= _MOST_BYTES


def _weight(texts: Iterable[str | None]) -> int:
    return sum(1 + len((text or "").encode()) for text in texts)


def encode_consumers(epoch: int, membership: ConsumerMembership) -> bytes:
    numbers: dict[UUID, int] = {}

    def places_of(places: Mapping[TopicIdPartition, int]) -> list[Any]:
        groups: dict[tuple[int, int], list[int]] = {}
        for (topic_id, partition), since in sorted(places.items()):
            number = numbers.setdefault(topic_id, len(numbers))
            groups.setdefault((number, since), []).append(partition)
        return [[number, since, each] for (number, since), each in groups.items()]

    def member_of(each: StoredConsumer) -> list[Any]:
        is_there = each.assigned.keys() == each.target
        target = None if is_there else places_of(dict.fromkeys(each.target, 0))
        names = [lists.setdefault(names, len(lists)) for names in (each.topics, each.matched)]
        fields = each._asdict() | {"topics": names[0], "matched": names[1]}
        places = (places_of(each.assigned), places_of(each.revoking), target)
        return [*list(fields.values())[:-3], *places]

    lists: dict[tuple[str, ...], int] = {}
    members = [member_of(each) for each in membership.members]
    topics = {
        name: [numbers.setdefault(size.topic_id, len(numbers)), size.partitions]
        for name, size in membership.topics.items()
    }
    value = {
        "kind": KIND,
        "epoch": epoch,
        "assignment_epoch": membership.assignment_epoch,
        "ids": [each.hex for each in numbers],
        "topics": topics,
        "lists": [*lists],
        "members": members,
    }
    # What isn't ASCII would take up to three times as much with escapes.
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return zlib.compress(text.encode(), 1)


def decode_consumers(value: Mapping[str, Any], epoch: int) -> ConsumerMembership:
    """Read a membership out of its JSON, inflated and parsed.

    Returns:
        One without members where it is of another epoch: then they join again.

    Raises:
        ValueError, TypeError, LookupError: it can't be understood.
    """
    if value["epoch"] != epoch:
        return ConsumerMembership(epoch, {}, ())
    ids = [UUID(hex=each) for each in value["ids"]]
    topics = {
        name: TopicSize(ids[number], _number(count))
        for name, (number, count) in value["topics"].items()
    }
    lists = [_names(each) for each in value["lists"]]
    members = tuple(_member(ids, lists, *each) for each in value["members"])
    return ConsumerMembership(_number(value["assignment_epoch"]), topics, members)


def _names(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list):
        raise ValueError("topics that are no list")
    _check_texts(names)
    return tuple(names)


def _member(ids: list[UUID], lists: list[tuple[str, ...]], *fields: Any) -> StoredConsumer:
    places = [_places(ids, each or ()) for each in fields[-3:]]
    assigned, revoking = places[:2]
    target = frozenset(assigned if fields[-1] is None else places[2])
    member = StoredConsumer._make([*fields[:-3], assigned, revoking, target])
    _check_texts([member.member_id, member.client_id, member.client_host])
    others = (member.instance_id, member.rack_id, member.regex, member.assignor)
    _check_texts(each for each in others if each is not None)
    for number in (member.rebalance_timeout_ms, member.epoch, member.previous_epoch):
        _number(number)
    return member._replace(
        topics=lists[_number(member.topics)],
        matched=lists[_number(member.matched)],
        state=Reconciliation(member.state),
    )


def _places(ids: list[UUID], groups: Iterable[Any]) -> dict[TopicIdPartition, int]:
    return {
        TopicIdPartition(ids[_number(topic)], _number(partition)): _number(since)
        for topic, since, partitions in groups
        for partition in partitions
    }


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("a number that is none")
    return value


def _check_texts(values: Iterable[object]) -> None:
    if not all(isinstance(each, str) for each in values):
        raise ValueError("a text that is none")
