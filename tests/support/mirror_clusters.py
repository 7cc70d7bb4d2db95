"""Clusters of one broker each, and mirrors between them: processes that tests may kill.

A broker keeps its ports, so that everybody finds it after a restart. Nothing here sleeps for a
result: `eventually` looks until a condition holds.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import yaml
from hermes_testkit import DEADLINE_SECONDS, BrokerProcess
from server_process import ServerProcess, free_ports

from hermes.client import EARLIEST, LATEST, FetchRequest, SimpleConsumer, SyncProducer
from hermes.errors import HermesError
from hermes.protocol import Acks, Codec, ProduceRequest, encode_message_set

__all__ = ["ClusterProcess", "Clusters", "MirrorProcess", "eventually", "numbers_in"]

_Server = TypeVar("_Server", bound=ServerProcess)

HERMES = str(Path(sys.executable).with_name("hermes"))

#: How long anything may take, on a busy machine, before a test fails.
PATIENCE_SECONDS = 120.0


def eventually(condition: Callable[[], Any], what: str = "", seconds: float = 0) -> Any:
    """Look until a condition holds; what it gave."""
    deadline = time.monotonic() + (seconds or PATIENCE_SECONDS)
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < deadline, what or "it never happened"
        pause.wait(0.05)
    return found


class ClusterProcess(BrokerProcess):
    """A broker with embedded coordination: a whole cluster in a process.

    Attributes:
        connect: `host:port` of its coordination.
    """

    def __init__(self, directory: Path, **settings: Any) -> None:
        port, coordination_port = free_ports(2)
        self.connect = f"127.0.0.1:{coordination_port}"
        super().__init__(
            directory,
            {
                "listen": f"tcp:{port}:interface=127.0.0.1",
                "coordination": "embedded",
                "coordination_listen": f"tcp:{coordination_port}:interface=127.0.0.1",
                "log_dir": str(directory / "logs"),
                "num_partitions": 2,
                **settings,
            },
        )

    def change(self, **settings: Any) -> None:
        """Change broker.yaml; None takes a setting out."""
        values = yaml.safe_load(self.config_file.read_text(encoding="utf-8")) | settings
        values = {key: value for key, value in values.items() if value is not None}
        self.config_file.write_text(yaml.safe_dump(values), encoding="utf-8")

    def send(
        self,
        topic: str,
        payloads: Iterable[bytes],
        partition: int = 0,
        codec: Codec = Codec.NONE,
    ) -> None:
        """Publish messages in one set, and wait until they are on disk."""
        message_set = encode_message_set(list(payloads), codec)
        with SyncProducer("127.0.0.1", self.port) as producer:
            (result,) = producer.send_acknowledged(
                [ProduceRequest(topic, partition, message_set)], Acks.FLUSHED
            )
        assert not isinstance(result, Exception), result

    def payloads(self, topic: str, partition: int = 0) -> list[bytes]:
        """All messages of a partition."""
        found: list[bytes] = []
        with SimpleConsumer("127.0.0.1", self.port) as consumer:
            (offset,) = consumer.get_offsets_before(topic, partition, EARLIEST)
            (end,) = consumer.get_offsets_before(topic, partition, LATEST)
            while offset < end:
                messages = consumer.fetch(FetchRequest(topic, partition, offset, 8 << 20))
                found += [message.payload for message, _ in messages]
                offset = messages.next_offset
        return found

    def count(self, topic: str, partitions: int = 2) -> int:
        """How many messages a topic has by now; 0 while it can't be asked."""
        try:
            return sum(len(self.payloads(topic, each)) for each in range(partitions))
        except HermesError:
            return 0

    def end(self, topic: str, partition: int = 0) -> int:
        """The end of a partition; -1 while it can't be asked."""
        try:
            with SimpleConsumer("127.0.0.1", self.port) as consumer:
                return consumer.get_offsets_before(topic, partition, LATEST)[0]
        except HermesError:
            return -1


class MirrorProcess:
    """A `hermes mirror --config`.

    Attributes:
        path: its mirror.yaml.
        lines: what it has written so far, over all its lives.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "mirror.yaml"
        self.write(settings)
        self.lines: list[str] = []
        self._news = threading.Condition()
        self.start()

    def write(self, settings: Mapping[str, Any]) -> None:
        """Write mirror.yaml."""
        self.path.write_text(yaml.safe_dump(dict(settings)), encoding="utf-8")

    def start(self) -> None:
        """Start it (again)."""
        self._started_at = len(self.lines)
        self._ended = False
        self.process = subprocess.Popen(
            [HERMES, "mirror", "--config", str(self.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read, args=(self.process,))
        self._reader.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                with self._news:
                    self.lines.append(line)
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for_line(self, text: str) -> str:
        """Wait until it has written a line that a regular expression is found in."""

        def found() -> str | None:
            fresh = self.lines[self._started_at :]
            return next((line for line in fresh if re.search(text, line)), None)

        with self._news:
            self._news.wait_for(lambda: self._ended or found(), PATIENCE_SECONDS)
            line = found()
        assert line is not None, f"the mirror did not say {text!r}:\n" + "".join(self.lines)
        return line

    def kill(self) -> None:
        """End it without any warning."""
        self.process.kill()
        self.wait()

    def stop(self) -> int:
        """Ask it to end, and wait until it has; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended; its exit status."""
        status = self.process.wait(PATIENCE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        return status


class Clusters:
    """Makes them below a directory, and ends them with the stack."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self._stack = stack
        self._count = 0

    def cluster(self, name: str, **settings: Any) -> ClusterProcess:
        """Start one."""
        made = ClusterProcess(self.directory / name, **settings)
        self._stack.callback(made.stop)
        return made

    def mirror(
        self, source: ClusterProcess, target: ClusterProcess, /, name: str = "m", **settings: Any
    ) -> MirrorProcess:
        """Start one between two clusters."""
        values = mirror_settings(source, name) | {"target": {"zookeeper": target.connect}}
        return self.process(values | settings)

    def process(self, settings: Mapping[str, Any]) -> MirrorProcess:
        """Start a mirror with all its settings."""
        self._count += 1
        made = MirrorProcess(self.directory / f"mirror-{self._count}", settings)
        self._stack.callback(made.stop)
        return made

    def started(self, server: _Server) -> _Server:
        """Start another server, and end it with the others."""
        self._stack.callback(server.kill)
        server.start()
        return server


def mirror_settings(source: ClusterProcess, name: str = "m") -> dict[str, Any]:
    """What a mirror.yaml must have, but for the target."""
    return {"name": name, "sources": [{"name": "far", "zookeeper": source.connect}]}


def mirror_status(target: ClusterProcess) -> list[dict[str, Any]]:
    """What `hermes mirror status` says: a mapping for each process."""
    shown = subprocess.run(
        [HERMES, "mirror", "status", "--json", "-Z", target.connect],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return [json.loads(line) for line in shown.stdout.splitlines()]


def numbers_in(payloads: Sequence[bytes]) -> list[int]:
    """The numbers that messages begin with."""
    return [int(each.partition(b":")[0]) for each in payloads]
