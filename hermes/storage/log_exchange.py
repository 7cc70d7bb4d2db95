"""A complete segment is exchanged for one that was written anew: what compaction does to a log.

Readers go on: slices of the old one stay readable until they are released. The exchange is one
rename, under both of the log's locks (`hermes.storage.log_state`). A rename that fails may have
been done all the same; while nobody knows, the log is offline, and its recovery asks `settle`.
"""

from contextlib import suppress

from hermes.errors import LogOfflineError, StorageError
from hermes.storage.files import Identity, identity, storage_error
from hermes.storage.log_state import LogState
from hermes.storage.segment import Segment
from hermes.storage.segment_files import remove_segment


class LogExchange:
    __slots__ = ("_pending", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        # (A segment, what was to take its place, that file) while nobody knows whether it has.
        self._pending: tuple[Segment, Segment, Identity] | None = None

    def replace(self, old: Segment, draft: str, size_bytes: int) -> int:
        """Let a file take a complete segment's place. Blocks; worker threads.

        Args:
            old: one of the log's complete segments.
            draft: the path of a file in the log's directory, synced: some of the segment's batches.
                Without any, the segment goes, unless it is the first one.
            size_bytes: how large that is.

        Returns:
            By how many bytes the log became smaller.

        Raises:
            LogOfflineError: the log is offline; nothing was changed.
            StorageError: the disk refused, or the segment is none of the log's any more.
        """
        state = self._state
        with state.flush_lock:
            state.check_online()
            state.check_directory()
            if old not in state.view.complete_segments():
                raise StorageError(f"{state.name}: {old.path} was deleted meanwhile")
            try:
                return self._replace(old, draft, size_bytes)
            except OSError as error:
                raise storage_error(f"{state.name}: replace {old.path}", error) from error

    def _replace(self, old: Segment, draft: str, size_bytes: int) -> int:
        state = self._state
        last_ms = self._last_append_ms(old)
        is_dropped = not size_bytes and old is not state.view.segments[0]
        new = Segment(state.files, state.format, state.directory.path, old.base_offset)
        new.size_bytes = size_bytes
        for path in new.index.paths:
            with suppress(FileNotFoundError):
                state.files.unlink(path)
        # Else the power may leave the new segment with the indexes of the old one.
        state.directory.sync()
        with state.lock:
            if not is_dropped:
                self._rename(draft, old, new)
            self._show(old, () if is_dropped else (new,))
        state.retire([old])
        if is_dropped:
            for each in state.sidecars:
                each.record(state.current_view, is_synced=True)
            remove_segment(old, state.files)
        state.directory.sync()
        if not is_dropped:
            with suppress(OSError):  # no message depends on it
                self._index_again(new, last_ms)
        return old.size_bytes - size_bytes

    def _show(self, old: Segment, new: tuple[Segment, ...]) -> None:
        """Under the lock: let readers have another segment, or none, in a segment's place."""
        view = self._state.view
        place = view.segments.index(old)
        segments = (*view.segments[:place], *new, *view.segments[place + 1 :])
        self._state.view = view.with_segments(segments)

    def _rename(self, draft: str, old: Segment, new: Segment) -> None:
        """Under the lock: give a file a segment's name.

        A rename that fails may have been done all the same. Then the segment's file is gone, and
        whoever took it to be there would miss its messages.

        Raises:
            LogOfflineError: nobody knows which of both is there; a recovery finds out.
            OSError: it was not done.
        """
        state = self._state
        self._pending = (old, new, identity(state.files.lstat(draft)))
        try:
            state.files.rename(draft, old.path)
        except OSError as error:
            try:
                is_done = self._is_done(self._pending)
            except OSError:
                reason = f"{state.name}: replace {old.path}: {error.strerror or error}"
                state.go_offline(reason)
                raise LogOfflineError(reason) from error
            if not is_done:
                self._pending = None
                raise
        self._pending = None

    def _is_done(self, pending: tuple[Segment, Segment, Identity]) -> bool:
        old, _, made = pending
        return identity(self._state.files.lstat(old.path)) == made

    def settle(self) -> None:
        """Under the flush lock, offline: find out what has become of an exchange that failed.

        Raises OSError: that can't be found out.
        """
        if self._pending is None:
            return
        old, new, _ = self._pending
        if self._is_done(self._pending):
            with self._state.lock:
                self._show(old, (new,))
            self._state.retire([old])
        self._pending = None

    def _last_append_ms(self, segment: Segment) -> int | None:
        """When a complete segment was appended to last, if its index tells."""
        state = self._state
        descriptor = state.descriptors.acquire(segment.file)
        try:
            end = state.format.end_of(state.files, segment, segment.size_bytes)
            segment.index.load(descriptor, end)
        finally:
            state.descriptors.release(segment.file)
        return None if segment.index.last is None else segment.index.last.time_ms

    def _index_again(self, segment: Segment, last_ms: int | None) -> None:
        state, base = self._state, segment.base_offset
        descriptor = state.descriptors.acquire(segment.file)
        try:
            end = state.format.end_of(state.files, segment, segment.size_bytes)
            segment.index.load(descriptor, end)
            segment.index.settle(descriptor, base, end, complete=True)
            if last_ms is not None and end > base:
                segment.index.append([(last_ms, end)], descriptor, start=end, complete=True)
        finally:
            state.descriptors.release(segment.file)
