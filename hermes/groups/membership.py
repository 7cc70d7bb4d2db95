"""Who is in a generation and has what, as it is stored with the group, and its bytes.

A coordinator that starts again, or gets a group from another one, goes on with these members: they
need not even join again. Kafka stores the same, but of the protocols only that of the generation,
and then refuses newcomers that support one of the others.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from hermes.groups.consumer_membership import KIND, decode_consumers, encode_consumers
from hermes.groups.consumer_values import ConsumerMembership
from hermes.groups.values import Protocol

#: What a membership may weigh to be stored: one transaction takes it with the group's record. Seven
#: hundred usual members weigh about as much.
_MOST_BYTES: Final = 192 * 1024

#: More than the JSON of what is stored can be.
_MOST_JSON_BYTES: Final = 16 * _MOST_BYTES

#: What a member weighs beside its names and bytes.
_MEMBER_BYTES: Final = 16


class StoredMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes


class ClassicMembership(NamedTuple):
    """The members of a generation, in the order in which they came.

    `leader`: the member id of the one that has said who gets what.
    """

    protocol_name: str
    leader: str
    members: tuple[StoredMember, ...]

    @property
    def can_be_stored(self) -> bool:
        """Whether it is small enough; else its members have to join again."""
        return sum(map(_weight, self.members)) <= _MOST_BYTES


def _weight(member: StoredMember) -> int:
    names = (member.member_id, member.instance_id or "", member.client_id, member.client_host)
    size = sum(len(each.encode()) for each in names)
    size += sum(len(name) + len(metadata) for name, metadata in member.protocols)
    return _MEMBER_BYTES + size + len(member.assignment)


#: Of a group of either kind.
AnyMembership = ClassicMembership | ConsumerMembership


def encode_membership(generation: int, membership: AnyMembership) -> bytes:
    """Write a membership, with the generation to which it belongs: deflated JSON (zlib's format).

    {"generation": 3, "protocol_name": ..., "leader": ..., "members": [[what `StoredMember` has, in
    its order; protocols are [name, metadata], and bytes in base64], ...]}

    Of a consumer group it is what `consumer_membership` has.
    """
    if isinstance(membership, ConsumerMembership):
        return encode_consumers(generation, membership)
    members = [
        [
            *each[:-2],
            [[name, _text(metadata)] for name, metadata in each.protocols],
            _text(each.assignment),
        ]
        for each in membership.members
    ]
    value = {"generation": generation, **membership._asdict(), "members": members}
    # What isn't ASCII would take up to three times as much with escapes.
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return zlib.compress(text.encode(), 1)


def decode_membership(data: bytes, generation: int) -> AnyMembership | None:
    """Read what `encode_membership` has written.

    None where it is of another generation, or not to be understood: then members join again.
    """
    try:
        inflated = zlib.decompressobj().decompress(data, _MOST_JSON_BYTES)
        value = json.loads(inflated)
        if value.get("kind") == KIND:
            return decode_consumers(value, generation)
        if value["generation"] != generation:
            return None
        members = tuple(_member(*each) for each in value["members"])
        membership = ClassicMembership(value["protocol_name"], value["leader"], members)
    except (zlib.error, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return membership if members and _are_text(membership[:2]) else None


def _member(*fields: Any) -> StoredMember:
    protocols = tuple(Protocol(name, _bytes(metadata)) for name, metadata in fields[-2])
    member = StoredMember._make([*fields[:-2], protocols, _bytes(fields[-1])])
    names = [member.member_id, member.instance_id or "", member.client_id, member.client_host]
    names += [each.name for each in protocols]
    times = (member.session_timeout_ms, member.rebalance_timeout_ms)
    if not (_are_text(names) and all(type(each) is int for each in times)):
        raise ValueError("a member of other fields")
    return member


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)


def _are_text(values: Iterable[object]) -> bool:
    return all(isinstance(each, str) for each in values)
