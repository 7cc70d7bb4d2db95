"""Idle connections: what 10,000 of them add to the broker's resident memory."""

import resource
import socket
from contextlib import ExitStack

from bench.support.load import connect, latest_offset
from bench.support.report import Row, bound_row, skipped_row
from bench.support.servers import HermesBroker
from bench.support.settings import Settings
from bench.support.usage import MEGABYTE, PeakMemory

__all__ = ["measure"]

_TARGET_MEGABYTES = 100
_SPARE_DESCRIPTORS = 200

#: Fewer than a listening socket queues (50): a refused connection is tried again after a second.
_WAVE = 40


def measure(settings: Settings) -> list[Row]:
    """Open them in waves, and ask something on the last of each: then all have been accepted."""
    count = settings.connections
    name = f"{count:,} idle connections"
    allowed = raise_descriptor_limit()
    if allowed < count + _SPARE_DESCRIPTORS:
        return [skipped_row(name, f"the limit of open files is {allowed} (see ulimit -Hn)")]
    with (
        settings.workspace() as directory,
        HermesBroker(directory / "hermes", max_connections=count + 1) as broker,
        ExitStack() as open_connections,
        PeakMemory(broker.pid) as memory,
    ):
        connections: list[socket.socket] = []
        while len(connections) < count:
            connections += [
                open_connections.enter_context(connect(broker.address))
                for _ in range(min(_WAVE, count - len(connections)))
            ]
            latest_offset(connections[-1])
        latest_offset(connections[0])  # none was closed to make room
    return [bound_row(name, "MB more", memory.growth_bytes / MEGABYTE, below=_TARGET_MEGABYTES)]


def raise_descriptor_limit() -> int:
    """Raise this process's limit of open files as far as it may; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else max(soft, 1 << 20)
