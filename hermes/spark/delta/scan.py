"""`read_delta`: a Delta table as a DataFrame, without a jar.

The driver asks `deltalake` for the files of a version; workers read one each, batch by batch, and
hold no more than a batch. Spark applies filters to the rows afterwards.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from hermes.errors import LoadTargetError
from hermes.spark.delta.table import DeltaTable, open_table, table_files
from hermes.spark.stores import LocalStore, Store, open_store

# What a table may require of its readers; other features mark rows as deleted, or rename columns.
_UNDERSTOOD: Final = {"timestampNtz"}


def read_delta(
    spark: SparkSession, path: str | Path, *, storage: Mapping[str, str] | None = None
) -> DataFrame:
    """Open a Delta table as it is now.

    Example:
        read_delta(spark, "/data/clicks").groupBy("day").count().show()

    Args:
        spark: the session to read with.
        path: the table, on a file system that the workers have too.
        storage: settings of S3A for an address of S3, by Hadoop's names.

    Raises:
        LoadTargetError: there is no table, or it requires features that this lacks, or `path` is
            the address of something other than a directory.
    """
    store = open_store(path, spark, storage)
    if store.path is None:
        raise LoadTargetError(f"{path}: read this table with deltalake, or with Delta's own reader")
    table = _opened(store)
    _register(spark)
    reader = spark.read.format(DeltaSource.name())
    return reader.option("version", str(table.version())).option("table", str(store.path)).load()


def _register(spark: SparkSession) -> None:
    try:
        spark.dataSource.register(DeltaSource)
    except AnalysisException:
        # Spark looks for the name in the active session, which may be another one that has it.
        spark.createDataFrame([], "nothing int")  # makes this one active
        spark.dataSource.register(DeltaSource)


@dataclass(frozen=True, eq=False)
class DeltaFile(InputPartition):
    """One file; it travels to the worker.

    Attributes:
        path: where it is.
        partition_values: the columns that are not in it.
    """

    path: str
    partition_values: dict[str, Any]


class DeltaSource(DataSource):
    """The format "hermes_delta", which `read_delta` registers."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "hermes_delta"

    def schema(self) -> StructType:
        """The columns of the table."""
        return from_arrow_schema(_arrow_schema(self._table()))

    def reader(self, schema: StructType) -> "DeltaReader":
        """Read the files of the version."""
        table = self._table()
        place = Path(self.options["table"])
        files = [DeltaFile(str(place / path), values) for path, values in table_files(table)]
        return DeltaReader(files, _arrow_schema(table))

    def _table(self) -> DeltaTable:
        table = _opened(LocalStore(Path(self.options["table"])))
        table.load_as_version(int(self.options["version"]))
        return table


class DeltaReader(DataSourceReader):
    """Reads files of a table."""

    def __init__(self, files: list[DeltaFile], schema: pa.Schema) -> None:
        self._files = files
        self._schema = schema

    def __getstate__(self) -> dict[str, Any]:
        """A copy for the workers, each of which is handed its file separately."""
        return {**self.__dict__, "_files": []}

    def partitions(self) -> Sequence[InputPartition]:
        """One task per file."""
        return list(self._files)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a file; runs in a worker."""
        if not isinstance(partition, DeltaFile):
            return  # Spark asks once, with nothing, when there are no files
        with pq.ParquetFile(partition.path) as file:
            for batch in file.iter_batches():
                yield self._completed(batch, partition.partition_values)

    def _completed(self, batch: pa.RecordBatch, values: dict[str, Any]) -> pa.RecordBatch:
        """Put the columns in order, with those that the folders stand for."""
        columns = []
        for field in self._schema:
            if field.name in values:
                value = pa.scalar(values[field.name], field.type)
                columns.append(pa.repeat(value, batch.num_rows))
            elif field.name in batch.schema.names:
                columns.append(batch.column(field.name).cast(field.type))
            else:  # the column was added to the table later
                columns.append(pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _opened(store: Store) -> DeltaTable:
    path, table = store.place(), open_table(store)
    if table is None:
        raise LoadTargetError(f"{path}: there is no Delta table")
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    if protocol.min_reader_version == 2 or features - _UNDERSTOOD:
        needs = ", ".join(sorted(features)) or "column mapping"
        raise LoadTargetError(f"{path}: reading this table needs {needs}: use Delta's own reader")
    return table


def _arrow_schema(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())
