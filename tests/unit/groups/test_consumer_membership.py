"""The bytes of a consumer group's members: read as they were written, and never misread."""

import json
import zlib
from random import Random
from string import ascii_letters, digits
from typing import Any
from uuid import UUID

import pytest

from hermes.groups.consumer_membership import can_be_stored
from hermes.groups.consumer_values import (
    ConsumerMembership,
    Reconciliation,
    StoredConsumer,
    TopicIdPartition,
    TopicSize,
)
from hermes.groups.membership import decode_membership, encode_membership

CLICKS, VIEWS = UUID(int=1 << 100), UUID(int=2)
# What a record of `.hermes_kafka_groups` takes.
RECORD_BYTES = 256 * 1024


def membership_of(count: int, random: Random) -> ConsumerMembership:
    members = []
    for number in range(count):
        mine = {
            TopicIdPartition(CLICKS, each): number + 1
            for each in range(number * 10, number * 10 + 10)
        }
        revoking = {TopicIdPartition(VIEWS, number): 1} if number % 2 else {}
        member_id = str(UUID(int=random.getrandbits(128)))
        host = f"/10.0.{number % 256}.1"
        members.append(
            StoredConsumer(
                member_id,
                f"Ä {number}" if number % 2 else None,
                None,
                "a client",
                host,
                300_000,
                ("clicks",),
                "v.*" if number % 2 else None,
                ("views",) if number % 2 else (),
                "range" if number % 3 else None,
                count,
                count - 1,
                Reconciliation.UNREVOKED if number % 2 else Reconciliation.STABLE,
                mine,
                revoking,
                frozenset(mine)
                if number % 3
                else frozenset({TopicIdPartition(CLICKS, 7), TopicIdPartition(VIEWS, 1)}),
            )
        )
    topics = {"clicks": TopicSize(CLICKS, 10 * count), "views": TopicSize(VIEWS, 5)}
    return ConsumerMembership(count, topics, tuple(members))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_it_is_read_as_it_was_written(count: int) -> None:
    membership = membership_of(count, Random(count))
    assert can_be_stored(membership)
    data = encode_membership(12, membership)
    assert len(data) < RECORD_BYTES
    assert decode_membership(data, 12) == membership


def test_of_another_epoch_it_has_no_members() -> None:
    data = encode_membership(12, membership_of(2, Random(1)))
    assert decode_membership(data, 13) == ConsumerMembership(13, {}, ())


def test_what_does_not_deflate_is_bounded_too() -> None:
    random = Random(3)
    (member,) = membership_of(1, random).members
    names = [random.randbytes(150).hex() for _ in range(1500)]
    members = tuple(member._replace(member_id=each) for each in names)
    assert not can_be_stored(ConsumerMembership(1, {}, members))
    most = next(
        count
        for count in range(1500, 0, -1)
        if can_be_stored(ConsumerMembership(1, {}, members[:count]))
    )
    assert len(encode_membership(1, ConsumerMembership(1, {}, members[:most]))) < RECORD_BYTES


def test_topics_of_any_names_are_bounded_too() -> None:
    """Each is there once as a topic of the group, and once as one that members want."""
    random = Random(4)
    (member,) = membership_of(1, random).members
    names = ["".join(random.choices(ascii_letters + digits, k=249)) for _ in range(1500)]
    sizes = {name: TopicSize(UUID(int=random.getrandbits(128)), 1) for name in names}

    def of(count: int) -> ConsumerMembership:
        wanted = member._replace(topics=tuple(names[:count]))
        return ConsumerMembership(1, dict(list(sizes.items())[:count]), (wanted,))

    most = next(count for count in range(1500, 0, -1) if can_be_stored(of(count)))
    assert len(encode_membership(1, of(most))) < RECORD_BYTES


def test_names_of_any_characters_are_bounded_too() -> None:
    random = Random(5)
    (member,) = membership_of(1, random).members
    clients = [
        "".join(chr(random.randrange(0x1F000, 0x1FFFF)) for _ in range(99)) for _ in "x" * 600
    ]
    members = tuple(member._replace(client_id=each) for each in clients)
    most = next(
        count
        for count in range(600, 0, -1)
        if can_be_stored(ConsumerMembership(1, {}, members[:count]))
    )
    assert most < 600
    assert len(encode_membership(1, ConsumerMembership(1, {}, members[:most]))) < RECORD_BYTES


def test_what_members_want_alike_is_kept_once() -> None:
    (member,) = membership_of(1, Random(6)).members
    names = tuple(f"a-topic-of-some-team-{number:04}" for number in range(3000))
    members = tuple(  # each has said it itself
        member._replace(member_id=f"member {number}", topics=(*names,), matched=names)
        for number in range(100)
    )
    membership = ConsumerMembership(1, {}, members)
    assert can_be_stored(membership)
    found = decode_membership(encode_membership(1, membership), 1)
    assert found == membership
    assert len({id(each.matched) for each in found.members}) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"ids": []},
        {"ids": ["x"]},
        {"members": [[]]},
        {"members": 7},
        {"topics": {"clicks": [9, 1]}},
        {"topics": []},
        {"lists": []},
        {"lists": [["clicks"], ["views", 7], []]},
        {"lists": ["clicks", "views", "others"]},
        {"assignment_epoch": "1"},
        {"epoch": None, "kind": 7},
    ],
)
def test_what_cannot_be_understood_counts_as_none(change: dict[str, Any]) -> None:
    value = json.loads(zlib.decompress(encode_membership(2, membership_of(2, Random(2)))))
    data = zlib.compress(json.dumps(value | change).encode())
    assert decode_membership(data, 2) is None
    assert decode_membership(zlib.compress(b"[1]"), 2) is None


@pytest.mark.parametrize("field", range(16))
def test_members_of_other_fields_count_as_none(field: int) -> None:
    value = json.loads(zlib.decompress(encode_membership(2, membership_of(2, Random(2)))))
    value["members"][1][field] = {"x": []}
    assert decode_membership(zlib.compress(json.dumps(value).encode()), 2) is None
