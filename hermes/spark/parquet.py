"""The Parquet files of one directory: written and counted by tasks, found again by the driver."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from hermes.errors import LoadError
from hermes.spark.parquet_statistics import file_statistics
from hermes.spark.stores import FileStore, Place, StoredFile

# Spark reports what it has counted through a queue of events, and drops some when that is full.
_COUNT_SECONDS: Final = 60
_NOTHING: Final[Mapping[str, str]] = {}
# How many footers are read at once where each takes requests to a server.
_AT_ONCE: Final = 16
# What Spark writes for null as the name of a folder.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that Spark has written, by its name in the store.

    `partition_values` are the columns that are folders instead, as text; None for null.
    `statistics` see `file_statistics`.
    """

    name: str
    size_bytes: int
    rows: int
    modified_ms: int
    partition_values: Mapping[str, str | None]
    statistics: Mapping[str, Any]


def write_parquet(
    rows: DataFrame, url: str, folders: Sequence[str], settings: Mapping[str, str] = _NOTHING
) -> int:
    """Have Spark write rows, once, into an empty directory that workers see under the same URL.

    Sets `settings` in the rows' session. Returns how many rows the tasks have written; those of
    repeated tasks count once. LoadError if Spark doesn't report it.
    """
    # Spark's default, INT96, holds only the years 1677 to 2262.
    rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    for name, text in settings.items():
        rows.sparkSession.conf.set(name, text)
    counted = Observation()
    (
        rows.observe(counted, sf.count(sf.lit(1)).alias("rows"))
        .write.mode("append")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .partitionBy(*folders)
        .parquet(url)
    )
    return _result(counted)


def data_files(store: FileStore, directory: str) -> list[DataFile]:
    """The data files in a directory, sorted by name.

    As for Spark, a file or folder in it whose name begins with `_` or `.` doesn't count; folders
    hold the partition values, as `day=2026-11-24`. Nor does a file without rows, which Spark writes
    when there are none.
    """
    found = [each for each in store.walk(directory) if _counts(directory, each.name)]
    described = partial(_described, store, directory)
    if store.path is not None:
        return [each for each in map(described, found) if each.rows]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [each for each in pool.map(described, found) if each.rows]


def _counts(directory: str, name: str) -> bool:
    inner = PurePosixPath(name).relative_to(directory).parts
    return name.endswith(".parquet") and not any(part[0] in "_." for part in inner)


def _described(store: FileStore, directory: str, found: StoredFile) -> DataFile:
    folders = PurePosixPath(found.name).relative_to(directory).parts[:-1]
    pairs = (part.partition("=") for part in folders)
    values = {unquote(name): unquote(text) for name, _, text in pairs}
    with store.open(found.name, found.size_bytes) as file:
        statistics = file_statistics(pq.read_metadata(file))
    return DataFile(
        found.name,
        found.size_bytes,
        statistics["numRecords"],
        found.modified_ms,
        {name: None if text == _NULL else text for name, text in values.items()},
        statistics,
    )


def check_rows(directory: Place, written: int, files: Sequence[DataFile]) -> None:
    """Raise LoadError unless the driver finds the rows that tasks have written."""
    found = sum(each.rows for each in files)
    if written != found:
        raise LoadError(
            f"{directory}: tasks have written {written} rows, but the driver finds {found}: the "
            "driver and all workers must see the target under one path, as on a file system that "
            "they share"
        )


def _result(counted: Observation) -> int:
    answer: Future[int] = Future()

    def wait() -> None:
        try:
            answer.set_result(int(counted.get.get("rows", 0)))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=wait, daemon=True).start()  # it can't be told to stop waiting
    try:
        return answer.result(_COUNT_SECONDS)
    except TimeoutError:
        raise LoadError(
            "Spark doesn't report how many rows it has written: raise "
            "spark.scheduler.listenerbus.eventqueue.capacity, and try again"
        ) from None
