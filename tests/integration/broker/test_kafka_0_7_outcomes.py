"""The recording of a Kafka 0.7.2 broker, played to a Hermes broker: same bytes, same sockets.

The behaviours are replayed in the order in which they were recorded, because each finds what the
ones before it left on the disk. Where Hermes differs on purpose the recording says how.
"""

import ast
import re
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from hermes_testkit import BrokerProcess, fetch, frame, message, produce, wait_until_visible

#: The configuration of the recorded broker.
RECORDED_SETTINGS: dict[str, Any] = {
    "num_partitions": 2,
    "flush_messages": 1,
    "max_message_bytes": 1_000_000,
    "topics": {"roll": {"segment_bytes": 100}, "wide": {"partitions": 5}},
}


class Replay:
    """A broker that is told what the recorded one was told."""

    def __init__(self, broker: BrokerProcess, vectors: dict[str, Any]) -> None:
        self.broker = broker
        self.vectors = vectors

    def request(self, name: str) -> bytes:
        return bytes.fromhex(self.vectors[f"{name}.request"]["hex"])

    def log_bytes(self, topic: str, partition: int = 0) -> int | None:
        directory = self.broker.log_dir / f"{topic}-{partition}"
        if not directory.exists():
            return None
        return sum(path.stat().st_size for path in directory.glob("*.kafka"))

    def settle(self, topic: str, partition: int = 0) -> None:
        """Wait until all that was written to a partition is visible."""
        size = self.log_bytes(topic, partition)
        if size:
            with self.broker.connect() as client:
                wait_until_visible(client, topic, partition, size)

    def settle_all(self) -> None:
        for directory in self.broker.log_dir.iterdir():
            if directory.is_dir():
                topic, _, partition = directory.name.rpartition("-")
                self.settle(topic, int(partition))

    def outcome(self, request: bytes, answered: bool) -> tuple[str | None, str]:
        """Send a request on a connection of its own; what came back, and the socket after it."""
        with self.broker.connect() as client:
            client.send(request)
            response = client.answer() if answered else b""
            after = "open" if client.alive() else "closed"
            return (response.hex() or None), after


@pytest.fixture
def replay(start_broker: Callable[..., BrokerProcess], kafka_vectors: dict[str, Any]) -> Replay:
    """A broker with the recorded configuration and nothing in it."""
    return Replay(start_broker(**RECORDED_SETTINGS), kafka_vectors["vectors"])


#: Requests of the recording that the vectors describe but, being large, don't hold.
LARGE_REQUESTS = {
    "produce-too-large": lambda: produce("tbig", 0, message(b"x" * 1_000_001)),
    "produce-largest": lambda: produce("tbig", 0, message(b"x" * 1_000_000)),
    "produce-ok-then-too-large": lambda: produce(
        "tbig2", 0, message(b"small") + message(b"x" * 1_000_001)
    ),
}

#: Played at another place, or in a test of their own.
OUT_OF_ORDER = (
    "fetch-gzip",
    "produce-gzip-bomb",
    "append-after-garbage",
    "fetch-garbage",
    "fetch-corrupt-segment",
)

ONE_MESSAGE_OF_ROLL = 38


def test_the_whole_recording(replay: Replay, kafka_vectors: dict[str, Any]) -> None:
    """Every recorded request: the same answer, the same socket, the same growth of the log."""
    behaviours = {behaviour["name"]: behaviour for behaviour in kafka_vectors["behaviours"]}
    played = 0
    for name, behaviour in behaviours.items():
        if name.startswith("segment files of roll-0"):
            fill_roll(replay, behaviour["observed"])
        elif name == "produce-gzip-empty":
            # Recorded after a nested set, and after the fetch that doesn't see it.
            complete(replay, "tgz", behaviour["log_bytes_before"])
            check_outcome(replay, behaviours["fetch-gzip"], replay.request("fetch-gzip"))
        elif name == "fetch-snappy":
            complete(replay, "tsn", 126)
        if "connection_after" not in behaviour or name in OUT_OF_ORDER:
            continue
        request = LARGE_REQUESTS[name]() if name in LARGE_REQUESTS else replay.request(name)
        if name in ("offsets-future", "offsets-empty-log-time"):
            request = in_the_future(request)
        check_outcome(replay, behaviour, request)
        played += 1
    assert played > 70


