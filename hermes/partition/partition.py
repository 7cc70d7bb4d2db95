"""A partition of this broker: what becomes of appends to it, for callers of either protocol.

What is appended, checked by its caller, is counted, and flushed when its topic's policy says so;
whether it is on disk tell `Acknowledgements`. Nothing here waits for a disk, save where
`Log.append` begins a segment.
"""

from collections.abc import Callable, Sequence
from typing import Any

from hermes.config.broker import BrokerConfig
from hermes.errors import DiskFullError
from hermes.partition.batch_appends import AppendedBatches, check_and_append
from hermes.partition.flushing import FlushScheduler
from hermes.partition.leadership import NOBODYS, Leadership, is_led
from hermes.partition.waiting import key_of
from hermes.protocol.record_batches import BatchHeader, BatchRules
from hermes.protocol.transaction_markers import Marker
from hermes.protocol.wire import Buffer
from hermes.server.metrics import Metrics
from hermes.storage import DataDirectory, Log, SourceRange


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
        is_in_transaction: bool = False,
    ) -> AppendedBatches:
        """Append what was checked by these rules, as `append`. Raises as `check_and_append`.

        Also NotLeaderError, where there are other copies. `is_in_transaction`: see there.
        """
        if self.leadership is not None:
            self.leadership.check_append()
        now_ms = self._now_ms()
        append_time_ms = now_ms if rules.is_log_append_time else None
        try:
            done = check_and_append(
                self.log,
                headers,
                data,
                now_ms,
                append_time_ms=append_time_ms,
                is_as_sent=is_as_sent,
                span=span,
                is_in_transaction=is_in_transaction,
            )
        except DiskFullError:
            if self.leadership is not None:
                self.leadership.no_room()
            raise
        base_offset, _, is_duplicate, end_offset = done
        if not is_duplicate:
            self._appended(len(data), end_offset - base_offset, is_awaited)
        return done

    def append_marker(self, marker: Marker, version: int) -> int:
        """End a producer's transaction here; the offset after the marker. Reactor's thread.

        It is decided for readers once the high watermark is there, as `append_batches` has it.
        `version` and what is raised are those of `LogTransactions.end`; also NotLeaderError.
        """
        if self.leadership is not None:
            self.leadership.check_append()
        offset = self.log.transactions.end(marker, version, self._now_ms())
        self._flusher.appended(self.log)
        if self.leadership is not None:
            self.leadership.appended()
        return offset + 1

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
