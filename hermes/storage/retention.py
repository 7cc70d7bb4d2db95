"""Applying a retention policy to one log. The policy decides; the log deletes; this is between.

A policy sees times that can be believed. Our own time index gives true ones; a segment from
elsewhere has only its file's modification time, and one such time in the future must not keep
everything behind it for ever. So a time later than now is replaced by the best bound there is: the
next segment's time, or now.
"""

from dataclasses import replace

from hermes.interfaces import IRetentionPolicy, SegmentInfo
from hermes.storage.log import Log

__all__ = ["apply_retention"]


def apply_retention(log: Log, policy: IRetentionPolicy, now_ms: int) -> int:
    """Delete what a policy says is expired. Blocks; for a worker thread.

    Args:
        log: an open log.
        policy: provides `IRetentionPolicy`; what it raises is not caught.
        now_ms: ms since 1970.

    Returns:
        How many bytes were deleted.

    Raises:
        LogOfflineError: the log is offline; nothing was deleted.
        StorageError: the files could not be looked at or deleted; try again later.
    """
    infos = log.segment_infos()
    if not infos:
        return 0
    end = infos[-1].base_offset + infos[-1].size_bytes
    count = policy.expired(_believable(infos, now_ms), now_ms)
    return log.delete_oldest(count, expected_end=end)


def _believable(infos: tuple[SegmentInfo, ...], now_ms: int) -> tuple[SegmentInfo, ...]:
    """Replace times in the future by upper bounds: no segment is newer than the one after it."""
    bound_ms = now_ms
    repaired = []
    for info in reversed(infos):
        if info.last_append_ms > now_ms:
            info = replace(info, last_append_ms=bound_ms)
        bound_ms = min(bound_ms, info.last_append_ms)
        repaired.append(info)
    return tuple(reversed(repaired))
