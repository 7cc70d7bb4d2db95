"""`spark.read.format("hermes")`, `df.write.format("hermes")`, and their streams.

Spark makes these objects in Python processes of its own, some beside the driver for planning, some
in the workers, and pickles them from one to the other; so they hold settings and nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from hermes.errors import ConfigError
from hermes.spark.catalog import (
    PLACES,
    names_brokers,
    new_table_options,
    options_of,
    require_options,
    to_read,
    to_write,
    with_options,
    without_options,
)
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.columns import nullable, spark_schema
from hermes.spark.micro_batches import HermesStreamReader
from hermes.spark.offsets import Offsets
from hermes.spark.options import SourceOptions
from hermes.spark.plain_errors import plain_errors
from hermes.spark.planning import (
    check_available,
    ending_offsets,
    plan,
    selected_partitions,
    starting_offsets,
)
from hermes.spark.pushdown import PushedFilters
from hermes.spark.reading import ReadTask, read_ranges
from hermes.spark.sink import HermesBatchWriter, HermesStreamWriter
from hermes.spark.sink_options import SinkOptions, refuse_overwriting


class HermesDataSource(DataSource):
    """What Spark knows as the format "hermes".

    `pyspark_hermes` registers it with every session that can import it; where that isn't so:

    Example:
        spark.dataSource.register(HermesDataSource)
    """

    @classmethod
    def name(cls) -> str:
        return "hermes"

    @plain_errors
    def schema(self) -> StructType:
        table = new_table_options(self.options)
        options = SourceOptions.parse(self.options if table is None else to_read(table), None)
        schema = spark_schema(options.extras)
        return schema if table is None else with_options(schema, table)

    @plain_errors
    def reader(self, schema: StructType) -> "HermesBatchReader":
        options, rows = self._checked("batch", schema)
        return (FilteringBatchReader if options.push_filters else HermesBatchReader)(options, rows)

    @plain_errors
    def streamReader(self, schema: StructType) -> HermesStreamReader:
        return HermesStreamReader(*self._checked("stream", schema))

    @plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> HermesBatchWriter:
        if overwrite:
            refuse_overwriting(stream=False)
        return HermesBatchWriter(schema, *self._to_write(schema, stream=False))

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> HermesStreamWriter:
        if overwrite:
            refuse_overwriting(stream=True)
        return HermesStreamWriter(schema, *self._to_write(schema, stream=True))

    def _to_write(self, schema: StructType, *, stream: bool) -> tuple[SinkOptions, frozenset[str]]:
        table = {} if names_brokers(self.options) else options_of(schema)
        given = {**to_write(table), **self.options} if table else self.options
        require_options(given)
        return SinkOptions.parse(given, stream=stream), PLACES if table else frozenset()

    def _checked(self, use: str, schema: StructType) -> tuple[SourceOptions, pa.Schema]:
        table = options_of(schema)
        given = {**to_read(table), **self.options}
        require_options(given)
        options = SourceOptions.parse(given, "stream" if use == "stream" else "batch")
        expected = spark_schema(options.extras)
        wanted = without_options(schema)
        if nullable(wanted) != nullable(expected):
            advice = "DROP TABLE and create it again" if table else "leave out .schema(...)"
            raise ConfigError(
                "schema",
                f"the columns of this source are fixed, {advice}: {expected.simpleString()}",
            )
        return options, to_arrow_schema(wanted, timezone="UTC")


class HermesBatchReader(DataSourceReader):
    """Reads between offsets that are both settled when Spark plans the query."""

    def __init__(self, options: SourceOptions, rows: pa.Schema | None = None) -> None:
        self._options = options
        self._rows = rows
        self.narrowing = PushedFilters()

    @plain_errors
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with ClusterReader(options.address, options.retries) as cluster:
            partitions = selected_partitions(cluster, options.selection)
            start = starting_offsets(cluster, partitions, options)
            end = ending_offsets(cluster, partitions, options)
            _check_order(start, end, options)
            start = {each: start[each] for each in start if self.narrowing.includes(each)}
            start = check_available(cluster, start, options)
            start, end = self.narrowing.narrow(cluster, start, {each: end[each] for each in start})
            return list(plan(cluster, start, end, options))

    @plain_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ReadTask):
            return iter(())  # without tasks, Spark asks once, for nothing
        return read_ranges(partition.ranges, self._options, self._rows)


class _TakesFilters:
    """The method `pushFilters` of a reader, without being a method that it overrides.

    Spark refuses a reader that overrides the method in every session that doesn't push filters
    down, which is the default; it tells by `__func__`. Such sessions must read all the same.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: "HermesBatchReader") -> None:
        self._reader = reader

    def __call__(self, filters: Iterable[Any]) -> Iterable[Any]:
        """Narrow the read by filters that all hold; Spark evaluates all of them again."""
        filters = list(filters)
        self._reader.narrowing = PushedFilters.of(filters)
        return filters


class FilteringBatchReader(HermesBatchReader):
    """For the option `pushFilters`."""

    @property
    def pushFilters(self) -> Any:
        return _TakesFilters(self)


def _check_order(start: Offsets, end: Offsets, options: SourceOptions) -> None:
    first = _named_by(options.starting_ms, "starting")
    last = _named_by(options.ending_ms, "ending")
    for each in start:
        if start[each] > end[each]:
            raise ConfigError(
                last,
                f"{each} would end at {end[each]}, before {start[each]}, where {first} starts it",
            )


def _named_by(time_ms: int | Offsets | None, which: str) -> str:
    if isinstance(time_ms, int):
        return f"{which}Timestamp"
    return f"{which}Offsets" if time_ms is None else f"{which}OffsetsByTimestamp"