def in_the_future(request: bytes) -> bytes:
    """The recorded time was ahead of its day: move it ahead of ours."""
    tomorrow = (int(time.time()) + 86_400) * 1000
    return request[:-12] + struct.pack(">q", tomorrow) + request[-4:]


def check_outcome(replay: Replay, behaviour: dict[str, Any], request: bytes) -> None:
    name = behaviour["name"]
    replay.settle_all()
    topic = topic_of(request)
    before = replay.log_bytes(topic) if "log_bytes_before" in behaviour else None
    closes = behaviour["connection_after"].startswith("closed")
    expected = behaviour["response"]
    if behaviour.get("hermes_differs", "").startswith("close cleanly"):
        expected = None
    response, after = replay.outcome(request, answered=expected is not None)
    assert response == expected, name
    assert after == ("closed" if closes else "open"), name
    if behaviour.get("log_bytes_after") is not None:
        grown = (replay.log_bytes(topic) or 0) - (before or 0)
        recorded = behaviour["log_bytes_after"] - (behaviour["log_bytes_before"] or 0)
        assert grown == recorded, name


def topic_of(request: bytes) -> str:
    if len(request) < 8:
        return ""
    (length,) = struct.unpack_from(">h", request, 6)
    return request[8 : 8 + length].decode(errors="replace") if length > 0 else ""


def complete(replay: Replay, topic: str, size: int) -> None:
    """Append what the recorded log held up to `size`: some sets are only recorded on disk."""
    recorded = bytes.fromhex(replay.vectors[f"disk/{topic}-0/{0:020d}.kafka"]["hex"])
    held = replay.broker.segment(topic).read_bytes()
    assert recorded.startswith(held)
    _, after = replay.outcome(produce(topic, 0, recorded[len(held) : size]), answered=False)
    assert after == "open"


def fill_roll(replay: Replay, observed: dict[str, int]) -> None:
    """Fourteen messages of 38 bytes in segments of 100: rolled before, never within, an append."""
    with replay.broker.connect() as client:
        for number in range(14):
            payload = f"roll-{number:02d}-".encode().ljust(28, b".")
            assert len(message(payload)) == ONE_MESSAGE_OF_ROLL
            client.send(produce("roll", 0, message(payload)))
            assert client.alive()
        wait_until_visible(client, "roll", 0, 14 * ONE_MESSAGE_OF_ROLL)
    files = {
        path.name: path.stat().st_size
        for path in replay.broker.segment("roll").parent.glob("*.kafka")
    }
    assert files == observed


def test_the_segments_on_disk_are_the_recorded_bytes(replay: Replay) -> None:
    for topic in ("t1", "tgz", "tsn", "mp1"):
        recorded = bytes.fromhex(replay.vectors[f"disk/{topic}-0/{0:020d}.kafka"]["hex"])
        with replay.broker.connect() as client:
            client.send(produce(topic, 0, recorded))
            assert client.alive()
        held = replay.broker.segment(topic).read_bytes()
        assert held == recorded, topic


def test_three_requests_in_one_write_are_answered_in_order(
    replay: Replay, kafka_vectors: dict[str, Any]
) -> None:
    (expected,) = (
        b["observed"]
        for b in kafka_vectors["behaviours"]
        if b["name"] == "three requests in one write"
    )
    offsets = frame(struct.pack(">hh4siqi", 4, 4, b"roll", 0, -2, 1))
    with replay.broker.connect() as client:
        client.send(replay.request("produce-magic1-one"))
        wait_until_visible(client, "t1", 0, 15)
        client.send(fetch("t1", 0, 0, 15) + offsets + fetch("t1", 0, 10**9, 15))
        assert [client.answer().hex() for _ in range(3)] == expected


