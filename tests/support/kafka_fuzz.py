"""Requests of Kafka's clients that are almost right, for a `KafkaBench`.

Values are any that a field has room for. That alone would hardly get beyond the first checks, so
most requests have in most of their fields what could be meant (`_likely`): topics and partitions
that are there, and of groups a member, with the generation or epoch that it is in.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from typing import Any, get_args, get_type_hints
from uuid import UUID

from broker_bench import answers, log_lines
from kafka_bench import KafkaBench, encode_request, messages

from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.group import Group
from hermes.kafka.apis import APIS, Api
from hermes.protocol.records import Record, encode_batch

_NAMES = ("t", "old", "new", "", "a" * 300, "../x", "é")
# What could be meant, by the names of fields.
_MEANT: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(("name", "topic", "subscribed_topic_names", "topic_name"), ("old", "new")),
    **dict.fromkeys(("partition", "partition_index", "partition_indexes", "partitions"), (0, 0, 1)),
    **dict.fromkeys(("session_timeout", "rebalance_timeout"), (timedelta(seconds=10),)),
    "protocol_type": ("consumer",),
    "protocol_name": (None, "range"),
    "server_assignor": (None, "uniform", "range"),
    "subscribed_topic_regex": (None, None, "n.*", "old|new", "(a|aa)+b", "("),
    "rack_id": (None, "here"),
    **dict.fromkeys(("resource_type", "resource_type_filter"), (2, 2, 3, 4, 1)),
    **dict.fromkeys(("resource_pattern_type", "pattern_type_filter"), (3, 3, 4, 1, 2)),
    "resource_name": ("old", "new", "kafka-cluster", "*"),
    "principal": ("User:alice", "User:alice", "Group:ops", "User:*"),
    "host": ("*",),
    "entity_type": ("user", "user", "client-id"),
    "entity_name": ("alice", None, "x"),
    "operation": (*range(1, 13),),
    "permission_type": (2, 3, 3, 1),
}
_NOTHING = ((),)
# Groups have something to share only after some requests of theirs: heartbeats, joins, syncs. So
# have fetch sessions.
_MORE_OFTEN = (68, 68, 68, 68, 11, 14, 14, 1, 1)
_GROUPS = ("group 1", "group 2", "group 3")
_NUMBERS = (0, 0, 0, 1, -1, 2, 3, -2, -3, 127, -128, 32767, 2**31 - 1, -(2**31))


def fuzz(bench: KafkaBench, seed: int, count: int, only: Sequence[int] = ()) -> list[str]:
    """Send requests that are cut, flipped, or have any values, on connections of their own.

    Args:
        bench: to which broker.
        seed: decides which.
        count: how many.
        only: of which kinds, by their numbers; all unless given.

    Returns:
        The lines that were logged.
    """
    chance = random.Random(seed)
    with log_lines() as lines:
        frames = requests(chance, lambda: _likely(chance, bench), only)
        for number, frame in zip(range(count), frames, strict=False):
            connection, transport = bench.connect_kafka()
            connection.dataReceived(frame)
            bench.turns(transport)
            bench.clock.advance(0.05)
            bench.turns(transport)
            answers(transport)
            connection.connectionLost()
            if number % 400 == 0:
                bench.clock.advance(600)
    return list(lines)


def requests(
    chance: random.Random, likely: Callable[[], "_Likely"], only: Sequence[int] = ()
) -> Iterator[bytes]:
    """Make requests without end.

    Args:
        chance: decides.
        likely: tells what could be meant next.
        only: of which kinds; all unless given.
    """
    kinds = [APIS[each] for each in only or (*APIS, *_MORE_OFTEN)]
    while True:
        api = chance.choice(kinds)
        version = chance.randint(api.lowest, api.highest)
        try:
            is_meant = chance.random() < 0.8 and api.name != "DeleteTopics"
            meant = likely() if is_meant else {}
            frame = bytearray(valid_request(chance, api, version, meant))
        except (ValueError, TypeError, OverflowError):
            continue  # no value that can be encoded
        kind = chance.randrange(4)
        if kind == 1:  # cut, and framed again
            frame = frame[: chance.randrange(5, len(frame) + 1)]
        elif kind == 2:
            for _ in range(chance.randint(1, 8)):
                frame[chance.randrange(8, len(frame))] = chance.randrange(256)
        elif kind == 3:  # a length or a count that is much too large
            at = chance.randrange(8, len(frame))
            frame[at : at + 4] = chance.choice(
                (b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80" * 4)
            )
        frame[:4] = (len(frame) - 4).to_bytes(4)
        yield bytes(frame)


# Values of which a field takes one, by its name.
_Likely = Mapping[str, Sequence[Any]]


def _likely(chance: random.Random, bench: KafkaBench) -> _Likely:
    """What could be meant now: one member of a group that there is, or a new one."""
    topics = [bench.server.topics.get(name) for name in ("old", "new")]
    found = [
        (name, *member)
        for name, kept in bench.server.groups.local.entries.items()
        for member in _members(kept.group)
    ]
    group, member_id = chance.choice(_GROUPS), chance.choice(("", "a", "b", "c"))
    instance_id, epoch = chance.choice((None, None, "i-1", "i-2")), 0
    joins = not found or chance.random() < 0.3
    if not joins:
        group, member_id, instance_id, epoch = chance.choice(found)
    sessions = [(0, -1), *((each.number, each.epoch) for each in bench.server.fetch_sessions)]
    session, session_epoch = chance.choice(sessions)
    return {
        **_MEANT,
        "session_id": (session,),
        "session_epoch": (*[session_epoch + 1] * 8, 0, -1, session_epoch, 2),
        **dict.fromkeys(("group_id", "group_ids", "groups", "groups_names"), (group,)),
        "key": (group, group, "producer_byte_rate", "consumer_byte_rate"),
        "member_id": (member_id,),
        **dict.fromkeys(("instance_id", "group_instance_id"), (instance_id,)),
        "member_epoch": (*[epoch] * 8, epoch - 1, 0, -1, -2),
        **dict.fromkeys(("generation_id", "generation_id_or_member_epoch"), (epoch, epoch, -1)),
        "topic_id": [each.id for each in topics if each is not None],
        **({"topic_partitions": _NOTHING} if joins else {}),
    }


def _members(group: Group | ConsumerGroup) -> list[tuple[str, str | None, int]]:
    """Of each member its id, its instance's id, and its epoch or generation."""
    if isinstance(group, ConsumerGroup):
        return [(each.member_id, each.instance_id, each.epoch) for each in group.members.values()]
    members = [(e.member_id, e.instance_id, group.generation) for e in group.members.by_id.values()]
    return [*members, *((each, None, group.generation) for each in group.pending)]


