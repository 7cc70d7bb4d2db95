"""One partition's log: the writing end of `hermes.storage.writer`, and everything that is not it.

Reads take no lock of the log: they take the high watermark first and the immutable view of the
segments second, so that the view always holds the segments that the watermark speaks of. A slice
keeps its segment's descriptor open, so deletes go on below it.

Which thread may call what:

- `append`, `read` and the properties: the reactor's thread. `read` may open a file, never reads it.
- `offsets_before`, `boundary_before`, `segment_infos`: any thread; they read a little (the
  boundary sometimes more), so a worker thread is the better place.
- `flush`, `delete_oldest`, `delete`, `reopen`, `open`, `close`: worker threads; they wait for the
  disk, and for each other where they must.

Locks and invariants are told in `hermes.storage.state`. Most of the length of this file is the
contract that the broker relies on.
"""

import os
from bisect import bisect_right
from dataclasses import replace

from hermes.errors import LogOfflineError, OffsetOutOfRangeError, StorageError
from hermes.interfaces import SegmentInfo
from hermes.storage import history
from hermes.storage.boundary import boundary_in_segment
from hermes.storage.descriptors import DescriptorCache, LogSlice, SegmentRetiredError
from hermes.storage.files import FileLayer, storage_error
from hermes.storage.loading import LoadedLog, LogSettings, load, recover_tail, remove_segment
from hermes.storage.recovery import RecoveryReport, SegmentReader
from hermes.storage.segment import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    Segment,
    SegmentView,
    parse_segment_name,
)
from hermes.storage.writer import LogWriter

__all__ = ["Log"]


