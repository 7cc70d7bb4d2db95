"""Samples the whole cluster, with rates, for the overview and the list of topics."""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from hermes.console.cache import ReadCache
from hermes.console.charts import Chart, draw
from hermes.console.cluster_client import BrokerState, ClusterClient
from hermes.console.formatting import bytes_text, rate_text
from hermes.console.rates import FIRST_LOOK_SECONDS, History, Rates, Written
from hermes.protocol import TopicMetadata

# An open page is to take about this part of one processor, broker and console together...
_PART_OF_A_PROCESSOR: Final = 0.015
# ... which is so many times what this thread takes: the broker encodes, pages are rendered.
_ALL_OF_IT: Final = 4
_LEAST_MS: Final = 2_000
_MOST_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic, over all brokers.

    `rate`: bytes written per second, by sizes where offsets count messages; None if unknown.
    """

    name: str
    partitions: int
    size_bytes: int
    rate: float | None
    brokers: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one moment.

    Attributes:
        at: monotonic, in seconds.
        brokers: also those that don't answer.
        rate: bytes written per second by all; None while it isn't known.
        faults: entries of coordination that can't be parsed.
        pause_ms: the time until a page may refresh.
    """

    at: float
    brokers: tuple[BrokerState, ...]
    topics: dict[str, TopicRow]
    rate: float | None
    charts: tuple[Chart, ...]
    faults: tuple[str, ...]
    pause_ms: int

    @property
    def size_bytes(self) -> int:
        return sum(topic.size_bytes for topic in self.topics.values())

    @property
    def partitions(self) -> int:
        return sum(topic.partitions for topic in self.topics.values())


class ClusterSampler:
    """Reads the whole cluster, at most once a second however many look."""

    def __init__(
        self, cluster: ClusterClient, cache: ReadCache, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._clock = clock
        self._lock = threading.Lock()
        self._rates = Rates()
        self._grown: Written[tuple[Hashable, int]] = Written()
        self._written, self._stored = History(), History()

    def view(self) -> ClusterView:
        """The cluster as it is, or was a moment ago. Blocks."""
        return self._cache.get("cluster", self._measure)

    def _measure(self) -> ClusterView:
        view = self._take()
        if view.rate is None:
            time.sleep(FIRST_LOOK_SECONDS)
            view = self._take()
        return view

    def _take(self) -> ClusterView:
        began = time.thread_time()
        brokers = self._cluster.read()
        at = self._clock()
        with self._lock:
            return self._view(brokers, at, began)

    def _view(self, brokers: list[BrokerState], at: float, began: float) -> ClusterView:
        written = self._written_by_now(brokers)
        rates = self._rates.add(at, written)
        topics = self._topics(brokers, rates)
        rate = sum(rates.values()) if rates or not written else None
        if rate is not None:
            self._written.add(at, rate)
        self._stored.add(at, sum(topic.size_bytes for topic in topics.values()))
        charts = (
            draw("written", "Written per second", self._written, at, rate_text),
            draw("stored", "Stored", self._stored, at, bytes_text),
        )
        faults = self._cluster.faults
        spent_ms = _ALL_OF_IT * (time.thread_time() - began) * 1000
        pause_ms = min(max(_LEAST_MS, round(spent_ms / _PART_OF_A_PROCESSOR)), _MOST_MS)
        return ClusterView(at, tuple(brokers), topics, rate, charts, faults, pause_ms)

    def _written_by_now(self, brokers: list[BrokerState]) -> dict[Hashable, int]:
        written: dict[Hashable, int] = {}
        sizes: dict[tuple[Hashable, int], int] = {}
        for broker in brokers:
            for topic in broker.topics:
                key = _rate_key(broker, topic)
                if topic.holds_records:
                    written[key] = 0
                    sizes |= {(key, each.partition): each.size_bytes for each in topic.partitions}
                else:
                    written[key] = sum(each.high_watermark for each in topic.partitions)
        for place, count in self._grown.add(sizes).items():
            written[place[0]] += count
        return written

    def _topics(
        self, brokers: list[BrokerState], rates: dict[Hashable, float]
    ) -> dict[str, TopicRow]:
        found: dict[str, TopicRow] = {}
        for broker in brokers:
            for topic in broker.topics:
                count = len(topic.numbers)
                size = sum(each.size_bytes for each in topic.partitions)
                rate = rates.get(_rate_key(broker, topic))
                known = found.get(topic.topic)
                if known is None:
                    row = TopicRow(topic.topic, count, size, rate, 1)
                else:
                    row = TopicRow(
                        topic.topic,
                        known.partitions + count,
                        known.size_bytes + size,
                        rate if known.rate is None else known.rate + (rate or 0.0),
                        known.brokers + 1,
                    )
                found[topic.topic] = row
        return dict(sorted(found.items()))


def _rate_key(broker: BrokerState, topic: TopicMetadata) -> tuple[int, str, bool]:
    """A topic that comes back in the other format is counted as another one."""
    return broker.broker_id, topic.topic, topic.holds_records
