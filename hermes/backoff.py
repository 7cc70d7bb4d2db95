"""Pauses between failing attempts: each twice as long as the one before, up to a limit.

The caller counts the pauses and does the waiting. Imports nothing from Hermes.
"""

__all__ = ["growing_pause"]

# Doubling more often than this would overflow sooner or later, and no first pause is that short.
_MOST_DOUBLINGS = 30


def growing_pause(first_seconds: float, count: int, longest_seconds: float) -> float:
    """How long to wait before the next attempt.

    Args:
        first_seconds: the first pause, 0 or more.
        count: how many pauses there were before this one, 0 or more.
        longest_seconds: the longest pause.

    Returns:
        Seconds.
    """
    return min(first_seconds * float(1 << min(count, _MOST_DOUBLINGS)), longest_seconds)
