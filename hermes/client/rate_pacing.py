"""Limits the rate of sending."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

_PIECES_PER_SECOND: Final = 10


class Pace:
    """Lets messages pass at an even rate, without bursts after a pause.

    `bytes_per_second` counts payloads; both are above 0, or None for no limit.
    """

    def __init__(
        self,
        messages_per_second: float | None,
        bytes_per_second: float | None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = messages_per_second
        self._byte_rate = bytes_per_second
        self._sleep = sleep
        self._seconds = seconds
        self._due = seconds()

    def pieces(self, payloads: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Split messages, one or more, into pieces, and yield each when its time has come."""
        if self._rate is None and self._byte_rate is None:
            yield payloads
            return
        start = 0
        while start < len(payloads):
            end, cost = start, 0.0
            while end < len(payloads) and (end == start or cost < 1 / _PIECES_PER_SECOND):
                cost += self._cost(payloads[end])
                end += 1
            now = self._seconds()
            if self._due > now:
                self._sleep(self._due - now)
            self._due = max(self._due, now) + cost
            yield payloads[start:end]
            start = end

    def _cost(self, payload: bytes) -> float:
        by_count = 0.0 if self._rate is None else 1 / self._rate
        by_size = 0.0 if self._byte_rate is None else len(payload) / self._byte_rate
        return max(by_count, by_size)
