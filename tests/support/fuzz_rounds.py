"""Fuzzes a port of a broker over many connections, while a witness goes on, and looks afterwards.

Connections behave as badly as their frames: they send one, or many at once, or a few bytes at a
time, cut a frame off, read nothing, reset, or just stay.
"""

import random
import socket
import struct
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol

from hermes_testkit import BrokerProcess
from witness import Witness

from hermes.offline.inspection import Limits
from hermes.offline.verification import DirectoryCheck
from hermes.protocol.record_batches import next_in

__all__ = ["Frames", "check_aftermath", "connections_to", "fuzz", "log_bytes", "open_sockets"]

_WAYS = ["one", "many", "many", "many", "cut", "drip", "half", "reset", "stay"]
_STAYING = 100
_LINGER = struct.pack("ii", 1, 0)


class Frames(Protocol):
    """What makes frames."""

    def opening(self) -> bytes:
        """What a connection starts with."""

    def frame(self) -> bytes:
        """The next frame."""


def fuzz(port: int, frames: Frames, count: int, chance: random.Random) -> Counter[str]:
    """Send so many frames; how many of them in which way."""
    ways: Counter[str] = Counter()
    staying: list[socket.socket] = []
    try:
        while ways.total() < count:
            way = chance.choice(_WAYS)
            number = 1 if way in ("one", "cut", "drip") else chance.randrange(2, 20)
            data = frames.opening() + b"".join(frames.frame() for _ in range(number))
            ways[way] += number
            connection = socket.create_connection(("127.0.0.1", port), 60)
            with suppress(OSError):  # refused, as it should be
                _attack(connection, way, data, chance)
            if way == "stay":
                staying.append(connection)
            else:
                connection.close()
            if len(staying) > _STAYING:
                staying.pop(0).close()
    finally:
        for each in staying:
            each.close()
    return ways


def _attack(connection: socket.socket, way: str, data: bytes, chance: random.Random) -> None:
    if way == "cut":
        connection.sendall(data[: chance.randrange(len(data) + 1)])
    elif way == "drip":
        for position in range(min(len(data), 60)):
            connection.sendall(data[position : position + 1])
        connection.sendall(data[60:])
    elif way == "half":
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(0.2)
        while connection.recv(65536):
            pass
    elif way == "reset":
        connection.sendall(data)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
    elif way == "stay":
        connection.settimeout(0.2)
        connection.sendall(data)
        connection.setblocking(False)
    else:
        connection.sendall(data)
        connection.settimeout(0.005)
        while connection.recv(65536):
            pass


def log_bytes(broker: BrokerProcess) -> int:
    """How much the broker has logged."""
    return sum(len(line.encode()) for line in list(broker.lines))


def open_sockets(broker: BrokerProcess) -> int:
    """How many sockets the broker has."""
    found = 0
    for each in Path(f"/proc/{broker.process.pid}/fd").iterdir():
        with suppress(OSError):
            found += each.readlink().name.startswith("socket:")
    return found


def connections_to(port: int) -> int:
    """How many connections a port of the loopback interface has, on its side."""
    # After the heading: number, local address:port in hex, remote one, state (01 established,
    # 08 closed by the peer), ...
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    local, ending = [line.split()[1:4:2] for line in lines], f":{port:04X}"
    return sum(each[0].endswith(ending) and each[1] in ("01", "08") for each in local)


def check_aftermath(broker: BrokerProcess, witness: Witness) -> None:
    """Hold a broker that was attacked to what it promises; stops it."""
    witness.end()
    assert broker.stop() == 0, "it did not stop in good order"
    lines = list(broker.lines)
    faults = [n for n, line in enumerate(lines) if "Traceback" in line or "Unhandled" in line]
    assert not faults, "".join(lines[faults[0] - 1 : faults[0] + 40])
    findings = DirectoryCheck(broker.log_dir, Limits(1 << 20, 64 << 20), pause=lambda: None).run()
    compressed = cache(lambda path: _compressed_batches(broker.log_dir / path))
    problems = [
        each
        for each in findings
        # Kafka's clients are believed what compressed batches hold, if headers and CRCs are right.
        if each.kind == "problem"
        and not (each.text.startswith("the batch at") and each.offset in compressed(each.path))
    ]
    assert not problems, problems[0]


def _compressed_batches(path: Path) -> set[int]:
    """The base offsets of a segment's compressed batches."""
    data, position, offsets = path.read_bytes(), 0, set()
    while (header := next_in(data, position)) is not None:
        if header.codec:
            offsets.add(header.base_offset)
        position += header.size_bytes
    return offsets
