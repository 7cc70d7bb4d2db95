"""Requests are walked before they are read: what is right passes, and no count is believed."""

import random
from typing import Any

import pytest
from kafka_bench import messages
from kafka_fuzz import valid_request

from hermes.errors import RemoteProtocolError
from hermes.kafka.apis import APIS, Api
from hermes.kafka.array_bounds import ArrayBounds, _walk
from hermes.kafka.frames import Frame
from hermes.kafka.schemas import load_schema
from hermes.protocol import loops
from hermes.protocol.kafka_primitives import after_tags

ALL = [(api, version) for api in APIS.values() for version in range(api.lowest, api.highest + 1)]


def body_of(frame: Frame, is_flexible: bool) -> int:
    frame.read_header()
    return after_tags(frame.data, frame.body) if is_flexible else frame.body


@pytest.mark.parametrize(("api", "version"), ALL, ids=lambda each: getattr(each, "name", str(each)))
def test_the_walk_ends_where_each_request_does(api: Api, version: int) -> None:
    chance = random.Random(version)
    kind = getattr(messages(api.name, version, "request"), f"{api.name}Request")
    bounds = ArrayBounds(kind)
    for _ in range(20):
        frame = Frame(valid_request(chance, api, version)[4:])
        position = body_of(frame, kind.__flexible__)
        assert bounds.check(frame.data, position) is frame.data
        assert _walk(bounds.steps, frame.data, position, []) == len(frame.data)


@pytest.mark.parametrize(("api", "version"), ALL, ids=lambda each: getattr(each, "name", str(each)))
def test_what_is_stepped_over_at_once_is_what_the_walk_says(api: Api, version: int) -> None:
    compiled = pytest.importorskip("hermes.protocol._core", reason="there was no compiler")
    chance = random.Random(version)
    kind = getattr(messages(api.name, version, "request"), f"{api.name}Request")
    steps = ArrayBounds(kind).steps
    plain = 0
    for _ in range(60):
        frame = Frame(valid_request(chance, api, version)[4:])
        position = body_of(frame, kind.__flexible__)
        changed = bytearray(frame.data)
        for _ in range(chance.choice((0, 0, 1, 3))):
            place = chance.randrange(position, len(changed) + 1)
            changed[place : place + 1] = chance.choice((b"\0", b"\1", b"\xff", b"\x7f", b""))
        data = memoryview(changed)
        end = loops.whole_message(steps, data, position)
        assert compiled.whole_message(steps, data, position) == end
        assert compiled.whole_message(steps, bytes(changed), position) == end
        if end >= 0:
            cuts: list[Any] = []
            assert _walk(steps, data, position, cuts) == end <= len(data)
            assert cuts == []
            plain += 1
    assert plain
    for place in (-1, len(data) + 1):
        assert loops.whole_message(steps, data, place) == -1
        assert compiled.whole_message(steps, data, place) == -1


@pytest.mark.parametrize(
    ("name", "version", "body"),
    [
        ("Metadata", 1, "7fffffff"),
        ("Metadata", 12, "ffffffff7f"),
        ("Fetch", 4, "ffffffff 000001f4 00000001 00000000 00 10000000 0000"),
        ("Metadata", 12, "ffffffffffff7f"),
        ("Metadata", 1, "00000002 0001"),
        ("Metadata", 12, ""),
        ("DeleteTopics", 4, "00 000003e8 00"),
        ("DeleteTopics", 1, "ffffffff 000003e8"),
        ("ListGroups", 5, "01 01 41" + "0900" * 65),
        ("ListGroups", 5, "01 01 01 09ffffffff07 00"),
    ],
)
def test_what_can_not_be_there_is_refused(name: str, version: int, body: str) -> None:
    bounds = ArrayBounds(getattr(messages(name, version, "request"), f"{name}Request"))
    with pytest.raises(RemoteProtocolError):
        bounds.check(bytes.fromhex(body), 0)


@pytest.mark.parametrize(
    "body",
    [
        # topics: null | not created | no operations | 2 tags: 9 of 3 bytes, 300 of none
        "00 00 00 02 0903aabbcc ac0200",
        # The same with one topic, of no id, "a", which has a tag, too.
        "02 00000000000000000000000000000000 0261 01 0801ff 00 00 02 0903aabbcc ac0200",
        # One tag, its count a byte longer than it need be.
        "00 00 00 8100 0900",
    ],
)
def test_tags_that_later_releases_may_add_are_ignored(body: str) -> None:
    schema = load_schema(APIS[3], 12)
    request = schema.read(b"head" + bytes.fromhex(body), 4)
    names = None if request.topics is None else [each.name for each in request.topics]
    assert names == (["a"] if "61" in body else None)
    assert not request.allow_auto_topic_creation


@pytest.mark.parametrize(
    ("tags", "replica"),
    [
        # The replica's state, which is itself a tag, with one of 3 bytes that nobody knows.
        ("01 0112 00000005 0000000000000007 01 0903aabbcc", (5, 7)),
        # With another such tag behind it, and one before that has a name for itself.
        ("03 0002 0261 0112 00000005 0000000000000007 01 0903aabbcc 0801ff", (5, 7)),
        ("01 010d 00000005 0000000000000007 00", (5, 7)),
        ("00", (-1, -1)),
    ],
)
def test_such_tags_are_ignored_within_a_tag(tags: str, replica: tuple[int, int]) -> None:
    body = "000001f4 00000001 00100000 00 00000000 ffffffff 01 01 01" + tags
    request = load_schema(APIS[1], 15, is_exact=True).read(bytes.fromhex(body), 0)
    state = request.replica_state
    assert (state.replica_id, state.replica_epoch) == replica
    assert request.cluster_id == ("a" if "61" in tags else None)


def test_a_tag_that_holds_more_than_it_says_is_refused() -> None:
    body = "000001f4 00000001 00100000 00 00000000 ffffffff 01 01 01"
    body += "01 010c 00000005 0000000000000007 01 0903aabbcc"
    with pytest.raises(RemoteProtocolError):
        load_schema(APIS[1], 15, is_exact=True).read(bytes.fromhex(body), 0)
