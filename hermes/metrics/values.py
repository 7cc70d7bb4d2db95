"""Histograms and families of series: names and units by Prometheus' conventions."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

#: For what takes microseconds on a good day and minutes on a bad one, in seconds.
LATENCY_BOUNDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)


class Histogram:
    """How often values fell between bounds. Not thread-safe.

    Args:
        bounds: upper bounds (inclusive), ascending; the last bucket has none.

    Attributes:
        counts: of each bucket by itself, the last one without a bound.
        sum: of all values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value; costs a quarter of a microsecond."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """(upper bound, values up to it), the last one of infinity."""
        return list(zip((*self.bounds, float("inf")), accumulate(self.counts), strict=True))


class Family(NamedTuple):
    """Series of one name.

    Attributes:
        name: with its unit; a counter's ends in `_total`.
        kind: `counter`, `gauge` or `histogram`.
        help: one sentence.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


#: A family, and of each series its labels' values and its number.
Series = tuple[Family, Iterable[tuple[tuple[str, ...], float | Histogram]]]
