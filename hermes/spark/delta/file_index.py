"""Parquet files that are in folders of any name, with values for each folder, for Spark's reader.

Spark takes partition values from the names of folders below one root, and the folders of a Delta
table are named otherwise. So the list of files with their values is made in the JVM, of the classes
that Spark uses for it itself; filters on partitions prune it as they do any other.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from hermes.spark.arguments import named


def has_jvm(spark: SparkSession) -> bool:
    """Whether this session has a JVM beside it, which Spark Connect's have not."""
    return hasattr(spark, "_jsparkSession")


def folder_of(url: str) -> str:
    return url.rpartition("/")[0]


def read_folders(
    spark: SparkSession,
    schema: StructType,
    urls: list[str],
    values: pa.Table,
    settings: Mapping[str, str],
) -> DataFrame:
    """Read files with columns of `schema` that aren't in them: a row of `values` for each folder.

    The rows are in the order of the folders' first files.
    """
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    sources = jvm.org.apache.spark.sql.execution.datasources
    scala = jvm.org.apache.spark.api.python.PythonUtils
    none = _object(jvm.scala, "None")
    given = jvm.java.util.HashMap()
    for name, text in settings.items():
        given.put(name, text)
    options = scala.toScalaMap(given)

    names = values.column_names
    partitions = session.parseDataType(StructType([schema[name] for name in names]).json())
    inside = StructType([each for each in schema.fields if each.name not in names])
    # As rows of Spark's own format, which only Spark can make.
    local: Any = spark.createDataFrame(values)
    rows = local._jdf.queryExecution().executedPlan().executeCollect()

    paths, folders = jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
    seen: set[str] = set()
    for url in urls:
        path = jvm.org.apache.hadoop.fs.Path(url)
        paths.add(path)
        if folder_of(url) not in seen:
            folders.add(sources.PartitionPath(rows[len(seen)], path.getParent()))
            seen.add(folder_of(url))
    listed = sources.InMemoryFileIndex(
        session,
        scala.toSeq(paths),
        options,
        none,
        _object(sources, "NoopCache"),
        jvm.scala.Some(sources.PartitionSpec(partitions, scala.toSeq(folders))),
        none,
    )
    relation = sources.HadoopFsRelation(
        listed,
        partitions,
        session.parseDataType(inside.json()),
        none,
        sources.parquet.ParquetFileFormat(),
        options,
        session,
    )
    frame = DataFrame(session.baseRelationToDataFrame(relation), spark)
    return frame.select(*map(named, schema.names))


def _object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")
