"""What a message is to Spark: the columns of the source, and how message sets become them.

(topic, broker, partition, offset, index) is unique. The messages of a compressed set share the
offsets of the set, since only its ends are places to resume from; `index` counts within it, and is
0 for all other messages.

A row of Python objects per message would cost several times what everything else does. So nothing
is made per message: plain ones are packed into Arrow's own buffers, values and offsets, by the
loops of `hermes.protocol`, and the columns that are the same in all rows are cut from longer ones.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from hermes.errors import ExpandedTooLargeError, InvalidMessageError
from hermes.protocol import DEFAULT_MAX_EXPANDED_BYTES, MessageSet, core
from hermes.protocol.messages import SIZE
from hermes.spark.arrow_arrays import binaries, numbers, packed_binaries, repeated
from hermes.spark.offsets import TopicPartition
from hermes.spark.options import ExtraColumns

#: The columns of `spark.read.format("hermes")`. Where a message is, is never null, so Spark asks no
#: row whether it is: those questions were a quarter of what a row costs the JVM.
SCHEMA: Final = (
    StructType()
    .add("topic", StringType(), False)
    .add("broker", IntegerType(), False)
    .add("partition", IntegerType(), False)
    .add("offset", LongType(), False)
    .add("next_offset", LongType(), False)
    .add("index", IntegerType(), False)
    .add("value", BinaryType())
)

_HEADER: Final = StructType().add("key", StringType()).add("value", BinaryType())
_TYPES: Final[dict[str, DataType]] = {
    "timestamp": TimestampType(),
    "key": BinaryType(),
    "headers": ArrayType(_HEADER),
}

# Spark compares these with its own, to the letter.
_ARROW: Final = to_arrow_schema(SCHEMA, timezone="UTC")

_INTEGER: Final = pa.int32()
_LONG: Final = pa.int64()
# How many rows the columns have at least from which those that are the same are cut.
_SAME_ROWS: Final = 8192

#: How many bytes out of compressed sets make a batch full; a set is never split.
MAX_BATCH_BYTES: Final = 16 * 1024 * 1024


def spark_schema(extras: ExtraColumns) -> StructType:
    made = StructType([*SCHEMA.fields])
    for name in extras.names:
        made = made.add(name, _TYPES[name])
    return made


@lru_cache
def arrow_schema(extras: ExtraColumns) -> pa.Schema:
    """The same for Arrow. Spark compares it with its own, to the letter."""
    return to_arrow_schema(spark_schema(extras), timezone="UTC")


def nullable(schema: StructType) -> StructType:
    fields = [StructField(each.name, each.dataType, True, each.metadata) for each in schema.fields]
    return StructType(fields)


class RowBatch(NamedTuple):
    """Some messages of a partition, without their timestamps, and where to continue after them.

    `skipped` are the damaged stretches that were skipped: (start, end) offsets.
    """

    rows: pa.RecordBatch
    next_offset: int
    skipped: tuple[tuple[int, int], ...]


def record_batches(
    partition: TopicPartition,
    fetched: MessageSet,
    *,
    skip_damaged: bool = False,
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES,
) -> Iterator[RowBatch]:
    """Turn a message set into record batches; an incomplete message at its end is ignored.

    One may have no rows and yet a later `next_offset`: after an empty compressed set, or damage.

    Raises:
        InvalidMessageError: a message is damaged; `offset` and `next_offset` are absolute. The
            messages before it have been yielded.
        ExpandedTooLargeError: a compressed set is too large, whatever `skip_damaged` is.
    """
    position, failure = 0, None
    while failure is None and position < len(fetched):
        rows = _Rows(fetched.data, position, fetched.base_offset, max_expanded_bytes)
        try:
            rows.collect(skip_damaged)
        except InvalidMessageError as error:
            failure = error
        if rows.position > position:
            next_offset = fetched.base_offset + rows.position
            yield RowBatch(rows.record_batch(partition), next_offset, tuple(rows.skipped))
        elif failure is None:
            return  # an incomplete message is left
        position = rows.position
    if failure is not None:
        raise failure


class _Part(NamedTuple):
    """Rows, and where the message or set of each starts and ends. Plain ones have no `indexes`."""

    values: pa.Array
    offsets: pa.Array
    next_offsets: pa.Array
    indexes: pa.Array | None


_NOTHING: Final = _Part(pa.nulls(0, pa.binary()), *(pa.nulls(0, pa.int64()),) * 2, None)


class _Rows:
    """Collects the messages of one batch. `position` is how far it has come in the data."""

    def __init__(
        self, data: bytes, position: int, base_offset: int, max_expanded_bytes: int
    ) -> None:
        self._data = data
        self._base_offset = base_offset
        self._max_expanded_bytes = max_expanded_bytes
        self._parts: list[_Part] = []
        # Of other messages than plain ones, which follow one another: the values, and for each
        # message or set how many values it has, where it starts and where it ends.
        self._values: list[bytes] = []
        self._sets: list[tuple[int, int, int]] = []
        self.position = position
        self.skipped: list[tuple[int, int]] = []

    def collect(self, skip_damaged: bool) -> None:
        """Take messages until the batch is full, the data end, or one is damaged, an error."""
        room = MAX_BATCH_BYTES
        while room > 0:
            self._take_plain()
            position = self.position
            room -= self._take_unusual(skip_damaged)
            if self.position == position:
                return

    def _take_plain(self) -> None:
        count, self.position, values, ends, places = core.pack_plain(
            self._data, self.position, self._base_offset
        )
        if count:
            self._finish_sets()
            offsets = numbers(np.frombuffer(places, np.int64), _LONG)
            self._parts.append(
                _Part(packed_binaries(values, ends), offsets[:-1], offsets[1:], None)
            )

    def _take_unusual(self, skip_damaged: bool) -> int:
        start, base = self.position, self._base_offset
        end = _end_of(self._data, start)
        if end is None:
            # The next fetch starts here, and so holds more of it.
            return 0 if start else self._take_damaged(skip_damaged)
        whole = MessageSet(
            self._data[start:end], base + start, max_expanded_bytes=self._max_expanded_bytes
        )
        try:
            inner = [message.payload for message, _ in whole]
        except InvalidMessageError as error:
            return self._take_damaged(skip_damaged, error, end)
        return self._add(inner, start, end)

    def _take_damaged(
        self, skip: bool, inside: InvalidMessageError | None = None, end: int = 0
    ) -> int:
        """Skip the damage at the position, or raise the error about it.

        `inside` is wrong within the message if its length is right; `end` is where it ends then.
        """
        start, base = self.position, self._base_offset
        rest = MessageSet(self._data[start:], base + start, on_corrupt="skip" if skip else "raise")
        found = next(rest.iterate(deep=False), None)
        if found is None:
            self.position = rest.next_offset - base
        else:
            message, next_offset = found
            self.position = next_offset - base - len(message.encode())
        if inside is not None and self.position == start:  # a sound message, but for its contents
            if not skip or isinstance(inside, ExpandedTooLargeError):
                raise inside
            self.position = end
        if self.position > start:
            self.skipped.append((base + start, base + self.position))
        return 0

    def _add(self, values: list[bytes], start: int, end: int) -> int:
        base = self._base_offset
        self._sets.append((len(values), base + start, base + end))
        self._values += values
        self.position = end
        return sum(map(len, values))

    def _finish_sets(self) -> None:
        if not self._values:
            return
        counts, starts, ends = np.array(self._sets, np.int64).T
        firsts = np.cumsum(counts) - counts
        indexes = np.arange(len(self._values)) - np.repeat(firsts, counts)
        self._parts.append(
            _Part(
                binaries(self._values),
                numbers(np.repeat(starts, counts), _LONG),
                numbers(np.repeat(ends, counts), _LONG),
                numbers(indexes.astype(np.int32), _INTEGER),
            )
        )
        self._values, self._sets = [], []

    def record_batch(self, partition: TopicPartition) -> pa.RecordBatch:
        self._finish_sets()
        parts = self._parts or [_NOTHING]
        values, offsets, next_offsets = (
            _joined([part[place] for part in parts]) for place in range(3)
        )
        count = len(values)
        *places, zeros = same_columns(partition, max(_SAME_ROWS, 1 << count.bit_length()))
        columns = [
            *(column[:count] for column in places),
            offsets,
            next_offsets,
            _joined(
                [
                    zeros[: len(part.values)] if part.indexes is None else part.indexes
                    for part in parts
                ]
            ),
            values,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _end_of(data: bytes, position: int) -> int | None:
    """Where the message at a position ends by its length; None when that isn't in the data."""
    if len(data) - position < SIZE.size:
        return None
    size: int = SIZE.unpack_from(data, position)[0]
    end = position + SIZE.size + size
    return end if size >= 0 and end <= len(data) else None


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


@lru_cache(maxsize=4)
def same_columns(partition: TopicPartition, count: int) -> tuple[pa.Array, ...]:
    return (
        repeated(partition.topic, pa.string(), count),
        repeated(partition.broker_id, _INTEGER, count),
        repeated(partition.partition, _INTEGER, count),
        repeated(0, _INTEGER, count),
    )
