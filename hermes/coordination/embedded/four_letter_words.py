"""Four-letter words: what monitoring tools ask, each answered with text.

The texts have ZooKeeper's form, so that the same tools can read them; only what this server knows
is in them. Source: ZooKeeper's `server/command`.
"""

import os
import platform
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hermes._version import __version__

_NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests\n"
_OUT_OF_SERVICE: Final = {"ruok": "imok", "isro": "null"}  # the process is well, the state is not

#: Which ZooKeeper this server is like: 3.5 brought create2, the newest request that is served.
VERSION: Final = f"3.5.0-hermes-{__version__}, embedded"


@dataclass(slots=True)
class Statistics:
    """What is counted, of one connection or of all.

    `received`: frames and words; `sent`: frames. `latencies`: how many requests were answered; the
    rest is how long that took.
    """

    received: int = 0
    sent: int = 0
    latencies: int = 0
    latency_sum_ms: float = 0.0
    latency_min_ms: float = 0.0
    latency_max_ms: float = 0.0

    def answered(self, latency_ms: float) -> None:
        shortest = self.latency_min_ms if self.latencies else latency_ms
        self.latency_min_ms = min(shortest, latency_ms)
        self.latency_max_ms = max(self.latency_max_ms, latency_ms)
        self.latency_sum_ms += latency_ms
        self.latencies += 1

    @property
    def latency_mean_ms(self) -> float:
        return self.latency_sum_ms / self.latencies if self.latencies else 0.0


@dataclass(frozen=True, slots=True)
class ClientReport:
    """One connection: its unanswered requests, and how many frames it sent and got."""

    address: str
    queued: int
    received: int
    sent: int


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The server's state, when it is asked.

    `outstanding`: how many requests have no response yet. `ephemerals`: how many nodes live with a
    session. `data_bytes`: roughly.
    """

    statistics: Statistics
    clients: tuple[ClientReport, ...]
    outstanding: int
    zxid: int
    nodes: int
    ephemerals: int
    watches: int
    sessions: int
    data_bytes: int
    settings: Mapping[str, object] = field(default_factory=dict)


def word_response(word: str, report: ServerReport | None) -> str:
    if report is None:
        return _OUT_OF_SERVICE.get(word, _NOT_SERVING)
    return _ANSWERS[word](report)


def _summary(report: ServerReport) -> str:
    counted = report.statistics
    latency = (
        f"{counted.latency_min_ms:.0f}/{counted.latency_mean_ms:.1f}/{counted.latency_max_ms:.0f}"
    )
    return (
        f"Latency min/avg/max: {latency}\n"
        f"Received: {counted.received}\n"
        f"Sent: {counted.sent}\n"
        f"Connections: {len(report.clients)}\n"
        f"Outstanding: {report.outstanding}\n"
        f"Zxid: {report.zxid:#x}\n"
        "Mode: standalone\n"
        f"Node count: {report.nodes}\n"
    )


def _srvr(report: ServerReport) -> str:
    return f"Zookeeper version: {VERSION}\n{_summary(report)}"


def _stat(report: ServerReport) -> str:
    clients = "".join(
        f" /{each.address}[1](queued={each.queued},recved={each.received},sent={each.sent})\n"
        for each in report.clients
    )
    return f"Zookeeper version: {VERSION}\nClients:\n{clients}\n{_summary(report)}"


def _mntr(report: ServerReport) -> str:
    counted = report.statistics
    values = {
        "version": VERSION,
        "server_state": "standalone",
        "avg_latency": f"{counted.latency_mean_ms:.4f}",
        "max_latency": f"{counted.latency_max_ms:.0f}",
        "min_latency": f"{counted.latency_min_ms:.0f}",
        "packets_received": counted.received,
        "packets_sent": counted.sent,
        "num_alive_connections": len(report.clients),
        "outstanding_requests": report.outstanding,
        "znode_count": report.nodes,
        "watch_count": report.watches,
        "ephemerals_count": report.ephemerals,
        "approximate_data_size": report.data_bytes,
        "global_sessions": report.sessions,
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in values.items())


def _envi(report: ServerReport) -> str:
    values = {
        "zookeeper.version": VERSION,
        "host.name": socket.gethostname(),
        "python.version": platform.python_version(),
        "os.name": platform.system(),
        "os.arch": platform.machine(),
        "os.version": platform.release(),
        "user.dir": os.getcwd(),
    }
    return "Environment:\n" + _properties(values)


def _properties(values: Mapping[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


_ANSWERS: Final[dict[str, Callable[[ServerReport], str]]] = {
    "conf": lambda report: _properties(report.settings),
    "envi": _envi,
    "isro": lambda report: "rw",
    "mntr": _mntr,
    "ruok": lambda report: "imok",
    "srvr": _srvr,
    "stat": _stat,
}
