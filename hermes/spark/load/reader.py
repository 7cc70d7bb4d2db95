"""`read_loaded`: what loads have committed, as a DataFrame. Attempts that failed are not seen."""

import re
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

from hermes.errors import LoadTargetError
from hermes.spark.load.files import Files
from hermes.spark.load.sinks import ParquetSink
from hermes.spark.load.source import loaded_schema
from hermes.spark.load.target import LoadTarget, target_path

__all__ = ["open_target", "read_loaded"]


def read_loaded(spark: SparkSession, target: str | Path) -> DataFrame:
    """Open what was loaded into a directory.

    Columns: `load` (the number of the load), those of the source, `timestamp` (null where the
    broker doesn't know when it appended), `day` and, in targets by the hour, `hour`. Filters on
    load, topic, day and hour skip the files of others.

    Example:
        clicks = read_loaded(spark, "/data/clicks").where("day = '2026-11-24'")

    Args:
        spark: the session to read with.
        target: the directory.

    Returns:
        The loads that are committed now; no rows when there are none yet.

    Raises:
        LoadTargetError: it is no target of loads, or damaged.
    """
    place = open_target(target, Files())
    if place.settings.sink == "delta":
        from hermes.spark.delta import read_delta  # needs the extra `delta`

        return read_delta(spark, place.path)
    schema = loaded_schema(place.settings.partition_by)
    directories = [each.directory for each in ParquetSink(place).manifests()]
    if not directories:
        return spark.createDataFrame([], schema)
    with_attempt = StructType([*schema.fields]).add("attempt", StringType())
    rows = (
        spark.read.schema(with_attempt)
        .option("basePath", f"file://{place.data}")
        .parquet(*(f"file://{_escaped(place.path / each)}" for each in directories))
    )
    return rows.select(*schema.names)


def open_target(target: str | Path, files: Files) -> LoadTarget:
    """Open a directory that was loaded into.

    Raises:
        LoadTargetError: nothing ever was, or something else is there.
    """
    path = target_path(target)
    place = LoadTarget.find(path, files)
    if place is None:
        raise LoadTargetError(f"{path}: nothing was ever loaded into this directory")
    return place


def _escaped(path: Path) -> str:
    """A path in which Spark finds no pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", str(path))
