"""The writing end of a log: append, roll, flush, and going offline when the disk fails.

Life of an append: bytes go to the page cache at the log's end (`append`, in the reactor's thread);
they are put on disk by a later `flush` in a worker thread; only then the *high watermark* moves
over them and they become visible. What the disk confirmed is never taken back.

The rules of the state are told in `hermes.storage.state`. `append` is called by one thread only.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import ESTALE

from hermes.errors import DiskFullError, LogOfflineError, StorageError, UncertainAppendError
from hermes.storage.files import (
    IOV_MAX,
    Buffer,
    identity,
    is_no_descriptor,
    is_no_room,
    storage_error,
    write_all,
)
from hermes.storage.segment import SEGMENT_SUFFIX, UNFLUSHED_SUFFIX, Segment, SegmentView
from hermes.storage.state import NEVER_MS, NO_ENTRY_MS, LogState

__all__ = ["LogWriter"]

#: How many entries wait for a flush at most; beyond it every second one is dropped, which makes
#: the index coarser and never wrong.
MAX_PENDING_ENTRIES = 4096


@dataclass(slots=True)
class _FlushWork:
    """What one flush has to do: a snapshot, so that appends go on meanwhile."""

    end: int
    messages: int
    dirty: list[Segment]
    entries: list[tuple[int, int]]
    has_new_names: bool


class LogWriter(LogState):
    """The half of a `Log` that writes."""

    # -- append ---------------------------------------------------------------------------------

    def append(
        self, buffers: Sequence[Buffer], byte_count: int, message_count: int, now_ms: int
    ) -> int:
        """Append whole messages at the end of the log. Fast: one write into the page cache.

        Call it from one thread only (the reactor's). Nothing is visible before the next `flush`.

        Args:
            buffers: the bytes, in order: whole, valid messages. Not kept.
            byte_count: the sum of their lengths, > 0.
            message_count: how many messages they hold (inner ones of compressed sets counted).
            now_ms: ms since 1970.

        Returns:
            The offset of the first byte.

        Raises:
            DiskFullError: nothing of it remains; the same append may succeed later.
            UncertainAppendError: the disk failed on the way, and some of it may come back.
            LogOfflineError: nothing was appended; `reopen` must come first.
            StorageError: no descriptor could be had; nothing was appended, try again later.
        """
        with self._lock:
            end = self._end
            position = end - self._base
            if (
                self._descriptor < 0
                or position > self.settings.segment_bytes
                or now_ms > self._roll_after_ms
            ):
                self._prepare(now_ms)
                position = end - self._base
            try:
                if len(buffers) == 1:
                    written = self._pwrite(self._descriptor, buffers[0], position)
                else:
                    written = self._files.pwritev(self._descriptor, buffers[:IOV_MAX], position)
                if written != byte_count:
                    self._write_rest(buffers, byte_count, written, position)
            except OSError as error:
                raise self._undo_append(error, position) from error
            end += byte_count
            self._end = end
            self._unflushed_messages += message_count
            if now_ms > self._entry_ms:
                self._begin_entry(now_ms, end)
            else:
                self._pending[-1] = (self._entry_ms, end)
            return end - byte_count

    def _write_rest(
        self, buffers: Sequence[Buffer], byte_count: int, written: int, position: int
    ) -> None:
        """Go on after a short write (or one of `IOV_MAX` buffers) where it stopped."""
        rest = list(buffers)
        if sum(map(len, rest)) != byte_count:
            self._files.ftruncate(self._descriptor, position)
            raise ValueError(f"byte_count is {byte_count}, the buffers hold {sum(map(len, rest))}")
        skipped = 0
        while rest and skipped + len(rest[0]) <= written:
            skipped += len(rest[0])
            del rest[0]
        if rest:
            rest[0] = memoryview(rest[0])[written - skipped :]
            write_all(self._files, self._descriptor, rest, position + written)

    def _begin_entry(self, now_ms: int, end: int) -> None:
        """Note the first append of a new ms for the time index."""
        if self._first_unflushed_ms is None:
            self._first_unflushed_ms = now_ms
        if len(self._pending) >= MAX_PENDING_ENTRIES:
            del self._pending[1:-1:2]
        self._pending.append((now_ms, end))
        self._entry_ms = now_ms

    def _prepare(self, now_ms: int) -> None:
        """Get ready to write: roll if it is due, open and pin the active segment."""
        self._check_online()
        try:
            size = self._end - self._base
            if self._descriptor < 0:
                self._pin_active()
            if size and self._roll_after_ms == NEVER_MS:
                first = self._view.segments[-1].index.first()
                self._roll_after_ms = self._age_limit(now_ms if first is None else first.time_ms)
            if size and (size > self.settings.segment_bytes or now_ms > self._roll_after_ms):
                self._roll()
                size = 0
            # The earlier limit holds: a clock that was ahead when the segment began, and is right
            # again, must not keep it from ageing.
            limit = self._age_limit(now_ms)
            self._roll_after_ms = min(self._roll_after_ms, limit) if size else limit
        except FileExistsError as error:
            # Never write over what is there, whatever it is.
            self._go_offline(f"a segment can't be created: {error.filename} exists already")
            raise LogOfflineError(f"{self.name}: {error.filename} exists already") from error
        except OSError as error:
            failure = storage_error(f"{self.name}: prepare an append", error)
            if isinstance(failure, DiskFullError) or is_no_descriptor(error):
                raise failure from error
            self._go_offline(str(failure))
            raise LogOfflineError(str(failure)) from error

    def _age_limit(self, first_append_ms: int) -> int:
        return first_append_ms + self.settings.segment_age_ms

    def _pin_active(self) -> None:
        """Open the active segment and keep it open until a flush has covered it."""
        active = self._view.segments[-1]
        if not self._dirty or self._dirty[-1] is not active:
            self._descriptors.acquire(active.file, writable=True)
            self._dirty.append(active)
            # An index that can't be read is done without.
            with suppress(OSError):
                active.index.load(active.file.descriptor, self._end - self._base)
        self._descriptor = active.file.descriptor

    def _roll(self) -> None:
        """Begin a new segment at the end of the log; it is created, never taken over."""
        is_flushed = self._high_watermark == self._end
        suffix = SEGMENT_SUFFIX if is_flushed else UNFLUSHED_SUFFIX
        segment = Segment(self._files, self.directory, self._end, suffix)
        if not is_flushed:
            segment.check_final_name()
        self._check_place(())
        self._descriptor = self._descriptors.create(segment.file)
        segment.index.begin()
        self._dirty.append(segment)
        self._has_new_names = True
        self._view = SegmentView.of((*self._view.segments, segment))
        self._base = self._end
        self._entry_ms = NO_ENTRY_MS

    def _undo_append(self, error: OSError, position: int) -> StorageError:
        """Under the lock: cut a failed append off; say what to raise."""
        reason = f"{self.name}: append at offset {self._end}: {error.strerror or error}"
        failure: type[LogOfflineError] = UncertainAppendError
        # What was written of it may be whole messages, which a later start would take for good.
        with suppress(OSError):
            self._files.ftruncate(self._descriptor, position)
            if is_no_room(error):
                return DiskFullError(reason)
            failure = LogOfflineError
        self._go_offline(reason)
        return failure(reason)

    # -- flush ----------------------------------------------------------------------------------

    def flush(self) -> int:
        """Put on disk what was appended so far and make it visible. Blocks; any worker thread.

        Appends go on meanwhile and wait for the next flush. Calls for one log run one after the
        other.

        Returns:
            The high watermark.

        Raises:
            LogOfflineError: the disk failed (now or before); the high watermark has not moved
                and nothing of what it covers is lost. `reopen` finds out what is left of the rest.
            StorageError: no descriptor could be had, and nothing is lost: flush again later.
        """
        with self._flush_lock:
            return self._flush()

    def _flush(self) -> int:
        """Under the flush lock: one flush."""
        with self._lock:
            self._check_online()
            work = self._take_work()
        try:
            self._sync(work)
        except OSError as error:
            what = f"{self.name}: flush up to offset {work.end}"
            with self._lock:
                self._put_back(work)
                if is_no_descriptor(error):
                    raise storage_error(what, error) from error
                reason = f"{what}: {error.strerror or error}"
                self._go_offline(reason)
            raise LogOfflineError(reason) from error
        self._tell_index(work)
        with self._lock:
            self._finish(work)
        return work.end

    def _take_work(self) -> _FlushWork:
        """Under the lock: say what must be flushed; what comes later is for the next flush."""
        work = _FlushWork(
            self._end,
            self._unflushed_messages,
            list(self._dirty),
            self._pending,
            self._has_new_names,
        )
        self._pending = []
        self._entry_ms = NO_ENTRY_MS
        self._has_new_names = False
        self._flushing_first_ms, self._first_unflushed_ms = self._first_unflushed_ms, None
        return work

    def _put_back(self, work: _FlushWork) -> None:
        """Under the lock: a flush came to nothing, or not to its end; leave it all for another."""
        self._pending[:0] = work.entries
        # It may have made and renamed files.
        self._has_new_names = True
        self._first_unflushed_ms, self._flushing_first_ms = self._flushing_first_ms, None

    def _sync(self, work: _FlushWork) -> None:
        """Put data on disk, then names, then give `.unflushed` segments their final names."""
        for segment in work.dirty:
            self._files.fdatasync(segment.file.descriptor)
        # Before anything is promised, and after what takes long.
        self._check_place([each for each in work.dirty if not each.file.is_retired])
        has_new_names = work.has_new_names
        for segment in work.dirty:
            if segment.index.last is None and segment.base_offset < work.end:
                with suppress(OSError):
                    has_new_names |= segment.index.ensure_file()
        self._sync_names(has_new_names=has_new_names)
        drafts = [segment for segment in work.dirty if not segment.is_flushed_name]
        for segment in drafts:
            segment.rename_flushed()
        if drafts:
            self._sync_directory(self.directory)

    def _check_place(self, segments: Sequence[Segment]) -> None:
        """Make sure that the names still lead to what was opened.

        Segments that are where they were show that their directory is; without any it is looked at.

        Raises:
            OSError: they don't: what is written goes where nobody will find it.
        """
        files = self._files
        try:
            is_same = bool(segments) or identity(files.stat(self.directory)) == self._place
            for segment in segments:
                is_same &= identity(files.lstat(segment.path)) == segment.file.identity
        except (FileNotFoundError, NotADirectoryError):
            is_same = False
        if not is_same:
            raise OSError(
                ESTALE,
                f"{self.directory} or a file in it was removed, replaced or unmounted; put back "
                "what was there, or restart the broker to go on with what is there now",
            )

    def _sync_names(self, *, has_new_names: bool) -> None:
        """Put on disk which files the partition has, and that it exists."""
        if has_new_names:
            self._sync_directory(self.directory)
        if self._has_new_directory:
            self._sync_directory(os.path.dirname(self.directory))
            self._has_new_directory = False

    def _sync_directory(self, path: str) -> None:
        self._descriptors.opening(self._files.fsync_directory, path)

    def _tell_index(self, work: _FlushWork) -> None:
        """Write what has become true into the time indexes. Failing costs comfort, not messages."""
        for number, segment in enumerate(work.dirty, start=1):
            is_complete = number < len(work.dirty)
            end = work.dirty[number].base_offset if is_complete else work.end
            entries = [each for each in work.entries if segment.base_offset < each[1] <= end]
            # The entries tell of what this flush covers: from the high watermark on.
            start = max(segment.base_offset, self._high_watermark)
            try:
                descriptor = segment.file.descriptor
                segment.index.load(descriptor, end - segment.base_offset)
                segment.index.append(entries, descriptor, start=start, complete=is_complete)
            except OSError:
                self.index_failures += 1

    def _finish(self, work: _FlushWork) -> None:
        """Under the lock: move the high watermark, unpin what has become clean."""
        self._high_watermark = work.end
        self._unflushed_messages -= work.messages
        self._flushing_first_ms = None
        # Clean is what ends where the flush did, active or not: while the last segment was being
        # synced it may have grown, and the log have rolled to another one.
        ends = [*(segment.base_offset for segment in self._dirty[1:]), self._end]
        for segment, end in zip(work.dirty, ends, strict=False):
            if end > work.end:
                break
            self._dirty.remove(segment)
            self._descriptors.release(segment.file)
            if segment is self._view.segments[-1]:
                self._descriptor = -1
