"""The metrics of transactions: of those that this broker coordinates, and of what it leads."""

from collections.abc import Iterable, Iterator
from typing import Final

from hermes.cluster.shared import Shared
from hermes.kafka.transactions.transactions import Transactions
from hermes.metrics import Family, Series
from hermes.storage.transactions import ALL_DECIDED

_COUNT: Final = Family(
    "hermes_transactions",
    "gauge",
    "Transactions that the broker coordinates: `ongoing`, or `ending`, which are decided and want "
    "markers.",
    ("state",),
)
_OLDEST: Final = Family(
    "hermes_transactions_oldest_seconds",
    "gauge",
    "For how long the oldest of these has been so.",
    ("state",),
)
_ENDED: Final = Family(
    "hermes_transactions_ended_total",
    "counter",
    "Transactions that were decided: `committed`, `aborted` by their producers, `timed_out`, or "
    "`fenced`: aborted as their producer, a successor or an operator began anew.",
    ("how",),
)
_MARKERS: Final = Family(
    "hermes_transactions_markers_waiting",
    "gauge",
    "Markers of decided transactions that are yet to be written, in partitions and groups.",
)
_SILENT: Final = Family(
    "hermes_transactions_silent_seconds",
    "gauge",
    "For how long the producer has sent nothing that has been silent for longest, of those with a "
    "transaction in a partition led here.",
)
_LAG: Final = Family(
    "hermes_transactions_lag_messages",
    "gauge",
    "What readers of what was committed have to wait for: messages between the last stable offset "
    "and the high watermark, of partitions led here that have any.",
    ("topic", "partition"),
)

#: All of them, by name.
FAMILIES: Final = {each.name: each for each in (_COUNT, _OLDEST, _ENDED, _MARKERS, _SILENT, _LAG)}


def series(transactions: Transactions, shared: Shared) -> Iterator[Series]:
    """What there is to show now; what is open in a log is looked for in those that have it only."""
    now_ms = shared.now_ms()
    ongoing = [each.started_ms for each in transactions.coordinator.ongoing()]
    ending = transactions.ending.under_way
    yield _COUNT, [(("ongoing",), len(ongoing)), (("ending",), len(ending))]
    oldest = _age(ongoing, now_ms), _age((each.since_ms for each in ending), now_ms)
    yield _OLDEST, [(("ongoing",), oldest[0]), (("ending",), oldest[1])]
    yield _ENDED, [((how,), count) for how, count in transactions.coordinator.ended.items()]
    yield _MARKERS, [((), sum(len(each.left) for each in ending))]
    undecided = [
        log
        for log in shared.directory.logs.values()
        if log.state.transactions.first_open != ALL_DECIDED
    ]
    led = shared.partitions.led(undecided)
    silent = (log.transactions.silent_since_ms for log in led)
    yield _SILENT, [((), _age((each for each in silent if each is not None), now_ms))]
    lags = [
        ((log.topic, str(log.partition)), log.high_watermark - log.stable_end)
        for log in (led if shared.config.metrics_per_partition else ())
    ]
    yield _LAG, [each for each in lags if each[1] > 0]


def _age(times_ms: Iterable[int], now_ms: int) -> float:
    """How long ago the first was; 0 for none, or a time to come."""
    return max(0.0, (now_ms - min(times_ms, default=now_ms)) / 1000)
