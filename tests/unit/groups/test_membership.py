"""What is kept of members: as bytes and back, and what is no such thing."""

import json
import zlib
from typing import Any

import pytest

from hermes.groups.membership import (
    ClassicMembership,
    StoredMember,
    decode_membership,
    encode_membership,
)
from hermes.groups.values import Protocol

RANGE = (Protocol("range", b"\0\xff"), Protocol("sticky", b""))
MEMBER = StoredMember("one-id", "one", "client", "/127.0.0.1", 45_000, 300_000, RANGE, b"")
MEMBERSHIP = ClassicMembership("range", "one-id", (MEMBER, MEMBER._replace(instance_id=None)))


def test_golden_bytes() -> None:
    data = encode_membership(3, MEMBERSHIP)
    kinds = [["range", "AP8="], ["sticky", ""]]
    assert json.loads(zlib.decompress(data)) == {
        "generation": 3,
        "protocol_name": "range",
        "leader": "one-id",
        "members": [
            ["one-id", "one", "client", "/127.0.0.1", 45_000, 300_000, kinds, ""],
            ["one-id", None, "client", "/127.0.0.1", 45_000, 300_000, kinds, ""],
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
        changed(members=[["id", "one", "client", "host", "45000", 300_000, [], ""]]),
        changed(members=[["id", 5, "client", "host", 45_000, 300_000, [], ""]]),
        changed(members=[["id", "one", "client", "host", 45_000, 300_000, [], "?"]]),
        changed(members=[["id", None, "client", "host", 45_000, 300_000, [["range", "?"]], ""]]),
        changed(members=[["id", None, "client", "host", 45_000, 300_000, [["range"]], ""]]),
        changed(members=[["id", None, "client", "host", 45_000, 300_000, [[5, ""]], ""]]),
        changed(members=[["id", None, "client", "host", 45_000, 300_000, 7, ""]]),
        changed(leader=None),
    ],
)
def test_what_is_not_to_be_understood_is_none(data: bytes) -> None:
    assert decode_membership(data, 3) is None


def test_many_usual_members_can_be_kept_but_not_any() -> None:
    kinds = (Protocol("range", bytes(50)), Protocol("cooperative-sticky", bytes(50)))
    usual = MEMBER._replace(member_id="x" * 44, protocols=kinds, assignment=bytes(50))
    assert MEMBERSHIP._replace(members=(usual,) * 700).can_be_stored
    assert not MEMBERSHIP._replace(members=(usual,) * 800).can_be_stored
    large = MEMBER._replace(protocols=(Protocol("range", bytes(200_000)),))
    assert not MEMBERSHIP._replace(members=(large,)).can_be_stored
