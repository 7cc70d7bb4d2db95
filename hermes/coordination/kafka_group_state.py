"""What coordination stores about groups of Kafka's consumers, for tools: nothing is watched.

Only a group's coordinator writes there (`hermes.groups.offset_tree`). What it holds back for
a moment, such as that a member has left, isn't here yet. docs/log-format.md has the values.
"""

import json
import struct
import zlib
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from hermes.coordination.kafka_groups import (
    KAFKA_GROUPS,
    MEMBERS_NAME,
    group_node_path,
    group_of_node,
    parse_offset_name,
    parse_pending_name,
)
from hermes.coordination.kafka_topics import TopicNode, parse_topic, topic_node_path
from hermes.coordination.nodes import Node, TreeSession
from hermes.errors import CoordinationError, CoordinationNotAuthorizedError, InvalidNodeError
from hermes.quoting import quoted

#: So many nodes are asked for together that a server notices little of it.
_READ_AT_ONCE: Final = 128

#: More than the JSON of members can be.
_MOST_JSON_BYTES: Final = 4 * 1024 * 1024

#: How often a group is read again that is written meanwhile.
_MOST_READS: Final = 5

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"

#: A topic and Kafka's number of a partition.
Place = tuple[str, int]


class KafkaGroupMember(NamedTuple):
    """A member of a group of Kafka's consumers.

    Attributes:
        name: its instance id if it is static, else its member id.
        client: what it calls itself, and where it is.
        topics: those that it names; of a classic member those that it has.
        regex: by which it chooses topics; empty for none.
        partitions: what it has.
    """

    name: str
    client: str
    topics: tuple[str, ...]
    regex: str
    partitions: frozenset[Place]


class KafkaGroupState(NamedTuple):
    """One group.

    Attributes:
        kind: `classic` or `consumer` (KIP-848).
        members: who is in it, as far as that is kept.
        topics: the nodes of its topics; None where that is not to be had.
        faults: what can't be understood, and is left out.
    """

    kind: str
    members: tuple[KafkaGroupMember, ...]
    offsets: dict[Place, int]
    topics: dict[str, TopicNode | None]
    faults: tuple[InvalidNodeError, ...]


def list_kafka_groups(session: TreeSession) -> list[str]:
    return sorted(map(group_of_node, session.children(KAFKA_GROUPS)))


def count_members(session: TreeSession, group: str) -> int:
    """How many members a group has; 0 for an unknown one, or where that isn't kept."""
    faults: list[InvalidNodeError] = []
    return len(_read_members(session, group, faults)[1])


def read_kafka_group(session: TreeSession, group: str) -> KafkaGroupState:
    """Read one group; CoordinationError if there is none."""
    path = group_node_path(group)
    if session.get(path) is None:
        raise CoordinationError(f"there is no group {group!r} (hermes groups list shows all)")
    faults: list[InvalidNodeError] = []
    committed = dict(_read_offsets(session, path, faults))
    kind, members = _read_members(session, group, faults)
    used = {topic for topic, _ in committed}
    used |= {topic for each in members for topic, _ in each.partitions}
    topics = {topic: _read_topic(session, topic, faults) for topic in sorted(used)}
    offsets = {
        place: offset
        for place, (offset, topic_id) in committed.items()
        if _is_of(topics[place[0]], topic_id)
    }
    return KafkaGroupState(kind, members, offsets, topics, tuple(faults))


def read_committed(
    session: TreeSession, broker_id: int, limit: int
) -> tuple[dict[tuple[str, str, int], int], bool]:
    """Read up to `limit` offsets that groups have committed of one broker's partitions.

    By group, topic and the broker's number of the partition, without what can't be understood; and
    whether these are all.
    """
    found: dict[tuple[str, str, int], int] = {}
    topics: dict[str, TopicNode | None] = {}
    for group in list_kafka_groups(session):
        committed = dict(_read_offsets(session, group_node_path(group), []))
        for (topic, number), (offset, topic_id) in committed.items():
            if topic not in topics:
                topics[topic] = _read_topic(session, topic, [])
            node = topics[topic]
            if node is None or not 0 <= number < len(node.partitions):
                continue
            place = node.partitions[number]
            if place.broker_id != broker_id or not _is_of(node, topic_id):
                continue
            if len(found) >= limit:
                return found, False
            found[group, topic, place.partition] = offset
    return found, True


def _is_of(topic: TopicNode | None, topic_id: object) -> bool:
    """Whether an offset is of this topic, and not of one that had its name before."""
    return topic is None or topic_id is None or str(topic.id) == topic_id


def _read_topic(
    session: TreeSession, topic: str, faults: list[InvalidNodeError]
) -> TopicNode | None:
    path = topic_node_path(topic)
    try:
        node = session.get(path)
        return None if node is None else parse_topic(path, node.value)
    except InvalidNodeError as error:
        faults.append(error)
    except CoordinationNotAuthorizedError:  # whoever asks may not describe it
        pass
    return None


