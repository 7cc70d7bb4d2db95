"""Bringing a log into service: from its directory at a start, from what is in memory afterwards.

The second is after a failure of its disk, or for a cut at its end. Both hold the log's lock for
flushes throughout, and its other lock only to install what they found (`hermes.storage.log_state`).
"""

from collections.abc import Sequence
from contextlib import suppress
from errno import EIO

from hermes.errors import CorruptLogError, LogOfflineError, OffsetOutOfRangeError, StorageError
from hermes.storage.files import storage_error
from hermes.storage.loading import LoadedLog, load
from hermes.storage.log_exchange import LogExchange
from hermes.storage.log_state import LogState
from hermes.storage.reader import LogReader
from hermes.storage.recovery import RecoveryReport, TailRecovery
from hermes.storage.segment import (
    FlushedEnd,
    HighWatermark,
    LastStableOffset,
    LogView,
    Segment,
)
from hermes.storage.segment_files import (
    LoadingSegment,
    find_again,
    remove_segment,
    remove_unbegun,
)
from hermes.storage.sidecar import FormatSidecar


class LogOpening:
    """`exchange` may have left a segment of which nobody knows which file it is."""

    __slots__ = (
        "_doomed",
        "_exchange",
        "_has_cut",
        "_reader",
        "_sidecar",
        "_state",
        "strange_files",
    )

    def __init__(self, state: LogState, sidecar: FormatSidecar, exchange: LogExchange) -> None:
        self._state = state
        self._sidecar = sidecar
        self._exchange = exchange
        self.strange_files: tuple[str, ...] = ()
        self._reader = LogReader(state.files, state.descriptors, state.format)
        # What a cut has left out of the view and not deleted yet, in order; and whether it is yet
        # to be written down that the log ends before.
        self._doomed: list[Segment] = []
        self._has_cut = False

    def open(self, *, clean: bool, now_ms: int, is_new_directory: bool) -> RecoveryReport | None:
        state = self._state
        with state.flush_lock:
            state.directory.is_new |= is_new_directory
            try:
                state.directory.identity = state.directory.current_identity()
                for each in state.sidecars:
                    each.load(clean=clean, is_new=state.directory.is_new)
                loaded = self._load(now_ms, clean=clean)
                is_new = state.directory.is_new
                if loaded.end:
                    # What was found counts as flushed; of an empty log the first flush sees to it.
                    state.directory.sync_parent()
                earliest = max(
                    each.opened(loaded.segments, loaded.end, now_ms, is_new=is_new)
                    for each in state.sidecars
                )
            except OSError as error:
                raise self._failed("open", error) from error
            except StorageError as error:
                self._failed("open", error)
                raise
            aside = (name for each in state.sidecars for name in each.set_aside)
            self.strange_files = tuple({**dict.fromkeys(loaded.strange), **dict.fromkeys(aside)})
            with state.lock:
                for each in state.sidecars:
                    each.installed()
                state.install(loaded, earliest)
            if not state.directory.is_new:
                for each in state.sidecars:
                    with suppress(OSError, StorageError):
                        each.record(state.current_view)
            return loaded.report

    def _load(self, now_ms: int, *, clean: bool) -> LoadedLog:
        state, known = self._state, self._sidecar.known
        # What follows damage is on other copies; or the damage is a hole that the power has left in
        # what nobody was told is stored, and so is all after it: Kafka's readers would end there.
        until_damage = not state.is_sole_copy or (
            state.has_lost_power and not state.format.keeps_beyond_damage
        )

        def loaded(clean: bool) -> LoadedLog:
            known_end = 0 if clean else self._sidecar.recovery_point()
            return load(
                state.directory.path,
                state.files,
                state.format,
                self._recovery(now_ms, known_end, until_damage=until_damage),
                clean=clean,
                known=known.segments,
            )

        found = loaded(clean)
        if clean and known.segments and found.end != known.end:
            # Whatever has happened to it, it is not what the marker was written for.
            found = loaded(False)
        return found

    def _recovery(self, now_ms: int, known_end: int = 0, *, until_damage: bool) -> TailRecovery:
        state = self._state
        return TailRecovery(
            state.files,
            state.descriptors,
            state.settings,
            now_ms,
            self._end_for,
            known_end,
            until_damage=until_damage,
        )

    def _end_for(self, start: int, end: int, bad_ranges: Sequence[tuple[int, int]]) -> int:
        for each in self._state.sidecars:
            end = each.end_for(start, end, bad_ranges)
        return end

    def reopen(self, now_ms: int) -> RecoveryReport:
        state = self._state
        if not state.view.segments and not state.is_closed:
            # Whoever made the directory may not have come to syncing its name.
            report = self.open(clean=False, now_ms=now_ms, is_new_directory=True)
            return report or RecoveryReport(state.tail.end, state.tail.end)
        with state.flush_lock:
            if state.is_closed:
                state.check_online()
            if state.offline_reason is None:
                return RecoveryReport(state.view.flushed_end, state.view.flushed_end)
            try:
                return self._recover(now_ms)
            except OSError as error:
                raise LogOfflineError(str(self._failed("reopen", error))) from error
            except CorruptLogError as error:
                self._failed("reopen", error)
                raise

    def cut(self, offset: int, now_ms: int, *, is_forced: bool) -> RecoveryReport:
        """Under the flush lock, online: let the log end at an offset; see `LogReplica.cut_to`.

        What remains is recovered as after a failure. So the view is first what it will be at most:
        nobody looks for what is going to be deleted.
        """
        state = self._state
        with state.lock:
            view, tail = state.view, state.tail
            least = view.earliest if is_forced else view.high_watermark
            if not least <= offset <= tail.end:
                raise OffsetOutOfRangeError(offset, least, tail.end)
            state.go_offline(f"it is being cut at offset {offset}")
        try:
            limit = state.settings.max_message_bytes
            end = self._reader.boundary_before(view.up_to(tail.end), offset, limit)
            if end < view.high_watermark and not is_forced:
                raise CorruptLogError(
                    f"{state.name} is damaged from offset {end} on: it can't be cut at {offset}"
                )
            with state.lock:
                kept = view.position_of(end) + 1
                self._doomed = list(view.segments[kept:])
                flushed_end = FlushedEnd(min(view.flushed_end, end))
                mark = HighWatermark(min(view.high_watermark, end))
                stable_end = LastStableOffset(min(view.stable_end, end))
                state.view = LogView.of(
                    view.segments[:kept], flushed_end, mark, stable_end, view.earliest
                )
                tail.end = end
                self._has_cut = True
            state.retire(self._doomed)
            return self._recover(now_ms)
        except (OSError, CorruptLogError) as error:
            failure = self._failed(f"cut at offset {offset}", error)
            raise LogOfflineError(str(failure)) from error

    def _failed(self, what: str, error: OSError | StorageError) -> StorageError:
        """Note why the log is offline, and whether that may pass."""
        state = self._state
        if isinstance(error, OSError):
            state.is_unreadable = error.errno == EIO
            error = storage_error(f"{state.name}: {what}", error)
        else:
            state.is_unreadable = isinstance(error, CorruptLogError)
        state.is_suspect |= state.is_unreadable
        state.offline_reason = str(error)
        return error

    def _remove_doomed(self) -> None:
        """Delete segments that a cut has left out, the newest first, each for certain.

        It is written down first, or a start would miss them.
        """
        if self._has_cut:
            for each in self._state.sidecars:
                each.record(self._state.current_view, is_synced=True, has_new_end=True)
            self._has_cut = False
        while self._doomed:
            remove_segment(self._doomed[-1], self._state.files)
            self._state.directory.sync()
            del self._doomed[-1]

    def _recover(self, now_ms: int) -> RecoveryReport:
        """Under the flush lock, offline: recover from the flushed end on."""
        # All segments are new objects. The old ones may be open in a file system that was taken
        # away, or hold names that an earlier attempt has changed half.
        state = self._state
        self._exchange.settle()
        self._remove_doomed()
        view, tail = state.view, state.tail
        segments = find_again(view, tail.end, state.files)
        remove_unbegun(view, tail.end, state.files)
        place = state.directory.current_identity()
        first = view.position_of(view.flushed_end)
        state.directory.sync_parent()
        self._sidecar.keep_id()
        recovery = self._recovery(now_ms, until_damage=not state.format.keeps_beyond_damage)
        try:
            if first and not state.format.is_dense:
                # The flush that failed was to complete what is kept beside it.
                complete = [LoadingSegment.of(segments[first - 1], state.files)]
                recovery.mend_indexes(complete)
            kept, report = recovery.after_failure(
                segments[first:],
                view.flushed_end,
                tail.end,
                tail.unflushed_bytes,
                tail.entries,
            )
            loaded = (*segments[:first], *kept)
            for each in state.sidecars:
                each.recovered(loaded, view.earliest, report.valid_end, now_ms)
        except BaseException:
            state.retire(segments)
            raise
        with state.lock:
            tail.release()
            state.directory.identity = place
            for each in state.sidecars:
                each.cut(view.earliest, report.valid_end)
            found = LoadedLog(loaded, report.valid_end, report, self.strange_files)
            state.install(found, view.earliest)
        state.retire((*view.segments, *segments[first + len(kept) :]))
        return report
