"""Pauses between attempts that fail: each twice as long as the one before, up to a longest one.

Whoever tries again says how often it has failed and does the waiting. Imports nothing of Hermes.
"""

__all__ = ["growing_pause"]

# Doubling more often than this overflows sooner or later, and nobody's first pause is that short.
_MOST_DOUBLINGS = 30


def growing_pause(first_seconds: float, count: int, longest_seconds: float) -> float:
    """How long to wait before the next attempt.

    Args:
        first_seconds: the first pause, 0 or more.
        count: how many pauses there were before this one, 0 or more.
        longest_seconds: what no pause exceeds.

    Returns:
        Seconds.
    """
    return min(first_seconds * float(1 << min(count, _MOST_DOUBLINGS)), longest_seconds)
