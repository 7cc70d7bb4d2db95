"""One partition's log, whole: how it is opened, brought back, trimmed, closed and deleted.

`hermes.storage.writer` is its writing half, `hermes.storage.reader` its reading half,
`hermes.storage.state` what they share, with the rules about locks. Which thread may call what:

- `append`, `read` and the properties: the reactor's thread. `read` may open a file, never reads it.
- `offsets_before`, `boundary_before`, `segment_infos`: any thread; they read a little (the
  boundary sometimes more), so a worker thread is the better place.
- `flush`, `delete_oldest`, `delete`, `reopen`, `open`, `close`: worker threads; they wait for the
  disk, and for each other where they must.
"""

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from errno import ESTALE
from stat import S_ISLNK

from hermes.errors import LogOfflineError, StorageError
from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import FileLayer, identity, storage_error
from hermes.storage.loading import LoadedLog, load
from hermes.storage.reader import LogReader
from hermes.storage.recovery import RecoveryReport
from hermes.storage.segment import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    UNFLUSHED_SUFFIX,
    Segment,
    SegmentView,
    parse_segment_name,
)
from hermes.storage.segment_files import find_again, remove_segment
from hermes.storage.settings import LogSettings
from hermes.storage.tail import TailRecovery
from hermes.storage.writer import LogWriter

__all__ = ["Log"]


