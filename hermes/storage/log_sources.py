"""Ranges of mirrors' sources in a log: each is appended once, and their positions are told.

`hermes.storage.source_positions` is the file beside the segments that this rests on. A range is
written down there before its bytes are appended, both in one hold of the log's lock
(`hermes.storage.log_state`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from hermes.errors import LogOfflineError, StorageError
from hermes.protocol import SourcePosition, SourceSpan
from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import Buffer, FileLayer
from hermes.storage.log_state import LogState
from hermes.storage.segment import LogView, Segment
from hermes.storage.sidecar import Sidecar
from hermes.storage.source_positions import DAMAGED_NAME, SourcePositions
from hermes.storage.source_spans import SourceRange, ToldSources


class SourcesSidecar(Sidecar):
    """What a log has of sources; most have nothing of any: then `positions` is None."""

    def __init__(self, directory: str, files: FileLayer, descriptors: DescriptorCache) -> None:
        self._place = (directory, files, descriptors)
        self.positions: SourcePositions | None = None
        # The same, or what is read while the log is being opened.
        self._loading: SourcePositions | None = None

    def made(self) -> SourcePositions:
        """What there is, or the positions of a log that has nothing yet; `take` them if it has."""
        return self.positions or SourcePositions(*self._place)

    def take(self, positions: SourcePositions) -> None:
        self.positions = self._loading = positions

    @property
    def is_idle(self) -> bool:  # type: ignore[override]
        return self.positions is None

    @property
    def set_aside(self) -> Sequence[str]:  # type: ignore[override]
        is_damaged = self._loading is not None and self._loading.is_set_aside
        return (DAMAGED_NAME,) if is_damaged else ()

    def load(self, *, clean: bool, is_new: bool) -> None:
        self._loading = SourcePositions.load(*self._place, clean=clean)

    def end_for(self, start: int, end: int, bad_ranges: Sequence[tuple[int, int]]) -> int:
        return end if self._loading is None else self._loading.end_for(start, end, bad_ranges)

    def opened(self, segments: tuple[Segment, ...], end: int, now_ms: int, *, is_new: bool) -> int:
        if self._loading is not None:
            self._loading.settle(end)
        return 0

    def installed(self) -> None:
        self.positions = self._loading

    def recovered(self, segments: Sequence[Segment], earliest: int, end: int, now_ms: int) -> None:
        if self.positions is not None:
            self.positions.settle(end)

    def prepare(self) -> None:
        if self.positions is not None and self.positions.takes_ranges:
            self.positions.prepare()

    def account(self, end: int, flushed_end: int) -> None:
        if self.positions is not None:
            self.positions.checkpoint(end, flushed_end)

    def sync(self) -> None:
        if self.positions is not None:
            self.positions.sync()

    def flushed(self, lock: AbstractContextManager[object], view_of: Callable[[], LogView]) -> None:
        if self.positions is not None:
            view = view_of()
            self.positions.tidy(lock, view.earliest, view.high_watermark)

    def close(self, end: int) -> None:
        if self.positions is not None:
            self.positions.close(end)

    def retire(self) -> None:
        if self.positions is not None:
            self.positions.retire()


class LogSources:
    """The sources of one log; for ranges to be appended, `begin` comes first."""

    __slots__ = ("_sidecar", "_state")

    def __init__(self, state: LogState, sidecar: SourcesSidecar) -> None:
        self._state = state
        self._sidecar = sidecar

    @property
    def takes_ranges(self) -> bool:
        positions = self._sidecar.positions
        return positions is not None and positions.takes_ranges

    @property
    def has_any(self) -> bool:
        return self._sidecar.positions is not None

    def begin(self) -> None:
        """Get ready to append ranges. Blocks; any worker thread. Again is harmless.

        Raises:
            LogOfflineError: the log is offline.
            StorageError: the disk refused; nothing has changed.
        """
        state = self._state
        with state.flush_lock:
            state.check_online()
            if self.takes_ranges:
                return
            positions = self._sidecar.made()
            try:
                positions.begin(state.tail.end, state.view.flushed_end)
            except OSError as error:
                with state.lock:
                    failure = state.refused("get ready for ranges of sources", error)
                    if isinstance(failure, LogOfflineError):
                        self._sidecar.take(positions)
                raise failure from error
            with state.lock:
                self._sidecar.take(positions)
                state.enlist()

    def position(self, source: str) -> int:
        """Up to where the log has a source, flushed or not; -1 when it has nothing of it."""
        positions = self._sidecar.positions
        return -1 if positions is None else positions.spans.position(source)

    def positions(self, first: int, limit: int) -> tuple[int, list[SourcePosition]]:
        """Tell the positions of sources, flushed or not.

        Args:
            first: the number of the first one.
            limit: how many at most.

        Returns:
            (where the log ends, the positions by number): of one moment, so that what follows the
            end is of none of them.
        """
        with self._state.lock:
            end = self._state.tail.end
            if self._sidecar.positions is None:
                return end, []
            spans = self._sidecar.positions.spans
            last = min(first + limit, len(spans.names))
            return end, [
                SourcePosition(number, spans.positions[number], spans.names[number])
                for number in range(first, last)
            ]

    def spans(self, first: int, limit: int) -> tuple[int, list[SourceSpan]]:
        """Tell where ranges of sources lie, flushed or not.

        Args:
            first: spans that begin before this offset are left out.
            limit: how many at most.

        Returns:
            (where the log ends, the spans in their order): of one moment.
        """
        with self._state.lock:
            end = self._state.tail.end
            if self._sidecar.positions is None:
                return end, []
            return end, list(self._sidecar.positions.spans.spans(first, limit))

    def append_range(
        self,
        wanted: SourceRange,
        buffers: Sequence[Buffer],
        byte_count: int,
        message_count: int,
        now_ms: int,
        batches: Sequence[tuple[int, int, int]] = (),
    ) -> int | None:
        """Append what stands for a range of a source, unless it is there already.

        Call it as `Log.append`, once `takes_ranges` is true.

        Args:
            byte_count, batches: as for `Log.append`; without any bytes only the position moves.

        Returns:
            Where the range begins in the log; None when nothing was appended.

        Raises:
            InvalidSourceError, SourceOverlapError, SourceGapError: as for `SourceSpans.is_done`;
                nothing was appended.
            StorageError: as for `Log.append`.
        """
        state = self._state
        with state.lock:
            state.check_online()
            sources, tail = self._sidecar.positions, state.tail
            if sources is None or not sources.takes_ranges:
                text = f"{state.name} is not ready for ranges of sources yet; try again"
                raise StorageError(text)
            counted = message_count if state.format.counts_messages else byte_count
            if sources.spans.is_done(wanted, counted):
                return None
            if not byte_count:
                sources.move(wanted)
                return None
            state.prepare(now_ms, byte_count)
            # What isn't committed may be cut: no span is made coarser there.
            committed, mark = state.view.high_watermark, sources.mark()
            try:
                span = sources.write(wanted, tail.end, tail.end + counted, committed)
                state.last_append_ms = now_ms
                tail.append(buffers, byte_count, message_count, now_ms, batches)
            except OSError as error:
                raise self._undo(error, mark) from error
            sources.spans.note(span, committed)
            return span.log_begin

    def _undo(self, error: OSError, mark: tuple[int, int, int]) -> StorageError:
        """Under the lock: take an append back, with its record; say what to raise."""
        # The bytes go first: without the record they would be anybody's.
        failure = self._state.undo_append(error)
        sources = self._sidecar.positions
        try:
            if sources is not None:
                sources.cancel(mark)
        except OSError:
            self._state.go_offline(str(failure))
        return failure

    # -- other copies -----------------------------------------------------------------------------

    @property
    def is_damaged(self) -> bool:
        """Whether its file is, so that it isn't known what of sources is here."""
        return bool(self._sidecar.set_aside)

    def told(self, offset: int, limit: int, *, with_positions: bool) -> ToldSources | None:
        """What goes to another copy with batches from an offset on; None if there are no sources.

        Args:
            limit: about how many spans at most.
            with_positions: whether that copy has nothing before the offset.
        """
        with self._state.lock:
            if self._sidecar.positions is None:
                return None
            known, until = self._sidecar.positions.spans, self._state.tail.end
            spans = known.reaching(offset, limit + 1)
            if len(spans) > limit:
                until = spans.pop().log_begin
            positions = known.positions_at(offset) if with_positions else []
            numbers = range(len(positions)) if positions else {each.number for each in spans}
            told = [
                SourcePosition(each, positions[each] if positions else -1, known.names[each])
                for each in sorted(numbers)
            ]
            return ToldSources(told, spans, until)

    @contextmanager
    def placing(self, told: ToldSources | None, start: int, end: int) -> Iterator[None]:
        """Under the log's lock, prepared: write down what another copy tells, and note it after.

        Raises StorageError: as for `append_range`; nothing is there of either.
        """
        sources, state = self._sidecar.positions, self._state
        spans: list[SourceSpan] = []
        mark = (0, 0, 0) if sources is None else sources.mark()
        try:
            if told is not None and (told.positions or told.spans):
                if sources is None or not sources.takes_ranges:
                    raise StorageError(f"{state.name} is not ready for ranges of sources yet")
                spans = [
                    span._replace(number=sources.number(name))
                    for name, span in told.up_to(start, end)
                ]
                if spans:
                    sources.write_spans(spans, state.view.high_watermark)
            yield
        except OSError as error:
            raise self._undo(error, mark) from error
        if sources is not None:
            for span in spans:
                sources.spans.note(span, state.view.high_watermark)
