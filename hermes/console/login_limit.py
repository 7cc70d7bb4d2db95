"""Limits password checks, by client and in parallel.

Checking a password costs memory and processor time on purpose. One visitor's tries must neither
lock out another nor occupy the threads that make pages.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from typing import Final

from hermes.security.login_attempts import client_of

# Of each client: five at once, and then one every ten seconds, nine thousand a day.
_MOST_FAILURES: Final = 5
_FORGOTTEN_AFTER_SECONDS: Final = 10.0
_MOST_CLIENTS: Final = 10_000
_MOST_CHECKS: Final = 2
# They wait in threads that pages are made in, for a tenth of a second or two.
_MOST_WAITING: Final = 2


class TooManyTriesError(Exception):
    """A password was not even checked; the text says why."""

    def __init__(self, reason: str, retry_after_seconds: int) -> None:
        unit = "second" if retry_after_seconds == 1 else "seconds"
        super().__init__(f"{reason} Try again in {retry_after_seconds} {unit}.")
        self.retry_after_seconds = retry_after_seconds


class LoginLimit:
    """Limits the tries of a password. Thread-safe.

    `checks`: how many are checked at once, each of another client; `waiting`: how many more may
    wait for that; `failures`: how many of a client's cost it nothing, None for any number.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        checks: int = _MOST_CHECKS,
        waiting: int = _MOST_WAITING,
        failures: int | None = _MOST_FAILURES,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._checks = threading.Semaphore(checks)
        self._most_under_way = checks + waiting
        self._most_failures = failures
        self._under_way: set[str] = set()
        # By client, the last to fail at the end: how many are remembered, and as of when.
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, address: str, is_right: Callable[[], bool]) -> bool:
        """Check a password; blocks while others are checked, or raises TooManyTriesError: not now.

        `address` is the IP address; everything else counts as one client.
        """
        client = client_of(address)
        with self._lock:
            self._admit(client)
            self._under_way.add(client)
        found = False
        try:
            with self._checks:
                found = is_right()
        finally:
            with self._lock:
                self._under_way.remove(client)
                if not found:
                    self._remember(client)
        return found

    def _admit(self, client: str) -> None:
        most = self._most_failures
        excess = 0 if most is None else self._remembered(client) - (most - 1)
        if excess > 0:
            raise TooManyTriesError(
                "There were too many wrong passwords from your address.",
                ceil(excess * _FORGOTTEN_AFTER_SECONDS),
            )
        if client in self._under_way:
            raise TooManyTriesError("Another password from your address is being checked.", 1)
        if len(self._under_way) >= self._most_under_way:
            raise TooManyTriesError("Too many passwords are being checked.", 1)

    def _remembered(self, client: str) -> float:
        """How many failures count; they decay."""
        count, at = self._failures.get(client, (0.0, 0.0))
        return max(0.0, count - (self._clock() - at) / _FORGOTTEN_AFTER_SECONDS)

    def _remember(self, client: str) -> None:
        self._failures[client] = self._remembered(client) + 1, self._clock()
        self._failures.move_to_end(client)
        if len(self._failures) > _MOST_CLIENTS:
            self._failures.popitem(last=False)
