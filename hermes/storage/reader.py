"""The reading half of a log: bytes by offset, offsets by time, boundaries, what its segments are.

Reads take no lock of the log: they take the high watermark first and the immutable view of the
segments second, so that the view always holds the segments that the watermark speaks of. A slice
keeps its segment's descriptor open, so deletes go on below it.
"""

from bisect import bisect_right

from hermes.errors import LogOfflineError, OffsetOutOfRangeError
from hermes.interfaces import SegmentInfo
from hermes.protocol import AppendRun
from hermes.storage import history
from hermes.storage.append_times import MAX_RUNS, append_runs
from hermes.storage.boundary import boundary_in_segment
from hermes.storage.descriptors import LogSlice, SegmentRetiredError
from hermes.storage.files import storage_error
from hermes.storage.recovery import SegmentReader
from hermes.storage.segment import Segment, SegmentView
from hermes.storage.state import LogState

__all__ = ["LogReader"]


#: How often segments are looked at again when one was renamed or deleted at that moment.
_LOOKS = 10


class LogReader(LogState):
    """The half of a `Log` that reads."""

    def read(self, offset: int, max_bytes: int) -> LogSlice:
        """Find visible bytes, without reading them.

        Args:
            offset: where to start; it needs not be a message boundary.
            max_bytes: how many bytes at most, >= 0.

        Returns:
            A slice of one segment, which the caller releases: it ends where the segment or the
            visible part ends, or after `max_bytes`. It is empty at the visible end.

        Raises:
            OffsetOutOfRangeError: the offset is before the earliest or beyond the visible end.
            LogOfflineError: the log could not be opened at all, or was closed.
            StorageError: the segment can't be opened now (no descriptor, say).
        """
        found = self._acquire(offset, max_bytes)
        if found is None:
            return LogSlice(None, None, -1, 0, 0)
        segment, descriptor, end = found
        length = min(end - offset, max_bytes)
        return LogSlice(
            self._descriptors, segment.file, descriptor, offset - segment.base_offset, length
        )

    def _acquire(self, offset: int, max_bytes: int) -> tuple[Segment, int, int] | None:
        """Open the segment that holds an offset: (it, its descriptor, where its visible part ends).

        None when there is nothing to read. The caller releases the segment.
        """
        while True:
            # In this order: a newer view holds every segment that an older watermark lies in.
            high_watermark = self._high_watermark
            view = self._view
            bases = view.bases
            position = bisect_right(bases, offset) - 1
            if position < 0 or offset > high_watermark:
                if not bases:
                    self._check_online()
                raise OffsetOutOfRangeError(offset, bases[0], high_watermark)
            is_active = position + 1 == len(bases)
            end = high_watermark if is_active else min(bases[position + 1], high_watermark)
            if end == offset or max_bytes <= 0:
                return None
            segment = view.segments[position]
            try:
                return segment, self._descriptors.acquire(segment.file, writable=is_active), end
            except SegmentRetiredError:
                if self._view is view:
                    raise LogOfflineError(f"{self.name}: {self._offline_reason}") from None
            except OSError as error:
                raise storage_error(f"{self.name}: open {segment.path}", error) from error

    def offsets_before(self, time_ms: int, max_offsets: int, now_ms: int) -> list[int]:
        """List offsets up to a time, newest first; `hermes.storage.history` tells what is exact.

        Args:
            time_ms: ms since 1970; -1 for the visible end and all segment starts; -2 for the
                earliest offset only.
            max_offsets: the length of the answer at most; 0 or less gives none.
            now_ms: ms since 1970.

        Returns:
            A new list of descending offsets. The first is where the log had ended at that time
            (bytes appended in that very ms included), or a segment's start where only that is
            known.

        Raises:
            LogOfflineError: the log could not be opened at all.
            StorageError: a segment can't be looked at.
        """
        high_watermark = self._high_watermark
        view = self._view
        if not view.bases:
            self._check_online()
        try:
            return history.offsets_before(
                view,
                high_watermark,
                time_ms,
                max_offsets,
                now_ms,
                self._files,
                self._descriptors,
            )
        except OSError as error:
            raise storage_error(f"{self.name}: look up a time", error) from error

    def boundary_before(self, offset: int) -> int:
        """Find the largest message boundary that is not after an offset. Blocks.

        Args:
            offset: any offset from the earliest on; beyond the visible end it means that end.

        Returns:
            An offset from the earliest to the visible end.

        Raises:
            OffsetOutOfRangeError: the offset is before the earliest.
            LogOfflineError: the log could not be opened at all, or was closed.
            StorageError: the segment can't be read.
        """
        offset = min(offset, self._high_watermark)
        found = self._acquire(offset, 1)
        if found is None:
            return offset
        segment, descriptor, end = found
        try:
            reader = SegmentReader(self._files, descriptor, segment.base_offset, end)
            segment.index.load(descriptor, end - segment.base_offset)
            return boundary_in_segment(
                segment, reader, offset, self.settings.max_message_bytes, self._search_lock
            )
        except OSError as error:
            raise storage_error(f"{self.name}: find a boundary", error) from error
        finally:
            self._descriptors.release(segment.file)

    def append_times(
        self, start: int, end: int, interval_ms: int, max_runs: int = MAX_RUNS
    ) -> tuple[int, list[AppendRun]]:
        """Find when a range was appended; `hermes.storage.append_times` tells what is known.

        Args:
            start: the range's first offset, from the earliest to the visible end.
            end: the offset after its last byte; beyond the visible end it means that end, and
                not beyond `start` an empty range.
            interval_ms: what times are rounded down to multiples of, >= 1.
            max_runs: how many runs to answer with at most, >= 1.

        Returns:
            (the range's end, cut at the visible end; runs from `start` on without holes). When the
            last run ends before the range's end, there is more to tell from there on.

        Raises:
            OffsetOutOfRangeError: the start is before the earliest or beyond the visible end.
            LogOfflineError: the log could not be opened at all, or was closed.
            StorageError: an index can't be opened now.
        """
        while True:
            high_watermark = self._high_watermark
            view = self._view
            if not view.bases:
                self._check_online()
            if not view.bases[0] <= start <= high_watermark:
                raise OffsetOutOfRangeError(start, view.bases[0], high_watermark)
            stop = max(start, min(end, high_watermark))
            try:
                runs = append_runs(
                    view,
                    high_watermark,
                    start,
                    stop,
                    interval_ms,
                    self._files,
                    self._descriptors,
                    max_runs,
                )
            except SegmentRetiredError:
                runs = None
            except OSError as error:
                raise storage_error(f"{self.name}: look up append times", error) from error
            if self._is_closed:
                raise LogOfflineError(f"{self.name}: {self._offline_reason}")
            # Of a segment that was deleted meanwhile nothing that was found is to be believed.
            if runs is not None and self.earliest <= start:
                return stop, runs

    def segment_infos(self) -> tuple[SegmentInfo, ...]:
        """Describe the segments, for retention policies and people.

        Returns:
            A tuple, oldest first; the last one is active. Empty for a log never opened.

        Raises:
            StorageError: a segment can't be looked at.
        """
        tries = _LOOKS
        while True:
            with self._lock:
                view, end = self._view, self._end
                newest_ms = self._pending[-1][0] if self._pending else None
            try:
                return tuple(
                    self._info(view, position, end, newest_ms)
                    for position in range(len(view.bases))
                )
            except OSError as error:
                # A flush renames and retention deletes meanwhile: then look again.
                tries -= 1
                if not tries or not isinstance(error, FileNotFoundError):
                    raise storage_error(f"{self.name}: describe the segments", error) from error

    def _info(
        self, view: SegmentView, position: int, log_end: int, newest_ms: int | None
    ) -> SegmentInfo:
        segment = view.segments[position]
        is_active = position == len(view.bases) - 1
        end = view.end_of(position, log_end)
        if is_active and newest_ms is not None:
            last_ms = newest_ms
        else:
            last_ms = history.last_append_ms(
                segment, end, self._files, self._descriptors, writable=is_active
            )
        return SegmentInfo(segment.base_offset, end - segment.base_offset, last_ms, is_active)
