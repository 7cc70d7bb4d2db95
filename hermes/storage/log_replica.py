"""What makes a log the same as another copy of it: a cut at its end, a new start, placed appends.

Of these a replica's broker calls one at a time; `append_placed`, `begin_epoch`, `read_appended` and
`fetch_appended` in the thread that appends (the reactor's), the others in worker threads, where
they take the log's lock for flushes (`hermes.storage.log_state`). What was committed is cut only
where that is forced.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hermes.errors import InvalidBatchError, OffsetOutOfRangeError, StorageError
from hermes.protocol.record_batches import HEADER_BYTES, BatchHeader, decode_header
from hermes.storage.descriptors import LogSlice, SegmentRetiredError
from hermes.storage.files import Buffer, storage_error
from hermes.storage.log_deletion import LogDeletion
from hermes.storage.log_flush import flush
from hermes.storage.log_opening import LogOpening
from hermes.storage.log_sources import LogSources
from hermes.storage.log_state import LogState
from hermes.storage.log_transactions import append_at_places, markers_in
from hermes.storage.reader import LogReader
from hermes.storage.recovery import RecoveryReport
from hermes.storage.segment import (
    FlushedEnd,
    HighWatermark,
    LastStableOffset,
    LogView,
    Segment,
)
from hermes.storage.sidecar import FormatSidecar
from hermes.storage.source_spans import ToldSources


class LogReplica:
    __slots__ = (
        "_deletion",
        "_first_base",
        "_opening",
        "_reader",
        "_sidecar",
        "_sources",
        "_state",
    )

    def __init__(
        self,
        state: LogState,
        sidecar: FormatSidecar,
        sources: LogSources,
        opening: LogOpening,
        deletion: LogDeletion,
        reader: LogReader,
    ) -> None:
        self._state = state
        self._sidecar = sidecar
        self._sources = sources
        self._opening = opening
        self._deletion = deletion
        self._reader = reader
        self._first_base = (-1, -1)

    @property
    def has_cut_damage(self) -> bool:
        """Whether what was cut off when it was opened are damage and something valid after it.

        Mostly what was never flushed; or a disk has lost what was. Other copies know.
        """
        return self._state.has_cut_damage

    @property
    def is_unreadable(self) -> bool:
        """Whether files were missing or unreadable, or didn't fit, as it was last opened."""
        return self._state.is_unreadable

    @property
    def may_be_mistaken(self) -> bool:
        """Whether only an empty directory says that the log is of 0.7's format.

        A loss of power leaves one of a log of Kafka's, too, before the first flush and with the
        topic's settings not written. So who knows that the topic is Kafka's has it made anew.
        """
        state = self._state
        return not (state.format.counts_messages or state.tail.end or state.offline_reason)

    def become_copy(self, high_watermark: int) -> None:
        """There are other copies from now on, and so much is committed. Reactor's thread.

        Not before that is on disk (`Watermarks.keep`): it would be the only copy after a crash.
        """
        state = self._state
        with state.lock:
            state.is_sole_copy = False
            view = state.view
            mark = HighWatermark(max(min(high_watermark, view.flushed_end), view.earliest))
            stable_end = state.stable_end(mark, view.earliest)
            state.view = view._replace(high_watermark=mark, stable_end=stable_end)

    def read_appended(self, offset: int, max_bytes: int, *, whole_first: bool = False) -> LogSlice:
        """Find bytes up to the log's end, committed or not: for other copies, and for nobody else.

        As `Log.read`. A cut may take them before they are read.
        """
        with self._appended() as view:
            return self._reader.read(view, offset, max_bytes, whole_first)

    def fetch_appended(
        self, offset: int, max_bytes: int, *, resident: bool
    ) -> tuple[LogSlice | bytes, int]:
        """The same with a whole first batch, and where the segment ends that they are of.

        Raises NotInMemoryError: what says where they lie was to be `resident` in memory, and isn't.
        A few bytes at the log's end are read at once, if they are in memory.
        """
        with self._appended() as view:
            end: int = view.high_watermark
            if view.bases and view.bases[-1] <= offset:
                return self._reader.fetch(view, offset, max_bytes, True, resident, resident), end
            found = self._reader.read(view, offset, max_bytes, True, resident)
        for place in range(max(0, view.position_of(offset)), len(view.segments)):
            if found.is_of(view.segments[place].file):
                return found, view.end_of(place, end)
        return found, end

    @contextmanager
    def _appended(self) -> Iterator[LogView]:
        state = self._state
        with state.lock:
            view = state.view.up_to(state.tail.end)
        if not view.bases:
            state.check_online()
        try:
            yield view
        except SegmentRetiredError:
            raise state.offline_error() from None
        except OSError as error:
            raise state.unreadable(error) from error

    def first_base(self) -> int:
        """The base offset of the first batch, where another copy begins: up to `Log.earliest`.

        What was deleted may end inside of a batch. Reads a little then, once for each start.
        """
        view = self._state.view
        earliest = view.earliest
        if not view.segments or view.segments[0].base_offset == earliest:
            return earliest
        if earliest == self._first_base[0]:
            return self._first_base[1]
        try:
            with self.read_appended(earliest, 0, whole_first=True) as found:
                if not found.length:
                    return earliest
                data = self._state.files.pread(found.fileno(), HEADER_BYTES, found.position)
            base = decode_header(data).base_offset
        except (StorageError, OSError, InvalidBatchError):
            return earliest  # it is damaged, as is found out elsewhere
        self._first_base = earliest, min(earliest, base)
        return self._first_base[1]

    def epoch_before(self, offset: int) -> int:
        """The leader epoch of the last batch before an offset; -1 for none, or an unknown one."""
        return self._sidecar.epoch_before(offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """As `Log.end_of_epoch`, up to the log's end: what isn't committed counts between copies.

        An epoch after the last one ends where that does.
        """
        sidecar = self._sidecar
        return sidecar.end_of_epoch(min(epoch, sidecar.epochs.latest), self._state.tail.end)

    def begin_epoch(self, epoch: int) -> None:
        """Append in a leader epoch from now on; the next flush has it on disk."""
        self._check_format()
        with self._state.lock:
            self._sidecar.begin_epoch(epoch, self._state.tail.end)

    def append_placed(
        self,
        buffers: Sequence[Buffer],
        headers: Sequence[BatchHeader],
        now_ms: int,
        told: ToldSources | None = None,
    ) -> None:
        """Append batches where they lie in the other log: their offsets and epochs stay.

        There may be holes, which compaction has left there.

        Args:
            buffers: the bytes of whole batches that were checked, in order. Not kept.
            headers: the batches', at least one.
            told: what they stand for, up to their end at least.

        Raises:
            StorageError: they don't follow what the log has; or as for `Log.append`.
        """
        self._check_format()
        state, markers = self._state, markers_in(headers, buffers)
        with state.lock:
            start, end = state.tail.end, self._check_order(headers)
            state.tail.skip_to(headers[0].base_offset)
            placing = self._sources.placing(told, start, end)
            append_at_places(state, self._sidecar, buffers, headers, markers, now_ms, placing)

    def note_sources(self, told: ToldSources, now_ms: int) -> None:
        """Take over up to where the other log has its sources; the next flush has it on disk.

        Raises StorageError: as `append_placed`.
        """
        state = self._state
        with state.lock:
            state.prepare(now_ms, 0)
            with self._sources.placing(told, state.tail.end, state.tail.end):
                pass

    def _check_order(self, headers: Sequence[BatchHeader]) -> int:
        """Under the lock: refuse batches that don't follow; where they end."""
        end = self._state.tail.end
        epoch = self._sidecar.epoch_before(end)
        for each in headers:
            if each.base_offset < end or each.leader_epoch < epoch:
                raise StorageError(
                    f"{self._state.name}: a batch at offset {each.base_offset} of epoch "
                    f"{each.leader_epoch} doesn't follow offset {end} of epoch {epoch}"
                )
            end, epoch = each.next_offset, each.leader_epoch
        return end

    def _check_format(self) -> None:
        if self._state.format.is_dense:
            text = f"{self._state.name} is of the format {self._state.format.name}"
            raise StorageError(f"{text}: where its messages lie is for their sizes to say")

    def cut_to(self, offset: int, now_ms: int, *, is_forced: bool = False) -> RecoveryReport:
        """Let the log end at an offset; what remains is on disk before this returns. Blocks.

        Appends are refused meanwhile. A stop on the way leaves a log that ends there, or later.

        Args:
            offset: from the high watermark to the log's end. Where that is inside of a frame, the
                log ends before it.
            is_forced: it may be anywhere from the log's start on: an operator let a replica lead
                that lacks what was committed.

        Returns:
            What remains: its `valid_end` is the log's end now.

        Raises:
            OffsetOutOfRangeError: nothing was cut.
            LogOfflineError: the log is offline, or it is now, since the disk failed: `Log.reopen`
                goes on with the cut.
        """
        state = self._state
        with state.flush_lock:
            state.check_online()
            state.check_directory()
            return self._opening.cut(offset, now_ms, is_forced=is_forced)

    def restart_at(self, offset: int) -> None:
        """Let the log begin and end at an offset, without messages. Blocks.

        For one that lacks what the other log has deleted. A stop on the way leaves the log as it
        was, or one that begins and ends there.

        Args:
            offset: from the log's end on.

        Raises:
            OffsetOutOfRangeError: the log has something from there on; `cut_to` comes first.
            LogOfflineError: as for `cut_to`.
            StorageError: it is of another format, or the disk refused.
        """
        self._check_format()
        state = self._state
        with state.flush_lock:
            state.check_online()
            state.check_directory()
            flush(state)
            with state.lock:
                view, tail = state.view, state.tail
                if offset < tail.end:
                    raise OffsetOutOfRangeError(offset, tail.end, tail.end)
            try:
                # First: else a loss of power could leave old segments before the new one.
                self._sidecar.keep_start(offset, state.current_view)
            except OSError as error:
                raise storage_error(f"{state.name}: begin at offset {offset}", error) from error
            with state.lock:
                # One that begins there is empty, and has the name of what would stand in for it.
                removed = view.segments[:-1] if view.bases[-1] == offset else view.segments
                self._begin_again(offset, removed)
                self._sidecar.restarted(offset)
            state.retire(removed)
            state.directory.remove(removed)
            flush(state)
            try:
                self._sidecar.keep_restart(offset, state.current_view)
            except OSError as error:
                raise storage_error(f"{state.name}: begin at offset {offset}", error) from error
        self._deletion.delete_removed()

    def _begin_again(self, offset: int, removed: Sequence[Segment]) -> None:
        """Under the lock: let an empty segment at an offset be all there is."""
        state, tail = self._state, self._state.tail
        left = state.view.segments[len(removed) :]
        if left:
            tail.forget(removed)
        else:
            before, tail.end = tail.end, offset
            try:
                left = (tail.replace(removed),)
            except OSError as error:
                tail.end = before
                raise storage_error(f"{state.name}: begin an empty segment", error) from error
        state.openings += 1
        ends = FlushedEnd(offset), HighWatermark(offset), LastStableOffset(offset)
        state.view = LogView.of(left, *ends)
