"""The worst request known of each kind: what costs a broker most for what it costs to send.

`broker_kinds` are for the broker's port, `coordination_kinds` for the embedded coordination's.
"""

import gzip
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from hermes_testkit import (
    RawClient,
    fetch,
    frame,
    message,
    produce,
    produce_acknowledged,
    waiting_fetch,
)
from jute_frames import (
    JuteClient,
    acl,
    connect_request,
    create,
    exists,
    get_children,
    get_data,
    multi,
    request,
    text,
)

__all__ = [
    "WIDE_TOPIC",
    "Kind",
    "broker_kinds",
    "coordination_kinds",
    "prepare_broker",
    "prepare_coordination",
]

#: A topic of 100 partitions.
WIDE_TOPIC = "wide"
_MOST = 32_767
_DATA = "data"
_MIRRORED = "mirrored"
_DATA_MESSAGES = 10
_MESSAGE_BYTES = 900_000
_LONG_PATH = "/" + "w" * 1_000_000


@dataclass(frozen=True)
class Kind:
    """One kind of request.

    Attributes:
        name: what it is called.
        data: what each connection sends.
        frames: how many frames that is.
    """

    name: str
    data: bytes
    frames: int = 1


def prepare_broker(client: RawClient) -> None:
    """Make what the requests are about."""
    for partition in range(100):
        client.call(produce_acknowledged((WIDE_TOPIC, partition, message(b"x"))))
    for _ in range(_DATA_MESSAGES):
        client.call(produce_acknowledged((_DATA, 0, message(bytes(_MESSAGE_BYTES)))))
    for begin in range(3):
        for first in range(0, 1024, 64):
            client.call(_mirrored(_MIRRORED, range(first, first + 64), begin))


def broker_kinds() -> list[Kind]:
    """All of them; `prepare_broker` comes first."""
    one = message(b"")
    small = _body(_DATA, 0, one)
    spread = b"".join(_body(f"m{n % 20}", 0, one) for n in range(_MOST))
    fresh = b"".join(_body(f"new{n}", 0, one) for n in range(_MOST))
    wait = [(f"unknown{n}", 0, 0, 1 << 20) for n in range(1024)]
    far = struct.pack(">qqq", 0, 2**62, 1)
    return [
        Kind("metadata, a wide topic 32,767 times", _metadata([WIDE_TOPIC] * _MOST)),
        Kind("metadata, 32,767 unknown topics", _metadata([f"n{n}" for n in range(_MOST)])),
        Kind("metadata, all topics, 100 times", frame(struct.pack(">hhh", 66, 0, -1)) * 100, 100),
        Kind("metadata, a name that isn't UTF-8", _metadata([b"\xff" * 10_923])),
        Kind("waiting fetch of 1,024 unknown topics", waiting_fetch(*wait, max_wait_ms=300_000)),
        Kind("multifetch above 2^31 bytes", _multifetch(_fetch(_DATA, 0, 0, 8_000_000))),
        Kind("multifetch, 32,767 small ones", _multifetch(_fetch(WIDE_TOPIC, 1, 0, 100))),
        Kind("multifetch, 32,767 unknown topics", _multifetch(_fetch("unknown", 1, 0, 100))),
        Kind("fetches that nobody reads", fetch(_DATA, 0, 0, 9_000_000) * 300, 300),
        Kind("multiproduce, 32,767 to one topic", _many(3, small * _MOST)),
        Kind("multiproduce, 32,767 to 20 topics", _many(3, spread)),
        Kind("multiproduce, 32,767 new topics", _many(3, fresh)),
        Kind("acknowledged, 32,767 to one topic", _acknowledged(small * _MOST)),
        Kind("acknowledged, 32,767 new topics", _acknowledged(fresh)),
        Kind("compression bomb, 600 MB", produce("bomb", 0, _bomb(1, 600_000_000))),
        Kind("compression bomb, 15 levels", produce("bomb", 0, _bomb(15, 60_000_000))),
        Kind("oversized message, illegal topic", _oversized(), 10),
        Kind("end offsets, 2,000 times", _offsets(-1) * 2000, 2000),
        Kind("offsets by time, 2,000 times", _offsets(1 << 40) * 2000, 2000),
        Kind("boundaries, 2,000 times", _own(67, _DATA, struct.pack(">q", 5_000_000)) * 2000, 2000),
        Kind("append times, 2,000 times", _own(69, _DATA, far) * 2000, 2000),
        Kind("deletes of an unknown topic", _own_topic(68, "unknown") * 2000, 2000),
        Kind("mirrored, 64 new sources, 100 times", _new_sources(), 100),
        Kind("mirrored, overlapping, 500 times", _mirrored("overlap", range(64)) * 500, 500),
        Kind("positions of sources, 2,000 times", _positions(_MIRRORED, -1, 0) * 2000, 2000),
        Kind("spans of sources, 2,000 times", _positions(_MIRRORED, 0, 1) * 2000, 2000),
        Kind("positions of a wide topic, 2,000 times", _positions(WIDE_TOPIC, -1, 0) * 2000, 2000),
        Kind("settings of the broker, 2,000 times", _own_topic(74, "") * 2000, 2000),
        Kind("partitions, 2,000 times", _partitions(WIDE_TOPIC) * 2000, 2000),
        Kind("log lines, 500 times", frame(struct.pack(">hhqh", 76, 0, 0, 32_767)) * 500, 500),
        Kind("topics created, 1,000", b"".join(_create(f"made{n}") for n in range(1000)), 1000),
        Kind("a topic altered, 1,000 times", _alter(_DATA) * 1000, 1000),
        Kind("broker.yaml again, 200 times", frame(struct.pack(">hh", 73, 0)) * 200, 200),
        Kind("claim of 100 MB", struct.pack(">ih", 100 << 20, 0) + bytes(100_000)),
        Kind("a frame that is none", b"\xff\xff\xff\xff"),
        Kind("an unknown type", frame(struct.pack(">h", 9999))),
    ]


