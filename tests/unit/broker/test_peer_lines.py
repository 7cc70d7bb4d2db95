"""What clients can make a broker write into its log: little, and nothing of their own making."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_bench import BrokerBench, log_lines
from hermes_testkit import fetch, message, produce

FORGED = "evil\n2026-11-21T00:00:00+0000 [hermes.broker#critical] FORGED \x1b[2J\x1b]0;pwned\x07"
FRAMES = 200


def frame(request_type: int, body: bytes) -> bytes:
    return struct.pack(">ih", 2 + len(body), request_type) + body


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(">h", len(data)) + data


def acknowledged(topic: str, message_set: bytes) -> bytes:
    entry = string(topic) + struct.pack(">ii", 0, len(message_set)) + message_set
    return frame(64, struct.pack(">hhih", 0, 1, 0, 1) + entry)


def offsets(topic: str, time: int) -> bytes:
    return frame(4, string(topic) + struct.pack(">iqi", 0, time, 10))


HOSTILE = {
    "an oversized message to an illegal topic": acknowledged(FORGED, message(bytes(1_000_100))),
    "a produce to an illegal topic": produce(FORGED, 0, message(b"x")),
    "a produce to a topic of 32 kB": produce("\x07" * 32_000, 0, message(b"x")),
    "a fetch from an illegal topic": fetch(FORGED, 0, 0),
    "offsets of an illegal topic": offsets(FORGED, -1),
    "offsets of a partition out of service": offsets("lost", -1),
    "offsets by time of a partition out of service": offsets("lost", 1),
    "a fetch from a partition out of service": fetch("lost", 0, 0),
    "a produce to a partition out of service": produce("lost", 0, message(b"x")),
    "names that grow when they are encoded": frame(
        66, struct.pack(">hh", 0, 1) + string(b"\xff" * 10_923)
    ),
    "a name that turns the reading direction": produce("\u202e" * 300, 0, message(b"x")),
    "an unknown request": frame(999, b""),
    "a size that can't be": struct.pack(">i", -1),
}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BrokerBench]:
    lost = tmp_path / "lost-0"
    lost.mkdir()
    (lost / f"{0:020d}.kafka").write_bytes(b"x" * 10)
    (lost / f"{100:020d}.kafka").write_bytes(b"")
    made = BrokerBench(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_flood_of_bad_requests_writes_little(bench: BrokerBench, what: str) -> None:
    with log_lines() as lines:
        for _ in range(FRAMES):
            connection, transport = bench.connect()
            connection.dataReceived(HOSTILE[what])
            bench.turns(transport)
    written = sum(len(line.encode()) + 30 for line in lines)  # and a time before each
    assert written < 100 * FRAMES
    assert all(line.isprintable() for line in lines)
    assert not any("Traceback" in line for line in lines)
