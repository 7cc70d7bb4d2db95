"""The retention policy `time-and-size`, the default: whichever limit asks for more deletions."""

from zope.interface import implementer

from hermes.interfaces import IRetentionPolicy, RetentionSettings, SegmentInfo
from hermes.plugins.retention.counting import expired_by_size, expired_by_time


@implementer(IRetentionPolicy)
class RetainByTimeAndSize:
    """Deletes what exceeds `retention_time` or `retention_bytes`, if they are set, as 0.7 does."""

    def __init__(self, settings: RetentionSettings) -> None:
        self._settings = settings

    def expired(self, segments: tuple[SegmentInfo, ...], now_ms: int) -> int:
        return max(
            expired_by_time(segments, now_ms, self._settings.time_ms),
            expired_by_size(segments, self._settings.size_bytes),
        )
