"""What a query's filters leave of a read: topics, partitions, offsets, times. Reads no messages.

Spark evaluates every filter again, row by row. So whatever is narrowed here may be too much and
must never be too little: what can't be used is left out, and ends are moved outwards to the next
boundary of messages.

    WHERE topic = 'clicks' AND partition IN (0, 1)    other partitions are not read
    WHERE offset >= 1000000                           nor what lies before the message there
    WHERE timestamp >= '2026-01-01'                   nor what is known to be older

Spark hands filters to Python sources since 4.1, if `spark.sql.python.filterPushdown.enabled` is
set. Column references are tuples of names. Up to 4.3.0 it keeps what was planned with them beside
the DataFrame, not the query: another query on it that has no such filter, or a join of it with
itself, reads no more than that. So a read asks for it by its option `pushFilters`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.offsets import Offsets, TopicPartition
from hermes.spark.planning import boundary_after

#: What times are rounded down to while it is found out what is too old or too new.
_INTERVAL_MS: Final = 60_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

_Test = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The whole numbers that a filter leaves, both ends included; None for no end."""

    first: int | None = None
    last: int | None = None

    def within(self, first: int | None, last: int | None) -> "ValueRange":
        firsts = [each for each in (self.first, first) if each is not None]
        lasts = [each for each in (self.last, last) if each is not None]
        return ValueRange(max(firsts, default=None), min(lasts, default=None))

    @property
    def is_everything(self) -> bool:
        return self.first is None and self.last is None


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """What filters leave: tests of a partition's topic, broker and number, by the column's name.

    And where messages may start, and the ms since 1970 when they may have been appended, rounded
    outwards.
    """

    tests: Mapping[str, tuple[_Test, ...]] = field(default_factory=dict)
    offsets: ValueRange = ValueRange()
    times_ms: ValueRange = ValueRange()

    @classmethod
    def of(cls, filters: Iterable[Any]) -> "PushedFilters":
        tests: dict[str, tuple[_Test, ...]] = {}
        offsets, times = ValueRange(), ValueRange()
        for each in filters:
            path: tuple[str, ...] = getattr(each, "attribute", ())
            column, kind = path[0] if len(path) == 1 else None, type(each).__name__
            value = getattr(each, "value", None)
            if column == "offset":
                offsets = offsets.within(*_ends(kind, value, _whole))
            elif column == "timestamp":
                times = times.within(*_ends(kind, value, _milliseconds))
            elif column in ("topic", "broker", "partition") and (test := _test(kind, value)):
                tests[column] = (*tests.get(column, ()), test)
        return cls(tests, offsets, times)

    def includes(self, partition: TopicPartition) -> bool:
        values = {
            "topic": partition.topic,
            "broker": partition.broker_id,
            "partition": partition.partition,
        }
        return all(test(values[name]) for name, tests in self.tests.items() for test in tests)

    def narrow(
        self, cluster: ClusterReader, start: Offsets, end: Offsets
    ) -> tuple[Offsets, Offsets]:
        """Bring the ends of ranges nearer, to boundaries; what is left of a range may be empty.

        With a broker of Kafka 0.7, which can't be asked, ranges stay as they are.
        """
        if self.offsets.is_everything and self.times_ms.is_everything:
            return start, end
        starts, ends = dict(start), dict(end)
        for each in start:
            first, last = start[each], end[each]
            if first < last:
                first, last = self._by_offset(cluster, each, first, last)
            if first < last and not self.times_ms.is_everything:
                first, last = self._by_time(cluster, each, first, last)
            starts[each], ends[each] = first, last
        return starts, ends

    def _by_offset(
        self, cluster: ClusterReader, partition: TopicPartition, start: int, end: int
    ) -> tuple[int, int]:
        first, last = self.offsets.first, self.offsets.last
        if (first is not None and first >= end) or (last is not None and last < start):
            return end, end
        if first is not None and first > start:
            boundary = cluster.boundary(partition, first)
            start = start if boundary is None else boundary
        if last is not None and last < end:
            before = cluster.boundary(partition, last)
            if before is not None:  # the first boundary after it ends whatever starts up to `last`
                end = boundary_after(cluster, partition, before, 1, end)
        return start, end

    def _by_time(
        self, cluster: ClusterReader, partition: TopicPartition, start: int, end: int
    ) -> tuple[int, int]:
        runs = cluster.append_times(partition, start, end, _INTERVAL_MS)
        oldest, newest = self.times_ms.first, self.times_ms.last
        kept = [
            each
            for each in runs
            if each.time_ms is None
            or (
                (oldest is None or each.time_ms + _INTERVAL_MS > oldest)
                and (newest is None or each.time_ms <= newest)
            )
        ]
        if not runs:
            return start, end
        return (kept[0].start_offset, kept[-1].end_offset) if kept else (end, end)


def _ends(
    kind: str, value: Any, bounds: Callable[[Any], ValueRange]
) -> tuple[int | None, int | None]:
    if kind == "In":
        each = [bounds(one) for one in value]
        firsts = [one.first for one in each if one.first is not None]
        lasts = [one.last for one in each if one.last is not None]
        is_known = bool(each) and len(firsts) == len(lasts) == len(each)
        return (min(firsts), max(lasts)) if is_known else (None, None)
    around = bounds(value)
    if kind in ("EqualTo", "EqualNullSafe"):
        return around.first, around.last
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return around.first, None
    if kind in ("LessThan", "LessThanOrEqual"):
        return None, around.last
    return None, None


def _test(kind: str, value: Any) -> _Test | None:
    """A filter as a function of a value that is never null; None if it can't be used."""
    tests: dict[str, _Test] = {
        "EqualTo": lambda found: bool(found == value),
        "EqualNullSafe": lambda found: bool(found == value),
        "In": lambda found: found in value,
        "GreaterThan": lambda found: bool(found > value),
        "GreaterThanOrEqual": lambda found: bool(found >= value),
        "LessThan": lambda found: bool(found < value),
        "LessThanOrEqual": lambda found: bool(found <= value),
        "StringStartsWith": lambda found: found.startswith(value),
        "StringEndsWith": lambda found: found.endswith(value),
        "StringContains": lambda found: value in found,
    }
    return None if value is None else tests.get(kind)


def _whole(value: Any) -> ValueRange:
    return ValueRange(value, value) if type(value) is int else ValueRange()


def _milliseconds(value: Any) -> ValueRange:
    """The milliseconds around a time; of one without a zone, which may mean any, a day around."""
    if not isinstance(value, datetime):
        return ValueRange()
    day_ms = 0 if value.tzinfo is not None else 24 * 3_600_000
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    time_ms = (moment - _EPOCH) // _MILLISECOND
    return ValueRange(time_ms - day_ms, time_ms + 1 + day_ms)
