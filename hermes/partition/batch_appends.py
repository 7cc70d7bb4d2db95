"""Appending batches of Kafka's format: what their producer repeats is stored once.

Nothing here counts, or waits for a disk, save where `Log.append` begins a segment.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hermes.errors import InvalidTransactionStateError, NoTransactionError, StorageError
from hermes.protocol.record_batches import TRANSACTIONAL_BIT, BatchHeader, placed
from hermes.protocol.wire import Buffer
from hermes.storage import Log, SourceRange


class AppendedBatches(NamedTuple):
    """What became of batches.

    Attributes:
        append_time_ms: the timestamp that their messages were given; -1 when they keep their own.
            Of a duplicate the largest one of what it repeats, as Kafka has it.
        is_duplicate: whether they had been appended before, and nothing was now.
        end_offset: the offset after them: they are on disk once the high watermark is there.
    """

    base_offset: int
    append_time_ms: int
    is_duplicate: bool
    end_offset: int


def check_and_append(
    log: Log,
    headers: Sequence[BatchHeader],
    buffer: Buffer,
    now_ms: int,
    *,
    append_time_ms: int | None = None,
    is_as_sent: bool = False,
    span: SourceRange | None = None,
    is_in_transaction: bool = False,
) -> AppendedBatches:
    """Append batches, unless their producer repeats them. Reactor's thread; quick.

    Args:
        headers: as `check_batches` found them.
        buffer: not kept.
        append_time_ms: under LogAppendTime the timestamp that all messages get; else None.
        is_as_sent: see `placed`.
        span: of a mirror's source what they stand for, if they do: nothing is appended twice.
        is_in_transaction: whether the producer's coordinator knows that it has a transaction, and
            that this partition is part of it.

    Raises:
        OutOfOrderSequenceError, InvalidProducerEpochError: the producer is out of step.
        InvalidTransactionStateError: a batch is part of a transaction that there isn't, or of none
            while its producer has one.
        StorageError: as for `Log.append`; with `span`, all that `LogSources.append_range` raises.
    """
    state = log.state
    # Before anything is said about order: what is known of producers is being read again, perhaps.
    if state.offline_reason is not None:
        raise state.offline_error()
    base = end = state.tail.end
    batches = []
    for header in headers:
        if header.attributes & TRANSACTIONAL_BIT and not is_in_transaction:
            raise NoTransactionError("the batch is part of no transaction that there is")
        end += header.last_offset_delta + 1
        newest_ms = header.max_timestamp_ms if append_time_ms is None else append_time_ms
        batches.append((header.size_bytes, end - 1, newest_ms))
    producers = log.producers
    has_producers = len(headers) != 1 or headers[0].producer_id >= 0
    if producers is not None:
        if now_ms >= producers.look_ms:
            producers.expire(now_ms)
        known = producers.check(headers, base) if has_producers else None
        if known is not None:
            stored_end = known.last_offset + 1
            return AppendedBatches(known.base_offset, known.timestamp_ms, True, stored_end)
    epoch = log.sidecar.epochs.latest
    buffers = placed(buffer, headers, base, epoch, append_time_ms, is_as_sent=is_as_sent)
    if is_in_transaction:
        _append_in_transaction(log, headers[0], buffers, len(buffer), end - base, now_ms, batches)
    elif span is None:
        log.append(buffers, len(buffer), end - base, now_ms, batches)
    elif log.sources.append_range(span, buffers, len(buffer), end - base, now_ms, batches) is None:
        return AppendedBatches(base, -1, True, base)
    if producers is not None:
        if has_producers:
            if append_time_ms is not None:
                headers = [each._replace(max_timestamp_ms=append_time_ms) for each in headers]
            producers.note(headers, base, now_ms)
        else:
            producers.grown(len(buffer), end)
    return AppendedBatches(base, -1 if append_time_ms is None else append_time_ms, False, end)


def _append_in_transaction(
    log: Log,
    header: BatchHeader,
    buffers: Sequence[Buffer],
    size_bytes: int,
    count: int,
    now_ms: int,
    batches: Sequence[tuple[int, int, int]],
) -> None:
    if not header.attributes & TRANSACTIONAL_BIT:
        raise InvalidTransactionStateError("the batch isn't part of its producer's transaction")
    is_first = log.transactions.begin(header.producer_id)
    try:
        log.append(buffers, size_bytes, count, now_ms, batches)
    except StorageError:
        if is_first:
            log.transactions.undo(header.producer_id)
        raise
