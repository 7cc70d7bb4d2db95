"""`write_stream_to_delta`: a streaming query into a Delta table, each micro-batch exactly once.

Spark hands a batch over again when it can't know whether it was written. So the commit carries the
batch's number as the version of an application transaction, with the query's own id as the
application; a batch whose number is committed is skipped. Workers write the files, into a fresh
directory; the driver sees only their names.

A batch's offsets are in the checkpoint, which Spark writes but doesn't flush. After a power loss it
must not be the table alone that knows of a batch: Spark would give its number to other offsets. So
the checkpoint is flushed before the table commits; and if it was replaced by an older copy all the
same, the commit shows that it belongs to another batch.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DateType, IntegerType, LongType, ShortType, StringType, StructType

from hermes.errors import ConfigError, LoadError, LoadTargetError
from hermes.spark.delta.table import (
    DeltaTable,
    add_files,
    commits,
    open_table,
    sync_files,
    table_files,
)
from hermes.spark.early_flush import flushed_early
from hermes.spark.file_system import ancestors, sync_all
from hermes.spark.parquet import check_rows, data_files, write_parquet
from hermes.spark.plain_errors import plain_errors
from hermes.spark.starting import prepare_streams
from hermes.spark.stores import FileStore, is_s3, open_store

# Types whose values are the same text as the name of Spark's folder and as Delta's partition value.
_FOLDER_TYPES: Final = (StringType, DateType, IntegerType, LongType, ShortType)
_START_SECONDS: Final = 600

# What a commit says of itself.
_QUERY: Final = "hermes.query"
_BATCH: Final = "hermes.batch"
_OFFSETS: Final = "hermes.offsets"


def write_stream_to_delta(
    df: DataFrame,
    path: str | Path,
    checkpoint: str | Path,
    *,
    partition_by: Sequence[str] = (),
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    merge_schema: bool = False,
    storage: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a query that appends a stream to a Delta table, each row once.

    It resumes where it ended, however it ended, as long as it is given the same checkpoint.

    Example:
        clicks = spark.readStream.format("hermes").options(**options).load()
        query = write_stream_to_delta(clicks, "/data/clicks", "/data/checkpoints/clicks")
        query.awaitTermination()

    Args:
        df: the stream.
        path: the table, created if need be: a directory that the workers have too, or an address
            of S3 or HDFS.
        checkpoint: a directory or address for Spark's records, of this query alone.
        partition_by: columns that become folders: strings, dates or whole numbers. As everywhere
            in Spark, an empty string becomes null.
        trigger: as for `DataStreamWriter.trigger`, such as `{"availableNow": True}`.
        merge_schema: whether the table may get columns that it lacks, which are null in its other
            rows, and may have columns that `df` lacks, if these can be null. As for Delta's
            `mergeSchema`; without it, all columns must be the same.
        storage: settings of S3A for an address of S3, by Hadoop's names (`fs.s3a.endpoint`). Else
            those of the session count, and the environment's.

    Returns:
        The running query; the caller stops it.

    Raises:
        ConfigError: `df` is not a stream, or can't be partitioned this way.
        LoadTargetError: `path` is the address of something else, the store can't be used, or the
            table is damaged.
        LoadError: a package is missing, or Spark lacks the store's file system.
    """
    if not df.isStreaming:
        raise ConfigError("df", "expected a stream: load a batch with hermes.spark.load")
    _check_folders(df.schema, partition_by)
    started: Future[str] = Future()
    store = open_store(path, df.sparkSession, storage)
    store.spark_settings(df.sparkSession)
    open_table(store)  # what is wrong with it is told here, rather than by a query that failed
    if store.path is None:
        store.prepare()
    offsets = _checkpoint_store(checkpoint, df.sparkSession, storage)
    write = _batch_writer(store, offsets, tuple(partition_by), started, merge_schema)
    prepare_streams(df.sparkSession)
    writer = df.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(write)
    writer = writer.trigger(**trigger) if trigger else writer
    query = (writer.queryName(name) if name else writer).start()
    started.set_result(query.id)
    return query


