"""`load`: copies what is new of topics to files, together with the offsets it came from."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from pyspark.sql import SparkSession

from hermes.errors import LoadError
from hermes.spark.cluster import Cluster, Retries
from hermes.spark.failures import SPARK_FAILURES, failure_text
from hermes.spark.load.files import Files
from hermes.spark.load.options import parse_load_options
from hermes.spark.load.parquet import write_parquet
from hermes.spark.load.planning import make_plan
from hermes.spark.load.plans import Granularity, Plan
from hermes.spark.load.run import LoadResult, run_load
from hermes.spark.load.sinks import Committed, ParquetSink, Sink
from hermes.spark.load.source import FOLDERS, PLAN_OPTION, TASK_BYTES_OPTION, LoadSource
from hermes.spark.load.target import LoadTarget, SinkName, TargetSettings, target_path
from hermes.spark.options import SourceOptions
from hermes.spark.progress import check_group, publish

__all__ = ["LoadProgress", "load", "open_sink"]

_LARGEST_TASK_BYTES: Final = 256 * 1024 * 1024
_SMALLEST_TASK_BYTES: Final = 16 * 1024 * 1024


class LoadProgress(NamedTuple):
    """How far a load is.

    Attributes:
        done: tasks that are finished.
        total: tasks in all, as far as is known.
    """

    done: int
    total: int


Progress: TypeAlias = Callable[[LoadProgress], object]


def load(
    spark: SparkSession | Callable[[], SparkSession],
    target: str | Path,
    options: Mapping[str, str],
    *,
    partition_by: Granularity = "day",
    sink: SinkName = "parquet",
    dry_run: bool = False,
    progress: Progress | None = None,
    files: Files | None = None,
    clock: Callable[[], float] = time.time,
) -> LoadResult:
    """Copy what is new of topics into a directory, with the offsets in the same commit.

    Each message is copied once, whatever ends a load on its way: what a run left undone the next
    one does again, from the same plan. The first load starts at the earliest offsets, each further
    one where the last ended.

    Example:
        result = load(
            spark,
            "/data/clicks",
            {"hermes.bootstrap.servers": "localhost:9092", "subscribe": "clicks"},
            partition_by="hour",
        )
        print(result.messages, result.ranges)

    Args:
        spark: runs the tasks; workers must see the target under the same path. Or a function
            that starts it, called only if there is something to copy.
        target: a directory, new or of earlier loads.
        options: as the source has them: how the brokers are found, which topics or partitions,
            minPartitions, failOnDataLoss, groupId, retries and maxFetchBytes.
        partition_by: whether a folder holds a day or an hour of the broker's append time (UTC);
            of messages whose time isn't known, of the time at which the load was planned.
        sink: "parquet", or "delta" for a Delta table, which needs
            `pip install 'hermes-log[spark,delta]'`.
        dry_run: only tell what would be copied; writes nothing.
        progress: called from a thread of its own now and then while tasks run.
        files: the file system; for tests.
        clock: tells the time in seconds since 1970; for tests.

    Returns:
        What was done. After a `repeated` load there may be more to do: load again.

    Raises:
        ConfigError: an option is wrong.
        LoadTargetError: the target is something else, or damaged; the text says what to do.
        LoadConflictError: another run committed the same load first.
        DataLossError: messages are gone that were never loaded. With failOnDataLoss=false what
            is left is loaded.
        LoadError: Spark could not do it; the text says why.
        HermesError: a broker or ZooKeeper can't be used.
    """
    settings = TargetSettings(sink, partition_by)
    settings.check()
    parsed = parse_load_options(options)
    path, files = target_path(target), files or Files()
    there = LoadTarget.find(path, files)
    if there is not None:
        there.require(there.settings, settings)
    place = there or LoadTarget(path, settings, files)
    commits = open_sink(place)
    with Cluster(parsed.address, Retries(parsed.retries, parsed.retry_seconds)) as cluster:
        if parsed.group is not None:
            check_group(cluster.zookeeper(), parsed.group)

        def plan(last: Committed) -> Plan | None:
            return make_plan(cluster, last, parsed, partition_by, int(clock() * 1000))

        write = partial(_write, spark, place, parsed, options, progress)
        result = run_load(place, commits, plan, write, dry_run=dry_run)
        if parsed.group is not None and not dry_run:
            publish(cluster.zookeeper(), parsed.group, commits.last().offsets)
    return result


def open_sink(target: LoadTarget) -> Sink:
    """What commits the loads of a target.

    Raises:
        LoadError: a Delta table needs a package that isn't installed.
    """
    if target.settings.sink == "parquet":
        return ParquetSink(target)
    from hermes.spark.load.delta_sink import DeltaSink  # needs the extra `delta`

    return DeltaSink(target)


def _write(
    started: SparkSession | Callable[[], SparkSession],
    target: LoadTarget,
    parsed: SourceOptions,
    options: Mapping[str, str],
    progress: Progress | None,
    plan: Plan,
    directory: Path,
) -> int:
    """Have Spark copy a plan's messages into a directory; tell how many they were."""
    spark = started if isinstance(started, SparkSession) else started()
    # A session of its own, for settings and a format that the caller's should not have.
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    # A task writes to one folder alone; Spark can't know, and would sort its messages.
    session.conf.set("spark.sql.maxConcurrentOutputFileWriters", "8")
    session.dataSource.register(LoadSource)
    try:
        rows = (
            session.read.format(LoadSource.name())
            .options(**options)
            .option(PLAN_OPTION, str(target.plan_path(plan.number)))
            .option(TASK_BYTES_OPTION, str(_task_bytes(spark, plan, parsed.min_partitions)))
            .load()
        )
        if target.settings.sink == "parquet":
            rows = rows.drop("load")  # its directory says it
        with _reported(spark, progress):
            return write_parquet(rows, directory, FOLDERS[plan.partition_by])
    except SPARK_FAILURES as error:
        raise LoadError(failure_text(error)) from error


def _task_bytes(spark: SparkSession, plan: Plan, min_partitions: int | None) -> int:
    """How much a task takes: files of a good size, and work for all cores."""
    if min_partitions is not None:
        return max(1, min(_LARGEST_TASK_BYTES, plan.log_bytes // min_partitions))
    share = plan.log_bytes // max(1, spark.sparkContext.defaultParallelism)
    return min(max(share, _SMALLEST_TASK_BYTES), _LARGEST_TASK_BYTES)


@contextmanager
def _reported(spark: SparkSession, progress: Progress | None) -> Iterator[None]:
    """Report the progress of what this thread has Spark do."""
    if progress is None:
        yield
        return
    context = spark.sparkContext
    group = f"hermes load {id(progress)} {threading.get_ident()}"
    before = context.getLocalProperty("spark.jobGroup.id")
    finished = threading.Event()
    reporter = threading.Thread(target=_report, args=(spark, group, progress, finished))
    context.setLocalProperty("spark.jobGroup.id", group)
    reporter.start()
    try:
        yield
    finally:
        finished.set()
        reporter.join()
        context.setLocalProperty("spark.jobGroup.id", before)  # type: ignore[arg-type]


def _report(spark: SparkSession, group: str, progress: Progress, finished: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    is_last = False
    while not is_last:
        is_last = finished.wait(0.5)
        done = total = 0
        for job in tracker.getJobIdsForGroup(group):
            described = tracker.getJobInfo(job)
            for number in described.stageIds if described else ():
                stage = tracker.getStageInfo(number)
                if stage is not None:
                    done, total = done + stage.numCompletedTasks, total + stage.numTasks
        if total:
            progress(LoadProgress(done, total))
