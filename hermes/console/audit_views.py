"""The audit page's data: what the tiers have reported to this cluster, compared."""

import threading
import time
from dataclasses import dataclass
from typing import Final

from hermes.audit.checking import DEFAULT_GRACE_SECONDS
from hermes.audit.comparing import DIFFERENT, Loss, Report, Total, Window, compare
from hermes.audit.event_reader import EventReader
from hermes.audit.tiers import Tiers
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient

#: How many windows are shown, the newest first.
MOST_ROWS: Final = 200

_SINCE_MS: Final = 24 * 3_600_000
# What is older than the page looks back is forgotten by starting over.
_AFRESH_SECONDS: Final = 6 * 3_600.0
# So many lengths of windows are told apart.
_MOST_LENGTHS: Final = 8
# How long a look at the page reads; it goes on with the next.
_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class TierRow:
    """One topic in one tier.

    Attributes:
        against: the tier that it is compared with.
        missing: for certain.
        doubled: messages that are there once too often.
        since_ms: the first window that differs; None if none does.
    """

    topic: str
    tier: str
    against: str
    states: dict[str, int]
    messages: int
    missing: int
    doubled: int
    late: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class AuditView:
    """All there is to show.

    Attributes:
        windows: those that aren't complete, newest first.
        hidden: how many more there are.
        removed: by tier and topic how many messages were compacted away before they were counted.
    """

    rows: tuple[TierRow, ...]
    windows: tuple[Window, ...]
    hidden: int
    losses: tuple[Loss, ...]
    totals: tuple[Total, ...]
    removed: tuple[tuple[str, str, int], ...]
    unavailable: tuple[str, ...]
    is_reading: bool


class AuditReader:
    """Reads and compares reports. Thread-safe. Counts nothing itself."""

    def __init__(self, cluster: ClusterClient, cache: ReadCache) -> None:
        self._cluster = cluster
        self._cache = cache
        self._lock = threading.Lock()
        self._reader: EventReader | None = None
        self._since_ms = 0
        # By length of the windows: each producer chooses its own.
        self._tiers: dict[int, Tiers] = {}
        self._began = 0.0

    def view(self) -> AuditView:
        """Read for a limited time, and compare. Raises HermesError without coordination."""
        return self._cache.get("audit", self._read)

    def close(self) -> None:
        with self._lock:
            if self._reader is not None:
                self._reader.close()
            self._reader = None

    def _read(self) -> AuditView:
        with self._lock:
            now = time.time()
            if self._reader is None or now - self._began > _AFRESH_SECONDS:
                self._begin(now)
            assert self._reader is not None
            is_reading = self._take(self._reader)
            report = Report(int(now * 1000), 0)
            for tiers in self._tiers.values():
                each = compare(
                    tiers,
                    now_ms=int(now * 1000),
                    grace_ms=round(DEFAULT_GRACE_SECONDS * 1000),
                    since_ms=max(int(now * 1000) - _SINCE_MS, 0),
                )
                report.windows += each.windows
                report.losses += each.losses
                report.totals += each.totals
                report.removed |= each.removed
            return _view(report, tuple(self._reader.unavailable), is_reading)

    def _begin(self, now: float) -> None:
        if self._reader is not None:
            self._reader.close()
        since_ms = max(int(now * 1000) - _SINCE_MS, 0)
        self._tiers, self._since_ms = {}, since_ms
        self._reader = EventReader(
            self._cluster.session(),
            since_ms=since_ms,
            security=self._cluster.elsewhere(),
            own=self._cluster.own,
        )
        self._began = now

    def _take(self, reader: EventReader) -> bool:
        deadline = time.monotonic() + _SECONDS
        for event in reader.read():
            window_ms = event.window_ms
            if window_ms not in self._tiers and len(self._tiers) < _MOST_LENGTHS:
                self._tiers[window_ms] = Tiers(self._since_ms, window_ms)
            if window_ms in self._tiers:
                self._tiers[window_ms].add(event)
            if time.monotonic() > deadline:
                return True
        return False


def _view(report: Report, unavailable: tuple[str, ...], is_reading: bool) -> AuditView:
    shown = [each for each in report.windows if each.state not in ("complete", "open")]
    shown.sort(key=lambda each: (each.state not in DIFFERENT, -each.start_ms))
    return AuditView(
        tuple(_rows(report)),
        tuple(shown[:MOST_ROWS]),
        max(len(shown) - MOST_ROWS, 0),
        tuple(report.losses[:MOST_ROWS]),
        tuple(report.totals),
        tuple((*place, count) for place, count in sorted(report.removed.items())),
        unavailable,
        is_reading,
    )


def _rows(report: Report) -> list[TierRow]:
    by_tier: dict[tuple[str, str, str], list[Window]] = {}
    for each in report.windows:
        by_tier.setdefault((each.topic, each.tier, each.against), []).append(each)
    return [_row(topic, tier, windows) for (topic, tier, _), windows in by_tier.items()]


def _row(topic: str, tier: str, windows: list[Window]) -> TierRow:
    different = [each for each in windows if each.state in DIFFERENT]
    states: dict[str, int] = {}
    for each in windows:
        states[each.state] = states.get(each.state, 0) + 1
    return TierRow(
        topic,
        tier,
        windows[0].against,
        states,
        sum(each.found for each in windows),
        sum(each.short for each in different),
        sum(each.over for each in different),
        sum(each.late for each in windows),
        min((each.start_ms for each in different), default=None),
    )
