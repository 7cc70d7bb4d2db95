"""`verify`: compares what is in a target with what its records say.

Each plan says which offsets were copied into which folder. In the files, each message says where it
starts and where the next one does. So the messages of a load, put in order, must cover what was
planned without a gap, and nothing twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from hermes.errors import LoadTargetError
from hermes.quoting import printable
from hermes.spark.file_system import LocalFileSystem
from hermes.spark.load.coverage import OffsetRun, TargetContents, difference, overlaps, read_runs
from hermes.spark.load.journal_entries import LoadedFile
from hermes.spark.load.journal_snapshot import JournalSnapshot, LoadRecord
from hermes.spark.load.load_target import DATA, LoadTarget, plan_name
from hermes.spark.load.loaded import open_target, published_state
from hermes.spark.load.plans import Plan
from hermes.spark.offsets import TopicPartition
from hermes.spark.stores import Session

#: Offsets by load and partition.
_Ranges: TypeAlias = dict[tuple[int, TopicPartition], list[tuple[int, int]]]

# How often a folder is looked at again because others have changed it meanwhile.
_ATTEMPTS: Final = 10


@dataclass(slots=True)
class Verification:
    """The outcome.

    Attributes:
        loads: how many were compared.
        files: how many data files were read.
        messages: how many they hold.
        file_bytes: how large they are together.
        problems: one line per problem.
        notes: what is missing with permission, or can't be compared; a line each.
    """

    loads: int = 0
    files: int = 0
    messages: int = 0
    file_bytes: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(
    target: str | Path,
    *,
    spark: Session = None,
    storage: Mapping[str, str] | None = None,
    files: LocalFileSystem | None = None,
) -> Verification:
    """Compare what is in a target with its records. Reads the columns of offsets; changes nothing.

    Loads, expiries and compactions may run meanwhile.

    Example:
        assert not verify("/data/clicks").problems

    Args:
        target, storage, files: as for `load`.
        spark: a session, or a function that starts one, for HDFS and for S3 as Spark is set up.

    Raises:
        LoadTargetError: it isn't a target of loads, or a record is damaged.
    """
    opened = open_target(target, spark, storage, files)
    if opened.settings.sink == "delta":
        from hermes.spark.load.delta_upkeep import table_records  # needs the extra `delta`

        return _Comparison(opened, lambda: table_records(opened)).run()
    # What is listed first can't become part of the data afterwards: files follow their commit.
    listed = [each.name for each in opened.store.walk(DATA)]
    outcome = _Comparison(opened, lambda: _journaled(published_state(opened))).run()
    state = published_state(opened)
    for name in listed:
        if name not in state.files:
            outcome.problems.append(
                f"{opened.place(name)} is not of a load, and other readers may read it: run "
                "hermes load --clean-up"
            )
    return outcome


def _journaled(state: JournalSnapshot) -> TargetContents:
    return TargetContents(state.in_folders(), dict(state.loads), list(state.expiries))


class _Comparison:
    def __init__(self, target: LoadTarget, read: Callable[[], TargetContents]) -> None:
        self._target = target
        self._read = read
        self._records = read()
        self._loads = self._records.loads  # what was there first is compared
        self._planned: dict[tuple[str, str], _Ranges] = {}
        self._folders_of: dict[int, set[tuple[str, str]]] = {}
        self._lacking: set[int] = set()
        self._found: dict[int, int] = {}
        self._outcome = Verification()

    def run(self) -> Verification:
        last: Plan | None = None
        for number in sorted(self._loads):
            plan = self._plan(number)
            if plan is not None:
                self._compare_start(plan, last)
                self._add_plan(plan)
            last = plan
        planned = {
            folder
            for number, folders in self._folders_of.items()
            for folder in folders
            if not self._is_expired(number, *folder)
        }
        for each in sorted(planned | self._records.folders.keys()):
            self._compare_folder(*each)
        for number in self._folders_of:
            self._compare_count(number, self._loads[number])
        self._outcome.loads = len(self._folders_of)
        return self._outcome

    def _add_plan(self, plan: Plan) -> None:
        folders = self._folders_of.setdefault(plan.number, set())
        for piece in plan.pieces:
            folder = (piece.partition.topic, piece.period)
            folders.add(folder)
            ranges = self._planned.setdefault(folder, {})
            key = (plan.number, piece.partition)
            ranges.setdefault(key, []).append((piece.start, piece.end))

    def _plan(self, number: int) -> Plan | None:
        try:
            plan = self._target.plan(number)
        except LoadTargetError as error:
            self._outcome.problems.append(str(error))
            return None
        if plan is None:
            place = self._target.place(plan_name(number))
            self._outcome.notes.append(f"load {number} can't be compared: {place} is missing")
        return plan

    def _compare_start(self, plan: Plan, before: Plan | None) -> None:
        if before is None or before.number != plan.number - 1:
            return
        for partition, (start, _) in plan.ranges.items():
            end = before.offsets.get(partition, start)
            if start != end:
                what = f"starts at offset {start}, and load {plan.number - 1} ended at {end}"
                self._report_gap(plan.number, f"{partition}: load {plan.number} {what}")

    def _compare_folder(self, topic: str, period: str) -> None:
        for _ in range(_ATTEMPTS):
            files = self._records.folders.get((topic, period), ())
            try:
                found = [(file, self._read_file(topic, file)) for file in files]
            except FileNotFoundError as error:
                self._records = self._read()
                if self._records.folders.get((topic, period), ()) == files:
                    self._outcome.problems.append(f"a file that counts is missing: {error}")
                    return
                continue
            runs = []
            for file, (size_bytes, rows, of_file) in found:
                self._compare_file(file, size_bytes, rows)
                runs += of_file
            self._compare_runs(topic, period, runs)
            return
        self._outcome.notes.append(f"{topic}, {period}: others change it all the time")

    def _read_file(self, topic: str, file: LoadedFile) -> tuple[int, int, list[OffsetRun]]:
        try:
            return read_runs(self._target.store, topic, file)
        except (pa.ArrowException, UnicodeError) as error:
            place = self._target.place(file.name)
            self._outcome.problems.append(f"{place} can't be read: {printable(str(error), 300)}")
            return file.size_bytes, 0, []

    def _compare_file(self, file: LoadedFile, size_bytes: int, rows: int) -> None:
        outcome = self._outcome
        outcome.files += 1
        outcome.messages += rows
        outcome.file_bytes += size_bytes
        if (size_bytes, rows) != (file.size_bytes, file.rows):
            outcome.problems.append(
                f"{self._target.place(file.name)} has {size_bytes} bytes and {rows} messages, and "
                f"was committed with {file.size_bytes} and {file.rows}"
            )

    def _compare_runs(self, topic: str, period: str, runs: Sequence[OffsetRun]) -> None:
        planned = {
            key: ranges
            for key, ranges in self._planned.get((topic, period), {}).items()
            if not self._is_expired(key[0], topic, period)
        }
        covered: _Ranges = {}
        for run in sorted(runs):
            self._found[run.load] = self._found.get(run.load, 0) + run.messages
            covered.setdefault((run.load, run.partition), []).append((run.start, run.end))
        for key in sorted(planned.keys() | covered.keys()):
            number, partition = key
            if number not in self._folders_of:
                continue
            self._compare_ranges(number, partition, period, planned.get(key), covered.get(key, []))

    def _compare_ranges(
        self,
        number: int,
        partition: TopicPartition,
        period: str,
        planned: Sequence[tuple[int, int]] | None,
        covered: Sequence[tuple[int, int]],
    ) -> None:
        where = f"{partition}, {period}, load {number}"
        if planned is None:
            self._outcome.problems.append(f"{where}: there are messages that were not planned")
            return
        for start, end in overlaps(covered):
            self._outcome.problems.append(f"{where}: offsets {start} to {end} are there twice")
        for start, end in difference(planned, covered):
            self._lacking.add(number)
            self._report_gap(number, f"{where}: nothing is there of the offsets {start} to {end}")
        for start, end in difference(covered, planned):
            text = f"{where}: offsets {start} to {end} are there, and were not planned"
            self._outcome.problems.append(text)

    def _compare_count(self, number: int, load: LoadRecord) -> None:
        folders = self._folders_of[number]
        if number in self._lacking or any(self._is_expired(number, *each) for each in folders):
            return
        found = self._found.get(number, 0)
        if found != load.messages:
            self._outcome.problems.append(
                f"load {number} has {found} messages, and {load.messages} were committed"
            )

    def _is_expired(self, load: int, topic: str, period: str) -> bool:
        return any(each.covers(load, topic, period) for each in self._records.expiries)

    def _report_gap(self, number: int, text: str) -> None:
        """A gap is a problem, unless the load was allowed to leave one."""
        if self._loads[number].may_lack:
            self._outcome.notes.append(f"{text} (it was allowed to lack messages)")
        else:
            self._outcome.problems.append(text)
