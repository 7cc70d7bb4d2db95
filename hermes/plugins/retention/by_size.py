"""The retention policy `size`: at least a number of the newest bytes is kept."""

from zope.interface import implementer

from hermes.interfaces import IRetentionPolicy, RetentionSettings, SegmentInfo
from hermes.plugins.retention.counting import expired_by_size


@implementer(IRetentionPolicy)
class RetainBySize:
    """Deletes the oldest segments while the rest holds `retention_bytes`, where that is set."""

    def __init__(self, settings: RetentionSettings) -> None:
        self._settings = settings

    def expired(self, segments: tuple[SegmentInfo, ...], now_ms: int) -> int:
        return expired_by_size(segments, self._settings.size_bytes)
