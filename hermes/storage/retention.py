"""Applying a retention policy to one log. The policy decides; the log deletes; this is between.

A policy sees times that can be believed. Our own time index gives true ones, as far as the wall
clock was right. A segment from elsewhere has only its file's modification time, and one such time
in the future must not keep everything after it for ever. So a time later than now is replaced by
the best bound there is: the next segment's time, or now.

The wall clock may be set, and a clock that jumps ahead makes everything look old. So what was
appended under a watch (`AppendAges`) is never older than by a clock that can't be set.
"""

from collections.abc import Sequence
from dataclasses import replace

from hermes.errors import PluginError
from hermes.interfaces import IRetentionPolicy, SegmentInfo
from hermes.plugins import plugin_name
from hermes.quoting import quoted
from hermes.storage.append_times import believed_ms
from hermes.storage.log import Log


class AppendAges:
    """How long one log's segments have been as they are, on a monotonic clock.

    A segment that has grown since the last look counts as appended to at this one, so it looks
    younger than it is by the time between two looks at most. What lies before the end at the first
    look (`end_offset`) has no age here.

    One thread at a time may use it.
    """

    def __init__(self, end_offset: int) -> None:
        self._end_offset = end_offset
        self._seen: dict[int, tuple[int, int]] = {}  # base -> (end, when it was first seen so), ms

    def look(self, infos: Sequence[SegmentInfo], monotonic_ms: int, log_end: int) -> None:
        """Note where its segments end now, by a clock that can't be set; the log at `log_end`."""
        seen: dict[int, tuple[int, int]] = {}
        ends = [*(info.base_offset for info in infos[1:]), log_end]
        for info, end in zip(infos, ends, strict=True):
            if end > self._end_offset:
                known = self._seen.get(info.base_offset)
                same = known is not None and known[0] == end
                seen[info.base_offset] = known if known and same else (end, monotonic_ms)
        self._seen = seen

    def age_ms(self, info: SegmentInfo, monotonic_ms: int) -> int | None:
        """How long ago a segment was appended to, at most; None when nobody watched it."""
        known = self._seen.get(info.base_offset)
        return None if known is None else monotonic_ms - known[1]


def apply_retention(
    log: Log,
    policy: IRetentionPolicy,
    now_ms: int,
    ages: AppendAges | None = None,
    monotonic_ms: int = 0,
) -> int:
    """Delete what a policy says is expired; returns how many bytes. Blocks; for a worker thread.

    Args:
        ages: the watch over the log; None when there is none.
        monotonic_ms: the watch's clock.

    Raises:
        PluginError: the policy raised, or returned something other than an integer.
        LogOfflineError: the log is offline, perhaps since its files aren't there any more; nothing
            was deleted.
        StorageError: the files could not be looked at or deleted; try again later.
    """
    log.check_directory()
    # If it grows before its segments are described, the active one just stays.
    end = log.end_offset
    infos = log.segment_infos()
    times = _believable(infos, now_ms)
    if ages is not None:
        ages.look(infos, monotonic_ms, end)
        times = tuple(_no_older(info, now_ms, ages.age_ms(info, monotonic_ms)) for info in times)
    count = _expired(policy, times, now_ms)
    up_to = infos[count].base_offset if 0 < count < len(infos) else end
    return log.delete_oldest(count, up_to=up_to)


def _expired(policy: IRetentionPolicy, infos: tuple[SegmentInfo, ...], now_ms: int) -> int:
    """Ask a policy, and believe nothing that can't be."""
    try:
        count = policy.expired(infos, now_ms)
    except Exception as error:
        raise PluginError(
            f"retention policy {plugin_name(policy)}: {type(error).__name__}: {error}"
        ) from error
    if type(count) is not int:
        raise PluginError(
            f"retention policy {plugin_name(policy)}: expired returned {quoted(count)}, "
            "expected how many of the oldest segments may go"
        )
    return count


def _no_older(info: SegmentInfo, now_ms: int, age_ms: int | None) -> SegmentInfo:
    if age_ms is None or info.last_append_ms >= now_ms - age_ms:
        return info
    return replace(info, last_append_ms=now_ms - age_ms)


def _believable(infos: tuple[SegmentInfo, ...], now_ms: int) -> tuple[SegmentInfo, ...]:
    """Believe no time in the future: no segment is newer than the one after it."""
    bound_ms = now_ms
    repaired = []
    for info in reversed(infos):
        believed = believed_ms(info.last_append_ms, now_ms, bound_ms)
        bound_ms = min(bound_ms, believed)
        repaired.append(replace(info, last_append_ms=believed))
    return tuple(reversed(repaired))