class Log(LogWriter):
    """An append-only sequence of bytes (whole messages), addressed by offset.

    Made offline; `open` brings it into service. `DataDirectory` does that for all partitions.
    The attributes are those of `LogWriter`.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        settings: LogSettings,
        files: FileLayer | None = None,
        descriptors: DescriptorCache | None = None,
    ) -> None:
        files = FileLayer() if files is None else files
        descriptors = DescriptorCache(files) if descriptors is None else descriptors
        super().__init__(topic, partition, directory, settings, files, descriptors)

    # -- opening and closing --------------------------------------------------------------------

    def open(
        self, *, clean: bool, now_ms: int, is_new_directory: bool = False
    ) -> RecoveryReport | None:
        """Load the partition's directory and start serving. Blocks.

        Args:
            clean: True when the last stop was clean: nothing is read then.
            now_ms: ms since 1970.
            is_new_directory: True when the directory was just created: the first flush then syncs
                its parent as well.

        Returns:
            What recovery did; None when there was nothing to recover.

        Raises:
            CorruptLogError: the segments don't fit together; the log stays offline, untouched.
            StorageError: the disk failed; the log stays offline, `reopen` may be tried.
        """
        with self._flush_lock:
            self._has_new_directory = is_new_directory
            try:
                loaded = load(
                    self.directory,
                    self._files,
                    self._descriptors,
                    self.settings,
                    clean=clean,
                    now_ms=now_ms,
                )
            except OSError as error:
                failure = storage_error(f"{self.name}: open", error)
                self._offline_reason = str(failure)
                raise failure from error
            except StorageError as error:
                self._offline_reason = str(error)
                raise
            self.strange_files = loaded.strange
            with self._lock:
                self._install(loaded)
            return loaded.report

    def reopen(self, now_ms: int) -> RecoveryReport:
        """Bring an offline log back: read its tail, keep what is valid, write and sync it again.

        Blocks. A log that is online is left as it is.

        Args:
            now_ms: ms since 1970.

        Returns:
            What was found; `dropped_bytes` are bytes that appends had been told were written, but
            never flushed.

        Raises:
            CorruptLogError: the segments don't fit together; still offline.
            LogOfflineError: the disk still fails, or the log was closed; still offline.
        """
        if not self._view.segments and not self._is_closed:
            report = self.open(clean=False, now_ms=now_ms)
            return report or RecoveryReport(self._end, self._end)
        with self._flush_lock:
            if self._is_closed:
                self._check_online()
            if self._offline_reason is None:
                return RecoveryReport(self._high_watermark, self._high_watermark)
            try:
                return self._recover(now_ms)
            except OSError as error:
                failure = storage_error(f"{self.name}: reopen", error)
                self._offline_reason = str(failure)
                raise LogOfflineError(str(failure)) from error

    def _recover(self, now_ms: int) -> RecoveryReport:
        """Under the flush lock, offline: recover from the high watermark on."""
        view = self._view
        first = bisect_right(view.bases, self._high_watermark) - 1
        self._sync_names(has_new_names=False)
        tail, report = recover_tail(
            view.segments[first:],
            self._files,
            self._descriptors,
            self.settings,
            start=self._high_watermark,
            end=self._end,
            entries=self._pending,
            now_ms=now_ms,
        )
        with self._lock:
            lost_bytes = self._end - report.valid_end
            self._unpin()
            for segment in view.segments[first + len(tail) :]:
                self._descriptors.retire(segment)
            segments = (*view.segments[:first], *tail)
            self._install(LoadedLog(segments, report.valid_end, report, self.strange_files))
        return replace(report, dropped_bytes=lost_bytes)

    def close(self) -> None:
        """Stop serving, for good. Waits for a flush that is under way, but does not flush.

        Slices that are held stay readable until they are released.
        """
        self._shut("the log is closed")

    def delete(self) -> int:
        """Delete the log with its directory, oldest segment first: what a crash leaves is a log.

        Slices that are held stay readable until they are released. The caller syncs the parent
        directory.

        Returns:
            How many bytes of messages were deleted.

        Raises:
            StorageError: a file or the directory can't be deleted (files that aren't ours are
                left alone, and with them the directory); the log is gone from service all the
                same.
        """
        self._shut("the topic was deleted")
        with self._delete_lock:
            try:
                for name in self._own_files():
                    self._files.unlink(os.path.join(self.directory, name))
                    if name.endswith(SEGMENT_SUFFIX):
                        self._files.fsync_directory(self.directory)
                self._files.rmdir(self.directory)
            except OSError as error:
                what = f"{self.name}: delete {error.filename or ''}"
                raise storage_error(what, error) from error
        return self.size_bytes

    def _own_files(self) -> list[str]:
        """The names of segments and indexes in the directory, in the order to delete them."""
        parsed = [
            (base, suffix != INDEX_SUFFIX, name)
            for name in self._files.listdir(self.directory)
            for base, suffix in [parse_segment_name(name) or (-1, "")]
            if suffix
        ]
        return [name for _, _, name in sorted(parsed)]

    def _shut(self, reason: str) -> None:
        with self._flush_lock, self._lock:
            self._is_closed = True
            self._offline_reason = None
            self._go_offline(reason)
            self._unpin()
            for segment in self._view.segments:
                self._descriptors.retire(segment)

    # -- reading --------------------------------------------------------------------------------

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
            self._descriptors, segment, descriptor, offset - segment.base_offset, length
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
                return segment, self._descriptors.acquire(segment, writable=is_active), end
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
            return boundary_in_segment(segment, reader, offset, self.settings.max_message_bytes)
        except OSError as error:
            raise storage_error(f"{self.name}: find a boundary", error) from error
        finally:
            self._descriptors.release(segment)

    # -- segments -------------------------------------------------------------------------------

    def segment_infos(self) -> tuple[SegmentInfo, ...]:
        """Describe the segments, for retention policies and people.

        Returns:
            A tuple, oldest first; the last one is active. Empty for a log never opened.

        Raises:
            StorageError: a segment can't be looked at.
        """
        with self._lock:
            view, end = self._view, self._end
            newest_ms = self._pending[-1][0] if self._pending else None
        try:
            return tuple(
                self._info(view, position, end, newest_ms) for position in range(len(view.bases))
            )
        except OSError as error:
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

    def delete_oldest(self, count: int, *, expected_end: int | None = None) -> int:
        """Delete segments at the start of the log. Blocks; any worker thread.

        Readers go on: slices of deleted segments stay readable until they are released. What is
        not yet flushed stays. When all segments go, what is unflushed is flushed first, and an
        empty segment named by the end offset takes their place before any file is deleted.

        Args:
            count: how many segments, 0 to all of them.
            expected_end: the end offset that the decision was made at. When the log has grown
                since, the active segment stays.

        Returns:
            How many bytes were deleted.

        Raises:
            LogOfflineError: the log is offline; nothing was deleted.
            StorageError: a file could not be created or deleted. The segments are gone from
                service nevertheless; the next call tries their files again, and what is left of
                them at the next start comes back.
        """
        with self._flush_lock:
            self._check_online()
            removed, end = self._take_out(count, expected_end)
        with self._delete_lock:
            try:
                self._delete_doomed()
            except OSError as error:
                raise storage_error(f"{self.name}: delete segments", error) from error
        return end - removed[0].base_offset if removed else 0

    def _delete_doomed(self) -> None:
        """Delete the files of segments that left the view, oldest first, each for certain.

        One that resists stays in the list, and those after it stay on disk: whatever is left must
        be a log without holes when it is opened again. None goes before its successor is there.
        """
        while self._doomed and self._view.segments[0].is_flushed_name:
            remove_segment(self._doomed[0], self._files)
            self._files.fsync_directory(self.directory)
            del self._doomed[0]

    def _take_out(self, count: int, expected_end: int | None) -> tuple[tuple[Segment, ...], int]:
        """Under the flush lock: take segments out of the view: (they, where the last one ends)."""
        total = len(self._view.bases)
        if count >= total and expected_end in (None, self._end) and self._end > self._base:
            removed = self._replace_all()
            if removed:
                return removed, self.earliest
        with self._lock:
            view = self._view
            count = min(count, len(view.bases) - 1)
            while count > 0 and view.bases[count] > self._high_watermark:
                count -= 1
            if count <= 0:
                return (), 0
            self._view = SegmentView.of(view.segments[count:])
        for segment in view.segments[:count]:
            self._descriptors.retire(segment)
        self._doomed += view.segments[:count]
        return view.segments[:count], view.bases[count]

    def _replace_all(self) -> tuple[Segment, ...]:
        """Under the flush lock: let an empty segment stand in for all; () if the log grew."""
        end = self._flush()
        # Not `.kafka` from the start: should the log grow meanwhile and the process die, a file
        # that doesn't fit must not look like a part of the log. The flush below names it.
        stand_in = Segment(self._files, self.directory, end, is_flushed_name=False)
        try:
            self._descriptors.create(stand_in)
            removed = self._exchange(stand_in, end)
            if not removed:
                self._descriptors.retire(stand_in)
                self._descriptors.release(stand_in)
                self._files.unlink(stand_in.path)
                self._files.fsync_directory(self.directory)
                return ()
        except OSError as error:
            raise storage_error(f"{self.name}: begin an empty segment", error) from error
        for segment in removed:
            self._descriptors.retire(segment)
        self._doomed += removed
        self._flush()
        return removed

    def _exchange(self, stand_in: Segment, end: int) -> tuple[Segment, ...]:
        """Make an empty segment the only one, unless the log has grown; give those replaced."""
        with self._lock:
            if self._end != end:
                return ()
            removed = self._view.segments
            self._view = SegmentView.of((stand_in,))
            self._base = end
            self._unpin()
            self._dirty.append(stand_in)
            self._has_new_names = True
        return removed