def prepare_coordination(port: int) -> None:
    """Make what the requests are about."""
    with JuteClient(port, timeout_ms=40_000) as client:
        client.ask(create(1, "/big", bytes(1_000_000)))
        client.ask(create(2, "/many"))
        for part in range(5):
            client.ask(multi(3, *((f"/many/{part}-{n}", b"") for n in range(500))))
        client.ask(create(4, "/guarded", allowed=_long_acl(30_000)))


def coordination_kinds() -> list[Kind]:
    """All of them; `prepare_coordination` comes first."""
    reads = b"".join(get_data(n, "/big") for n in range(2, 900))
    children = b"".join(get_children(n, "/many") for n in range(900))
    rolled_back = multi(1, *((f"/never/{n}", b"") for n in range(14_000)))
    made = multi(1, *((f"/made{n}", b"") for n in range(14_000)))
    names = (struct.pack(">i", 0) + text("digest") + text(f"u{n}:p") for n in range(2000))
    auths = b"".join(request(-4, 100, each) for each in names)
    watch_list = struct.pack(">i", 20_000) + b"".join(text(f"/n{n}") for n in range(20_000))
    watches = struct.pack(">q", 0) + watch_list + struct.pack(">ii", 0, 0)
    return [
        _session("silent", b"", 0),
        _session("reads of 1 MB behind a commit", create(1, "/commit", b"") + reads, 900),
        _session("an ACL of 35,000 entries", create(1, "/acl", allowed=_long_acl(35_000))),
        _session("reads of a node with a long ACL", get_data(1, "/guarded") * 100, 100),
        _session("a transaction of 14,000, undone", rolled_back),
        _session("a transaction of 14,000", made),
        _session("watches on paths of 1 MB", exists(1, _LONG_PATH, True) * 3, 3),
        _session("40,000 watches set again", request(-8, 101, watches)),
        _session("900 lists of 2,500 children", children, 900),
        _session("2,000 identities", auths, 2000),
        _session("creates of 1 MB", create(1, "/once", bytes(1_000_000), flags=2) * 3, 3),
        Kind("nothing at all", b""),
        Kind("half a frame of 1 MB", struct.pack(">i", 0xFFFFF) + bytes(500_000)),
        Kind("a bad frame", b"\xff\xff\xff\xff"),
        Kind("a future transaction", connect_request(seen_zxid=2**62)),
        _session("an unknown operation", request(1, 9999)),
        _session("a short header", frame(b"abc")),
    ]


