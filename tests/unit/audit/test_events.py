"""Events: their JSON, and what is refused of what others have written."""

import json

import pytest

from hermes.audit.events import (
    Alive,
    Committed,
    CountsEvent,
    Event,
    Gap,
    decode_event,
    encode_event,
)
from hermes.errors import AuditEventError

WHOLE = CountsEvent(
    "clicks",
    "east.clicks",
    "east/0-3",
    10,
    90,
    1_700_000_000_000,
    {(0, 0): (1, 5), (60_000, 2**64 - 1): (3, 2**64 - 1)},
    {(60_000, 7): (2, 9)},
    4,
    (1, 3),
)


def event(body):
    return Event("mirror:m", 0xABC, 7, 1_700_000_000_123, 60_000, "web-7", body)


@pytest.mark.parametrize(
    "body",
    [
        WHOLE,
        CountsEvent("clicks", windows={(0, 1): (1, 1)}),
        CountsEvent("clicks", log="l", since_ms=0),
        CountsEvent("clicks", log="l", removed=3, missing=4, spans={60_000: (5, 9)}),
        Committed("clicks", "cluster:a", {"0-3": (9, 1)}),
        Committed("clicks", "cluster:a", {"0-3": (9, 1)}, {"0-3": (9, 12)}),
        Gap("clicks", "east/0-3", 5, 9, "lost"),
        Gap("clicks", "east/0-3", 5, 9, "cut"),
        Gap("clicks", "east/0-3", 5, 9, "damaged", "east.clicks"),
        Alive(False, 5, {"clicks": {"east/0-3": (9, 1)}}),
        Alive(True),
    ],
)
def test_events_come_back_as_they_were(body):
    assert decode_event(encode_event(event(body))) == event(body)


def test_an_event_has_this_json():
    assert json.loads(encode_event(event(WHOLE))) == {
        "audit": 1,
        "tier": "mirror:m",
        "process": "0000000000000abc",
        "sequence": 7,
        "time_ms": 1_700_000_000_123,
        "window_ms": 60_000,
        "host": "web-7",
        "kind": "counts",
        "topic": "clicks",
        "target_topic": "east.clicks",
        "log": "east/0-3",
        "start": 10,
        "end": 90,
        "since_ms": 1_700_000_000_000,
        "windows": {
            "0": {"0000000000000000": [1, "5"]},
            "60000": {"ffffffffffffffff": [3, "ffffffffffffffff"]},
        },
        "unknown": {"60000": {"0000000000000007": [2, "9"]}},
        "damaged": 4,
        "part": [1, 3],
    }


def changed(**fields):
    shown = json.loads(encode_event(event(WHOLE))) | fields
    return json.dumps({key: value for key, value in shown.items() if value != "gone"}).encode()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        changed(audit=2),
        changed(audit="gone"),
        changed(kind="later"),
        changed(process=""),
        changed(process="1" * 17),
        changed(process="-1"),
        changed(process="0x1"),
        changed(sequence=-1),
        changed(sequence=1.5),
        changed(sequence=True),
        changed(sequence=1 << 63),
        changed(window_ms=0),
        changed(start=91),
        changed(topic=5),
        changed(windows=[]),
        changed(windows={"x": {}}),
        changed(windows={"9" * 500: {}}),
        changed(windows={"\u0665": {}}),
        changed(windows={"0": {"1": [1]}}),
        changed(windows={"0": {"1": [1, 2]}}),
        changed(windows={"0": {"1": [-1, "2"]}}),
        changed(spans={"x": [1, 2]}),
        changed(spans={"1": [1]}),
        changed(missing=-1),
        changed(kind="committed", of="cluster:a", logs={"0-3": 5}),
        changed(kind="committed", logs={}),
        changed(part=[3, 3]),
        changed(part=[0]),
        changed(kind="alive", reached={"clicks": {"l": [1]}}),
    ],
)
def test_what_is_no_event_is_refused(payload):
    with pytest.raises(AuditEventError):
        decode_event(payload)


def test_unknown_keys_are_ignored():
    assert decode_event(changed(later="more")) == event(WHOLE)