def test_a_request_byte_by_byte(replay: Replay) -> None:
    with replay.broker.connect() as client:
        client.send(replay.request("produce-magic1-one"))
        wait_until_visible(client, "t1", 0, 15)
        for byte in fetch("t1", 0, 0, 15):
            client.send(bytes([byte]))
        assert client.answer().hex() == "0000001100000000000b01003610a68668656c6c6f"


def test_every_topic_name_of_the_recording(replay: Replay, kafka_vectors: dict[str, Any]) -> None:
    """Each name: produce one message, then fetch it."""
    (observed,) = (
        behaviour["observed"]
        for behaviour in kafka_vectors["behaviours"]
        if behaviour["name"].startswith("topic names")
    )
    for quoted, recorded in observed.items():
        character, times, count = quoted.strip("'").rpartition("*")
        if times and count:  # written as 'x*255'
            name = ast.literal_eval(f"'{character}'") * int(count)
        else:
            name = ast.literal_eval(quoted)
        is_taken = recorded["produce_connection"] == "open"
        if is_taken and not re.fullmatch("[a-zA-Z0-9._-]{1,249}", name):  # Kafka's rule today
            recorded = {"produce_connection": "closed", "fetch": "000000020000"}
        _, after = replay.outcome(produce(name, 0, message(b"n")), answered=False)
        assert after == recorded["produce_connection"], quoted
        if after == "open":
            replay.settle(name)
        with replay.broker.connect() as client:
            answer = client.call(fetch(name, 0, 0))
        assert len(answer) == len(bytes.fromhex(recorded["fetch"])), quoted
        assert answer[4:6] == bytes.fromhex(recorded["fetch"])[4:6], quoted


def test_random_partitions_are_spread(replay: Replay) -> None:
    with replay.broker.connect() as client:
        client.send(b"".join(produce("spread", -1, message(b"m%02d" % n)) for n in range(41)))
        assert client.alive()
    sizes = [replay.log_bytes("spread", partition) or 0 for partition in range(2)]
    assert sum(sizes) == 41 * len(message(b"m00"))
    assert min(sizes) > 0


def test_fetching_creates_nothing(replay: Replay) -> None:
    with replay.broker.connect() as client:
        client.call(fetch("nobody-wrote-this", 0, 0))
    assert not (replay.broker.log_dir / "nobody-wrote-this-0").exists()


def test_clean_stop_leaves_the_marker_and_a_start_removes_it(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(**RECORDED_SETTINGS)
    with broker.connect() as client:
        client.send(produce("t1", 0, message(b"hello")))
        assert client.alive()
    marker = broker.log_dir / ".kafka_cleanshutdown"
    assert not marker.exists()
    assert broker.stop() == 0
    assert marker.read_bytes() == b""
    assert broker.segment("t1").read_bytes() == message(b"hello")
    broker.start()
    assert not marker.exists()
    with broker.connect() as client:
        wait_until_visible(client, "t1", 0, 15)
        assert client.call(fetch("t1", 0, 0))[6:] == message(b"hello")


def test_an_unflushed_message_is_not_visible(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(flush_messages=500, flush_interval="1h")
    with broker.connect() as client:
        one = message(b"123456")
        client.send(produce("t", 0, one * 499))
        assert client.alive()
        assert client.call(fetch("t", 0, 0)) == bytes.fromhex("000000020000")
        assert broker.segment("t").stat().st_size == 499 * len(one)
        client.send(produce("t", 0, one))
        wait_until_visible(client, "t", 0, 500 * len(one))


def test_corrupt_stored_bytes_are_served_as_they_are(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()
    with broker.connect() as client:
        client.send(produce("t", 0, message(b"hello") * 3))
        assert client.alive()
        wait_until_visible(client, "t", 0, 45)
    broker.stop()
    held = bytearray(broker.segment("t").read_bytes())
    held[20] ^= 0xFF
    broker.segment("t").write_bytes(held)
    broker.start()
    with broker.connect() as client:
        assert client.call(fetch("t", 0, 0))[6:] == bytes(held)
