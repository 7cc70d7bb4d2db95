"""Markers, which end transactions: control batches with one record that says commit or abort.

    key    int16 version | int16 what it marks: 0 abort, 1 commit; others end no transaction
    value  int16 version: 0 | int32 epoch of the transaction's coordinator

A marker has its transaction's producer id, and its epoch, or under Kafka's second version of
transactions (KIP-890) the next one.

Formats, and which batches a reader of what was committed leaves out: Kafka 4
(`EndTransactionMarker`, `CompletedFetch`).
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from hermes.errors import InvalidMessageError
from hermes.protocol.record_batches import (
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    with_crc,
)
from hermes.protocol.records import Record, encode_records, iterate_records
from hermes.protocol.wire import Buffer

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_ABORT, _COMMIT = 0, 1
_NONE: Final = -1

#: The producer's id and the first offset of a transaction that was aborted.
Aborted = tuple[int, int]


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


def marker_in(header: BatchHeader, batch: Buffer, position: int = 0) -> Marker | None:
    """Read the marker that a control batch holds; None for one that ends no transaction.

    So does one whose record compaction has removed: nothing is left that it could end.
    """
    try:
        record = next(iterate_records(batch, header, position), None)
    except InvalidMessageError:
        return None
    key = b"" if record is None else record.key or b""
    if record is None or len(key) < _KEY.size:
        return None
    kind, value, epoch = _KEY.unpack_from(key)[1], record.value or b"", _NONE
    if kind not in (_ABORT, _COMMIT):
        return None
    if len(value) >= _VALUE.size:
        epoch = _VALUE.unpack_from(value)[1]
    return Marker(header.producer_id, header.producer_epoch, kind == _COMMIT, epoch)


def encode_marker(
    marker: Marker, offset: int, leader_epoch: int, now_ms: int
) -> tuple[BatchHeader, bytes]:
    """Encode a marker as a batch that lies at an offset; its header, and all of it."""
    key = _KEY.pack(0, _COMMIT if marker.is_commit else _ABORT)
    record = Record(offset, now_ms, key, _VALUE.pack(0, marker.coordinator_epoch))
    body = encode_records([record], offset, now_ms)
    header = BatchHeader(
        base_offset=offset,
        size_bytes=HEADER_BYTES + len(body),
        leader_epoch=leader_epoch,
        crc=0,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=_NONE,
        record_count=1,
    )
    return header, with_crc(header, body) + body


class CommittedOnly:
    """Tells which batches of one fetch a reader of what was committed leaves out.

    Args:
        aborted: the transactions in it that were aborted.
    """

    __slots__ = ("_later", "_open")

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._later = sorted(aborted, key=lambda each: -each[1])
        self._open = set[int]()

    def takes(self, header: BatchHeader, batch: Buffer, position: int = 0) -> bool:
        """Whether a batch holds what is to be read; to be asked of each one, in their order."""
        while self._later and self._later[-1][1] <= header.last_offset:
            self._open.add(self._later.pop()[0])
        if header.attributes & CONTROL_BIT:
            if header.producer_id in self._open:
                marker = marker_in(header, batch, position)
                if marker is not None and not marker.is_commit:
                    self._open.discard(header.producer_id)
            return False
        return not (header.attributes & TRANSACTIONAL_BIT and header.producer_id in self._open)
