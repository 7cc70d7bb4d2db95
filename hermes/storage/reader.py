"""Reading a log through a view of it: bytes by offset, offsets by time, boundaries, segments.

A reader has no state and takes no lock of the log: whatever changes meanwhile, a view stays as it
is. A slice keeps its segment's file open, so deletes don't wait for it; a segment that was deleted
since the view was made raises `SegmentRetiredError`, and a newer view must be asked.

Times come from our own time index where it reaches; a segment that Kafka wrote, or that was copied
without its index, falls back to the file's modification time, as in 0.7. That answers "offsets
before" from pairs (segment's start, segment's mtime) and (end of the log, now): the last pair whose
time is not later than the one asked for, then all before it. Since that pairs a segment's *first*
byte with its *last* time, the answer can be a whole segment early. With an index the first offset
of the answer is exact instead: where the log ended at that time. The rest of the list is the same.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from hermes.errors import OffsetOutOfRangeError, StorageError
from hermes.interfaces import SegmentInfo
from hermes.protocol import AppendRun
from hermes.storage.append_times import append_runs
from hermes.storage.descriptors import DescriptorCache, LogSlice
from hermes.storage.files import FEW_BYTES, FileLayer
from hermes.storage.index_entries import IndexReader, unreadable_is_empty
from hermes.storage.log_format import LogFormat, OpenSegment
from hermes.storage.message_times import TimestampedOffset, latest_timestamp, offset_at_time
from hermes.storage.segment import LogView, Segment
from hermes.storage.time_index import TimeIndex

#: Instead of a time: the visible end and all segment starts.
LATEST_TIME = -1
#: Instead of a time: the earliest offset only.
EARLIEST_TIME = -2


class LogReader:
    """Reads logs; the arguments and results of its methods are those of `Log`'s.

    All but `read` look at the disk a little, and are done best in a worker thread. All raise
    `SegmentRetiredError`, and `OSError` for what can't be opened or read.
    """

    __slots__ = (
        "_counts_messages",
        "_descriptors",
        "_files",
        "_format",
        "_resident",
    )

    def __init__(
        self, files: FileLayer, descriptors: DescriptorCache, log_format: LogFormat
    ) -> None:
        self._files = files
        self._resident = files.resident
        self._descriptors = descriptors
        self._format = log_format
        self._counts_messages = log_format.counts_messages

    # -- bytes ----------------------------------------------------------------------------------

    def read(
        self,
        view: LogView,
        offset: int,
        max_bytes: int,
        whole_first: bool = False,
        resident: bool = False,
    ) -> LogSlice:
        """Find visible bytes, without reading them. Raises as `fetch`."""
        found = self.fetch(view, offset, max_bytes, whole_first, resident, False)
        return found if isinstance(found, LogSlice) else LogSlice(None, None, -1, 0, 0)

    def fetch(
        self,
        view: LogView,
        offset: int,
        max_bytes: int,
        whole_first: bool,
        resident: bool,
        few: bool,
    ) -> LogSlice | bytes:
        """The same, or empty bytes where there are none; they are read if `few` and in memory.

        Raises:
            NotInMemoryError: something had to be read from a disk, or opened, and only what is
                `resident` in memory may be.
            OffsetOutOfRangeError: the offset is before the earliest or beyond the visible end.
        """
        bases, segments, _, high_watermark, _ = view
        position = bisect_right(bases, offset)
        if not position or offset > high_watermark:
            raise OffsetOutOfRangeError(offset, view.earliest, high_watermark)
        is_active = position == len(bases)
        end: int = high_watermark
        if not is_active and bases[position] < end:
            end = bases[position]
        if end == offset or (max_bytes <= 0 and not whole_first):
            return b""
        segment = segments[position - 1]
        file = segment.file
        files = self._resident if resident else self._files
        descriptor = self._descriptors.acquire(file, writable=is_active, resident=resident)
        try:
            if few and (self._counts_messages or min(end - offset, max_bytes) <= FEW_BYTES):
                found = segment.index.read_few(
                    self._resident, descriptor, offset, end, max_bytes, whole_first
                )
                if found:
                    self._descriptors.release(file)
                    return found
            start, length = self._format.locate(segment, files, descriptor, offset, end)
            is_over = not (length or is_active)
            if length > max_bytes:
                if whole_first or self._counts_messages:
                    whole = self._format.whole_bytes(
                        segment, files, descriptor, start, max_bytes, whole_first
                    )
                    max_bytes = min(length, whole)
                length = max_bytes
        except BaseException:
            self._descriptors.release(file)
            raise
        if not length:
            self._descriptors.release(file)
            if not is_over:
                return b""
            # Nothing is left of what was at this end of the segment: go on with the next one.
            return self.fetch(view, end, max_bytes, whole_first, resident, few)
        return LogSlice(self._descriptors, file, descriptor, start, length)

    def fetch_stable(
        self,
        view: LogView,
        offset: int,
        max_bytes: int,
        whole_first: bool,
        resident: bool,
        few: bool,
    ) -> LogSlice | bytes:
        """`fetch` as if the log ended where the first transaction that is open begins."""
        if view.stable_end < view.high_watermark:
            view = view.up_to(view.stable_end)
        return self.fetch(view, offset, max_bytes, whole_first, resident, few)

    def boundary_before(self, view: LogView, offset: int, max_message_bytes: int) -> int:
        offset = min(offset, view.high_watermark)
        if offset < view.earliest:
            raise OffsetOutOfRangeError(offset, view.earliest, view.high_watermark)
        position = view.position_of(offset)
        segment, end = view.segments[position], view.visible_end_of(position)
        if offset == end:
            return offset
        index = self._index(view, position)
        entry = index.at_offset(offset)
        start = segment.base_offset if entry is None else entry.end_offset
        with self._opened(view, position) as opened:
            search = self._format.search_boundary
            return segment.boundaries.last_before(
                offset, start, lambda start: search(opened, start, offset, end, max_message_bytes)
            )

    def offset_at_time(self, view: LogView, time_ms: int) -> TimestampedOffset | None:
        self._check_timestamps()
        return offset_at_time(view, time_ms, self._loaded)

    def latest_timestamp(self, view: LogView) -> TimestampedOffset | None:
        self._check_timestamps()
        return latest_timestamp(view, self._loaded)

    def _check_timestamps(self) -> None:
        if not self._format.has_timestamps:
            raise StorageError(f"messages of the format {self._format.name} have no timestamps")

    @contextmanager
    def _loaded(self, view: LogView, position: int) -> Iterator[OpenSegment]:
        with self._opened(view, position) as opened:
            opened.segment.index.load(opened.descriptor, view.visible_end_of(position))
            yield opened

    @contextmanager
    def _opened(self, view: LogView, position: int) -> Iterator[OpenSegment]:
        segment = view.segments[position]
        is_active = position == len(view.segments) - 1
        descriptor = self._descriptors.acquire(segment.file, writable=is_active)
        try:
            yield OpenSegment(segment, self._files, descriptor)
        finally:
            self._descriptors.release(segment.file)

    def _index(self, view: LogView, position: int) -> TimeIndex:
        """A segment's time index, loaded; one that can't be read looks empty."""
        segment = view.segments[position]
        if not segment.index.is_loaded:
            with unreadable_is_empty(), self._opened(view, position) as opened:
                segment.index.load(opened.descriptor, view.visible_end_of(position))
        return segment.index

    # -- times ----------------------------------------------------------------------------------

    def append_times(
        self, view: LogView, start: int, end: int, interval_ms: int, max_runs: int
    ) -> tuple[int, list[AppendRun]]:
        if not view.earliest <= start <= view.high_watermark:
            raise OffsetOutOfRangeError(start, view.earliest, view.high_watermark)
        stop = max(start, min(end, view.high_watermark))

        def open_index(position: int) -> AbstractContextManager[IndexReader]:
            return self._index(view, position).opened()

        return stop, append_runs(view, start, stop, interval_ms, max_runs, open_index)

    def offsets_before(
        self, view: LogView, time_ms: int, max_offsets: int, now_ms: int
    ) -> list[int]:
        """List offsets up to a time, newest first; see the module for what is exact."""
        if view.stable_end < view.high_watermark:
            view = view.up_to(view.stable_end)
        # Negative times other than `LATEST_TIME` and `EARLIEST_TIME` are before everything.
        if max_offsets <= 0:
            return []
        if time_ms == EARLIEST_TIME:
            return [view.earliest]
        newest = view.position_of(view.high_watermark)
        if time_ms == LATEST_TIME or time_ms >= now_ms:
            return _descending(view, newest, view.high_watermark, max_offsets)
        for position in range(newest, -1, -1):
            found = self._end_at(view, position, time_ms)
            if found is not None:
                return _descending(view, position, found, max_offsets)
        return []

    def _end_at(self, view: LogView, position: int, time_ms: int) -> int | None:
        """Where the log had ended at a time, if that is in this segment; None if before it."""
        segment, end = view.segments[position], view.visible_end_of(position)
        index = self._index(view, position)
        last = index.last
        if last is None:
            # Not ours: 0.7's answer.
            return segment.base_offset if self._modified_ms(segment) <= time_ms else None
        if last.end_offset < end and last.time_ms <= self._modified_ms(segment) <= time_ms:
            # Something else appended after our last entry.
            return end
        entry = index.at_time(time_ms)
        return None if entry is None else min(entry.end_offset, end)

    def _modified_ms(self, segment: Segment) -> int:
        return self._files.lstat(segment.path).st_mtime_ns // 1_000_000

    # -- segments -------------------------------------------------------------------------------

    def segment_infos(
        self, view: LogView, end: int, size_bytes: int, newest_ms: int | None
    ) -> tuple[SegmentInfo, ...]:
        """Describe the segments, oldest first. `newest_ms`: of the last append, if not flushed."""
        infos = []
        for position, segment in enumerate(view.segments):
            is_active = position == len(view.segments) - 1
            last_ms = newest_ms if is_active else None
            if last_ms is None:
                last_ms = self._last_append_ms(view, position, view.end_of(position, end))
            size = size_bytes if is_active else segment.size_bytes
            infos.append(SegmentInfo(segment.base_offset, size, last_ms, is_active))
        return tuple(infos)

    def _last_append_ms(self, view: LogView, position: int, end: int) -> int:
        index = self._index(view, position)
        last = index.last
        # An index that doesn't reach to the end says nothing of the last append.
        if last is not None and last.end_offset == end:
            return last.time_ms
        # What Kafka wrote is as old as its newest message, as it is for Kafka.
        if index.newest_ms >= 0:
            return index.newest_ms
        return self._modified_ms(view.segments[position])


def _descending(view: LogView, position: int, first: int, count: int) -> list[int]:
    """An offset, then the starts of the segment at `position` and of those before it."""
    starts = list(view.bases[position::-1])
    offsets = starts if starts[0] == first else [first, *starts]
    return offsets[:count]