class Log(LogWriter, LogReader):
    """An append-only sequence of bytes (whole messages), addressed by offset.

    Made offline; `open` brings it into service. `DataDirectory` does that for all partitions.
    The attributes are those of `LogState`.
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
            is_new_directory: True when the directory's name may be in memory only: the first flush
                then syncs its parent as well.

        Returns:
            What recovery did; None when there was nothing to recover.

        Raises:
            CorruptLogError: the segments don't fit together; the log stays offline, untouched.
            StorageError: the disk failed; the log stays offline, `reopen` may be tried.
        """
        with self._flush_lock:
            self._has_new_directory |= is_new_directory
            try:
                self._place = identity(self._files.stat(self.directory))
                loaded = load(self.directory, self._files, self._recovery(now_ms), clean=clean)
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

        Blocks. A log that is online is left as it is. The files are looked for again, by their
        names; the log only comes back when everything that was visible is there.

        Args:
            now_ms: ms since 1970.

        Returns:
            What was found; `dropped_bytes` are bytes that appends had been told were written, but
            never flushed.

        Raises:
            CorruptLogError: the segments don't fit together; still offline.
            LogOfflineError: the disk still fails, something that was visible is missing, or the
                log was closed; still offline.
        """
        if not self._view.segments and not self._is_closed:
            # Whoever made the directory may not have come to syncing its name.
            report = self.open(clean=False, now_ms=now_ms, is_new_directory=True)
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

    def _recovery(self, now_ms: int) -> TailRecovery:
        return TailRecovery(self._files, self._descriptors, self.settings, now_ms)

    def _recover(self, now_ms: int) -> RecoveryReport:
        """Under the flush lock, offline: recover from the high watermark on.

        All segments are new objects. The old ones may be open in a file system that was taken away,
        or hold names that an earlier attempt has changed half.
        """
        view = self._view
        segments = find_again(view, self._high_watermark, self._end, self._files)
        place = identity(self._files.stat(self.directory))
        first = bisect_right(view.bases, self._high_watermark) - 1
        self._sync_names(has_new_names=False)
        try:
            tail, report = self._recovery(now_ms).after_failure(
                segments[first:], self._high_watermark, self._end, self._pending
            )
        except BaseException:
            self._retire(segments)
            raise
        with self._lock:
            lost_bytes = self._end - report.valid_end
            self._unpin()
            self._place = place
            loaded = (*segments[:first], *tail)
            self._install(LoadedLog(loaded, report.valid_end, report, self.strange_files))
        self._retire((*view.segments, *segments[first + len(tail) :]))
        return replace(report, dropped_bytes=lost_bytes)

    def _retire(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._descriptors.retire(segment.file)

    def close(self) -> None:
        """Stop serving, for good. Waits for a flush or delete under way, but does not flush.

        Slices that are held stay readable until they are released.
        """
        self._shut("the log is closed")

    def _shut(self, reason: str) -> None:
        with self._flush_lock, self._lock:
            self._is_closed = True
            self._offline_reason = None
            self._go_offline(reason)
            self._unpin()
            for segment in self._view.segments:
                self._descriptors.retire(segment.file)
        with self._delete_lock:
            # Whatever has these names from now on may be another log's.
            self._doomed.clear()

    # -- deleting -------------------------------------------------------------------------------

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
            self._check_files_are_ours()
            removed, end = self._take_out(count, expected_end)
        with self._delete_lock:
            try:
                self._delete_doomed()
            except OSError as error:
                raise storage_error(f"{self.name}: delete segments", error) from error
        return end - removed[0].base_offset if removed else 0

    def look(self) -> None:
        """Make sure that the directory is still the one that was opened. Blocks; any worker thread.

        For logs that nobody writes to: a flush looks by itself.

        Raises:
            LogOfflineError: it isn't, or the log was offline before; it is now in any case.
        """
        with self._flush_lock:
            self._check_online()
            self._check_files_are_ours()

    def _check_files_are_ours(self) -> None:
        """Under the flush lock: go offline when the directory isn't the one that was opened."""
        try:
            self._check_place(())
        except OSError as error:
            reason = f"{self.name}: {error.strerror}"
            with self._lock:
                self._go_offline(reason)
            raise LogOfflineError(reason) from error

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
            self._descriptors.retire(segment.file)
        self._doomed += view.segments[:count]
        return view.segments[:count], view.bases[count]

    def _replace_all(self) -> tuple[Segment, ...]:
        """Under the flush lock: let an empty segment stand in for all; () if the log grew."""
        end = self._flush()
        # Not `.kafka` from the start: should the log grow meanwhile and the process die, a file
        # that doesn't fit must not look like a part of the log. The flush below names it.
        stand_in = Segment(self._files, self.directory, end, UNFLUSHED_SUFFIX)
        try:
            self._descriptors.create(stand_in.file)
            stand_in.index.begin()
            removed = self._exchange(stand_in, end)
            if not removed:
                self._descriptors.retire(stand_in.file)
                self._descriptors.release(stand_in.file)
                self._files.unlink(stand_in.path)
                self._files.fsync_directory(self.directory)
                return ()
        except OSError as error:
            raise storage_error(f"{self.name}: begin an empty segment", error) from error
        for segment in removed:
            self._descriptors.retire(segment.file)
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
                self._delete_files()
            except OSError as error:
                what = f"{self.name}: delete {error.filename or ''}"
                raise storage_error(what, error) from error
        return self.size_bytes

    def _delete_files(self) -> None:
        try:
            status = self._files.stat(self.directory)
        except FileNotFoundError:
            return
        if self._place not in (None, identity(status)):
            text = "it is not the directory that was opened; nothing was deleted"
            raise OSError(ESTALE, text, self.directory)
        for name in self._own_files():
            self._files.unlink(os.path.join(self.directory, name))
            if name.endswith(SEGMENT_SUFFIX):
                self._files.fsync_directory(self.directory)
        if S_ISLNK(self._files.lstat(self.directory).st_mode):
            self._files.unlink(self.directory)
        else:
            self._files.rmdir(self.directory)

    def _own_files(self) -> list[str]:
        """The names of segments and indexes in the directory, in the order to delete them."""
        parsed = [
            (base, suffix != INDEX_SUFFIX, name)
            for name in self._files.listdir(self.directory)
            for base, suffix in [parse_segment_name(name) or (-1, "")]
            if suffix
        ]
        return [name for _, _, name in sorted(parsed)]
