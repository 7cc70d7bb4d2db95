"""`write_stream_to_delta`: a streaming query into a Delta table, each micro-batch exactly once.

Spark hands a batch over again when it can't know whether it was written. So the commit carries the
batch's number as the version of an application transaction, with the query's own id as the
application; a batch whose number is there is passed over. Workers write the files, into a fresh
directory; the driver sees only their names.

Which offsets a batch has stands in the checkpoint, which Spark writes but doesn't flush. When the
power goes, it must not be the table alone that knows of a batch: Spark would give its number to
other offsets. So the checkpoint is flushed before the table commits; and where it was replaced by
an older copy all the same, the commit tells that it was of another batch.
"""

import hashlib
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DateType, IntegerType, LongType, ShortType, StringType, StructType

from hermes.errors import ConfigError, LoadError
from hermes.spark.delta.table import (
    DeltaTable,
    add_files,
    commits,
    new_files,
    open_table,
    sync_all,
    sync_files,
    table_files,
)
from hermes.spark.load.files import above
from hermes.spark.load.parquet import check_rows, write_parquet
from hermes.spark.load.target import is_address, target_path

__all__ = ["write_stream_to_delta"]

# Types whose values are the same text as a folder of Spark's and as a partition value of Delta's.
_FOLDER_TYPES: Final = (StringType, DateType, IntegerType, LongType, ShortType)
_START_SECONDS: Final = 600

# What stands in a commit.
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
) -> StreamingQuery:
    """Start a query that appends a stream to a Delta table, each row once.

    It goes on where it ended, however it ended, as long as it gets the same checkpoint.

    Example:
        clicks = spark.readStream.format("hermes").options(**options).load()
        query = write_stream_to_delta(clicks, "/data/clicks", "/data/checkpoints/clicks")
        query.awaitTermination()

    Args:
        df: the stream.
        path: the table, made if need be, on a file system that the workers have too.
        checkpoint: a directory for Spark's records, of this query alone.
        partition_by: columns that become folders: strings, dates or whole numbers. As everywhere
            in Spark, an empty string becomes null.
        trigger: as for `DataStreamWriter.trigger`, such as `{"availableNow": True}`.
        name: the query's name.

    Returns:
        The running query; stopping it is the caller's business.

    Raises:
        ConfigError: `df` is no stream, or can't be partitioned so.
        LoadTargetError: `path` is the address of something else than a directory.
    """
    if not df.isStreaming:
        raise ConfigError("df", "expected a stream: load a batch with hermes.spark.load")
    _check_folders(df.schema, partition_by)
    started: Future[str] = Future()
    write = _batch_writer(
        target_path(path), _local_checkpoint(checkpoint), tuple(partition_by), started
    )
    writer = df.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(write)
    writer = writer.trigger(**trigger) if trigger else writer
    query = (writer.queryName(name) if name else writer).start()
    started.set_result(query.id)
    return query


def _batch_writer(
    path: Path,
    checkpoint: Path | None,
    partition_by: tuple[str, ...],
    started: "Future[str]",
) -> Callable[[DataFrame, int], None]:
    def write(batch: DataFrame, number: int) -> None:
        query_id = started.result(_START_SECONDS)
        app_id = f"hermes stream {query_id}"
        attempts = path / "data" / f"query={query_id}" / f"batch={number}"
        table = open_table(path)
        last = None if table is None else table.transaction_version(app_id)
        offsets = None if checkpoint is None else _digest(checkpoint, number)
        if table is not None and last is not None and last >= number:
            _check_same(path, table, query_id, number, last, offsets)
        else:
            directory = attempts / f"attempt={secrets.token_hex(4)}"
            written = write_parquet(batch, directory, partition_by)
            schema = to_arrow_schema(batch.schema, timezone="UTC")
            metadata = {_QUERY: query_id, _BATCH: number, _OFFSETS: offsets}
            files = new_files(path, directory)
            check_rows(directory, written, sum(each.rows for each in files))
            sync_files(path, files)
            if checkpoint is not None:
                _sync_checkpoint(checkpoint, number)
            add_files(path, files, schema, partition_by, app_id, number, metadata)
        _remove_others(path, attempts)

    return write


def _local_checkpoint(checkpoint: str | Path) -> Path | None:
    """The directory of a checkpoint; None when it is kept by something else, which flushes it."""
    return None if is_address(checkpoint) else target_path(checkpoint)


def _digest(checkpoint: Path, number: int) -> str:
    """What tells a batch from others of its number: Spark writes this file once, before it runs."""
    return hashlib.sha256((checkpoint / "offsets" / str(number)).read_bytes()).hexdigest()


def _check_same(
    path: Path, table: DeltaTable, query_id: str, number: int, last: int, offsets: str | None
) -> None:
    """Make sure that a batch whose number is in the table is one that was handed over again.

    Raises:
        LoadError: it is another one, as after the checkpoint was replaced by an older copy.
    """
    if last == number:
        ours = (each for each in commits(path, table) if each.get(_QUERY) == query_id)
        there = [each.get(_OFFSETS) for each in ours if each.get(_BATCH) == number]
        if offsets is None or there in ([], [None], [offsets]):
            return  # the same, or nobody knows any more
    raise LoadError(
        f"{path}: batch {last} of this query is in the table already, and batch {number} that "
        "comes now is another: is the checkpoint an older copy? Bring the newest one back, or "
        "start with a new checkpoint, and with startingOffsets behind what the table has"
    )


def _sync_checkpoint(checkpoint: Path, number: int) -> None:
    """Flush what Spark goes by after a crash: the query's id, and the offsets of a batch."""
    offsets = checkpoint / "offsets"
    files = [checkpoint / "metadata", offsets / str(number)]
    checksums = [each.with_name(f".{each.name}.crc") for each in files]
    sync_all([*files, *checksums, offsets, checkpoint, *above(checkpoint)])


def _remove_others(path: Path, attempts: Path) -> None:
    """Remove what attempts at a batch left behind, now that another one of them is committed."""
    found = sorted(attempts.glob("attempt=*"))
    if len(found) < 2:
        return
    table = open_table(path)
    used = {path / name for name, _ in table_files(table)} if table is not None else set()
    counting = [each for each in found if any(each in file.parents for file in used)]
    if counting:  # else its files were compacted meanwhile, and nothing is known for sure
        for each in set(found) - set(counting):
            shutil.rmtree(each, ignore_errors=True)


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
