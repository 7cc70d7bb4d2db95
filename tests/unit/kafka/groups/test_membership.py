"""What is kept of members: as bytes and back, and what is no such thing."""

import json
import zlib
from typing import Any

import pytest

from hermes.kafka.groups.membership import (
    KeptMember,
    Membership,
    decode_membership,
    encode_membership,
)

MEMBER = KeptMember("one-id", "one", "client", "/127.0.0.1", 45_000, 300_000, b"\0\xff", b"")
MEMBERSHIP = Membership("range", "one-id", (MEMBER, MEMBER._replace(instance_id=None)))


def test_golden_bytes() -> None:
    data = encode_membership(3, MEMBERSHIP)
    assert json.loads(zlib.decompress(data)) == {
        "generation": 3,
        "protocol_name": "range",
        "leader": "one-id",
        "members": [
            ["one-id", "one", "client", "/127.0.0.1", 45_000, 300_000, "AP8=", ""],
            ["one-id", None, "client", "/127.0.0.1", 45_000, 300_000, "AP8=", ""],
        ],
    }
    assert decode_membership(data, 3) == MEMBERSHIP


def changed(**changes: Any) -> bytes:
    value = json.loads(zlib.decompress(encode_membership(3, MEMBERSHIP)))
    return zlib.compress(json.dumps({**value, **changes}).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        zlib.compress(b"[]"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(bytes(10_000_000)),
        encode_membership(3, MEMBERSHIP)[:-10],
        changed(generation=2),
        changed(members=[]),
        changed(members=7),
        changed(members=[["one-id"]]),
        changed(members=[["id", "one", "client", "host", "45000", 300_000, "", ""]]),
        changed(members=[["id", 5, "client", "host", 45_000, 300_000, "", ""]]),
        changed(members=[["id", "one", "client", "host", 45_000, 300_000, "?", ""]]),
        changed(leader=None),
    ],
)
def test_what_is_not_to_be_understood_is_none(data: bytes) -> None:
    assert decode_membership(data, 3) is None


def test_a_thousand_usual_members_can_be_kept_but_not_any() -> None:
    usual = MEMBER._replace(member_id="x" * 44, metadata=bytes(50), assignment=bytes(50))
    assert MEMBERSHIP._replace(members=(usual,) * 1000).can_be_kept
    assert not MEMBERSHIP._replace(members=(usual,) * 1200).can_be_kept
    assert not MEMBERSHIP._replace(members=(MEMBER._replace(metadata=bytes(200_000)),)).can_be_kept
