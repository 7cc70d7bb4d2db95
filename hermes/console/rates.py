"""Rates of counters, and their history for charts.

Nothing is measured in the background: requests for pages are the samples. A rate needs two, so the
first page after a while takes both, a moment apart. A chart has a gap where nobody looked.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)

# Over how long a rate is taken: short enough to be of now, long enough not to jump.
_WINDOW_SECONDS: Final = 10.0
# A sample that is older says nothing about now.
_OLDEST_SECONDS: Final = 30.0
_MOST_POINTS: Final = 300
#: How long a first look waits for its second one, without which no rate is known.
FIRST_LOOK_SECONDS: Final = 0.25
_GAP_SECONDS: Final = 30.0


class Rates:
    """Rates of many counters that are sampled together. Not thread-safe."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Mapping[Hashable, int]]] = deque()

    def add(self, at: float, counters: Mapping[Hashable, int]) -> dict[Hashable, float]:
        """Add a sample; `at` is monotonic, in seconds, and `counters` are kept, not copied.

        Returns the growth per second, without counters that are new or went back: a partition was
        deleted.
        """
        samples = self._samples
        while samples and at - samples[0][0] > _OLDEST_SECONDS:
            samples.popleft()
        # One sample from before the window stays, to cover all of it.
        while len(samples) > 1 and at - samples[1][0] >= _WINDOW_SECONDS:
            samples.popleft()
        samples.append((at, counters))
        began, before = samples[0]
        if at <= began:
            return {}
        return {
            key: (value - before[key]) / (at - began)
            for key, value in counters.items()
            if key in before and value >= before[key]
        }


class Written(Generic[_K]):
    """Bytes written to partitions whose offsets count messages, as counters for `Rates`.

    Derived from sizes: what was written since the last sample is not counted where deletion or
    compaction shrank the log. Not thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[_K, tuple[int, int]] = {}  # the last size, and the counter

    def add(self, sizes: Mapping[_K, int]) -> dict[_K, int]:
        """Add a sample of partitions' sizes in bytes, which replaces the last one.

        Returns a counter for each, which never goes back.
        """
        known: dict[_K, tuple[int, int]] = {}
        for key, size in sizes.items():
            before, counter = self._known.get(key, (0, 0))
            known[key] = size, counter + max(size - before, 0)
        self._known = known
        return {key: counter for key, (_, counter) in known.items()}


class History:
    """The last values of a number, for a chart. Not thread-safe.

    `points`: pairs of time (monotonic, in seconds) and value; the value None begins a gap.
    """

    def __init__(self) -> None:
        self.points: deque[tuple[float, float | None]] = deque(maxlen=_MOST_POINTS)

    def add(self, at: float, value: float) -> None:
        """Add a value, and a gap before it if nobody looked for a while."""
        if self.points and at - self.points[-1][0] > _GAP_SECONDS:
            self.points.append((at, None))
        self.points.append((at, value))