def _session(name: str, data: bytes, frames: int = 1) -> Kind:
    return Kind(name, connect_request(timeout_ms=4000) + data, frames + 1)


def _long_acl(count: int) -> bytes:
    return acl(*((1, "ip", f"10.{n >> 8 & 255}.{n & 255}.0/24") for n in range(count)))


def _name(topic: str | bytes) -> bytes:
    name = topic.encode() if isinstance(topic, str) else topic
    return struct.pack(">h", len(name)) + name


def _metadata(topics: list[str] | list[bytes]) -> bytes:
    names = b"".join(_name(each) for each in topics)
    return frame(struct.pack(">hhh", 66, 0, len(topics)) + names)


def _body(topic: str, partition: int, message_set: bytes) -> bytes:
    return _name(topic) + struct.pack(">ii", partition, len(message_set)) + message_set


def _fetch(topic: str, partition: int, offset: int, size: int) -> bytes:
    return _name(topic) + struct.pack(">iqi", partition, offset, size)


def _multifetch(entry: bytes) -> bytes:
    return _many(2, entry * _MOST)


def _many(request_type: int, entries: bytes) -> bytes:
    return frame(struct.pack(">hh", request_type, _MOST) + entries)


def _acknowledged(entries: bytes) -> bytes:
    return frame(struct.pack(">hhhih", 64, 0, 2, 10_000, _MOST) + entries)


def _bomb(levels: int, size: int) -> bytes:
    bomb = message(bytes(size))
    for _ in range(levels):
        bomb = message(gzip.compress(bomb, 9), attributes=1)
    return bomb


def _oversized() -> bytes:
    data = message(bytes(1_100_000))
    return produce_acknowledged(("../\x1b]0;x\x07\nforged", 0, data), acks=1) * 10


def _offsets(time_ms: int) -> bytes:
    return frame(struct.pack(">h", 4) + _name(_DATA) + struct.pack(">iqi", 0, time_ms, 2**31 - 1))


def _own(request_type: int, topic: str, rest: bytes) -> bytes:
    head = struct.pack(">hh", request_type, 0)
    return frame(head + _name(topic) + struct.pack(">i", 0) + rest)


def _partitions(topic: str) -> bytes:
    return frame(struct.pack(">hh", 75, 0) + _name(topic) + struct.pack(">i", 0))


def _mirrored(topic: str, sources: Iterable[int], begin: int = 0) -> bytes:
    """A mirrored produce of a message out of each of 64 sources, whose names are the longest."""
    data = message(b"x")
    numbers = struct.pack(">qqhi", 10 * begin, 10 * begin + 10, 0, len(data))
    sets = [
        _name(topic) + struct.pack(">i", 0) + _name(f"{source:0512d}") + numbers + data
        for source in sources
    ]
    return frame(struct.pack(">hhhih", 77, 0, 1, 0, len(sets)) + b"".join(sets))


def _new_sources() -> bytes:
    return b"".join(_mirrored(f"source{n % 10}", range(64 * n, 64 * n + 64)) for n in range(100))


def _positions(topic: str, partition: int, with_spans: int) -> bytes:
    numbers = struct.pack(">ihq", partition, with_spans, 0)
    return frame(struct.pack(">hh", 78, 0) + _name(topic) + numbers)


def _create(topic: str) -> bytes:
    setting = _name("retention_options") + _name("{a: " + "x" * 900 + "}")
    return frame(struct.pack(">hh", 71, 0) + _name(topic) + struct.pack(">h", 1) + setting)


def _alter(topic: str) -> bytes:
    setting = struct.pack(">h", 1) + _name("flush_messages") + _name("2")
    return frame(struct.pack(">hh", 72, 0) + _name(topic) + setting + struct.pack(">h", -1))


def _own_topic(request_type: int, topic: str) -> bytes:
    return frame(struct.pack(">hh", request_type, 0) + _name(topic))
