"""Brokers as processes and sockets without a library, for tests that look from outside.

Nothing here sleeps: a start is over when the broker says so on its output, an answer is there when
the socket has it, and a produce has been carried out when a later request on its connection is
answered.
"""

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import yaml
from planted_secrets import leaks

__all__ = [
    "TWISTD",
    "BrokerProcess",
    "RawClient",
    "fetch",
    "frame",
    "message",
    "produce",
    "produce_acknowledged",
    "wait_until_visible",
    "waiting_fetch",
]

#: How long anything may take before a test fails; generous, since it is never waited for in vain.
DEADLINE_SECONDS = 240.0

#: The program that a broker runs in.
TWISTD = (str(Path(sys.executable).with_name("twistd")),)


class BrokerProcess:
    """One `twistd -n hermes`, listening on a free port of the loopback interface.

    Attributes:
        directory: holds broker.yaml; the process runs there.
        log_dir: the data directory.
        port: where it listens.
        lines: what it wrote so far.

    With `program` something else stands in twistd's place, or before it.
    """

    def __init__(
        self,
        directory: Path,
        settings: dict[str, Any],
        wait: bool = True,
        environment: Mapping[str, str] = MappingProxyType({}),
        program: Sequence[str] = TWISTD,
    ) -> None:
        directory.mkdir(parents=True)
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
        self._program = program
        self.directory = directory
        config = {
            "broker_id": 0,
            "listen": "tcp:0:interface=127.0.0.1",
            "coordination": "none",
            **settings,
        }
        self.log_dir = Path(config["log_dir"])
        self.config_file = directory / "broker.yaml"
        self.config_file.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.lines: list[str] = []
        self.port = 0
        self.start(wait)

    def start(self, wait: bool = True) -> None:
        """Start (or start again) the process; with `wait`, until its ports are open."""
        command = [*self._program, "-n", "--pidfile="]
        self._started_at = len(self.lines)
        self.process = subprocess.Popen(
            [*command, "hermes", "--config", str(self.config_file)],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=self._environment,
        )
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, args=(self.process,))
        self._reader.start()
        if wait:
            line = self.wait_for_line("is ready: Hermes")
            self.port = int(line.partition("listening on 127.0.0.1:")[2].partition(",")[0])

    def wait_for_line(self, text: str) -> str:
        """Wait until the process has written a line with `text` since its start; the line."""
        with self._news:
            self._news.wait_for(lambda: self._ended or self._line(text), DEADLINE_SECONDS)
            line = self._line(text)
        if line is None:
            self.kill()
            raise AssertionError(f"the broker did not say {text!r}:\n" + "".join(self.lines))
        return line

    def _line(self, text: str) -> str | None:
        return next((line for line in self.lines[self._started_at :] if text in line), None)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        process.stdout.close()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def stop(self) -> int:
        """Ask it to stop and wait until it has; 0 when it stopped in good order."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it without any warning."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def wait(self) -> int:
        """Wait until it has ended; its exit status, 0 for a stop in good order.

        twistd ends itself with the signal that it got once everything is closed.
        """
        status = self.process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        assert not leaks("".join(self.lines)), leaks("".join(self.lines))
        return 0 if status == -signal.SIGTERM and self._line("has stopped") else status

    def connect(self) -> "RawClient":
        """Open a connection."""
        return RawClient(self.port)

    def segment(self, topic: str, partition: int = 0, base: int = 0) -> Path:
        """The path of a segment's file."""
        return self.log_dir / f"{topic}-{partition}" / f"{base:020d}.kafka"

    def memory_bytes(self) -> int:
        """The resident memory of the process now."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")


class RawClient:
    """A socket that speaks the framing and nothing else."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def receive(self, size: int) -> bytes:
        """Receive exactly `size` bytes, or fewer when the broker closes before."""
        data = bytearray()
        while len(data) < size:
            try:
                chunk = self.socket.recv(size - len(data))
            except ConnectionResetError:
                break
            if not chunk:
                break
            data += chunk
        return bytes(data)

    def answer(self) -> bytes:
        """Receive one answer with its size; b"" when the broker has closed."""
        head = self.receive(4)
        if len(head) < 4:
            return head
        return head + self.receive(struct.unpack(">i", head)[0])

    def call(self, request: bytes) -> bytes:
        """Send a request and receive its answer."""
        self.send(request)
        return self.answer()

    def closed(self) -> bool:
        """Wait until the broker closes; False when it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def alive(self) -> bool:
        """Whether requests are still served: all those before have then been carried out."""
        probe = frame(struct.pack(">hh5siqi", 4, 5, b"probe", 0, -1, 1))
        try:
            return self.call(probe) == bytes.fromhex("0000000e0000000000010000000000000000")
        except (BrokenPipeError, ConnectionResetError):
            return False

    def readable(self) -> bool:
        """Whether there is something to read right now."""
        return bool(select.select([self.socket], [], [], 0)[0])


def frame(body: bytes) -> bytes:
    """A request from its type and body."""
    return struct.pack(">i", len(body)) + body


def message(payload: bytes, attributes: int = 0) -> bytes:
    """A message of magic 1, with its length."""
    body = struct.pack(">bbI", 1, attributes, zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def produce(topic: str, partition: int, message_set: bytes) -> bytes:
    """A produce request of Kafka 0.7."""
    return frame(struct.pack(">h", 0) + _produce_body(topic, partition, message_set))


def produce_acknowledged(
    *sets: tuple[str, int, bytes], acks: int = 2, timeout_ms: int = 30_000
) -> bytes:
    """An acknowledged produce (type 64); acks 1: written, 2: flushed."""
    head = struct.pack(">hhhih", 64, 0, acks, timeout_ms, len(sets))
    return frame(head + b"".join(_produce_body(*each) for each in sets))


def fetch(topic: str, partition: int, offset: int, max_size: int = 1 << 20) -> bytes:
    """A fetch request of Kafka 0.7."""
    return frame(struct.pack(">h", 1) + _fetch_body(topic, partition, offset, max_size))


def waiting_fetch(
    *fetches: tuple[str, int, int, int], max_wait_ms: int = 30_000, min_bytes: int = 1
) -> bytes:
    """A fetch that waits (type 65); each fetch is (topic, partition, offset, maximum size)."""
    head = struct.pack(">hhiih", 65, 0, max_wait_ms, min_bytes, len(fetches))
    return frame(head + b"".join(_fetch_body(*each) for each in fetches))


def wait_until_visible(client: RawClient, topic: str, partition: int, end: int) -> None:
    """Block until a partition that starts at 0 is readable up to `end`."""
    answer = client.call(waiting_fetch((topic, partition, 0, end), min_bytes=end))
    _, _, _, error, high_watermark = struct.unpack_from(">ihhhq", answer)
    assert (error, high_watermark) == (0, end), f"{topic}-{partition} ends at {high_watermark}"


def _produce_body(topic: str, partition: int, message_set: bytes) -> bytes:
    name = topic.encode()
    head = struct.pack(f">h{len(name)}sii", len(name), name, partition, len(message_set))
    return head + message_set


def _fetch_body(topic: str, partition: int, offset: int, max_size: int) -> bytes:
    name = topic.encode()
    return struct.pack(f">h{len(name)}siqi", len(name), name, partition, offset, max_size)
