"""Limits how often something that keeps happening is reported."""

from collections.abc import Callable

__all__ = ["RateLimit"]


class _Kind:
    """Events of one kind: since when they are counted, how many were let through, how many not."""

    __slots__ = ("let_through", "since", "suppressed")

    def __init__(self, now: float) -> None:
        self.since = now
        self.let_through = self.suppressed = 0


class RateLimit:
    """Lets through a few events per period and counts the rest.

    Each kind of event has an allowance of its own, so that a noisy kind can't hide another. Kinds
    are named by the code, never by a peer: their number bounds the size of this object.

    Args:
        seconds: a monotonic clock.
        allowed: how many events of a kind are let through per period.
        period: in seconds.
    """

    def __init__(
        self, seconds: Callable[[], float], allowed: int = 5, period: float = 10.0
    ) -> None:
        self._seconds = seconds
        self._allowed = allowed
        self._period = period
        self._kinds: dict[str, _Kind] = {}

    def allow(self, kind: str) -> int | None:
        """Decide whether an event may be logged.

        Returns:
            None if it may not; otherwise how many of its kind were suppressed since the last one.
        """
        now = self._seconds()
        state = self._kinds.setdefault(kind, _Kind(now))
        if now - state.since >= self._period:
            state.since, state.let_through = now, 0
        if state.let_through >= self._allowed:
            state.suppressed += 1
            return None
        state.let_through += 1
        suppressed, state.suppressed = state.suppressed, 0
        return suppressed

    def reset(self) -> None:
        """Start over: the next event of every kind is let through."""
        self._kinds.clear()
