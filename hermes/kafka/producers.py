"""Batches of producers, each appended once: the short way from a request to a log.

What a log knows of idempotent producers is `hermes.storage.producer_states`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hermes.errors import InvalidTransactionStateError
from hermes.protocol.record_batches import BatchHeader, placed
from hermes.protocol.wire import Buffer
from hermes.storage import Log


class AppendedBatches(NamedTuple):
    """What became of batches.

    Attributes:
        base_offset: the offset of the first message.
        append_time_ms: the timestamp that its messages were given, in ms since 1970; -1 when they
            keep their own. Of a duplicate the largest one of what it repeats, as Kafka has it.
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
) -> AppendedBatches:
    """Append batches, unless their producer repeats them. Reactor's thread; quick.

    Args:
        log: where to.
        headers: the batches', as `check_batches` found them.
        buffer: the batches. Not kept.
        now_ms: ms since 1970.
        append_time_ms: under LogAppendTime the timestamp that all messages get; else None.

    Raises:
        OutOfOrderSequenceError, InvalidProducerEpochError: the producer is out of step.
        InvalidTransactionStateError: a batch is part of a transaction; there are none here.
        StorageError: as for `Log.append`.
    """
    if any(header.is_transactional for header in headers):
        raise InvalidTransactionStateError("the batch is part of no transaction that there is")
    producers, base = log.producers, log.end_offset
    if producers is not None:
        producers.expire(now_ms)
        known = producers.check(headers, base)
        if known is not None:
            end = known.last_offset + 1
            return AppendedBatches(known.base_offset, known.timestamp_ms, True, end)
    count = sum(header.last_offset_delta + 1 for header in headers)
    buffers = placed(buffer, headers, base, log.leader_epoch, append_time_ms)
    log.append(buffers, sum(map(len, buffers)), count, now_ms)
    if producers is not None:
        if append_time_ms is not None:
            headers = [each._replace(max_timestamp_ms=append_time_ms) for each in headers]
        producers.note(headers, base, now_ms)
    return AppendedBatches(
        base, -1 if append_time_ms is None else append_time_ms, False, base + count
    )
