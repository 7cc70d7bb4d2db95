"""How far streams are behind: Kafka's figures, from what Spark reports of each micro-batch.

Sources that are written in Python have no metrics of their own, but Spark's report has the offsets
where a batch ended, and where the partitions ended when it was planned. An offset is a byte here.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from hermes.metrics import FamiliesCollector, Family, Series
from hermes.spark.offsets import Offsets, parse_offsets
from hermes.spark.starting import prepare_streams

_LABELS: Final = ("query", "source")
_FAMILIES: Final = {
    "total": Family(
        "hermes_spark_behind_bytes", "gauge", "Bytes that a stream has yet to read.", _LABELS
    ),
    "maximum": Family(
        "hermes_spark_behind_max_bytes", "gauge", "The same of its last partition.", _LABELS
    ),
    "partitions": Family(
        "hermes_spark_partitions", "gauge", "Partitions that a stream reads.", _LABELS
    ),
    "rows": Family(
        "hermes_spark_input_rows_total", "counter", "Messages that a stream has read.", _LABELS
    ),
}


class Behind(NamedTuple):
    """How far a source of a stream is behind, as of its last micro-batch, in bytes of the logs.

    Attributes:
        maximum: of the partition that is furthest behind.
        minimum: of the one that is least behind.
    """

    partitions: int
    total: int
    average: float
    maximum: int
    minimum: int

    def metrics(self) -> dict[str, float]:
        """The figures under the names that Spark's source for Kafka gives them."""
        return {
            "avgOffsetsBehindLatest": self.average,
            "maxOffsetsBehindLatest": self.maximum,
            "minOffsetsBehindLatest": self.minimum,
        }


def behind_latest(source: Mapping[str, Any]) -> Behind | None:
    """Return the lag of one of `sources` of a `StreamingQueryProgress`.

    None for a source that isn't Hermes', or that has planned nothing yet.

    Example:
        for source in query.lastProgress.sources:
            print(behind_latest(source))
    """
    ends, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
    if not ends or not latest:
        return None
    left = [max(0, latest[each] - end) for each, end in ends.items() if each in latest]
    if not left:
        return None
    return Behind(len(left), sum(left), sum(left) / len(left), max(left), min(left))


def _offsets(text: object) -> Offsets:
    try:
        return parse_offsets(text) if isinstance(text, str) else {}
    except ValueError:
        return {}


class ProgressListener(StreamingQueryListener, FamiliesCollector):
    """Keeps how far the streams of a session are behind, for a program and for Prometheus.

    Streams that start while it listens may start together, see `prepare_streams`.

    Example:
        listener = ProgressListener()
        spark.streams.addListener(listener)
        prometheus_client.REGISTRY.register(listener)
    """

    def __init__(self) -> None:
        FamiliesCollector.__init__(self, self._families)
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._behind: dict[tuple[str, int], Behind] = {}
        self._rows: dict[tuple[str, int], int] = {}

    def behind(self) -> dict[tuple[str, int], Behind]:
        """How far each source is behind, by its query's name (its id if it has none) and place."""
        with self._lock:
            return {
                (self._names[query], place): each for (query, place), each in self._behind.items()
            }

    def onQueryStarted(self, event: Any) -> None:
        if SparkSession.getActiveSession() is not None:
            # The driver's first session: the active one may know the source by another map.
            prepare_streams(SparkSession.builder.getOrCreate())

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        query = str(progress.id)
        with self._lock:
            self._names[query] = progress.name or query
            for place, source in enumerate(progress.sources):
                found = behind_latest(source)
                if found is not None:
                    self._behind[query, place] = found
                    self._rows[query, place] = self._rows.get((query, place), 0) + max(
                        0, source["numInputRows"]
                    )

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None:
        query = str(event.id)
        with self._lock:
            self._names.pop(query, None)
            for kept in (self._behind, self._rows):
                for each in [each for each in kept if each[0] == query]:
                    del kept[each]

    def _families(self) -> Iterator[Series]:
        with self._lock:
            names, behind, rows = dict(self._names), dict(self._behind), dict(self._rows)
        for attribute, family in _FAMILIES.items():
            yield (
                family,
                [
                    (
                        (names[query], str(place)),
                        rows[query, place]
                        if attribute == "rows"
                        else getattr(behind[query, place], attribute),
                    )
                    for query, place in behind
                ],
            )
