"""What the tasks of a load read: the pieces of a plan, each message with the folder it goes to.

A Spark data source like the public one, but its ranges come from the plan's file: so a plan of any
length costs the driver one small file, and every attempt reads the same.
"""

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DateType, IntegerType, LongType, StructField, StructType

from hermes.spark.arrow_arrays import repeated
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.columns import spark_schema
from hermes.spark.load.plans import Granularity, Piece, Plan
from hermes.spark.offsets import Offsets
from hermes.spark.options import ExtraColumns, SourceOptions
from hermes.spark.planning import check_available, check_planned, cuts, packed
from hermes.spark.reading import ReadRange, read_ranges

_EPOCH: Final = datetime.date(1970, 1, 1)
_USUAL: Final = ExtraColumns(timestamp=True)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

PLAN_OPTION: Final = "plan"
TASK_BYTES_OPTION: Final = "taskBytes"

#: The columns that become folders, outermost first.
FOLDERS: Final[dict[Granularity, tuple[str, ...]]] = {
    "day": ("topic", "day"),
    "hour": ("topic", "day", "hour"),
}


def loaded_schema(partition_by: Granularity, extras: ExtraColumns = _USUAL) -> StructType:
    """The columns of loaded data: `load`, those of the source with `timestamp`, the period."""
    schema = StructType().add("load", LongType())
    for field in spark_schema(extras._replace(timestamp=True)).fields:
        schema = schema.add(field.name, field.dataType)
    schema = schema.add("day", DateType())
    return schema.add("hour", IntegerType()) if partition_by == "hour" else schema


def only_folder(plan: Plan) -> str | None:
    """The folder that all of a plan goes to, as Spark would name it; None if there are several.

    To choose the folder of each row costs Spark as much as writing it; most loads after the first
    have one. Other names than these Spark would write differently.
    """
    folders = {(piece.partition.topic, piece.day, piece.hour) for piece in plan.pieces}
    ((topic, day, hour), *others) = folders
    if others or not _PLAIN_NAME.fullmatch(topic):
        return None
    return f"topic={topic}/day={day}" + ("" if hour is None else f"/hour={hour}")


def as_read(plan: Plan, extras: ExtraColumns) -> StructType:
    """The columns of a plan's rows: where a message is and goes to is never null."""
    # The columns that become folders are left out where there is one folder: what isn't written
    # need not come from the workers.
    may_be_null = {"value", *ExtraColumns._fields}
    left_out = () if only_folder(plan) is None else FOLDERS[plan.partition_by]
    return StructType(
        [
            StructField(each.name, each.dataType, each.name in may_be_null)
            for each in loaded_schema(plan.partition_by, extras).fields
            if each.name not in left_out
        ]
    )


@dataclass(frozen=True, eq=False)
class LoadTask(InputPartition):
    """What one task copies, all to one folder; it travels to the worker."""

    number: int
    day: datetime.date
    hour: int | None
    ranges: tuple[ReadRange, ...]


class LoadSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "hermes_load"

    def schema(self) -> StructType:
        return as_read(self._plan(), self._given().extras)

    def reader(self, schema: StructType) -> "LoadReader":
        return LoadReader(self._plan(), int(self.options[TASK_BYTES_OPTION]), self._given())

    def _given(self) -> SourceOptions:
        own = {PLAN_OPTION, TASK_BYTES_OPTION.lower()}
        given = {key: text for key, text in self.options.items() if key.lower() not in own}
        return SourceOptions.parse(given, None)

    def _plan(self) -> Plan:
        return Plan.decode(self.options[PLAN_OPTION].encode(), "the plan", "run the load again")


class LoadReader(DataSourceReader):
    def __init__(self, plan: Plan, task_bytes: int, options: SourceOptions) -> None:
        self._plan = plan
        self._task_bytes = task_bytes
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with ClusterReader(options.address, options.retries) as cluster:
            ends: Offsets = {each: end for each, (_, end) in self._plan.ranges.items()}
            unchanged = check_planned(cluster, ends, options)
            starts: Offsets = {each: self._plan.ranges[each][0] for each in unchanged}
            starts = {**ends, **check_available(cluster, starts, options)}
            return list(tasks(cluster, self._plan, starts, self._task_bytes))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LoadTask):
            return  # with nothing to read, Spark asks once, for nothing
        options = replace(self._options, extras=self._options.extras._replace(timestamp=True))
        schema = to_arrow_schema(as_read(self._plan, options.extras), timezone="UTC")
        for batch in read_ranges(partition.ranges, options):
            yield _with_folder(batch, partition, schema)


def tasks(
    cluster: ClusterReader, plan: Plan, starts: Offsets, task_bytes: int
) -> Iterator[LoadTask]:
    """Make the tasks of a plan, from the first offset of each partition that still exists.

    A task writes to one folder, and so one file. What is larger than `task_bytes` is split between
    messages; smaller ranges that go to the same folder share a task.
    """
    cluster.brokers()  # where they listen now
    for _, pieces in groupby(sorted(plan.pieces, key=_folder), key=_folder):
        in_folder = list(pieces)
        ranges = [
            ReadRange(piece.partition, *cluster.address(piece.partition), start, end)
            for piece in in_folder
            for start, end in _cut(cluster, piece, starts[piece.partition], task_bytes)
        ]
        for each in packed(ranges, task_bytes):
            yield LoadTask(plan.number, in_folder[0].day, in_folder[0].hour, each)


def _cut(
    cluster: ClusterReader, piece: Piece, earliest: int, task_bytes: int
) -> Iterator[tuple[int, int]]:
    first = max(piece.start, earliest)
    count = -(-(piece.end - first) // task_bytes)
    return pairwise(cuts(cluster, piece.partition, first, piece.end, count))


def _folder(piece: Piece) -> tuple[str, str]:
    return piece.partition.topic, piece.period


def _with_folder(batch: pa.RecordBatch, task: LoadTask, schema: pa.Schema) -> pa.RecordBatch:
    count = batch.num_rows
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns["load"] = repeated(task.number, pa.int64(), count)
    if "day" in schema.names:
        columns["day"] = repeated((task.day - _EPOCH).days, pa.date32(), count)
    if task.hour is not None:
        columns["hour"] = repeated(task.hour, pa.int32(), count)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
