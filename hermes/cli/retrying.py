"""Retries while a broker is unavailable: growing pauses, one line on stderr, a time limit."""

import time
from collections.abc import Callable
from typing import Final

from hermes.backoff import growing_pause
from hermes.cli.terminal import note, status
from hermes.errors import HermesError, is_retriable

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0


class Retrying:
    """`limit_seconds`: how long to retry after the first failure; None for ever, 0 not at all."""

    def __init__(
        self,
        limit_seconds: float | None,
        *,
        quiet: bool = False,
        sleep: Callable[[float], None] = time.sleep,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit_seconds
        self._quiet = quiet
        self._sleep = sleep
        self._seconds = seconds
        self._since: float | None = None
        self._pauses = 0  # in a row

    def failed(self, error: HermesError) -> None:
        """Pause after a failure; the first in a row is reported on stderr.

        Raises the error itself when a retry can't help, or has not helped for too long.
        """
        if not is_retriable(error):
            raise error
        now = self._seconds()
        since = now if self._since is None else self._since
        left = None if self._limit is None else since + self._limit - now
        if left is not None and left <= 0:
            raise error
        if self._since is None:
            self._since = now
            note(f"{error}; retrying")
        pause = growing_pause(_FIRST_PAUSE_SECONDS, self._pauses, _LONGEST_PAUSE_SECONDS)
        self._pauses += 1
        self._sleep(pause if left is None else min(pause, left))

    def succeeded(self) -> None:
        if self._since is None:
            return
        status(f"working again after {self._seconds() - self._since:.0f} s", quiet=self._quiet)
        self._since, self._pauses = None, 0
