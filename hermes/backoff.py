"""Growing pauses between failing attempts. The caller counts them and does the waiting."""

__all__ = ["growing_pause"]

# Doubling more often than this would overflow sooner or later, and no first pause is that short.
_MOST_DOUBLINGS = 30


def growing_pause(first_seconds: float, count: int, longest_seconds: float) -> float:
    """Seconds to wait before the next attempt, after `count` earlier pauses."""
    return min(first_seconds * float(1 << min(count, _MOST_DOUBLINGS)), longest_seconds)
