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
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

__all__ = ["BrokerProcess", "RawClient"]

#: How long anything may take before a test fails; generous, since it is never waited for in vain.
DEADLINE_SECONDS = 60.0


class BrokerProcess:
    """One `twistd -n hermes`, listening on a free port of the loopback interface.

    Attributes:
        directory: holds broker.yaml; the process runs there.
        log_dir: the data directory.
        port: where it listens.
        lines: what it wrote so far.
    """

    def __init__(self, directory: Path, settings: dict[str, Any], wait: bool = True) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        config = {"broker_id": 0, "listen": "tcp:0:interface=127.0.0.1", **settings}
        self.log_dir = Path(config["log_dir"])
        self.config_file = directory / "broker.yaml"
        self.config_file.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.lines: list[str] = []
        self.port = 0
        self.start(wait)

    def start(self, wait: bool = True) -> None:
        """Start (or start again) the process; with `wait`, until its ports are open."""
        command = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile="]
        self.process = subprocess.Popen(
            [*command, "hermes", "--config", str(self.config_file)],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self.process,))
        self._reader.start()
        if wait and not (self._ready.wait(DEADLINE_SECONDS) and self.port):
            self.kill()
            raise AssertionError("the broker did not start:\n" + "".join(self.lines))

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line)
            if "is ready: Hermes" in line:
                self.port = int(line.partition("listening on 127.0.0.1:")[2].partition(",")[0])
                self._ready.set()
        process.stdout.close()
        self._ready.set()

    def stop(self) -> int:
        """Ask it to stop and wait until it has; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it without any warning."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def wait(self) -> int:
        """Wait until it has ended; its exit status."""
        status = self.process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        return status

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
        probe = _frame(struct.pack(">hh5siqi", 4, 5, b"probe", 0, -1, 1))
        try:
            return self.call(probe) == bytes.fromhex("0000000e0000000000010000000000000000")
        except (BrokenPipeError, ConnectionResetError):
            return False

    def readable(self) -> bool:
        """Whether there is something to read right now."""
        return bool(select.select([self.socket], [], [], 0)[0])


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
