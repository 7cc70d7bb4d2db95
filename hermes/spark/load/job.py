"""`load`: copies what is new of topics to files, together with the offsets it came from.

Owns what Spark does for a load: its options, a session's settings, tasks, progress and failures.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hermes.errors import LoadError, LoadTargetError
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.early_flush import flushed_early
from hermes.spark.file_system import LocalFileSystem
from hermes.spark.load.attempts import LoadResult, run_load
from hermes.spark.load.commits import open_commits
from hermes.spark.load.connector_reads import connector_rows, reads_by_connector
from hermes.spark.load.increments import make_plan
from hermes.spark.load.load_target import LoadTarget, SinkName, TargetSettings
from hermes.spark.load.plans import Granularity, LoadCheckpoint, Plan
from hermes.spark.load.tasks import (
    FOLDERS,
    PLAN_OPTION,
    TASK_BYTES_OPTION,
    LoadSource,
    only_folder,
)
from hermes.spark.options import CONNECTION_OPTIONS, SOURCE_OPTIONS, SourceOptions, parse_options
from hermes.spark.parquet import write_parquet
from hermes.spark.stores import FileStore, open_store

_OPTION_NAMES: Final = (
    *(option.name for option in CONNECTION_OPTIONS),
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "minPartitions",
    "failOnDataLoss",
    "groupId",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxFetchBytes",
    "includeKey",
    "includeHeaders",
)

#: The options of a load: those of the source that mean something here.
LOAD_OPTIONS: Final = tuple(each for each in SOURCE_OPTIONS if each.name in _OPTION_NAMES)

_RESUMES: Final = "a load resumes where the last one into its target ended, and ends at the latest"
_HINTS: Final = {
    "startingoffsets": _RESUMES,
    "startingtimestamp": _RESUMES,
    "endingoffsets": _RESUMES,
    "endingtimestamp": _RESUMES,
    "includetimestamp": "what is loaded always has the column timestamp",
}

# One of our exceptions, after Spark's own words or a traceback, and the last line of any trace.
_OURS: Final = re.compile(r"\bhermes\.errors\.\w+: (.+)$", re.MULTILINE)
_CAUSE: Final = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+)$", re.MULTILINE)

_LARGEST_TASK_BYTES: Final = 256 * 1024 * 1024
_SMALLEST_TASK_BYTES: Final = 16 * 1024 * 1024


class LoadProgress(NamedTuple):
    done: int
    total: int


Progress: TypeAlias = Callable[[LoadProgress], object]


def load(
    spark: SparkSession | Callable[[], SparkSession],
    target: str | Path,
    options: Mapping[str, str],
    *,
    partition_by: Granularity | None = None,
    sink: SinkName | None = None,
    dry_run: bool = False,
    merge_schema: bool = False,
    progress: Progress | None = None,
    storage: Mapping[str, str] | None = None,
    files: LocalFileSystem | None = None,
    clock: Callable[[], float] = time.time,
) -> LoadResult:
    """Copy new messages of topics into a target, with their offsets in the same commit.

    Each message is copied once, whatever ends a load on its way: what a run left undone, the next
    one repeats from the same plan. The first load starts at the earliest offsets, each further one
    where the last ended.

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
            that starts a session, called only if there is something to copy.
        target: where to, new or of earlier loads: a directory, `s3://BUCKET/PREFIX` (or `s3a://`)
            or `hdfs://HOST:PORT/DIRECTORY`.
        options: as the source has them: how the brokers are found, which topics or partitions,
            minPartitions, failOnDataLoss, groupId, retries and maxFetchBytes; for Delta tables
            includeKey and includeHeaders; and kafka.bootstrap.servers, by which Spark's connector
            for Kafka reads topics of its format, where its jar is there.
        partition_by: whether a folder holds a day or an hour of the broker's append time (UTC);
            for messages whose time isn't known, of the time at which the load was planned. None is
            as before; in a new target, by day.
        sink: "parquet", or "delta" for a Delta table, which needs
            the extra `delta`. None is as before; in a new target, "delta" where that is installed.
        dry_run: only report what would be copied; writes nothing.
        merge_schema: whether a Delta table may get the columns `key` and `headers` if it lacks
            them, which are null in its other rows, and may have columns that a load lacks, if
            these can be null. Without it, all columns must be the same.
        progress: called periodically from its own thread while tasks run.
        storage: settings of S3A for an address of S3, by Hadoop's names (`fs.s3a.endpoint`). They
            win over those of Spark, and these over the environment's (`AWS_ACCESS_KEY_ID`).
        files: the file system of a directory; for tests.
        clock: returns the time in seconds since 1970; for tests.

    Returns:
        The outcome. After a `repeated` load there may be more to copy: load again.

    Raises:
        ConfigError: an option is wrong.
        LoadTargetError: the target has other settings, or is damaged; the text says what to do.
        LoadConflictError: another run committed the same load first.
        DataLossError: messages are gone that were never loaded. With failOnDataLoss=false what
            is left is loaded.
        LoadError: Spark failed, or the table has other columns; the text says why.
        HermesError: a broker or ZooKeeper can't be used.
    """
    TargetSettings(sink or "parquet", partition_by or "day").check()
    parsed = parse_load_options(options)
    store = open_store(target, spark, storage, files)
    found = LoadTarget.find(store)
    if found is None:
        opened = LoadTarget(store, TargetSettings(sink or _new_sink(store), partition_by or "day"))
    else:
        opened = found
        was = found.settings
        found.require(TargetSettings(sink or was.sink, partition_by or was.partition_by))
    by = opened.settings.partition_by
    commits = open_commits(opened, parsed.extras, merge_schema=merge_schema)
    with ClusterReader(parsed.address, parsed.retries) as cluster:
        if parsed.group is not None:
            cluster.check_group(parsed.group)

        def plan(last: LoadCheckpoint) -> Plan | None:
            made = make_plan(cluster, last, parsed, by, int(clock() * 1000))
            if made is not None and store.path is None and not dry_run:
                store.spark_settings(_started(spark))  # before anything is written
            return made

        write = partial(_write, spark, opened, parsed, options, progress)
        result = run_load(
            opened, commits, plan, write, dry_run=dry_run, may_lack=not parsed.fail_on_data_loss
        )
        if parsed.group is not None and not dry_run:
            cluster.publish(parsed.group, commits.last().offsets)
    return result


def _new_sink(store: FileStore) -> SinkName:
    try:
        import_module("deltalake")
        address, _ = store.delta_table()
    except (ModuleNotFoundError, LoadTargetError):
        return "parquet"
    return "delta" if unquote(address) == address else "parquet"


def parse_load_options(given: Mapping[str, str]) -> SourceOptions:
    texts = {name: str(text) for name, text in given.items()}
    parse_options(texts, LOAD_OPTIONS, None, _HINTS)
    return SourceOptions.parse(texts, None)


def failure_text(error: Exception, place: object = "") -> str:
    """Hermes' own text in Spark's failure, else the innermost cause, with the place written to."""
    text = str(error).strip()
    for pattern in (_OURS, _CAUSE):
        if found := pattern.findall(text):
            is_clear = pattern is _OURS or not place or str(place) in found[-1]
            return str(found[-1]) if is_clear else f"{place}: {found[-1]}"
    return text.splitlines()[0] if text else type(error).__name__


def _write(
    started: SparkSession | Callable[[], SparkSession],
    target: LoadTarget,
    parsed: SourceOptions,
    options: Mapping[str, str],
    progress: Progress | None,
    plan: Plan,
    directory: str,
) -> int:
    spark = _started(started)
    # A separate session, for settings and a format that the caller's should not have.
    session = spark.newSession()
    for key, value in spark.conf.getAll.items():
        if spark.conf.isModifiable(key):
            session.conf.set(key, value)
    # Instants are the same in any time zone, and folders of days are UTC's.
    session.conf.set("spark.sql.session.timeZone", "UTC")
    # A task writes to one folder alone; Spark can't know, and would sort its messages.
    session.conf.set("spark.sql.maxConcurrentOutputFileWriters", "8")
    session.dataSource.register(LoadSource)
    try:
        task_bytes = _task_bytes(spark, plan, parsed.min_partitions)
        if reads_by_connector(session, plan, parsed):
            rows = connector_rows(session, plan, parsed, task_bytes)
        else:
            rows = (
                session.read.format(LoadSource.name())
                .options(**options)
                .option(PLAN_OPTION, plan.encode().decode())
                .option(TASK_BYTES_OPTION, str(task_bytes))
                .load()
            )
        columns, folder = FOLDERS[plan.partition_by], only_folder(plan)
        if folder is not None:
            columns, directory = (), f"{directory}/{folder}"
        with _reported(spark, progress), flushed_early(target.store, directory):
            return write_parquet(
                rows, target.store.url(directory), columns, target.store.spark_settings(spark)
            )
    except (PySparkException, Py4JError) as error:
        raise LoadError(failure_text(error, target.place())) from error


def _started(spark: SparkSession | Callable[[], SparkSession]) -> SparkSession:
    return spark if isinstance(spark, SparkSession) else spark()


def _task_bytes(spark: SparkSession, plan: Plan, min_partitions: int | None) -> int:
    """How much a task takes: files of a good size, and work for all cores."""
    # In offsets, whatever they count: so ranges are cut.
    covered = plan.log_bytes + plan.log_messages
    if min_partitions is not None:
        return max(1, min(_LARGEST_TASK_BYTES, covered // min_partitions))
    share = covered // max(1, spark.sparkContext.defaultParallelism)
    return min(max(share, _SMALLEST_TASK_BYTES), _LARGEST_TASK_BYTES)


@contextmanager
def _reported(spark: SparkSession, progress: Progress | None) -> Iterator[None]:
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
