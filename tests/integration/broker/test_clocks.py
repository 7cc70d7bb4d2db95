"""A wall clock that is set while a broker runs: nothing waits for it, and only stamps follow it."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from faked_clock import FakedClock
from hermes_testkit import (
    BrokerProcess,
    fetch,
    message,
    produce,
    produce_acknowledged,
    wait_until_visible,
    waiting_fetch,
)
from kazoo.client import KazooClient

HELLO = message(b"hello")
HOUR = 3600

StartWithClock = Callable[..., tuple[BrokerProcess, FakedClock]]


@pytest.fixture
def start_with_clock(tmp_path: Path) -> Iterator[StartWithClock]:
    """Starts a broker whose wall clock the test sets."""
    brokers: list[BrokerProcess] = []

    def start(**settings: Any) -> tuple[BrokerProcess, FakedClock]:
        clock = FakedClock(tmp_path / "clock")
        settings.setdefault("log_dir", str(tmp_path / "logs"))
        broker = BrokerProcess(tmp_path / "broker", settings, environment=clock.environment)
        brokers.append(broker)
        return broker, clock

    yield start
    for broker in brokers:
        broker.stop()


def stamp(line: str) -> datetime:
    """The time that a line of the broker's log begins with."""
    return datetime.strptime(line.split()[0], "%Y-%m-%dT%H:%M:%S%z")


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_clock_that_is_set_stops_no_timer(start_with_clock: StartWithClock, step: int) -> None:
    broker, clock = start_with_clock()
    with broker.connect() as client, broker.connect() as waiting:
        client.send(produce("t", 0, HELLO))
        wait_until_visible(client, "t", 0, len(HELLO))
        clock.turn(step)
        client.send(produce("t", 0, HELLO))
        wait_until_visible(client, "t", 0, 2 * len(HELLO))
        client.call(produce_acknowledged(("t", 0, HELLO)))
        # One that waits for more than there will be is answered when its time is up.
        waiting.send(waiting_fetch(("t", 0, 3 * len(HELLO), 100), max_wait_ms=200))
        assert len(waiting.answer()) == 22
        client.send(produce("t", 0, HELLO))
        assert len(client.call(fetch("t", 0, 0))) >= 3 * len(HELLO)
    assert broker.stop() == 0
    now = datetime.now(UTC) + timedelta(seconds=step)
    stopped = stamp(broker.wait_for_line("has stopped"))
    assert abs(stopped - now) < timedelta(minutes=30), "lines are stamped with wall time"


def test_sessions_expire_while_the_clock_is_set_back(start_with_clock: StartWithClock) -> None:
    """The embedded server's sessions, and with them dead consumers and brokers."""
    broker, clock = start_with_clock(
        coordination="embedded", coordination_listen="tcp:0:interface=127.0.0.1"
    )
    line = broker.wait_for_line("coordination is embedded")
    where = line.partition(" at ")[2].split()[0]
    watcher = KazooClient(where, timeout=30)
    watcher.start()
    try:
        leave_an_ephemeral_node(where, b"/of-a-dead-client")
        clock.turn(-HOUR)
        gone = threading.Event()
        assert watcher.exists("/of-a-dead-client", watch=lambda _event: gone.set())
        assert gone.wait(60), "the session of a client that is gone has not expired"
    finally:
        watcher.stop()
        watcher.close()


def test_retention_does_not_believe_a_clock_that_jumps_ahead(
    start_with_clock: StartWithClock,
) -> None:
    by_size = {"segment_bytes": 1, "retention_bytes": 1}
    broker, clock = start_with_clock(
        topics={"kept": {"retention_time": "1h"}, "shown": by_size},
        retention_check_interval="100ms",
    )

    def wait_for_passes(count: int) -> None:
        """A pass over the logs deletes from the topic that is kept by size; it says so."""
        for _ in range(count):
            starts.append(starts[-1] + len(HELLO))
            client.send(produce("shown", 0, HELLO))
            broker.wait_for_line(f"now starts at offset {starts[-1]}\n")

    with broker.connect() as client:
        starts = [0]
        for topic in ("kept", "shown"):
            client.send(produce(topic, 0, HELLO))
            wait_until_visible(client, topic, 0, len(HELLO))
        wait_for_passes(1)
        clock.turn(365 * 24 * HOUR)
        wait_for_passes(3)
        assert client.call(fetch("kept", 0, 0))[6:] == HELLO


def leave_an_ephemeral_node(where: str, path: bytes) -> None:
    """Be a client of a coordination server that makes a node and is gone without a word."""

    def frame(body: bytes) -> bytes:
        return struct.pack(">i", len(body)) + body

    def text(value: bytes) -> bytes:
        return struct.pack(">i", len(value)) + value

    host, _, port = where.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(frame(struct.pack(">iqiqi16s", 0, 0, 4000, 0, 16, bytes(16))))
        world = struct.pack(">ii", 1, 31) + text(b"world") + text(b"anyone")
        create = struct.pack(">ii", 1, 1) + text(path) + text(b"") + world + struct.pack(">i", 1)
        client.sendall(frame(create))
        with client.makefile("rb") as answers:
            for _ in range(2):  # the session, and the node
                (size,) = struct.unpack(">i", answers.read(4))
                answer = answers.read(size)
    assert answer.endswith(text(path))
