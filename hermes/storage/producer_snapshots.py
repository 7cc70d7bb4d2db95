"""Snapshots of what a log knows of its producers: `<20 digits of an offset>.snapshot`.

A snapshot is the state of producers where the log ended once, by its name. A log that is opened
takes the newest one and reads the headers of the batches after it. So a snapshot saves time, and
nothing depends on one: what is damaged, or beyond the log's end, is removed.

    position  length  type      meaning
    0         2       int16     version: 1
    2         4       uint32    CRC-32C of all that follows
    6         4       int32     how many producers follow, each of 46 bytes:
    + 0       8       int64     producer id
    + 8       2       int16     its epoch
    + 10      4       int32     the last message's sequence number; -1 for none
    + 14      8       int64     its offset
    + 22      4       int32     how far it is from its batch's first message
    + 26      8       int64     its batch's largest timestamp, in ms since 1970
    + 34      4       int32     epoch of the coordinator that ended its last transaction; -1: none
    + 38      8       int64     where the current transaction begins; -1 for none

Layout and life: Kafka 4 (`ProducerStateManager`). Only the last batch of each producer is in it.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from hermes.protocol.record_batches import BatchHeader
from hermes.protocol.transaction_markers import Marker
from hermes.storage.aborted_index import AbortedTransaction
from hermes.storage.files import FileLayer, write_all
from hermes.storage.producer_states import (
    REMEMBERED_BATCHES,
    Capture,
    ProducerState,
    ProducerStates,
    StoredBatch,
    unexpired,
)
from hermes.storage.transactions import Transactions
from hermes.storage.whole_files import read_or_nothing

SNAPSHOT_SUFFIX: Final = ".snapshot"

#: So many snapshots are kept, lest the newest be damaged.
KEPT_SNAPSHOTS: Final = 2

_NAME: Final = re.compile(r"([0-9]{20})\.snapshot")
_VERSION: Final = 1
_PREFIX: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_MOST_BYTES: Final = 64 << 20
_NONE: Final = -1

#: Producers that have sent something so lately may repeat it.
RECENT_MS: Final = 10 * 60 * 1000

#: A batch before a producer's last one may have had as many messages, at least.
_BATCH_MESSAGES: Final = 2000

#: So many messages before a snapshot, at most, are looked at again.
_MOST_MESSAGES: Final = 50_000

#: Reads the headers of a log's batches from an offset to its end, and the markers in them.
Replay = Callable[[int], Iterable[tuple[BatchHeader, Marker | None]]]


def snapshot_name(offset: int) -> str:
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def encode_snapshot(states: Mapping[int, ProducerState]) -> bytes:
    entries = [
        _ENTRY.pack(
            *(producer, each.epoch, *_last_of(each)),
            *(each.coordinator_epoch, each.transaction_start),
        )
        for producer, each in states.items()
    ]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def _last_of(state: ProducerState) -> StoredBatch:
    if state.batches:
        return state.batches[-1]._replace(timestamp_ms=state.last_timestamp_ms)
    return StoredBatch(_NONE, _NONE, 0, state.last_timestamp_ms)


def decode_snapshot(data: bytes) -> dict[int, ProducerState]:
    """Raises ValueError when it is damaged, or of another version; the text says which."""
    end = _PREFIX.size + _COUNT.size
    if len(data) < end:
        raise ValueError(f"it has {len(data)} bytes only")
    version, crc = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"its version is {version}, expected {_VERSION}")
    if crc32c(memoryview(data)[_PREFIX.size :]) != crc:
        raise ValueError("its CRC-32C is wrong")
    (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    if count < 0 or len(data) != end + count * _ENTRY.size:
        raise ValueError(f"it says that it has {count} producers, in {len(data)} bytes")
    states = {}
    for fields in _ENTRY.iter_unpack(memoryview(data)[end:]):
        producer, epoch, sequence, offset, delta, time_ms, coordinator, start = fields
        batches = () if sequence < 0 else (StoredBatch(sequence, offset, delta, time_ms),)
        states[producer] = ProducerState(epoch, batches, time_ms, start, coordinator)
    return states


def _offsets_under_way(states: Mapping[int, ProducerState], now_ms: int) -> int:
    """How far before a snapshot those batches may lie that producers may just have repeated."""
    # Kafka forgets them in a stop: a snapshot has the last batch only, and a producer that hasn't
    # heard of ten would be told that it is out of step.
    messages = sum(
        REMEMBERED_BATCHES * max(each.batches[-1].offset_delta + 1, _BATCH_MESSAGES)
        for each in states.values()
        if each.batches and now_ms - each.last_timestamp_ms < RECENT_MS
    )
    return min(messages, _MOST_MESSAGES)


class Replayed(NamedTuple):
    """What became of transactions in the part of a log that was read again.

    Attributes:
        since: where that begins.
        begun: where each transaction begins that hasn't ended, by its producer.
        ended: (where it begins, where its marker is) of each one that has.
        aborted: those of them that were aborted.
    """

    since: int
    begun: Mapping[int, int]
    ended: Sequence[tuple[int, int]]
    aborted: Sequence[AbortedTransaction]


class ProducerSnapshots:
    """All calls block, and belong in worker threads."""

    def __init__(self, directory: str, files: FileLayer) -> None:
        self._directory = directory
        self._files = files

    def load(
        self,
        producers: ProducerStates,
        start: int,
        end: int,
        now_ms: int,
        replay: Replay,
        damaged: Callable[[set[int]], set[int]] | None = None,
        synced_to: int | None = None,
    ) -> Replayed:
        """Know what the newest snapshot says, and the batches after it.

        Args:
            damaged: tells which of the batches that begin at some offsets aren't whole; None where
                none can have been torn.
            synced_to: up to where what lies beside the log is on disk for certain; None for all.
        """
        found, states = self._newest(start, end, synced_to)
        # Apart from `producers`, which others look at meanwhile.
        replayed, transactions = ProducerStates(""), _Replay(states, found)
        for header, marker in replay(max(start, found - _offsets_under_way(states, now_ms))):
            replayed.note((header,), header.base_offset, now_ms, marker)
            transactions.go_on(header, marker)
        if damaged is not None:
            batches = (each for state in replayed.states.values() for each in state.batches)
            replayed.forget(damaged({each.base_offset for each in batches}))
        begun = transactions.open.open
        merged = {
            producer: _after(states.get(producer), state)._replace(
                transaction_start=begun.get(producer, _NONE)
            )
            for producer, state in {**states, **replayed.states}.items()
        }
        producers.replace(unexpired(merged, now_ms))
        return Replayed(found, begun, transactions.ended, transactions.aborted)

    def _newest(
        self, start: int, end: int, synced_to: int | None
    ) -> tuple[int, dict[int, ProducerState]]:
        """The newest snapshot that can be used: its offset and what it says.

        One beyond what is on disk for certain is used where there is no other: then Hermes wrote
        it, after a flush. Of Kafka's there is one for each segment, all on their way to the disk.
        """
        offsets, later = self._offsets(), None
        if offsets and offsets[-1] > end:
            for offset in offsets:
                if offset > end:
                    self._remove(offset)
            # Else a loss of power could bring back what others' messages have taken the place of.
            self._files.fsync_directory(self._directory)
        for offset in reversed([each for each in offsets if each <= end]):
            with suppress(ValueError):
                data = read_or_nothing(self._path(offset), _MOST_BYTES, self._files)
                states = decode_snapshot(data or b"")
                if offset < start:  # their markers may be gone, as all is that they were of
                    states = _ended(states)
                found = max(start, offset), states
                if synced_to is None or offset <= synced_to:
                    return found
                later = later or found
                continue
            self._remove(offset)
        if later is None:
            return start, {}
        if synced_to is not None and synced_to <= start:
            return start, _ended(later[1])
        return later

    def _remove(self, offset: int) -> None:
        with suppress(FileNotFoundError):
            self._files.unlink(self._path(offset))

    def write(self, captures: Sequence[Capture]) -> None:
        """Write the newest of what was captured, and remove the oldest snapshots.

        It isn't synced: one that a loss of power has damaged says so by its CRC. Raises OSError: it
        can't be written; the next one may be.
        """
        if not captures:
            return
        offset, states = captures[-1]
        with suppress(FileExistsError):  # which says the same
            descriptor = self._files.open_new(self._path(offset))
            try:
                write_all(self._files, descriptor, [encode_snapshot(states)], 0)
            finally:
                self._files.close(descriptor)
        for old in self._offsets()[:-KEPT_SNAPSHOTS]:
            self._files.unlink(self._path(old))

    def clear(self) -> None:
        for offset in self._offsets():
            self._files.unlink(self._path(offset))

    def _offsets(self) -> list[int]:
        names = map(_NAME.fullmatch, self._files.listdir(self._directory))
        whole = (each for each in names if each and each[0].endswith(SNAPSHOT_SUFFIX))
        return sorted(int(each[1]) for each in whole)

    def _path(self, offset: int) -> str:
        return os.path.join(self._directory, snapshot_name(offset))


def _ended(states: Mapping[int, ProducerState]) -> dict[int, ProducerState]:
    """The same, without any transaction."""
    return {key: each._replace(transaction_start=_NONE) for key, each in states.items()}


def _after(before: ProducerState | None, read: ProducerState) -> ProducerState:
    """What is known of a producer by a snapshot and what was read again, perhaps a marker only."""
    if before is None:
        return read
    batches = read.batches
    if not batches and read.epoch == before.epoch:
        batches = before.batches
    coordinator = max(read.coordinator_epoch, before.coordinator_epoch)
    return read._replace(batches=batches, coordinator_epoch=coordinator)


class _Replay:
    """Follows transactions through batches that are read again, behind a snapshot."""

    def __init__(self, states: Mapping[int, ProducerState], found: int) -> None:
        self._found = found
        self.open = Transactions()
        begun = {key: each.transaction_start for key, each in states.items()}
        self.open.replace({key: each for key, each in begun.items() if each >= 0}, ())
        self.ended: list[tuple[int, int]] = []
        self.aborted: list[AbortedTransaction] = []

    def go_on(self, header: BatchHeader, marker: Marker | None) -> None:
        if header.base_offset < self._found:
            return
        producer, last = header.producer_id, header.last_offset
        begun = self.open.open.get(producer)
        if header.is_control and begun is not None:
            self.ended.append((begun, last))
            if marker is not None and not marker.is_commit:
                stable = self.open.stable_without(producer, last)
                self.aborted.append(AbortedTransaction(producer, begun, last, stable))
        self.open.follow(header)
