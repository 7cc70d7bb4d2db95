"""What is compared with a target: which offsets the messages of its data files cover."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow.parquet as pq

from hermes.spark.load.journal_entries import LoadedFile
from hermes.spark.load.journal_snapshot import ExpiryRecord, LoadRecord
from hermes.spark.offsets import TopicPartition
from hermes.spark.stores import FileStore

#: The columns of some messages.
_Columns: TypeAlias = Mapping[str, "np.ndarray[Any, np.dtype[Any]]"]

#: The files of each topic and period.
Folders: TypeAlias = Mapping[tuple[str, str], Sequence[LoadedFile]]

_COLUMNS: Final = ["load", "broker", "partition", "offset", "next_offset", "index"]


@dataclass(frozen=True, slots=True)
class TargetContents:
    """What a target says of itself: the files that count, the loads that may have messages."""

    folders: Folders
    loads: Mapping[int, LoadRecord]
    expiries: Sequence[ExpiryRecord] = ()


class OffsetRun(NamedTuple):
    """Messages of a load that follow on one another in a file; `end` is after the last one."""

    load: int
    partition: TopicPartition
    start: int
    end: int
    messages: int


def read_runs(store: FileStore, topic: str, file: LoadedFile) -> tuple[int, int, list[OffsetRun]]:
    """A file's size, its rows, and where its messages are from. Raises FileNotFoundError."""
    with store.open(file.name) as opened:
        size_bytes = opened.seek(0, 2)
        with pq.ParquetFile(opened) as source:
            runs = list(_runs(source, topic))
            return size_bytes, source.metadata.num_rows, runs


def overlaps(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    reached = -1
    for start, end in sorted(ranges):
        if start < reached:
            yield start, min(end, reached)
        reached = max(reached, end)


def difference(
    ranges: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    for start, end in sorted(ranges):
        for begin, stop in sorted(others):
            if start < begin < end:
                yield start, begin
            if begin < end and stop > start:
                start = max(start, stop)
        if start < end:
            yield start, end


def _runs(source: pq.ParquetFile, topic: str) -> Iterator[OffsetRun]:
    last: OffsetRun | None = None
    row: _Columns = {}  # the last one of the batch before
    for batch in source.iter_batches(columns=_COLUMNS):
        if not batch.num_rows:
            continue
        values = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in _COLUMNS}
        if row:
            values = {name: np.concatenate((row[name], values[name])) for name in values}
        for run in _batch_runs(topic, values):
            if last is None:
                last = run
            elif row:  # the run that the last row of the batch before is in
                last = last._replace(end=run.end, messages=last.messages + run.messages - 1)
            else:
                yield last
                last = run
            row = {}
        row = {name: values[name][-1:] for name in values}
    if last is not None:
        yield last


def _batch_runs(topic: str, values: _Columns) -> Iterator[OffsetRun]:
    first, then = slice(None, -1), slice(1, None)
    offset, end, index = values["offset"], values["next_offset"], values["index"]
    same = np.ones(len(offset) - 1, dtype=bool)
    for name in ("load", "broker", "partition"):
        same &= values[name][first] == values[name][then]
    follows = (offset[then] == end[first]) & (index[then] == 0)
    in_set = (offset[then] == offset[first]) & (index[then] == index[first] + 1)
    starts = np.flatnonzero(np.concatenate(([True], ~(same & (follows | in_set)))))
    ends = np.concatenate((starts[1:], [len(offset)]))
    for start, stop in zip(starts.tolist(), ends.tolist(), strict=True):
        partition = (int(values[name][start]) for name in ("broker", "partition"))
        yield OffsetRun(
            int(values["load"][start]),
            TopicPartition(topic, *partition),
            int(offset[start]),
            int(end[stop - 1]),
            stop - start,
        )
