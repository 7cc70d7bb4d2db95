"""Transactions of a log: they begin, end by the markers of a coordinator, and are told to readers.

What a marker aborts is in the index (`hermes.storage.aborted_index`) before the marker is in the
log. All this is under the log's lock (`hermes.storage.log_state`): whoever reads up to the last
stable offset sees a transaction either open, or ended and known to be aborted.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from hermes.errors import OffsetOutOfRangeError, StorageError
from hermes.protocol import core
from hermes.protocol.record_batches import BatchHeader
from hermes.protocol.transaction_markers import Marker, encode_marker, marker_in
from hermes.storage.aborted_index import AbortedTransaction
from hermes.storage.descriptors import LogSlice
from hermes.storage.files import Buffer, NotInMemoryError
from hermes.storage.kafka_index import KafkaIndex
from hermes.storage.log_state import LogState
from hermes.storage.segment import LogView
from hermes.storage.sidecar import FormatSidecar

# Nothing has so many.
_NO_END = 2**63 - 1


class LogTransactions:
    __slots__ = ("_sidecar", "_state")

    def __init__(self, state: LogState, sidecar: FormatSidecar) -> None:
        self._state = state
        self._sidecar = sidecar

    def begin(self, producer_id: int) -> bool:
        """A batch of a transaction is about to be appended; whether one begins with it.

        Before it is: else a flush could show it as if it was decided.
        """
        state = self._state
        with state.lock:
            return state.transactions.begin(producer_id, state.tail.end)

    def undo(self, producer_id: int) -> None:
        """The batch could not be appended that was to begin a transaction."""
        with self._state.lock:
            self._state.transactions.undo(producer_id)

    def end(self, marker: Marker, version: int, now_ms: int) -> int:
        """End a producer's transaction, if it has one here; the marker's offset. Reactor's thread.

        Args:
            version: of transactions, as `ProducerStates.check_marker` has it.

        Raises:
            InvalidProducerEpochError, CoordinatorFencedError: nothing was appended.
            StorageError: as for `Log.append`; or the format has no transactions.
        """
        state, sidecar = self._state, self._sidecar
        if sidecar.producers is None:
            raise StorageError(f"{state.name} is of a format that has no transactions")
        with state.lock:
            state.check_online()
            sidecar.producers.check_marker(marker, version)
            offset = state.tail.end
            header, batch = encode_marker(marker, offset, sidecar.epochs.latest, now_ms)
            markers = {offset: marker}
            append_at_places(state, sidecar, [batch], [header], markers, now_ms, _undone(state))
            return offset

    @property
    def silent_since_ms(self) -> int | None:
        """When the producer was last heard of that has been silent for longest. Reactor's thread.

        Of those that have a transaction here; ms since 1970. None where no transaction is open.
        """
        states = () if self._sidecar.producers is None else self._sidecar.producers.states.values()
        open_ones = (each for each in states if each.transaction_start >= 0)
        return min((each.last_timestamp_ms for each in open_ones), default=None)

    def aborted_in(
        self, found: LogSlice | bytes, offset: int, resident: bool = False
    ) -> list[AbortedTransaction]:
        """List what was aborted of what a fetch of what was committed has found. Any thread.

        Reads a little.

        Args:
            offset: where that was to start.
            resident: raise NotInMemoryError where a file has to be read.
        """
        state, index = self._state, self._sidecar.aborted
        if offset > index.newest:
            return []
        if resident:
            raise NotInMemoryError
        while True:
            view = state.view
            if offset < view.earliest:
                raise OffsetOutOfRangeError(offset, view.earliest, view.high_watermark)
            position = view.position_of(offset)
            base = view.segments[position].base_offset
            try:
                return index.find(base, offset, _end_of(view, position, found))
            except OSError as error:
                if state.view is view:  # else a segment was deleted meanwhile
                    raise state.unreadable(error) from error


def _end_of(view: LogView, position: int, found: LogSlice | bytes) -> int:
    """The offset after what was found, from a segment of the view on, or a later one."""
    if isinstance(found, bytes):
        return core.whole_batches(found, 0, len(found), 0, _NO_END, _NO_END)[2]
    for segment in view.segments[position:]:
        index = segment.index
        if found.is_of(segment.file) and isinstance(index, KafkaIndex):
            return index.end_at(found.fileno(), found.position, found.position + found.length)
    return view.stable_end  # its segment was compacted since


def append_at_places(
    state: LogState,
    sidecar: FormatSidecar,
    buffers: Sequence[Buffer],
    headers: Sequence[BatchHeader],
    markers: Mapping[int, Marker],
    now_ms: int,
    placing: AbstractContextManager[None],
) -> None:
    """Under the lock: append batches that say where they lie, and end what they end.

    `placing` is the append itself, which undoes what failed. Raises as `Log.append`.
    """
    size_bytes, end = sum(each.size_bytes for each in headers), headers[-1].next_offset
    state.prepare(now_ms, size_bytes)
    base, index, tail = state.view.segments[-1].base_offset, sidecar.aborted, state.tail
    batches = [(each.size_bytes, each.last_offset, each.max_timestamp_ms) for each in headers]
    aborted = sidecar.ends_in(headers, markers)
    state.last_append_ms = now_ms
    if aborted:
        try:
            index.append(base, aborted)
        except OSError as error:
            raise state.refused("note what was aborted", error) from error
    try:
        with placing:
            tail.append(buffers, size_bytes, end - tail.end, now_ms, batches)
    except StorageError:
        if aborted:
            index.undo(base, len(aborted))
        raise
    sidecar.placed(headers, markers, now_ms)


@contextmanager
def _undone(state: LogState) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise state.undo_append(error) from error


def markers_in(headers: Sequence[BatchHeader], buffers: Sequence[Buffer]) -> dict[int, Marker]:
    """The markers in whole batches, by their offsets."""
    markers: dict[int, Marker] = {}
    if not any(each.is_control for each in headers):
        return markers
    data, position = b"".join(buffers), 0
    for each in headers:
        if each.is_control:
            marker = marker_in(each, data, position)
            if marker is not None:
                markers[each.base_offset] = marker
        position += each.size_bytes
    return markers
