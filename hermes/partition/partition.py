"""A partition of this broker: what becomes of appends to it, for callers of either protocol.

What is appended, checked by its caller, is counted, and flushed when its topic's policy says so;
whether it is on disk tell `Acknowledgements`. Nothing here waits for a disk, save where
`Log.append` begins a segment.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hermes.config import BrokerConfig
from hermes.errors import InvalidTransactionStateError
from hermes.partition.flushing import FlushScheduler
from hermes.partition.leadership import NOBODYS, Leadership, is_led
from hermes.partition.waiting import key_of
from hermes.protocol.record_batches import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    BatchRules,
    placed,
)
from hermes.protocol.wire import Buffer
from hermes.server.metrics import Metrics
from hermes.storage import DataDirectory, Log, SourceRange


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
) -> AppendedBatches:
    """Append batches, unless their producer repeats them. Reactor's thread; quick.

    Args:
        headers: as `check_batches` found them.
        buffer: not kept.
        append_time_ms: under LogAppendTime the timestamp that all messages get; else None.
        is_as_sent: see `placed`.
        span: of a mirror's source what they stand for, if they do: nothing is appended twice.

    Raises:
        OutOfOrderSequenceError, InvalidProducerEpochError: the producer is out of step.
        InvalidTransactionStateError: a batch is part of a transaction; there are none here.
        StorageError: as for `Log.append`; with `span`, all that `LogSources.append_range` raises.
    """
    state = log.state
    # Before anything is said about order: what is known of producers is being read again, perhaps.
    if state.offline_reason is not None:
        raise state.offline_error()
    base = end = state.tail.end
    batches = []
    for header in headers:
        if header.attributes & TRANSACTIONAL_BIT:
            raise InvalidTransactionStateError("the batch is part of no transaction that there is")
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
    if span is None:
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


class Partition:
    """Lives in the reactor's thread; `counts` are its topic's, `key` is for who waits for it.

    Attributes:
        leadership: None where this is the only copy.
    """

    __slots__ = ("_flusher", "_now_ms", "counts", "key", "leadership", "log")

    def __init__(
        self,
        log: Log,
        metrics: Metrics,
        flusher: FlushScheduler,
        now_ms: Callable[[], int],
    ) -> None:
        self.log = log
        self.key = key_of(log.topic, log.partition)
        self.counts = metrics.topic(log.topic)
        self.leadership: Leadership | None = None if log.is_sole_copy else NOBODYS
        self._flusher = flusher
        self._now_ms = now_ms

    def append(
        self,
        buffers: Sequence[Buffer],
        byte_count: int,
        message_count: int,
        is_awaited: bool = False,
    ) -> int:
        """Append messages of Kafka 0.7; the offset of the first one. Raises as `Log.append`.

        `is_awaited`: the caller waits for the flush at once, and that starts it.
        """
        offset = self.log.append(buffers, byte_count, message_count, self._now_ms())
        self._appended(byte_count, message_count, is_awaited)
        return offset

    def append_range(
        self, span: SourceRange, message_set: Buffer, message_count: int
    ) -> int | None:
        """Append what a mirror has read, unless it is there already; its offset, or None.

        Raises what `LogSources.append_range` raises.
        """
        size = len(message_set)
        offset = self.log.sources.append_range(
            span, (message_set,), size, message_count, self._now_ms()
        )
        if offset is not None:
            self._appended(size, message_count)
        return offset

    def append_batches(
        self,
        headers: Sequence[BatchHeader],
        data: Buffer,
        rules: BatchRules,
        is_awaited: bool = False,
        is_as_sent: bool = False,
        span: SourceRange | None = None,
    ) -> AppendedBatches:
        """Append what was checked by these rules, as `append`. Raises as `check_and_append`.

        Also NotLeaderError, where there are other copies.
        """
        if self.leadership is not None:
            self.leadership.check_append()
        now_ms = self._now_ms()
        append_time_ms = now_ms if rules.is_log_append_time else None
        done = check_and_append(
            self.log,
            headers,
            data,
            now_ms,
            append_time_ms=append_time_ms,
            is_as_sent=is_as_sent,
            span=span,
        )
        base_offset, _, is_duplicate, end_offset = done
        if not is_duplicate:
            self._appended(len(data), end_offset - base_offset, is_awaited)
        return done

    def _appended(self, byte_count: int, message_count: int, is_awaited: bool = False) -> None:
        counts = self.counts
        counts.bytes_in += byte_count
        counts.messages_in += message_count
        if not is_awaited:
            self._flusher.appended(self.log)
        if self.leadership is not None:
            self.leadership.appended()


class Partitions:
    """The partitions of this broker that have a log. Lives in the reactor's thread."""

    def __init__(
        self,
        directory: DataDirectory,
        metrics: Metrics,
        flusher: FlushScheduler,
        now_ms: Callable[[], int],
    ) -> None:
        self._find = directory.get
        self._made: tuple[Any, ...] = metrics, flusher, now_ms
        self._known: dict[Log, Partition] = {}

    def get(self, topic: str, number: int) -> Partition | None:
        log = self._find(topic, number)
        if log is None:
            return None
        return self._known.get(log) or self.of(log)

    def of(self, log: Log) -> Partition:
        found = self._known.get(log)
        if found is None:
            found = self._known[log] = Partition(log, *self._made)
        return found

    def led(self, logs: Sequence[Log]) -> list[Log]:
        """Those of some logs that this broker may tell the ends of: it leads them for certain."""
        return [log for log in logs if log.is_sole_copy or is_led(self.of(log).leadership)]

    def forget(self, log: Log) -> None:
        self._known.pop(log, None)


def batch_rules(config: BrokerConfig, topic: str) -> BatchRules:
    settings = config.topic(topic)
    return BatchRules(
        settings.max_batch_bytes,
        settings.is_compacted,
        settings.is_log_append_time,
        config.max_expanded_bytes,
    )
