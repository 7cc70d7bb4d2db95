"""Which clock says what: a monotonic one says when, the wall clock only stamps.

The wall clock may be set, by people and by NTP. Whatever is scheduled, has an age or a time limit
goes by the reactor's time, so that must not be the wall clock, which it is unless told otherwise:
set back by an hour, it would freeze every timer of the broker for an hour. Stamps on messages and
on log lines don't come from the reactor and stay wall time.
"""

import time
from typing import Any

__all__ = ["use_monotonic_clock"]


def use_monotonic_clock(reactor: Any) -> None:
    """Let a reactor's timers go by a monotonic clock.

    Args:
        reactor: one of Twisted's that serves nothing but Hermes. Nothing may have been scheduled
            on it yet: a timer's time is an absolute one, of the clock that it was set by.
    """
    reactor.seconds = time.monotonic
