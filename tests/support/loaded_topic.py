"""A topic whose loads need neither a broker nor Spark: messages of 10 bytes, all columns."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hermes.spark.load.attempts import LoadResult, run_load
from hermes.spark.load.commits import open_commits
from hermes.spark.load.load_target import LoadTarget, TargetSettings
from hermes.spark.load.plans import LoadCheckpoint, Piece, Plan
from hermes.spark.offsets import TopicPartition
from hermes.spark.stores import FileStore

__all__ = ["CLICKS", "SIZE", "LoadedTopic", "rows_of"]

CLICKS = TopicPartition("clicks", 0, 0)
SIZE = 10


class LoadedTopic:
    """A topic of one partition whose messages are numbered.

    Attributes:
        count: how many there are.
        per_day: how many the broker appended on each day, from 2023-11-01 on.
    """

    def __init__(self, per_day: int = 10) -> None:
        self.count = 0
        self.per_day = per_day

    def load(
        self,
        store: FileStore,
        settings: TargetSettings | None = None,
        writer: Callable[[Plan, str], int] | None = None,
    ) -> LoadResult:
        """Load what is new, as a new program would do it."""
        target = LoadTarget.find(store) or LoadTarget(store, settings or TargetSettings())

        def write(plan: Plan, directory: str) -> int:
            return self.write(store, plan, directory)

        return run_load(target, open_commits(target), self.plan, writer or write)

    def plan(self, last: LoadCheckpoint) -> Plan | None:
        """As `make_plan`."""
        start, end = last.offsets.get(CLICKS, 0) // SIZE, self.count
        if start == end:
            return None
        days = range(0, end + self.per_day, self.per_day)
        cuts = sorted({start, end, *(day for day in days if start < day < end)})
        pieces = tuple(
            Piece(CLICKS, a * SIZE, b * SIZE, f"2023-11-{a // self.per_day + 1:02}")
            for a, b in pairwise(cuts)
        )
        return Plan(last.number + 1, 1_700_000_000_000, "day", pieces, {CLICKS: end * SIZE})

    def write(self, store: FileStore, plan: Plan, directory: str) -> int:
        """As Spark's tasks: a file for each piece."""
        count = 0
        for number, piece in enumerate(plan.pieces):
            name = f"{directory}/topic=clicks/day={piece.period}/part-{number}.parquet"
            messages = range(piece.start // SIZE, piece.end // SIZE)
            content = content_of(plan.number, messages)
            store.make_directory(name.rpartition("/")[0])
            store.create(name, content)
            count += len(messages)
        return count


def content_of(load: int, messages: range) -> bytes:
    """A data file."""
    count = len(messages)
    columns = {
        "load": pa.array([load] * count, pa.int64()),
        "broker": pa.array([0] * count, pa.int32()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array([number * SIZE for number in messages], pa.int64()),
        "next_offset": pa.array([(number + 1) * SIZE for number in messages], pa.int64()),
        "index": pa.array([0] * count, pa.int32()),
        "value": pa.array([b"%d" % number for number in messages], pa.binary()),
        "timestamp": pa.array([None] * count, pa.timestamp("us", "UTC")),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def rows_of(paths: list[str] | list[Path]) -> list[int]:
    """The messages in files, sorted."""
    tables = (pq.ParquetFile(path).read(columns=["value"])["value"] for path in paths)
    return sorted(int(value) for each in tables for value in each.to_pylist())
