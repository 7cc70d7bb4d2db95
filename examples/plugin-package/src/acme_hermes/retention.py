"""Keeps a fixed number of segments, whatever their age and size."""

from zope.interface import implementer

from hermes.interfaces import IRetentionPolicy, RetentionSettings, SegmentInfo


@implementer(IRetentionPolicy)
class KeepNewest:
    """Keeps the newest segments; `retention_options: {segments: 10}` says how many.

    Args:
        settings: what broker.yaml says.
    """

    def __init__(self, settings: RetentionSettings) -> None:
        self._keep = settings.options.get("segments", 10)
        if not isinstance(self._keep, int) or self._keep < 1:
            raise ValueError(f"segments: expected a whole number >= 1, got {self._keep!r}")

    def expired(self, segments: tuple[SegmentInfo, ...], now_ms: int) -> int:
        """See `IRetentionPolicy`."""
        return max(0, len(segments) - self._keep)
