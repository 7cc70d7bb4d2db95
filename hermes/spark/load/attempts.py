"""One load from beginning to end, as far as files are concerned; Spark is a function to call.

    plan -> [its file] -> attempt's directory -> data -> flushed -> [commit]

What is in brackets is atomic and durable. An attempt that ends anywhere before the commit leaves a
plan, which the next one carries out instead of making its own. Two attempts may carry out the same
plan at once; the commit decides between them, and the loser's data are removed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from hermes.errors import HermesError, LoadConflictError, LoadError
from hermes.spark.load.commits import Commits
from hermes.spark.load.load_target import DATA, LoadTarget, plan_name
from hermes.spark.load.plans import LoadCheckpoint, LoadManifest, Plan, Ranges
from hermes.spark.parquet import DataFile, check_rows, data_files
from hermes.spark.stores import Place

#: Makes the next plan from how far the target has come; None when there is nothing new.
Planner: TypeAlias = Callable[[LoadCheckpoint], Plan | None]

#: Writes the messages of a plan into a directory of the target, as Parquet; returns how many rows
#: were written.
Writer: TypeAlias = Callable[[Plan, str], int]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The outcome of a load.

    Attributes:
        number: of the load; None when there was nothing new.
        committed: whether it was copied; False in a dry run, or when there was nothing new.
        repeated: whether the plan was one that an earlier run had left. What arrived since
            then is not in it: load again.
        messages: how many were copied.
        log_bytes: how many bytes of logs they are, or in a dry run would be, of topics whose
            offsets count bytes.
        log_messages: how many offsets they are, or would be, of topics whose offsets count
            messages; more than messages where some were compacted away.
        files: how many files they were written to.
        file_bytes: how large these are together.
        ranges: start and end offset of each partition that had something new.
        directory: with the data, a path or an address as the target's; None when nothing was
            copied.
    """

    number: int | None = None
    committed: bool = False
    repeated: bool = False
    messages: int = 0
    log_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    ranges: Ranges = field(default_factory=dict)
    directory: Place | None = None
    log_messages: int = 0


def run_load(
    target: LoadTarget,
    commits: Commits,
    planner: Planner,
    writer: Writer,
    *,
    dry_run: bool = False,
    may_lack: bool = False,
) -> LoadResult:
    """Carry out the plan that an earlier run has left, or a new one.

    `may_lack` says whether the writer may leave out messages that are gone or damaged.

    Raises:
        LoadConflictError: another run committed the same load first.
        HermesError: the target is damaged or lacks what was written, or whatever planner and writer
            raise.
    """
    if not dry_run:
        commits.settle()
    last = commits.last()
    plan = target.plan(last.number + 1)
    repeated = plan is not None
    if plan is None:
        plan = planner(last)
    if plan is None:
        return LoadResult()
    if dry_run:
        return LoadResult(
            plan.number,
            repeated=repeated,
            log_bytes=plan.log_bytes,
            ranges=plan.ranges,
            log_messages=plan.log_messages,
        )
    target.create()  # also below a plan that is there: the store is checked before it is relied on
    if not repeated:
        plan, is_ours = target.propose(plan)
        repeated = not is_ours
    return _Attempt(target, commits, plan, repeated).run(writer, may_lack)


class _Attempt:
    def __init__(self, target: LoadTarget, commits: Commits, plan: Plan, repeated: bool) -> None:
        self._target = target
        self._commits = commits
        self._plan = plan
        self._repeated = repeated
        self._directory = target.new_attempt(plan.number)

    def run(self, writer: Writer, may_lack: bool) -> LoadResult:
        plan, directory, store = self._plan, self._directory, self._target.store
        is_delta = self._target.settings.sink == "delta"
        is_committing = False
        try:
            written = writer(plan, directory)
            files = data_files(store, directory)
            check_rows(store.place(directory), written, files)
            manifest = _manifest(plan, directory, files, may_lack)
            store.flush_tree(directory)
            is_committing = True
            won = self._commits.commit(manifest, files)
        except (Exception, KeyboardInterrupt) as error:
            if is_committing and self._commits.give_up(directory):
                raise  # it counts, but may not be flushed
            # A server may commit later what it has not answered: then the data must be there.
            self._give_up(error, may_count=is_committing and is_delta and store.path is None)
        if not won and not self._is_committed():
            raise self._conflict()
        return LoadResult(
            plan.number,
            True,
            self._repeated,
            manifest.messages,
            plan.log_bytes,
            manifest.files,
            manifest.file_bytes,
            plan.ranges,
            store.place(directory if is_delta else DATA),
            plan.log_messages,
        )

    def _give_up(self, error: BaseException, *, may_count: bool) -> NoReturn:
        number = self._plan.number
        if self._commits.last().number >= number:
            if self._is_committed():
                raise error  # it counts, but may not be flushed
            raise self._conflict() from error
        if not may_count:
            self._target.store.delete_tree(self._directory)
        if self._repeated and isinstance(error, HermesError):
            raise LoadError(
                f"load {number} was planned by an earlier run, in "
                f"{self._target.place(plan_name(number))}, and can't be carried out: {error}"
            ) from error
        raise error

    def _is_committed(self) -> bool:
        """Whether the load was committed by this attempt; if not, its data are removed.

        A commit may have succeeded although it reported a failure: a file server's answer got lost.
        """
        committed = self._commits.directories().get(self._plan.number)
        if committed == self._directory:
            return True
        if committed is not None:  # else it can't be known any more, and no data may be lost
            self._target.store.delete_tree(self._directory)
        return False

    def _conflict(self) -> LoadConflictError:
        return LoadConflictError(
            f"another run has committed load {self._plan.number} meanwhile; its data count, and "
            "those of this run were removed"
        )


def _manifest(
    plan: Plan, directory: str, files: Sequence[DataFile], may_lack: bool
) -> LoadManifest:
    return LoadManifest(
        plan.number,
        plan.planned_ms,
        sum(each.rows for each in files),
        len(files),
        sum(each.size_bytes for each in files),
        plan.log_bytes,
        directory,
        plan.ranges,
        plan.offsets,
        may_lack,
    )
