"""What a task does: reads one range of one partition, exactly once, whatever breaks on the way.

A range starts and ends at boundaries of messages. Every message in it is read once and in order,
or the task fails: Spark then runs it again, and keeps nothing of the failed attempt.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from hermes.client import AppendTime, FetchRequest, SimpleConsumer
from hermes.client.fetching import FetchedSet
from hermes.errors import (
    BrokerUnavailableError,
    DataLossError,
    ExpandedTooLargeError,
    HermesError,
    InvalidMessageError,
    OffsetOutOfRangeBrokerError,
    is_retriable,
)
from hermes.protocol import AppendTimesRequest, RecordSet
from hermes.spark.arrow_arrays import as_numbers, numbers
from hermes.spark.broker_metadata import offset_bounds
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.columns import RowBatch, arrow_schema, record_batches
from hermes.spark.kafka_records import record_rows, with_nulls
from hermes.spark.offsets import TopicPartition
from hermes.spark.options import ExtraColumns, RetryOptions, SourceOptions

_log = logging.getLogger(__name__)

#: How much is fetched, and so becomes a batch, at once: what a core's cache still holds.
FETCH_BYTES: Final = 1024 * 1024

# Of how much of the log the times of appending are asked for at once.
_TIMES_BYTES: Final = 16 * FETCH_BYTES

_ADVICE: Final = (
    "; start from an available offset, or set failOnDataLoss to false to continue with what is left"
)


@dataclass(frozen=True)
class ReadRange:
    partition: TopicPartition
    host: str
    port: int
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, eq=False)
class ReadTask(InputPartition):
    ranges: tuple[ReadRange, ...]


class _Connections:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._settings = options.address.identity.security().settings()
        self._open: dict[tuple[str, int], SimpleConsumer] = {}

    def get(self, address: tuple[str, int]) -> SimpleConsumer:
        if address not in self._open:
            self._open[address] = SimpleConsumer(
                *address,
                max_fetch_bytes=max(self._options.max_fetch_bytes, FETCH_BYTES),
                on_corrupt="raise" if self._options.fail_on_data_loss else "skip",
                **self._settings,
            )
        return self._open[address]

    def drop(self, address: tuple[str, int]) -> None:
        if address in self._open:
            self._open.pop(address).close()

    def close(self) -> None:
        for each in self._open.values():
            each.close()
        self._open.clear()


def read_ranges(
    ranges: Iterable[ReadRange], options: SourceOptions, schema: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """Read ranges one after the other, in the order of the log.

    Retries start over whenever something was read. `schema` has the same columns as Spark has them,
    to the letter: they may be nullable there.

    Raises:
        DataLossError: messages of a range are gone, and that is to be an error.
        InvalidMessageError: a message is damaged, and that is to be an error.
        HermesError: the broker can't be reached or used, also after the retries.
    """
    with closing(_Connections(options)) as connections:
        for each in ranges:
            for rows in _read(_RangeReader(each, options, connections), options):
                columns = rows.columns
                yield pa.RecordBatch.from_arrays(columns, schema=schema) if schema else rows


def data_lost(log: logging.Logger, text: str, fail: bool, advice: str = _ADVICE) -> None:
    """Warn of messages that are gone, or raise a DataLossError if `fail` (`failOnDataLoss`).

    `advice` follows the text in an error: what to change. Begins with its punctuation.
    """
    if fail:
        raise DataLossError(text + advice)
    log.warning("data loss: %s", text)


def _read(reader: "_RangeReader", options: SourceOptions) -> Iterator[pa.RecordBatch]:
    failures = 0
    while not reader.is_finished:
        try:
            for batch in reader.fetch():
                failures = 0
                yield batch
        except HermesError as error:
            if failures == options.retries.times or not is_retriable(error):
                raise
            failures += 1
            _log.warning("%s: trying again: %s", reader.partition, error)
            reader.disconnect()
            threading.Event().wait(options.retries.seconds)
            reader.find_broker()


class _Times(NamedTuple):
    """When messages were appended: up to `end`, one of `times` (ms) up to each of `ends`."""

    end: int
    ends: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    unknown: npt.NDArray[np.bool_]

    def column(self, offsets: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
        # Thousands of messages share a time: few are looked up.
        bounds = np.searchsorted(offsets, self.ends[:-1])
        counts = np.append(bounds, len(offsets))
        counts[1:] -= bounds
        missing = np.repeat(self.unknown, counts) if self.unknown.any() else None
        return numbers(np.repeat(self.times * 1000, counts), kind, missing)


class _RangeReader:
    def __init__(
        self, wanted: ReadRange, options: SourceOptions, connections: _Connections
    ) -> None:
        self.partition = wanted.partition
        self._options = options
        self._connections = connections
        self._offset = wanted.start
        self._end = wanted.end
        self._address = (wanted.host, wanted.port)
        self._extras = options.extras
        self._times: _Times | None = None
        # Whether offsets count records, which is known after the first fetch.
        self._holds_records = False

    @property
    def is_finished(self) -> bool:
        return self._offset >= self._end

    def fetch(self) -> Iterator[pa.RecordBatch]:
        topic, number = self.partition.topic, self.partition.partition
        size = FETCH_BYTES
        if not self._holds_records:
            size = min(self._end - self._offset, FETCH_BYTES)
        try:
            fetched = self._connected().fetch(FetchRequest(topic, number, self._offset, size))
            if not len(fetched):
                raise OffsetOutOfRangeBrokerError(f"there is nothing at {self._offset}")
            yield from self._batches(fetched)
        except OffsetOutOfRangeBrokerError:
            self._skip_loss()
        except InvalidMessageError as error:
            self._skip_damage(error)

    def _batches(self, fetched: FetchedSet) -> Iterator[pa.RecordBatch]:
        before = self._offset
        if isinstance(fetched, RecordSet):
            yield from self._records(fetched)
            return
        if fetched.base_offset > before:  # the consumer has skipped the first one
            self._warn_of_damage(before, fetched.base_offset)
        for batch in record_batches(
            self.partition,
            fetched,
            skip_damaged=not self._options.fail_on_data_loss,
            max_expanded_bytes=self._options.max_fetch_bytes,
        ):
            for start, end in batch.skipped:
                self._warn_of_damage(start, end)
            rows = self._timed(self._within(batch), batch.next_offset)
            if self._extras.key or self._extras.headers:
                rows = with_nulls(rows, self._extras)
            self._offset = batch.next_offset
            if rows.num_rows:
                yield rows
        if self._offset == before:
            raise DataLossError(
                f"{self.partition}: no message starts at offset {before}, or it is larger than "
                f"maxFetchBytes ({self._options.max_fetch_bytes})"
            )

    def _records(self, fetched: RecordSet) -> Iterator[pa.RecordBatch]:
        """Yield what came from a topic of Kafka's format, whose batches come whole."""
        self._holds_records = True
        for rows in record_rows(self.partition, fetched, self._end, self._extras):
            yield rows
            self._offset = int(rows.column("next_offset")[-1].as_py())
        if fetched.skipped_count:
            self._warn_of_damage(fetched.base_offset, fetched.next_offset)
        if fetched.next_offset <= fetched.base_offset:
            raise DataLossError(
                f"{self.partition}: no batch at offset {self._offset} can be read as a whole"
            )
        self._offset = max(self._offset, fetched.next_offset)

    def _within(self, batch: RowBatch) -> pa.RecordBatch:
        """Leave out what follows the range: a fetch grows when a length is damaged."""
        if batch.next_offset <= self._end:
            return batch.rows
        offsets = as_numbers(batch.rows.column("offset"))
        return batch.rows.slice(0, int(np.searchsorted(offsets, self._end)))

    def _timed(self, rows: pa.RecordBatch, next_offset: int) -> pa.RecordBatch:
        if not self._extras.timestamp:
            return rows
        if self._times is None or self._times.end < next_offset:
            self._times = self._append_times(next_offset)
        schema = arrow_schema(ExtraColumns(timestamp=True))
        column = self._times.column(as_numbers(rows.column("offset")), schema.field(-1).type)
        return pa.RecordBatch.from_arrays([*rows.columns, column], schema=schema)

    def _append_times(self, end: int) -> _Times:
        """Ask for the times up to an offset, and beyond it for those of the next fetches."""
        consumer = self._connected()
        topic, number = self.partition.topic, self.partition.partition
        further = max(end, min(self._offset + _TIMES_BYTES, self._end))
        ranges: list[AppendTime] = []
        if consumer.supports(AppendTimesRequest.TYPE):
            with suppress(OffsetOutOfRangeBrokerError):  # retention was quicker
                ranges = consumer.append_times(topic, number, self._offset, further)
        if ranges:
            end = further
        return _Times(
            end,
            np.array([each.end_offset for each in ranges], np.int64),
            np.array([each.time_ms or 0 for each in ranges] or [0], np.int64),
            np.array([each.time_ms is None for each in ranges] or [True]),
        )

    def _skip_loss(self) -> None:
        earliest, latest, _ = offset_bounds(self._connected(), self.partition)
        if earliest <= self._offset < latest:  # as right after a broker's restart
            raise BrokerUnavailableError(
                f"{self.partition}: nothing came from offset {self._offset}, although {earliest} "
                f"to {latest} are available"
            )
        text = (
            f"{self.partition}: offset {self._offset} was wanted (up to {self._end}), {earliest} "
            f"to {latest} are available"
        )
        data_lost(_log, text, self._options.fail_on_data_loss)
        self._offset = earliest if self._offset < earliest < self._end else self._end

    def _skip_damage(self, error: InvalidMessageError) -> None:
        if isinstance(error, ExpandedTooLargeError):
            raise type(error)(
                f"{self.partition}: {error}; raise maxFetchBytes to read it", offset=error.offset
            ) from error
        if self._options.fail_on_data_loss:
            raise type(error)(
                f"{self.partition}: {error}; set failOnDataLoss to false to skip it",
                offset=error.offset,
                next_offset=error.next_offset,
            ) from error
        resume = self._end if error.next_offset is None else min(error.next_offset, self._end)
        self._warn_of_damage(self._offset, resume)
        self._offset = resume

    def _warn_of_damage(self, start: int, end: int) -> None:
        _log.warning(
            "data loss: %s: skipped damage from offset %d to %d", self.partition, start, end
        )

    # -- the connection -------------------------------------------------------------------------

    def _connected(self) -> SimpleConsumer:
        return self._connections.get(self._address)

    def find_broker(self) -> None:
        try:
            with ClusterReader(self._options.address, RetryOptions(0, 0)) as cluster:
                self._address = cluster.address(self.partition)
        except HermesError as error:
            _log.warning("%s: who leads it can't be looked up: %s", self.partition, error)

    def disconnect(self) -> None:
        self._connections.drop(self._address)