def valid_request(
    chance: random.Random, api: Api, version: int, likely: _Likely | None = None
) -> bytes:
    """A request with any values that its schema has room for.

    Args:
        chance: decides.
        api: which request.
        version: one of its versions.
        likely: what could be meant, by the names of fields.
    """
    kind = getattr(messages(api.name, version, "request"), f"{api.name}Request")
    return encode_request(api.name, version, **_values(chance, kind, likely or {}))


def _values(chance: random.Random, kind: Any, likely: _Likely) -> dict[str, Any]:
    hints = get_type_hints(kind)
    values = {}
    for each in fields(kind):
        is_meant = each.name in likely and chance.random() < 0.97
        if not is_meant and each.default is not MISSING and chance.random() < 0.4:
            continue
        meant = likely[each.name] if is_meant else ()
        values[each.name] = _value(chance, each, hints[each.name], likely, meant)
    return values


def _value(
    chance: random.Random, field: Any, hint: Any, likely: _Likely, meant: Sequence[Any]
) -> Any:
    wire = field.metadata.get("kafka_type")
    if meant == _NOTHING:
        return ()
    options = get_args(hint)
    if type(None) in options:
        if not meant and chance.random() < 0.3:
            return None
        hint = next(each for each in options if each is not type(None))
    if getattr(hint, "__origin__", None) is tuple:
        inner = get_args(hint)[0]
        count = chance.choice((0, 1, 1, 2, 5))
        return tuple(_one(chance, wire, inner, likely, meant) for _ in range(count))
    return _one(chance, wire, hint, likely, meant)


def _one(
    chance: random.Random,
    wire: str | None,
    hint: Any,
    likely: _Likely,
    meant: Sequence[Any],
) -> Any:
    if wire is None:
        return hint(**_values(chance, hint, likely))
    if meant:
        return chance.choice(meant)
    if wire == "string":
        return chance.choice(_NAMES)
    if wire == "records":
        return chance.choice((b"", _batch(chance), _batch(chance), chance.randbytes(80)))
    if wire == "bytes":
        return chance.randbytes(chance.randrange(20))
    if wire == "bool":
        return chance.random() < 0.5
    if wire == "uuid":
        return UUID(bytes=chance.randbytes(16))
    if wire.startswith("timedelta"):
        return timedelta(milliseconds=chance.choice((0, 1, 100, -1, 2**31 - 1)))
    if wire.startswith("datetime"):
        return datetime.fromtimestamp(chance.choice((0, 1, 10**9)), UTC)
    if wire == "float64":
        return chance.random()
    if wire == "error_code":
        return _NoError()
    bits = int(wire.lstrip("uint"))
    number = chance.choice(_NUMBERS)
    low, high = (
        (0, 2**bits - 1) if wire.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    return min(max(number, low), high)


class _NoError:
    value = 0


def _batch(chance: random.Random) -> bytes:
    records = [
        Record(n, 5, chance.choice((None, b"k")), chance.choice((None, b"v", b"v" * 100)))
        for n in range(chance.randint(1, 3))
    ]
    producer_id = chance.choice((-1, -1, 0, 5))
    batch = bytearray(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=chance.choice((0, 1, -1)),
        )
    )
    if chance.random() < 0.3:
        batch[chance.randrange(len(batch))] ^= 1 << chance.randrange(8)
    return bytes(batch)