def _batch_writer(
    store: FileStore,
    checkpoint: FileStore | None,
    partition_by: tuple[str, ...],
    started: "Future[str]",
    merge_schema: bool,
) -> Callable[[DataFrame, int], None]:
    @plain_errors
    def write(batch: DataFrame, number: int) -> None:
        query_id = started.result(_START_SECONDS)
        app_id = f"hermes stream {query_id}"
        attempts = f"data/query={query_id}/batch={number}"
        table = open_table(store)
        last = None if table is None else table.transaction_version(app_id)
        offsets = None if checkpoint is None else _digest(checkpoint, number)
        if table is not None and last is not None and last >= number:
            _check_same(store, table, query_id, number, last, offsets)
        else:
            directory = f"{attempts}/attempt={secrets.token_hex(4)}"
            with flushed_early(store, directory):
                written = write_parquet(
                    batch,
                    store.url(directory),
                    partition_by,
                    store.spark_settings(batch.sparkSession),
                )
            schema = to_arrow_schema(batch.schema, timezone="UTC")
            metadata = {_QUERY: query_id, _BATCH: number, _OFFSETS: offsets}
            files = data_files(store, directory)
            check_rows(store.place(directory), written, files)
            sync_files(store, files)
            if checkpoint is not None and checkpoint.path is not None:
                _sync_checkpoint(checkpoint.path, number)
            add_files(
                store,
                files,
                schema,
                partition_by,
                app_id,
                number,
                metadata,
                merge_schema=merge_schema,
            )
        _remove_others(store, attempts)

    return write


def _checkpoint_store(
    checkpoint: str | Path, spark: SparkSession, storage: Mapping[str, str] | None
) -> FileStore | None:
    """Where a checkpoint is; None when it is in another kind of store, which Spark alone reads."""
    try:
        return open_store(checkpoint, spark, storage if is_s3(checkpoint) else None)
    except LoadTargetError:
        return None


def _digest(checkpoint: FileStore, number: int) -> str | None:
    """What tells a batch from others of its number: Spark writes this file once, before it runs."""
    content = checkpoint.read(f"offsets/{number}")
    return None if content is None else hashlib.sha256(content).hexdigest()


def _check_same(
    store: FileStore, table: DeltaTable, query_id: str, number: int, last: int, offsets: str | None
) -> None:
    """Raise LoadError unless the batch of this number in the table is the same.

    It is another one when the checkpoint was replaced by an older copy, say.
    """
    if last == number:
        ours = (each for each in commits(store, table) if each.get(_QUERY) == query_id)
        committed = [each.get(_OFFSETS) for each in ours if each.get(_BATCH) == number]
        if offsets is None or committed in ([], [None], [offsets]):
            return  # the same, or it can't be known any more
    raise LoadError(
        f"{store.place()}: batch {last} of this query is in the table already, and batch {number} "
        "now is a different one: is the checkpoint an older copy? Restore the newest one, or start "
        "with a new checkpoint, and with startingOffsets after what the table has"
    )


def _sync_checkpoint(checkpoint: Path, number: int) -> None:
    """Flush what Spark relies on after a crash: the query's id, and the offsets of a batch."""
    offsets = checkpoint / "offsets"
    files = [checkpoint / "metadata", offsets / str(number)]
    checksums = [each.with_name(f".{each.name}.crc") for each in files]
    sync_all([*files, *checksums, offsets, checkpoint, *ancestors(checkpoint)])


def _remove_others(store: FileStore, attempts: str) -> None:
    found = {f"{attempts}/{each}" for each in store.names(attempts) if each.startswith("attempt=")}
    if len(found) < 2:
        return
    table = open_table(store)
    used = [name for name, _ in table_files(table)] if table is not None else []
    counting = {each for each in found if any(name.startswith(f"{each}/") for name in used)}
    if counting:  # else its files were compacted meanwhile, and nothing can be known
        for each in found - counting:
            store.delete_tree(each)


def _check_folders(schema: StructType, partition_by: Sequence[str]) -> None:
    types = {field.name: field.dataType for field in schema.fields}
    for each in partition_by:
        if each not in types:
            raise ConfigError("partition_by", f"there is no column {each!r}: {', '.join(types)}")
        if not isinstance(types[each], _FOLDER_TYPES):
            raise ConfigError(
                "partition_by",
                f"expected strings, dates or whole numbers, but {each!r} is "
                f"{types[each].simpleString()}",
            )
