"""The mirror page's data: mirrors that write to this cluster, as they report themselves."""

import time
from dataclasses import dataclass
from typing import Final

from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient
from hermes.coordination.mirrors import MirroredPartition, MirrorProcess, problems_of, read_mirrors

#: How many partitions of a mirror are shown, those furthest behind first.
MOST_ROWS: Final = 200


@dataclass(frozen=True, slots=True)
class MirrorView:
    """`processes`: each with the age of its report in seconds.

    `rows`: some of its partitions: those in trouble and the furthest behind first.
    """

    name: str
    processes: tuple[tuple[MirrorProcess, float], ...]
    rows: tuple[MirroredPartition, ...]
    count: int
    problems: tuple[str, ...]

    @property
    def lag_bytes(self) -> int:
        return sum(each.lag_bytes for each, _ in self.processes)

    @property
    def rate_bytes(self) -> float:
        return sum(each.rate_bytes for each, _ in self.processes)

    @property
    def messages(self) -> int:
        """Mirrored since its processes started."""
        return sum(each.messages for each, _ in self.processes)


@dataclass(frozen=True, slots=True)
class MirrorsView:
    mirrors: tuple[MirrorView, ...]
    faults: tuple[str, ...]


class MirrorReader:
    """Reads mirrors' reports. Methods may block, and may be called in any thread."""

    def __init__(self, cluster: ClusterClient, cache: ReadCache) -> None:
        self._cluster = cluster
        self._cache = cache

    def view(self) -> MirrorsView:
        return self._cache.get("mirrors", self._read)

    def _read(self) -> MirrorsView:
        mirrors, faults = read_mirrors(self._cluster.session())
        now_ms = time.time_ns() // 1_000_000
        return MirrorsView(
            tuple(_view(name, processes, now_ms) for name, processes in mirrors.items()),
            tuple(map(str, faults)),
        )


def _view(name: str, processes: list[MirrorProcess], now_ms: int) -> MirrorView:
    rows = [row for each in processes for row in each.partitions]
    rows.sort(key=lambda row: (not row.error, -(row.lag_bytes or 0), row.topic, row.partition))
    return MirrorView(
        name,
        tuple((each, max(0.0, (now_ms - each.time_ms) / 1000)) for each in processes),
        tuple(rows[:MOST_ROWS]),
        sum(each.count for each in processes),
        tuple(problems_of(name, processes, now_ms)),
    )
