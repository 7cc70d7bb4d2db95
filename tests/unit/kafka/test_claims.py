"""Requests are walked before they are read: what is right passes, and no count is believed."""

import random

import pytest
from kafka_bench import messages
from kafka_fuzz import valid_request

from hermes.errors import RemoteProtocolError
from hermes.kafka.apis import APIS, Api
from hermes.kafka.claims import Claims, _walk
from hermes.kafka.frames import Frame, after_tags

ALL = [(api, version) for api in APIS.values() for version in range(api.lowest, api.highest + 1)]


def body_of(frame: Frame, is_flexible: bool) -> int:
    frame.read_header()
    return after_tags(frame.data, frame.body) if is_flexible else frame.body


@pytest.mark.parametrize(("api", "version"), ALL, ids=lambda each: getattr(each, "name", str(each)))
def test_the_walk_ends_where_each_request_does(api: Api, version: int) -> None:
    chance = random.Random(version)
    kind = getattr(messages(api.name, version, "request"), f"{api.name}Request")
    claims = Claims(kind)
    for _ in range(20):
        frame = Frame(valid_request(chance, api, version)[4:])
        position = body_of(frame, kind.__flexible__)
        claims.check(frame.data, position)
        assert _walk(claims._steps, frame.data, position) == len(frame.data)


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
    ],
)
def test_what_can_not_be_there_is_refused(name: str, version: int, body: str) -> None:
    claims = Claims(getattr(messages(name, version, "request"), f"{name}Request"))
    with pytest.raises(RemoteProtocolError):
        claims.check(bytes.fromhex(body), 0)
