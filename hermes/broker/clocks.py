"""Which clock says what: a monotonic one says when, the wall clock only stamps.

The wall clock may be set, by people and by NTP. Whatever is scheduled, has an age or a time limit
goes by the reactor's time, so that must not be the wall clock, which is Twisted's default:
set back by an hour, it would freeze every timer of the broker for an hour. Stamps on messages and
on log lines don't come from the reactor and stay wall time.
"""

import time
from collections.abc import Callable
from typing import Any, Final

#: How long a jump ahead must last to be believed.
BELIEVE_AFTER_SECONDS: Final = 3600.0

#: Smaller steps are ignored.
_TOLERANCE_MS: Final = 10_000


def use_monotonic_clock(reactor: Any) -> None:
    """Let a reactor's timers go by a monotonic clock.

    The reactor serves nothing but Hermes, and nothing may have been scheduled on it yet: a timer
    is absolute, by the clock that it was set by.
    """
    reactor.seconds = time.monotonic


class BelievedClock:
    """The wall clock for what can't be undone: a jump ahead is believed after an hour.

    Until then time continues from before the jump. A clock that is set back is believed at once,
    since that only keeps data for longer. A clock that is wrong at the start can't be told from
    one that is right. Lives in the reactor's thread.
    """

    def __init__(self, now_ms: Callable[[], int], seconds: Callable[[], float]) -> None:
        self._wall_ms = now_ms
        self._seconds = seconds
        self._believed_ms = now_ms()
        self._believed_at = seconds()
        self._ahead_ms = 0  # of what is believed
        self._ahead_since: float | None = None

    def seconds(self) -> float:
        return self._seconds()

    def now_ms(self) -> int:
        """In ms since 1970; jumps are found only if this is called regularly."""
        wall_ms, seconds = self._wall_ms(), self._seconds()
        expected_ms = self._believed_ms + int((seconds - self._believed_at) * 1000)
        ahead_ms = wall_ms - expected_ms
        if ahead_ms > _TOLERANCE_MS:
            if self._ahead_since is None or ahead_ms > self._ahead_ms + _TOLERANCE_MS:
                self._ahead_since = seconds
            self._ahead_ms = ahead_ms
            if seconds - self._ahead_since < BELIEVE_AFTER_SECONDS:
                return expected_ms
        self._believed_ms, self._believed_at = wall_ms, seconds
        self._ahead_since = None
        return wall_ms
