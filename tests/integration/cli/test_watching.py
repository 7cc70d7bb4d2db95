"""`hermes top` and `hermes tail` as people watch with them."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERMES_SECONDS = 60


@pytest.fixture
def screen(hermes):
    """Starts `hermes` on a terminal of its own; a function that waits for a text on it."""
    outside, inside = pty.openpty()
    started = []
    seen = bytearray()

    def start(*arguments):
        process = subprocess.Popen(
            [Path(sys.executable).with_name("hermes"), *arguments],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**hermes._environment, "COLUMNS": "100", "LINES": "30"},
        )
        started.append(process)
        return process

    def shown(text):
        deadline = time.monotonic() + HERMES_SECONDS
        while text not in seen:
            assert time.monotonic() < deadline, bytes(seen)
            if select.select([outside], [], [], 1)[0]:
                seen.extend(os.read(outside, 65536))
        found = bytes(seen)
        del seen[: seen.index(text) + len(text)]
        return found.decode()

    yield start, shown, lambda keys: os.write(outside, keys)
    for process in started:
        process.kill()
        process.wait(HERMES_SECONDS)
    os.close(outside)
    os.close(inside)


def test_top_and_tail(hermes, topic, screen):
    start, shown, press = screen
    hermes("produce", "-t", topic, stdin=b"a 1\nb 2\n")
    row = json.loads(hermes("top", "--once", "-i", "0.1", "--json").stdout)
    expected = {"topic": topic, "partitions": 1, "size_bytes": 26, "bytes_per_second": 0.0}
    assert row["topics"][0] == expected
    table = hermes("top", "--once", "-i", "0.1").stdout.decode().splitlines()
    assert table[2].split() == ["TOPIC", "PARTITIONS", "SIZE", "IN"]
    assert table[3].split() == [topic, "1", "26", "B", "0", "B/s"]
    watching = start("top", "-i", "0.2")
    assert "\x1b[?1049h" in shown(b"B/s")
    assert "no groups: " in shown(b"no groups: ")
    press(b"q")
    assert watching.wait(HERMES_SECONDS) == 0
    tailing = start("tail", topic, "-m", "b", "--times")
    assert f"\x1b[36m{topic}-0 13\x1b[0m  \x1b[1m\x1b[4mb\x1b[0m 2" in shown(b" 2\r\n")
    hermes("produce", "-t", topic, stdin=b"a 3\nb\x1b4\n")
    assert shown(b"x1b4\r\n").endswith("b\x1b[0m\\x1b4\r\n")
    tailing.send_signal(signal.SIGINT)
    assert tailing.wait(HERMES_SECONDS) == 130
