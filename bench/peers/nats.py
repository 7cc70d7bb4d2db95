"""NATS JetStream: three servers that keep file-backed streams with three replicas.

Servers and a client in Go are built from `natsbench`, which says which releases they are.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.peers.system import NotInstalled
from bench.support.processes import Program
from bench.support.servers import free_port
from bench.support.usage import cpu_seconds

__all__ = ["NatsCluster"]

_SOURCES = Path(__file__).with_name("natsbench")
_SERVERS = (1, 2, 3)
_PATIENCE_SECONDS = 120.0


class NatsCluster:
    """Three servers; a context manager.

    Args:
        directory: for its files.
        flushes: whether each server flushes each message before it acknowledges it; by default it
            flushes every two minutes.

    Raises:
        NotInstalled: Go is missing, or can't build it.
    """

    def __init__(self, directory: Path, flushes: bool) -> None:
        self._directory, self._flushes = directory, flushes
        self._programs = _build(directory)
        self._ports = {number: (free_port(), free_port()) for number in _SERVERS}
        self._url = ",".join(f"nats://127.0.0.1:{port}" for port, _ in self._ports.values())
        self._running: dict[int, Program] = {}

    def __enter__(self) -> Self:
        for number in _SERVERS:
            self._start(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for each in self._running.values():
            each.kill()

    def _start(self, number: int) -> None:
        place = self._directory / f"nats-{number}"
        place.mkdir(parents=True, exist_ok=True)
        port, route = self._ports[number]
        routes = ",".join(f"nats://127.0.0.1:{each}" for _, each in self._ports.values())
        sync = "sync_interval: always\n" if self._flushes else ""
        (place / "nats.conf").write_text(
            f"server_name: nats-{number}\nlisten: 127.0.0.1:{port}\n"
            f'jetstream {{\nstore_dir: "{place / "data"}"\n{sync}}}\n'
            f"cluster {{\nname: bench\nlisten: 127.0.0.1:{route}\nroutes: [{routes}]\n}}\n"
        )
        command = [str(self._programs / "nats-server"), "-c", "nats.conf"]
        self._running[number] = Program("nats", command, directory=place)

    def cpu_seconds(self) -> float:
        """What its servers have taken so far."""
        return sum(cpu_seconds(each.pid) for each in self._running.values())

    def produce(self, stream: str, count: int) -> float:
        """Produce messages, each acknowledged, to a new stream; how many a second."""
        return count / float(self._run("produce", stream, "3", str(count)))

    def end_to_end(self, stream: str, count: int) -> list[float]:
        """How long messages took to a consumer, of a hundred a second, in milliseconds."""
        return [float(each) for each in self._run("latency", stream, "3", str(count)).split()]

    def gaps(self, stream: str, kills: int) -> list[float]:
        """From each kill of a leader to the next acknowledged message that was sent after it."""
        command = [str(self._programs / "natsbench"), "steady", self._url, stream, "3"]
        found = []
        with Program("steady", command, directory=self._directory) as load:
            for _ in range(kills):
                _next_acknowledged(load, time.time())
                leader = int(self._run("leader", stream).rpartition("-")[2])
                self._running.pop(leader).kill()
                killed = time.time()
                found.append(_next_acknowledged(load, killed) - killed)
                self._start(leader)
        return found

    def _run(self, *arguments: str) -> str:
        mode, stream, *more = arguments
        command = [self._programs / "natsbench", mode, self._url, stream, *more]
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return ran.stdout


def _build(directory: Path) -> Path:
    go = shutil.which("go")
    if go is None:
        raise NotInstalled("NATS is built with Go: apt-get install golang")
    target = directory / "nats"
    target.mkdir(parents=True, exist_ok=True)
    packages = (".", "github.com/nats-io/nats-server/v2")
    command = [go, "build", "-o", f"{target}{os.sep}", *packages]
    built = subprocess.run(command, check=False, cwd=_SOURCES, capture_output=True, text=True)
    if built.returncode:
        raise NotInstalled(f"Go can't build NATS: {built.stderr.strip().splitlines()[-1]}")
    return target


def _next_acknowledged(load: Program, sent_after: float) -> float:
    """When the first message was acknowledged that was sent after a moment."""

    def found() -> float:
        lines = load.log.read_text().rpartition("\n")[0].splitlines()
        pairs = (tuple(map(float, line.split())) for line in lines)
        return min((told for sent, told in pairs if sent > sent_after), default=0.0)

    what = "acknowledging a message"
    known: float = load.wait_until(found, timeout_seconds=_PATIENCE_SECONDS, what=what)
    return known
