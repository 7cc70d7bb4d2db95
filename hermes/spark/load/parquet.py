"""The Parquet files of an attempt: written and counted by tasks, and found again by the driver."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from hermes.errors import LoadError

__all__ = ["check_rows", "data_files", "write_parquet"]

# Spark tells what it has counted through a queue of events, from which it drops some when full.
_COUNT_SECONDS: Final = 60


def write_parquet(rows: DataFrame, directory: Path, folders: Sequence[str]) -> int:
    """Have Spark write rows into a directory that is empty.

    Args:
        rows: what to write, once; of a session whose settings may be changed.
        directory: where to; workers must see it under the same path.
        folders: the columns that become folders, outermost first.

    Returns:
        How many rows the tasks have written, those of tasks that had to be repeated once.

    Raises:
        LoadError: Spark doesn't tell how many there were.
    """
    # Spark's default, INT96, holds the years 1677 to 2262 alone.
    rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    counted = Observation()
    (
        rows.observe(counted, sf.count(sf.lit(1)).alias("rows"))
        .write.mode("append")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .partitionBy(*folders)
        .parquet(f"file://{directory}")
    )
    return _result(counted)


def data_files(directory: Path) -> list[Path]:
    """The files of data in a directory, sorted; not those that Spark had not finished.

    Args:
        directory: of an attempt. As for Spark, what has a name that begins with `_` or `.` in it
            doesn't count, nor does anything below.
    """
    return [
        path
        for path in sorted(directory.rglob("*.parquet"))
        if not any(part[0] in "_." for part in path.relative_to(directory).parts)
    ]


def check_rows(directory: Path, written: int, found: int) -> None:
    """Compare what tasks have written with what the driver finds.

    Raises:
        LoadError: they aren't the same files.
    """
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
            "Spark doesn't tell how many rows it has written: raise "
            "spark.scheduler.listenerbus.eventqueue.capacity, and try again"
        ) from None
