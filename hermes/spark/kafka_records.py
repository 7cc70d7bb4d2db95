"""Records of Kafka's format as rows: the columns of `columns`, and those that only records have.

    key        binary                                    null for records without one
    headers    array<struct<key: string, value: binary>> null for records without any
    timestamp  timestamp                                 the record's own

As Spark's source for Kafka has them. Messages of 0.7 have no keys and headers: they are null. A
record is decoded in Python, so this is slower than reading messages.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from hermes.protocol import RecordSet
from hermes.protocol.records import Record
from hermes.spark.columns import arrow_schema, same_columns
from hermes.spark.offsets import TopicPartition
from hermes.spark.options import ExtraColumns

#: How many records become one Arrow batch.
_ROWS: Final = 16_384


def record_rows(
    partition: TopicPartition, fetched: RecordSet, end: int, extras: ExtraColumns
) -> Iterator[pa.RecordBatch]:
    """Turn records before `end` into rows; an InvalidMessageError comes after those before it."""
    schema = arrow_schema(extras)
    for some in fetched.runs(_ROWS):
        wanted = [record for record in some if record.offset < end]
        if wanted:
            yield _rows(partition, wanted, extras, schema)
        if len(wanted) < len(some):
            return


def with_nulls(rows: pa.RecordBatch, extras: ExtraColumns) -> pa.RecordBatch:
    """Add the columns that messages of 0.7 have nothing for to rows that have their timestamp."""
    schema = arrow_schema(extras)
    missing = [
        pa.nulls(rows.num_rows, schema.field(name).type)
        for name in ("key", "headers")
        if name in extras.names
    ]
    return pa.RecordBatch.from_arrays([*rows.columns, *missing], schema=schema)


def _rows(
    partition: TopicPartition, records: list[Record], extras: ExtraColumns, schema: pa.Schema
) -> pa.RecordBatch:
    offsets, times, keys, values, headers = zip(*records, strict=True)

    def made(name: str) -> pa.Array:
        kind = schema.field(name).type
        if name == "timestamp":
            return pa.array([None if each < 0 else each * 1000 for each in times], kind)
        if name == "key":
            return pa.array(keys, kind)
        pairs = (
            [{"key": name, "value": value} for name, value in each] if each else None
            for each in headers
        )
        return pa.array(list(pairs), kind)

    *places, index = same_columns(partition, len(records))
    columns = [
        *places,
        pa.array(offsets, pa.int64()),
        pa.array([offset + 1 for offset in offsets], pa.int64()),
        index,
        pa.array(values, pa.binary()),
        *map(made, extras.names),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
