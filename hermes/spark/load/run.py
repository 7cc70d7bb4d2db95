"""One load from beginning to end, as far as it has to do with files; Spark is called from here.

    plan -> [its file] -> attempt's directory -> data -> flushed -> [commit]

What is in brackets is atomic and durable. A run that ends anywhere before the commit leaves a plan,
which the next run carries out instead of making one of its own. Two runs may carry out the same
plan at once; the commit decides between them, and the other's data are removed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TypeAlias

import pyarrow.parquet as pq

from hermes.errors import HermesError, LoadConflictError, LoadError
from hermes.spark.load.manifests import Manifest
from hermes.spark.load.parquet import check_rows, data_files
from hermes.spark.load.plans import Plan, Ranges
from hermes.spark.load.sinks import Committed, Sink
from hermes.spark.load.target import LoadTarget

__all__ = ["LoadResult", "Planner", "Writer", "run_load"]

#: Makes the next plan from how far the target has come; None when there is nothing new.
Planner: TypeAlias = Callable[[Committed], Plan | None]

#: Writes the messages of a plan into a directory, as Parquet; tells how many rows were written.
Writer: TypeAlias = Callable[[Plan, Path], int]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came of a load.

    Attributes:
        number: of the load; None when there was nothing new.
        committed: whether it was copied; False in a dry run, or when there was nothing new.
        repeated: whether the plan was one that an earlier run had left behind. What came since
            then is not in it: load again.
        messages: how many were copied.
        log_bytes: how many bytes of logs they are, or in a dry run would be.
        files: how many files they were written to.
        file_bytes: how large these are together.
        ranges: start and end offset of each partition that had something new.
        directory: of the data; None when nothing was copied.
    """

    number: int | None = None
    committed: bool = False
    repeated: bool = False
    messages: int = 0
    log_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    ranges: Ranges = field(default_factory=dict)
    directory: Path | None = None


def run_load(
    target: LoadTarget, sink: Sink, planner: Planner, writer: Writer, *, dry_run: bool = False
) -> LoadResult:
    """Carry out the plan that was left behind, or a new one.

    Args:
        target: where to.
        sink: commits.
        planner: makes a plan.
        writer: carries it out.
        dry_run: only tell what would be done; writes nothing.

    Raises:
        LoadConflictError: another run committed the same load first.
        LoadTargetError: something in the target is damaged.
        LoadError: what was written isn't what is found in the target.
        HermesError: whatever planner and writer raise.
    """
    last = sink.last()
    plan = target.plan(last.number + 1)
    repeated = plan is not None
    if plan is None:
        plan = planner(last)
    if plan is None:
        return LoadResult()
    if dry_run:
        return LoadResult(
            plan.number, repeated=repeated, log_bytes=plan.log_bytes, ranges=plan.ranges
        )
    if not repeated:
        target.make()
        plan, is_ours = target.propose(plan)
        repeated = not is_ours
    return _carry_out(target, sink, plan, writer, repeated)


def _carry_out(
    target: LoadTarget, sink: Sink, plan: Plan, writer: Writer, repeated: bool
) -> LoadResult:
    directory = target.new_attempt(plan.number)
    relative = directory.relative_to(target.path).as_posix()
    try:
        written = writer(plan, directory)
        manifest = _manifest(plan, directory, relative)
        check_rows(directory, written, manifest.messages)
        target.sync_attempt(directory)
        won = sink.commit(manifest)
    except (Exception, KeyboardInterrupt) as error:
        _give_up(target, sink, plan, directory, repeated, error)
    if not won and not _is_settled(target, sink, plan, directory):
        raise _conflict(plan)
    return LoadResult(
        plan.number,
        True,
        repeated,
        manifest.messages,
        plan.log_bytes,
        manifest.files,
        manifest.file_bytes,
        plan.ranges,
        directory,
    )


def _give_up(
    target: LoadTarget,
    sink: Sink,
    plan: Plan,
    directory: Path,
    repeated: bool,
    error: BaseException,
) -> NoReturn:
    """Remove what an attempt wrote, unless it may count, and say what happened."""
    if sink.last().number >= plan.number:
        if _is_settled(target, sink, plan, directory):
            raise error  # it counts, only not flushed for sure
        raise _conflict(plan) from error
    target.remove_attempt(directory)
    if repeated and isinstance(error, HermesError):
        raise LoadError(
            f"load {plan.number} was planned by an earlier run, in "
            f"{target.plan_path(plan.number)}, and can't be carried out: {error}"
        ) from error
    raise error


def _is_settled(target: LoadTarget, sink: Sink, plan: Plan, directory: Path) -> bool:
    """Whether a load that is committed is this attempt at it; if not, its data are removed.

    A commit may have been made although it told otherwise: a file server's answer got lost.
    """
    committed = sink.directories().get(plan.number)
    if committed == directory.relative_to(target.path).as_posix():
        return True
    if committed is not None:  # else nobody knows any more, and data are not to be lost
        target.remove_attempt(directory)
    return False


def _conflict(plan: Plan) -> LoadConflictError:
    return LoadConflictError(
        f"another run has committed load {plan.number} meanwhile; its data count, and those of "
        "this run were removed"
    )


def _manifest(plan: Plan, directory: Path, relative: str) -> Manifest:
    """Describe what was written, from the files themselves."""
    messages = files = file_bytes = 0
    for path in data_files(directory):
        messages += pq.read_metadata(path).num_rows
        files += 1
        file_bytes += path.stat().st_size
    return Manifest.of(plan, relative, messages=messages, files=files, file_bytes=file_bytes)
