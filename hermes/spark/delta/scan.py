"""`read_delta`: a Delta table as a DataFrame, without a jar.

The driver asks `deltalake` for the files of a version and their partition values, and Spark's own
Parquet reader reads them: nothing goes through Python.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from hermes.errors import LoadTargetError
from hermes.spark.arguments import named
from hermes.spark.delta.file_index import folder_of, has_jvm, read_folders
from hermes.spark.delta.table import DeltaTable, open_table, required_features
from hermes.spark.stores import FileStore, open_store


def read_delta(
    spark: SparkSession, path: str | Path, *, storage: Mapping[str, str] | None = None
) -> DataFrame:
    """Open a Delta table as it is now.

    It is read by Spark's own Parquet reader: filters on the columns by which the table is
    partitioned leave out files, other filters what the files' own statistics allow.

    Example:
        read_delta(spark, "/data/clicks").where("day = DATE'2026-11-24'").count()

    Args:
        path: the table, on a file system that the workers have too; or an address of S3 or HDFS.
        storage: settings of S3A for an address of S3, by Hadoop's names.

    Returns:
        The table's columns, all of them nullable. It stays at this version: files that are added
        later aren't in it, and once a vacuum has removed its files, it can't be read any more.

    Raises:
        LoadTargetError: there is no table, or it requires features that this lacks, or `path` is
            the address of another kind of store.
        LoadError: the session lacks the file system of `path`.
    """
    store = open_store(path, spark, storage)
    settings = store.spark_settings(spark)
    table = _opened(store)
    found = from_arrow_schema(pa.schema(table.schema().to_arrow()))
    schema = StructType([StructField(each.name, each.dataType) for each in found.fields])
    actions = pa.table(table.get_add_actions())
    urls = [store.url(unquote(path)) for path in actions["path"].to_pylist()]
    by = table.metadata().partition_columns
    if not urls:
        return spark.createDataFrame([], schema)
    if not by:
        return _parquet(spark, schema, urls, settings)
    structs = actions["partition"].combine_chunks()
    values = pa.table({name: structs.field(name) for name in by})
    return _partitioned(spark, schema, urls, values, settings)


def _partitioned(
    spark: SparkSession,
    schema: StructType,
    urls: list[str],
    values: pa.Table,
    settings: Mapping[str, str],
) -> DataFrame:
    first: dict[str, int] = {}  # the number of a file, for each folder
    rows = [tuple(each.values()) for each in values.to_pylist()]
    is_one_each = True
    for number, url in enumerate(urls):
        one = first.setdefault(folder_of(url), number)
        is_one_each = is_one_each and rows[one] == rows[number]
    if is_one_each and has_jvm(spark):
        return read_folders(spark, schema, urls, values.take(list(first.values())), settings)
    # Another's table may have files of several partitions in one folder, and Spark Connect shows
    # nothing of the JVM. So a union of what each partition has: filters leave out its parts.
    names = values.column_names
    inside = StructType([each for each in schema.fields if each.name not in names])
    groups: dict[tuple[Any, ...], list[str]] = {}
    for url, row in zip(urls, rows, strict=True):
        groups.setdefault(row, []).append(url)
    united: DataFrame | None = None
    for row, listed in groups.items():
        part = _parquet(spark, inside, listed, settings)
        for name, value in zip(names, row, strict=True):
            part = part.withColumn(name, sf.lit(value).cast(schema[name].dataType))
        part = part.select(*map(named, schema.names))
        united = part if united is None else united.unionAll(part)
    assert united is not None
    return united


def _parquet(
    spark: SparkSession, schema: StructType, urls: list[str], settings: Mapping[str, str]
) -> DataFrame:
    # Names may have what else would be wildcards.
    reader = spark.read.schema(schema).options(**settings).option("__globPaths__", "false")
    return reader.parquet(*urls)


def _opened(store: FileStore) -> DeltaTable:
    table = open_table(store)
    if table is None:
        raise LoadTargetError(f"{store.place()}: there is no Delta table")
    if needs := required_features(table):
        raise LoadTargetError(
            f"{store.place()}: reading this table needs {', '.join(needs)}: use Delta's own reader"
        )
    return table
