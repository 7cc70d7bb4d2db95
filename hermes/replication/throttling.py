"""How fast copies are made for a move: a bucket of bytes that fills as time goes by.

Only who moves, or isn't in sync, takes from it; what in-sync replicas fetch never waits.
"""

import math

#: How much may go at once after a pause, in seconds of the rate.
_BURST_SECONDS = 1.0


class Throttle:
    """Bytes a second for all moves of a broker, in one direction; `math.inf` for no bound."""

    def __init__(self, bytes_per_second: float = math.inf) -> None:
        self._rate = bytes_per_second
        self._level = self._capacity
        self._at = 0.0

    @property
    def _capacity(self) -> float:
        return self._rate * _BURST_SECONDS

    def set_rate(self, bytes_per_second: float, now: float) -> None:
        """Change the rate: what was saved up at the old one is kept, up to the new bound."""
        self._fill(now)
        self._rate = bytes_per_second
        self._level = min(self._level, self._capacity)

    def _fill(self, now: float) -> None:
        if math.isinf(self._rate):
            self._level = math.inf
        else:
            grown = self._level + max(0.0, now - self._at) * self._rate
            self._level = min(self._capacity, grown)
        self._at = now

    def delay(self, now: float) -> float:
        """For how many seconds a mover waits before its next fetch; `math.inf` at a rate of 0."""
        self._fill(now)
        if self._level > 0:
            return 0.0
        return -self._level / self._rate if self._rate else math.inf

    def took(self, size_bytes: int, now: float) -> None:
        """Bytes have gone: more than there were, maybe, which delays what comes next."""
        self._fill(now)
        self._level -= size_bytes
