"""Messages that failed unnoticed by the application: logged, and kept for `flush` and `close`.

An asynchronous `send` returns before its outcome is known, so a failure must reach somebody by
another way: a callback handler, or a look at the handle. What went neither way is counted here.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from hermes.client.batching import Batch
from hermes.errors import DeliveryError
from hermes.rate_limit import RateLimit

_log = logging.getLogger(__name__)


class Failures:
    """Counts failed messages that nobody has noticed. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._log_limit = RateLimit(clock, allowed=1)  # while sending keeps failing
        self._lock = threading.Lock()
        self._unobserved_count = 0
        self._last_error: Exception | None = None
        self._burst_count = 0
        self._unsaid_count = 0

    def note(self, batch: Batch, failed: Mapping[int, int], error: Exception) -> None:
        count = batch.watch_failures(failed, self._observed)
        if not count:
            return
        with self._lock:
            self._unobserved_count += count
            self._last_error = error
            self._burst_count += count
            self._unsaid_count += count
            if self._log_limit.allow("failed") is None:
                return
            unsaid, self._unsaid_count = self._unsaid_count, 0
        _log.error("%d messages were not sent: %s", unsaid, error)

    def end_burst(self) -> None:
        if not self._burst_count:
            return
        with self._lock:
            burst, self._burst_count = self._burst_count, 0
            self._unsaid_count = 0
            self._log_limit.reset()
        _log.warning("messages are sent again; %d were not sent before", burst)

    def take(self) -> DeliveryError | None:
        """What failed since the last time and is still unnoticed, as an error to raise."""
        with self._lock:
            count, self._unobserved_count = self._unobserved_count, 0
            unsaid, self._unsaid_count = self._unsaid_count, 0
            error, self._last_error = self._last_error, None
        if unsaid:
            _log.error("%d more messages were not sent: %s", unsaid, error)
        if not count:
            return None
        failure = DeliveryError(f"{count} messages were not sent: {error}", failed_count=count)
        failure.__cause__ = error
        return failure

    def _observed(self, count: int) -> None:
        with self._lock:
            self._unobserved_count = max(self._unobserved_count - count, 0)
