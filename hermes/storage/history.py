"""When things were appended: the time of a segment's last append, and the offsets before a time.

Times come from our own time index where it reaches; a segment that Kafka wrote, or that was copied
without its index, falls back to the file's modification time, as in 0.7.

0.7 answers "offsets before" from pairs (segment's start, segment's mtime) and (end of the log,
now): the last pair whose time is not later than the one asked for, then all before it. That pairs
a segment's *first* byte with its *last* time, so the answer can be a whole segment early. With an
index the first offset of the answer is exact instead: where the log ended at that time. The rest
of the list is the same.

Everything here reads a little (an index entry or a dozen, a file's status) and is done best in a
worker thread; results of `load` are kept with the segment.
"""

from bisect import bisect_right
from contextlib import suppress

from hermes.storage.descriptors import DescriptorCache, SegmentRetiredError
from hermes.storage.files import FileLayer
from hermes.storage.segment import Segment, SegmentView
from hermes.storage.time_index import TimeIndex

__all__ = ["EARLIEST_TIME", "LATEST_TIME", "last_append_ms", "loaded_index", "offsets_before"]

#: Instead of a time: the visible end and all segment starts.
LATEST_TIME = -1
#: Instead of a time: the earliest offset only.
EARLIEST_TIME = -2


def loaded_index(
    segment: Segment, end: int, descriptors: DescriptorCache, *, writable: bool
) -> TimeIndex:
    """Get a segment's time index, read when it wasn't yet.

    Args:
        segment: the segment.
        end: the offset after its last byte.
        descriptors: opens the segment, to check the index against it.
        writable: whether it is the active one.

    Returns:
        The index. One that can't be read now looks empty, and is tried again next time.
    """
    index = segment.index
    if not index.is_loaded:
        with suppress(OSError, SegmentRetiredError):
            descriptor = descriptors.acquire(segment.file, writable=writable)
            try:
                index.load(descriptor, end - segment.base_offset)
            finally:
                descriptors.release(segment.file)
    return index


def modified_ms(segment: Segment, files: FileLayer) -> int:
    """Read a segment's modification time.

    Args:
        segment: the segment.
        files: the file layer.

    Returns:
        ms since 1970.

    Raises:
        OSError: the file can't be found or looked at.
    """
    return files.lstat(segment.path).st_mtime_ns // 1_000_000


def last_append_ms(
    segment: Segment, end: int, files: FileLayer, descriptors: DescriptorCache, *, writable: bool
) -> int:
    """Say when a segment was appended to last.

    Args:
        segment: the segment.
        end: the offset after its last byte.
        files: the file layer.
        descriptors: opens the segment.
        writable: whether it is the active one.

    Returns:
        ms since 1970: from the index when it reaches to the segment's end, else the file's mtime.

    Raises:
        OSError: neither can be read.
    """
    last = loaded_index(segment, end, descriptors, writable=writable).last
    if last is not None and last.end_offset == end:
        return last.time_ms
    return modified_ms(segment, files)


def offsets_before(
    view: SegmentView,
    high_watermark: int,
    time_ms: int,
    max_offsets: int,
    now_ms: int,
    files: FileLayer,
    descriptors: DescriptorCache,
) -> list[int]:
    """List offsets up to a time, newest first; see the module for what is exact.

    Args:
        view: the log's segments.
        high_watermark: the visible end.
        time_ms: ms since 1970, or `LATEST_TIME`, or `EARLIEST_TIME`. Other negative times are
            simply before everything.
        max_offsets: the length of the answer at most; 0 or less gives none.
        now_ms: ms since 1970.
        files: the file layer.
        descriptors: opens segments.

    Returns:
        A new list of descending offsets, all of them readable or the visible end.

    Raises:
        OSError: a segment without index can't be looked at.
    """
    if max_offsets <= 0:
        return []
    if time_ms == EARLIEST_TIME:
        return [view.bases[0]]
    newest = bisect_right(view.bases, high_watermark) - 1
    if time_ms == LATEST_TIME or time_ms >= now_ms:
        return _descending(view, newest, high_watermark, max_offsets)
    for position in range(newest, -1, -1):
        visible_end = min(view.end_of(position, high_watermark), high_watermark)
        segment = view.segments[position]
        writable = position == len(view.segments) - 1
        index = loaded_index(segment, visible_end, descriptors, writable=writable)
        found = _end_at(segment, index, visible_end, time_ms, files)
        if found is not None:
            return _descending(view, position, found, max_offsets)
    return []


def _end_at(
    segment: Segment, index: TimeIndex, end: int, time_ms: int, files: FileLayer
) -> int | None:
    """Where the log had ended at a time, if that is in this segment; None if it is before it."""
    last = index.last
    if last is None:
        # Not ours: 0.7's answer.
        return segment.base_offset if modified_ms(segment, files) <= time_ms else None
    if last.end_offset < end and last.time_ms <= modified_ms(segment, files) <= time_ms:
        # Somebody else appended behind our last entry.
        return end
    entry = index.at_time(time_ms)
    return None if entry is None else min(entry.end_offset, end)


def _descending(view: SegmentView, position: int, first: int, count: int) -> list[int]:
    """An offset, then the starts of the segment at `position` and of those before it."""
    starts = list(view.bases[position::-1])
    offsets = starts if starts[0] == first else [first, *starts]
    return offsets[:count]
