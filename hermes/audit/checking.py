"""The audit of one or several clusters: count them, read what all tiers report, compare.

What `hermes audit`, the console and applications use.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from hermes.audit.cluster_counter import ClusterCounter
from hermes.audit.comparing import Report, compare
from hermes.audit.counting import DEFAULT_WINDOW_MS
from hermes.audit.event_reader import EventReader
from hermes.audit.publishing import Publisher
from hermes.audit.tiers import Tiers
from hermes.client import ProducerConfig
from hermes.coordination.sessions import Session
from hermes.coordination.topic_filters import TopicFilter
from hermes.security import PLAIN, ClientSecurity

_log = logging.getLogger(__name__)

#: How long messages may take through a pipeline, with the reports about them.
DEFAULT_GRACE_SECONDS: Final = 120.0

# Counting goes on as long as it gets further; it ends when for so long nothing came.
_STALL_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.05

# Events are stored after what they report, and reports on earlier messages may be needed.
_EARLIER_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    name: str
    zookeeper_connect: str
    security: ClientSecurity = PLAIN


class Audit:
    """Reads, and if wanted counts, some clusters.

    Example:
        with Audit([ClusterAddress("main", "localhost:2181")]) as audit:
            audit.count()
            for window in audit.look().differences:
                print(window.topic, window.tier, window.state)

    Args:
        clusters: events are read from all of them.
        since_ms: windows that begin before are left out; 0 for all.
        grace_seconds: see `comparing.compare`.
        window_ms: how long windows are; events with others are left out.
        topics: which topics are counted; None for all.
    """

    def __init__(
        self,
        clusters: Sequence[ClusterAddress],
        *,
        since_ms: int = 0,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
        window_ms: int = DEFAULT_WINDOW_MS,
        topics: TopicFilter | None = None,
    ) -> None:
        self.tiers = Tiers(since_ms, window_ms)
        self.unavailable: list[str] = []
        self._clusters = clusters
        self._since_ms = since_ms
        self._grace_ms = round(grace_seconds * 1000)
        self._window_ms = window_ms
        self._topics = topics
        self._sessions: list[Session] = []
        self._readers: list[EventReader] = []
        self._publishers: list[Publisher] = []
        self._counters: list[ClusterCounter] = []

    def start_counting(self) -> None:
        """Take part in counting the clusters, until `close` (CoordinationUnavailableError)."""
        for cluster in self._clusters:
            connect = cluster.zookeeper_connect
            settings = cluster.security.settings()
            publisher = Publisher(ProducerConfig(zookeeper_connect=connect, **settings))
            self._publishers.append(publisher)
            counter = ClusterCounter(
                cluster.name,
                connect,
                publisher,
                topics=self._topics,
                window_ms=self._window_ms,
                security=cluster.security,
            )
            self._counters.append(counter)
            counter.start()

    def count(self, on_progress: Callable[[int], None] | None = None) -> list[str]:
        """Count what there is now, as far as no other member of the group does it, and report it.

        Args:
            on_progress: called with the number of bytes counted since the last call.

        Returns:
            What isn't counted to its end: partitions that didn't get any further for a while, and
            clusters whose reports could not be stored.
        """
        if not self._counters:
            self.start_counting()
        since = last = time.monotonic()
        for counter in self._counters:
            counter.hurry()
        positions = 0
        while left := [each for counter in self._counters for each in counter.uncounted(since)]:
            now = sum(each.position for counter in self._counters for each in counter.claims())
            if now != positions:
                if on_progress is not None and positions:
                    on_progress(max(now - positions, 0))
                positions, last = now, time.monotonic()
            elif time.monotonic() - last > _STALL_SECONDS:
                break
            time.sleep(_LOOK_SECONDS)
        unpublished = [
            f"cluster {counter.name}: what was counted could not be stored"
            for counter in self._counters
            if not counter.publish()
        ]
        for counter in self._counters:
            counter.report_commits(is_due=True)
        return [f"{each}: not counted to its end" for each in left] + unpublished

    def look(self, chosen: Sequence[str] = (), topics: Sequence[str] = ()) -> Report:
        """Read what is new, and compare all tiers; `unavailable` has what couldn't be read.

        Raises CoordinationUnavailableError where coordination of a cluster doesn't answer.
        """
        self._open()
        self.unavailable = []
        for reader in self._readers:
            for event in reader.read():
                self.tiers.add(event)
            self.unavailable += reader.unavailable
        return compare(
            self.tiers,
            now_ms=int(time.time() * 1000),
            grace_ms=self._grace_ms,
            chosen=chosen,
            topics=topics,
            since_ms=self._since_ms,
        )

    def close(self) -> None:
        """Report what was counted, leave the groups, and close all connections."""
        for counter in self._counters:
            if not counter.stop():
                _log.warning("cluster %s: the last counts could not be stored", counter.name)
        for publisher in self._publishers:
            publisher.close()
        for reader in self._readers:
            reader.close()
        for session in self._sessions:
            session.stop()
        self._counters, self._publishers, self._readers, self._sessions = [], [], [], []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> None:
        """Begin to read those clusters that couldn't be reached before, or all."""
        for cluster in self._clusters[len(self._readers) :]:
            session = Session(cluster.zookeeper_connect, security=cluster.security)
            session.start()
            self._sessions.append(session)
            since_ms = max(self._since_ms - _EARLIER_MS, 0)
            self._readers.append(EventReader(session, since_ms=since_ms, security=cluster.security))
