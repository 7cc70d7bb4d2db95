"""A target after loads: `read_loaded` opens what is committed, `loaded_files` lists it.

Attempts that failed are never read.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

from hermes.errors import LoadTargetError
from hermes.spark.file_system import LocalFileSystem
from hermes.spark.load.journal import Journal
from hermes.spark.load.journal_snapshot import JournalSnapshot
from hermes.spark.load.load_target import DATA, LoadTarget
from hermes.spark.load.tasks import loaded_schema
from hermes.spark.parquet import data_files
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
    state = published_state(opened)
    later = [name for name, each in state.files.items() if each.load is None]
    first = [name for name, each in state.files.items() if each.load is not None]
    first += [each.directory for each in state.unlisted.values()]
    # In data of the first release the load is a folder, and so is the attempt.
    first_schema = StructType([*schema.fields]).add("attempt", StringType())
    parts = [
        _open(spark, opened, columns, names)
        for columns, names in ((schema, later), (first_schema, first))
        if names
    ]
    rows = parts[0] if parts else spark.createDataFrame([], schema)
    for each in parts[1:]:
        rows = rows.select(*schema.names).union(each.select(*schema.names))
    return rows.select(*schema.names)


def loaded_files(
    target: str | Path, *, spark: Session = None, storage: Mapping[str, str] | None = None
) -> list[str]:
    """The files that count in a target of Parquet, for readers that take a list of them.

    Such a reader sees a load, an expiry or a compaction either as a whole or not at all; but for
    data of the first release, the column `load` is in the files, and `topic`, `day` and `hour` are
    in their names.

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
    state = published_state(opened)
    journal_files = list(state.files)
    for each in state.unlisted.values():
        journal_files += [file.name for file in data_files(opened.store, each.directory)]
    return [str(opened.place(name)) for name in sorted(journal_files)]


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


def _open(
    spark: SparkSession, target: LoadTarget, schema: StructType, names: Sequence[str]
) -> DataFrame:
    return (
        spark.read.schema(schema)
        .options(**target.store.spark_settings(spark))
        .option("basePath", target.store.url(DATA))
        .parquet(*(_escaped(target.store.url(each)) for each in names))
    )


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
