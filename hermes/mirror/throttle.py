"""How fast a mirror may read."""

import threading
import time
from collections.abc import Callable
from typing import Final

#: How much of a second's allowance may be used at once after a pause.
_BURST_SECONDS: Final = 0.25


class BandwidthLimit:
    """Bytes per second, shared by threads; None for no limit. The clock is monotonic seconds."""

    def __init__(
        self, bytes_per_second: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = clock()

    def take(self, size: int) -> float:
        """Count bytes that were read; returns how many seconds to wait before the next read."""
        if self.bytes_per_second is None:
            return 0.0
        with self._lock:
            now = self._clock()
            begun = max(self._free_at, now - _BURST_SECONDS)
            self._free_at = begun + size / self.bytes_per_second
            return max(0.0, self._free_at - now)

    def largest_fetch(self, wanted: int) -> int:
        """How much to read at once, so that no wait is long."""
        if self.bytes_per_second is None:
            return wanted
        return min(wanted, max(1024, int(self.bytes_per_second * _BURST_SECONDS)))
