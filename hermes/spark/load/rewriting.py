"""Writes the messages of some Parquet files together into larger ones."""

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from hermes.errors import LoadTargetError
from hermes.spark.load.journal_entries import LoadedFile
from hermes.spark.stores import FileStore

# How much of the messages is held, uncompressed, before it is written as a row group.
_ROW_GROUP_BYTES: Final = 32 * 1024 * 1024

#: Makes what is in a file what it is in the new ones.
Adapt: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


def rewritten(
    store: FileStore,
    files: Sequence[LoadedFile],
    target_bytes: int,
    adapt: Adapt = lambda batch: batch,
    codec: str = "",
) -> Iterator[tuple[bytes, int]]:
    """The contents of new files, and how many messages each holds, in the order of the old ones.

    All but the last reach `target_bytes`. They are compressed with `codec`, or as the first file.

    Raises:
        FileNotFoundError: a file is gone.
        LoadTargetError: a file holds more or less than was committed.
    """
    sink, writer, rows = io.BytesIO(), None, 0
    codec = codec or _codec(store, files[0])
    for table in _groups(store, files, min(_ROW_GROUP_BYTES, target_bytes), adapt):
        if writer is None:
            writer = pq.ParquetWriter(sink, table.schema, compression=codec)
        writer.write_table(table)
        rows += table.num_rows
        if sink.tell() >= target_bytes:
            writer.close()
            yield sink.getvalue(), rows
            sink, writer, rows = io.BytesIO(), None, 0
    if writer is not None:
        writer.close()
        yield sink.getvalue(), rows


def _groups(
    store: FileStore, files: Sequence[LoadedFile], group_bytes: int, adapt: Adapt
) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for file in files:
        count = 0
        for batch in _batches(store, file):
            count += batch.num_rows
            batch = adapt(batch)
            if held and held[0].schema != batch.schema:
                batch = batch.cast(held[0].schema)
            held.append(batch)
            if sum(each.nbytes for each in held) >= group_bytes:
                yield pa.Table.from_batches(held)
                held = [batch.slice(0, 0)]  # the schema stays
        if count != file.rows:
            raise LoadTargetError(
                f"{store.place(file.name)} holds {count} rows, and {file.rows} were committed: "
                "nothing was changed; run hermes load --verify"
            )
    if any(each.num_rows for each in held):
        yield pa.Table.from_batches(held)


def _batches(store: FileStore, file: LoadedFile) -> Iterator[pa.RecordBatch]:
    with store.open(file.name) as opened, pq.ParquetFile(opened) as source:
        for batch in source.iter_batches():
            yield batch.replace_schema_metadata(None)


def _codec(store: FileStore, file: LoadedFile) -> str:
    with store.open(file.name) as opened, pq.ParquetFile(opened) as source:
        groups = source.metadata
        if not groups.num_row_groups or not groups.row_group(0).num_columns:
            return "snappy"
        name = str(groups.row_group(0).column(0).compression).lower()
    return {"uncompressed": "none", "lz4_raw": "lz4"}.get(name, name)