# -- offsets --------------------------------------------------------------------------------------


def _read_offsets(
    session: TreeSession, path: str, faults: list[InvalidNodeError]
) -> Iterator[tuple[Place, tuple[int, object]]]:
    places = {name: parse_offset_name(name) for name in session.children(path)}
    found = [
        (name, place)
        for name, place in places.items()
        if place is not None and parse_pending_name(place[0]) is None
    ]
    for first in range(0, len(found), _READ_AT_ONCE):
        some = found[first : first + _READ_AT_ONCE]
        nodes = session.get_all([f"{path}/{name}" for name, _ in some])
        for (name, place), node in zip(some, nodes, strict=True):
            if node is None:  # expired meanwhile
                continue
            try:
                value = json.loads(node.value)
                yield place, (_whole(value["offset"]), value.get("topic_id"))
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
                faults.append(_invalid(f"{path}/{name}", node.value))


# -- members --------------------------------------------------------------------------------------


def _read_members(
    session: TreeSession, group: str, faults: list[InvalidNodeError]
) -> tuple[str, tuple[KafkaGroupMember, ...]]:
    path = f"{group_node_path(group)}/{MEMBERS_NAME}"
    record, node = _read_record_and_members(session, group_node_path(group), path)
    if node is None or record is None:
        return CLASSIC, ()
    try:
        generation = json.loads(record.value)["generation"]
        value = json.loads(zlib.decompressobj().decompress(node.value, _MOST_JSON_BYTES))
        if value.get("kind") == CONSUMER:
            if value["epoch"] != generation:
                return CONSUMER, ()
            names, lists = _named(value), value["lists"]
            members = (_consumer(names, lists, *each) for each in value["members"])
            return CONSUMER, tuple(members)
        if value["generation"] != generation:  # its members have to join again
            return CLASSIC, ()
        return CLASSIC, tuple(_classic(*each) for each in value["members"])
    except (zlib.error, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        faults.append(_invalid(path, node.value))
        return CLASSIC, ()


def _read_record_and_members(
    session: TreeSession, record_path: str, members_path: str
) -> tuple[Node | None, Node | None]:
    """Read two nodes as they were together: members count only with their generation's record."""
    # Each write of members changes the record's version: if that is the same before and after them,
    # nothing was written in between.
    for _ in range(_MOST_READS):
        before, members, record = session.get_all([record_path, members_path, record_path])
        if before == record:
            break
    return record, members


def _classic(*fields: Any) -> KafkaGroupMember:
    member_id, instance_id, client_id, host = fields[:4]
    partitions = frozenset(assigned_partitions(b64decode(fields[-1], validate=True)))
    topics = tuple(sorted({topic for topic, _ in partitions}))
    return KafkaGroupMember(
        str(instance_id or member_id), f"{client_id} {host}", topics, "", partitions
    )


def _consumer(
    names: Mapping[int, str], lists: Sequence[Sequence[str]], *fields: Any
) -> KafkaGroupMember:
    member_id, instance_id, _, client_id, host, _, topics, regex = fields[:8]
    partitions = frozenset(
        (names[topic], _whole(number))
        for topic, _, numbers in fields[-3]
        for number in numbers
        if topic in names  # else it was deleted meanwhile
    )
    return KafkaGroupMember(
        str(instance_id or member_id),
        f"{client_id} {host}",
        tuple(map(str, lists[_whole(topics)])),
        str(regex or ""),
        partitions,
    )


def _named(value: Mapping[str, Any]) -> dict[int, str]:
    ids: Iterable[str] = value["ids"]
    for each in ids:
        UUID(hex=each)
    return {_whole(number): str(name) for name, (number, _) in value["topics"].items()}


def assigned_partitions(assignment: bytes) -> Iterator[Place]:
    """Read what a leader has given a classic member; nothing where that is something else.

    int16 version | int32 topics | each: int16 length, UTF-8, int32 partitions, int32 each
    """
    try:
        (count,) = struct.unpack_from(">i", assignment, 2)
        position = 6
        for _ in range(min(count, len(assignment))):
            (length,) = struct.unpack_from(">H", assignment, position)  # none leads back
            topic = assignment[position + 2 : position + 2 + length].decode()
            position += 2 + length
            (numbers,) = struct.unpack_from(">i", assignment, position)
            position += 4
            for _ in range(min(numbers, len(assignment))):
                yield topic, struct.unpack_from(">i", assignment, position)[0]
                position += 4
    except (struct.error, UnicodeDecodeError):
        return


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError("a number that is none")
    return value


def _invalid(path: str, value: bytes) -> InvalidNodeError:
    return InvalidNodeError(f"{path} can't be understood: {quoted(value)}")
