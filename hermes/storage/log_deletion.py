"""Deleting at the start of a log: whole segments (retention), and messages before an offset.

Segments leave the view under both of the log's locks (`hermes.storage.log_state`); their files go
afterwards, the oldest first, with neither held.
"""

from hermes.errors import OffsetOutOfRangeError, StorageError
from hermes.storage.files import storage_error
from hermes.storage.log_flush import flush
from hermes.storage.log_state import LogState
from hermes.storage.segment import LogView, Segment
from hermes.storage.sidecar import FormatSidecar


class LogDeletion:
    __slots__ = ("_sidecar", "_state")

    def __init__(self, state: LogState, sidecar: FormatSidecar) -> None:
        self._state = state
        self._sidecar = sidecar

    def oldest(self, count: int, up_to: int | None) -> int:
        state = self._state
        with state.flush_lock:
            state.check_online()
            state.check_directory()
            removed = self._remove_from_view(count, up_to)
        self.delete_removed()
        return sum(segment.size_bytes for segment in removed)

    def records(self, offset: int, *, keeps_files: bool) -> int:
        state = self._state
        if not self._sidecar.can_begin_inside:
            text = f"{state.name} is of the format {state.format.name}"
            raise StorageError(f"{text}: only whole segments can be deleted at its start")
        with state.flush_lock:
            state.check_online()
            state.check_directory()
            view = state.view
            if offset > view.high_watermark:
                raise OffsetOutOfRangeError(offset, view.earliest, view.high_watermark)
            if offset <= view.earliest:
                return view.earliest
            try:
                self._sidecar.keep_start(offset, state.current_view)
            except OSError as error:
                raise storage_error(f"{state.name}: delete records", error) from error
            with state.lock:
                view = state.view
                mark = view.high_watermark
                stable_end = state.stable_end(mark, offset)
                state.view = LogView.of(view.segments, view.flushed_end, mark, stable_end, offset)
                self._sidecar.cut(offset, state.tail.end)
            self._remove_from_view(view.position_of(offset), None)
        if not keeps_files:
            self.delete_removed()
        return state.view.earliest

    def delete_removed(self) -> None:
        state = self._state
        try:
            if state.directory.has_removed:
                for each in state.sidecars:
                    each.record(state.current_view, is_synced=True)
            state.directory.delete_removed(lambda: state.view.segments[0].is_flushed_name)
        except OSError as error:
            raise storage_error(f"{state.name}: delete segments", error) from error

    def _remove_from_view(self, count: int, up_to: int | None) -> tuple[Segment, ...]:
        """Under the flush lock: take segments out of the view; they are to be deleted now."""
        state = self._state
        total, tail = len(state.view.bases), state.tail
        if count >= total and up_to in (None, tail.end) and tail.size_bytes:
            removed = self._replace_all()
            if removed:
                return removed
        with state.lock:
            view = state.view
            count = min(count, view.position_of(tail.end if up_to is None else up_to))
            while count > 0 and view.bases[count] > view.high_watermark:
                count -= 1
            if count <= 0:
                return ()
            removed = view.segments[:count]
            # An active one that was only opened, to see whether it was to be rolled, is among them.
            tail.forget(removed)
            state.view = view.with_segments(view.segments[count:])
        state.retire(removed)
        state.directory.remove(removed)
        return removed

    def _replace_all(self) -> tuple[Segment, ...]:
        """Under the flush lock: let an empty segment stand in for all, once all is committed."""
        state = self._state
        end = flush(state)
        with state.lock:
            view, tail = state.view, state.tail
            if tail.end != end or view.high_watermark < end or not tail.size_bytes:
                return ()
            try:
                stand_in = tail.replace(view.segments)
            except OSError as error:
                what = f"{state.name}: begin an empty segment"
                raise storage_error(what, error) from error
            for each in state.sidecars:
                each.rolled(end)
            mark = view.high_watermark
            state.view = LogView.of((stand_in,), end, mark, state.stable_end(mark, end))
        state.retire(view.segments)
        state.directory.remove(view.segments)
        flush(state)
        return view.segments
