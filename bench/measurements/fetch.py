"""Fetch: 1 MB and 200 KB, 1 and 4 in flight, against a raw sendfile loop over the same file."""

from collections import Counter
from pathlib import Path

from bench.support.load import (
    STORED_BYTES,
    TOPIC,
    encoded_produces,
    fetch,
    produce,
    wait_until_visible,
)
from bench.support.report import Row, interleaved, ratio_row
from bench.support.servers import Baseline, HermesBroker
from bench.support.settings import Settings
from bench.support.usage import cpu_seconds

__all__ = ["measure"]

_SIZES = {"1 MB": 1_000_000, "200 KB": 200_000}
_IN_FLIGHT = (1, 4)
_TARGET = 0.7
_GIGABYTE = 1e9

#: A run takes a fraction of a second: many short ones, so that noise meets both sides alike.
_RUNS_PER_ROUND = 3

#: 210 MB, which stays in the page cache and in one segment.
_LOG_MESSAGES = 1_000_000
_LOG_BYTES = _LOG_MESSAGES * STORED_BYTES


class _Load:
    """Fetches of one size, so many in flight, from any server; counts what they cost it."""

    def __init__(self, max_bytes: int, in_flight: int, total_bytes: int) -> None:
        self._sizes = {"max_bytes": max_bytes, "in_flight": in_flight, "total_bytes": total_bytes}
        self._fetches: Counter[str] = Counter()
        self._cpu_us: Counter[str] = Counter()

    def run(self, server: HermesBroker | Baseline) -> float:
        """Fetch, and return the gigabytes per second."""
        before = cpu_seconds(server.pid)
        rate = fetch(server.address, log_bytes=_LOG_BYTES, **self._sizes)
        self._cpu_us[server.name] += round((cpu_seconds(server.pid) - before) * 1e6)
        self._fetches[server.name] += self._sizes["total_bytes"] // self._sizes["max_bytes"]
        return rate / _GIGABYTE

    def cost(self) -> str:
        """What the fetches cost each server: this varies less than the time they took."""
        costs = (f"{name} {us / self._fetches[name]:.0f} us" for name, us in self._cpu_us.items())
        return f"processor time per fetch: {', '.join(costs)}"


def measure(settings: Settings) -> list[Row]:
    """Fill a log, then fetch it from the broker and from the loop in turns."""
    with settings.workspace() as directory, HermesBroker(directory / "hermes") as broker:
        produce(broker.address, encoded_produces(50), _LOG_MESSAGES)
        wait_until_visible(broker.address, _LOG_BYTES)
        return [
            _measure_size(settings, directory, broker, size_name, in_flight)
            for size_name in _SIZES
            for in_flight in _IN_FLIGHT
        ]


def _measure_size(
    settings: Settings, directory: Path, broker: HermesBroker, size_name: str, in_flight: int
) -> Row:
    load = _Load(_SIZES[size_name], in_flight, int(settings.fetch_gigabytes * _GIGABYTE))
    segment = broker.first_segment(TOPIC)
    with Baseline("sendfile_server", directory=directory / "loop", file=segment) as loop:
        hermes_runs, loop_runs = interleaved(
            settings.rounds * _RUNS_PER_ROUND, lambda: load.run(broker), lambda: load.run(loop)
        )
    return ratio_row(
        f"fetch, {size_name}, {in_flight} in flight",
        "GB/s",
        hermes_runs,
        loop_runs,
        beside_name="sendfile loop",
        at_least=_TARGET,
        note=load.cost(),
    )
