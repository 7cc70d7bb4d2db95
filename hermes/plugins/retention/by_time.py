"""The retention policy `time`: what was appended recently is kept."""

from zope.interface import implementer

from hermes.interfaces import IRetentionPolicy, RetentionSettings, SegmentInfo
from hermes.plugins.retention.counting import expired_by_time


@implementer(IRetentionPolicy)
class RetainByTime:
    """Deletes segments whose last message is older than `retention_time`, where that is set."""

    def __init__(self, settings: RetentionSettings) -> None:
        self._settings = settings

    def expired(self, segments: tuple[SegmentInfo, ...], now_ms: int) -> int:
        return expired_by_time(segments, now_ms, self._settings.time_ms)
