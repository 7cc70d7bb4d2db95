"""What the built-in policies share: how many of the oldest segments are too old, or too much.

Kafka 0.7's rules. Segments, given oldest first, are counted from the oldest, so the log never gets
a hole; and an empty active segment, always the last, is never counted, because deleting it would
only create another one like it.
"""

from hermes.interfaces import SegmentInfo


def expired_by_time(segments: tuple[SegmentInfo, ...], now_ms: int, time_ms: int | None) -> int:
    """Count the oldest segments whose last append is older than a limit; None keeps everything."""
    if time_ms is None:
        return 0
    count = 0
    for segment in segments:
        if now_ms - segment.last_append_ms <= time_ms or _is_empty_active(segment):
            break
        count += 1
    return count


def expired_by_size(segments: tuple[SegmentInfo, ...], size_bytes: int | None) -> int:
    """Count the oldest segments without which at least a limit is left; None keeps everything."""
    if size_bytes is None:
        return 0
    rest_bytes = sum(segment.size_bytes for segment in segments)
    count = 0
    for segment in segments:
        rest_bytes -= segment.size_bytes
        if rest_bytes < size_bytes or _is_empty_active(segment):
            break
        count += 1
    return count


def _is_empty_active(segment: SegmentInfo) -> bool:
    return segment.active and not segment.size_bytes
