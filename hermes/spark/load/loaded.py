"""A target after loads: `read_loaded` opens what is committed, `loaded_files` lists it.

Attempts that failed are never read.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from hermes.errors import LoadTargetError
from hermes.spark.file_system import LocalFileSystem
from hermes.spark.load.journal import Journal
from hermes.spark.load.journal_snapshot import JournalSnapshot
from hermes.spark.load.load_target import DATA, LoadTarget
from hermes.spark.load.tasks import loaded_schema
from hermes.spark.stores import Session, open_store


def read_loaded(
    spark: SparkSession, target: str | Path, *, storage: Mapping[str, str] | None = None
) -> DataFrame:
    """Open what was loaded into a directory.

    Columns: `load` (the number of the load), those of the source, `timestamp` (null where the
    broker doesn't know when it appended), `day` and, in targets by the hour, `hour`. Filters on
    load, topic, day and hour skip the files of others.

    Example:
        clicks = read_loaded(spark, "/data/clicks").where("day = '2026-11-24'")

    Args:
        target, storage: as for `load`.

    Returns:
        The loads that are committed now; no rows when there are none yet.

    Raises:
        LoadTargetError: it isn't a target of loads, or is damaged.
    """
    opened = open_target(target, spark, storage)
    if opened.settings.sink == "delta":
        from hermes.spark.delta import read_delta  # needs the extra `delta`

        return read_delta(spark, str(opened.place()), storage=storage)
    schema = loaded_schema(opened.settings.partition_by)
    names = list(published_state(opened).files)
    if not names:
        return spark.createDataFrame([], schema)
    rows = (
        spark.read.schema(schema)
        .options(**opened.store.spark_settings(spark))
        .option("basePath", opened.store.url(DATA))
        .parquet(*(_escaped(opened.store.url(each)) for each in names))
    )
    return rows.select(*schema.names)  # Spark puts those of the folders last


def loaded_files(
    target: str | Path, *, spark: Session = None, storage: Mapping[str, str] | None = None
) -> list[str]:
    """The files that count in a target of Parquet, for readers that take a list of them.

    Such a reader sees a load, an expiry or a compaction either as a whole or not at all. The column
    `load` is in the files, and `topic`, `day` and `hour` are in their names.

    Example:
        duckdb.read_parquet(loaded_files("/data/clicks"), hive_partitioning=True)

    Args:
        target, storage: as for `load`.
        spark: a session, or a function that starts one, for HDFS and for S3 as Spark is set up.

    Returns:
        Paths, or addresses as `target` is one, sorted.

    Raises:
        LoadTargetError: it isn't a target of loads in Parquet, or is damaged.
    """
    opened = open_target(target, spark, storage)
    if opened.settings.sink == "delta":
        raise LoadTargetError(f"{opened.place()} is a Delta table, whose log lists its files")
    return [str(opened.place(name)) for name in sorted(published_state(opened).files)]


def published_state(target: LoadTarget) -> JournalSnapshot:
    """What counts in a target of Parquet, with all files where they belong.

    LoadTargetError if a run ended before that, and this process isn't allowed to finish it.
    """
    journal = Journal(target.store)
    state = journal.read()
    try:
        journal.publish()
    except OSError as error:
        raise LoadTargetError(
            f"{target.place()}: a run has committed files and ended before it had moved them to "
            f"{target.place(DATA)}, and this process can't ({error}): run hermes load --clean-up"
        ) from error
    return state


def open_target(
    target: str | Path,
    spark: Session = None,
    storage: Mapping[str, str] | None = None,
    files: LocalFileSystem | None = None,
) -> LoadTarget:
    """Open a target of earlier loads. LoadTargetError if it isn't one, or is damaged."""
    store = open_store(target, spark, storage, files)
    opened = LoadTarget.find(store)
    if opened is None:
        raise LoadTargetError(f"{store.place()}: nothing was ever loaded into this directory")
    return opened


def _escaped(url: str) -> str:
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", url)
