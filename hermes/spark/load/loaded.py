"""A target after loads: `read_loaded` opens what is committed, `clean_up` removes the rest.

Attempts that failed are never read.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

from hermes.errors import LoadTargetError
from hermes.spark.files import Files, local_path
from hermes.spark.load.commits import open_commits
from hermes.spark.load.target import LoadTarget, numbered
from hermes.spark.load.tasks import loaded_schema


@dataclass(frozen=True, slots=True)
class CleanUp:
    """What was removed.

    Attributes:
        directories: of attempts at loads that another attempt has committed.
        temporary_files: that were never given their name.
        removed_bytes: how large all these were.
        kept: directories of attempts at the load that is not committed yet: it may be running.
    """

    directories: tuple[Path, ...]
    temporary_files: tuple[Path, ...]
    removed_bytes: int
    kept: tuple[Path, ...]


def read_loaded(spark: SparkSession, target: str | Path) -> DataFrame:
    """Open what was loaded into a directory.

    Columns: `load` (the number of the load), those of the source, `timestamp` (null where the
    broker doesn't know when it appended), `day` and, in targets by the hour, `hour`. Filters on
    load, topic, day and hour skip the files of others.

    Example:
        clicks = read_loaded(spark, "/data/clicks").where("day = '2026-11-24'")

    Args:
        spark: the session to read with.
        target: the directory.

    Returns:
        The loads that are committed now; no rows when there are none yet.

    Raises:
        LoadTargetError: it isn't a target of loads, or is damaged.
    """
    opened = _open_target(target, Files())
    if opened.settings.sink == "delta":
        from hermes.spark.delta import read_delta  # needs the extra `delta`

        return read_delta(spark, opened.path)
    schema = loaded_schema(opened.settings.partition_by)
    directories = open_commits(opened).directories().values()
    if not directories:
        return spark.createDataFrame([], schema)
    with_attempt = StructType([*schema.fields]).add("attempt", StringType())
    rows = (
        spark.read.schema(with_attempt)
        .option("basePath", f"file://{opened.data}")
        .parquet(*(f"file://{_escaped(opened.path / each)}" for each in directories))
    )
    return rows.select(*schema.names)


def clean_up(target: str | Path, *, files: Files | None = None) -> CleanUp:
    """Remove what failed attempts left in a target. Safe while loads run.

    Only what can't count any more is removed: attempts at loads that another attempt has committed.
    Attempts at the next load stay until it is committed.

    Example:
        print(clean_up("/data/clicks").removed_bytes)

    Args:
        target: the directory.
        files: the file system; for tests.

    Raises:
        LoadTargetError: it isn't a target of loads, or is damaged.
    """
    opened = _open_target(target, files or Files())
    commits = open_commits(opened)
    last, committed = commits.last().number, commits.directories()
    orphans: list[Path] = []
    kept: list[Path] = []
    for number, directory in opened.attempts():
        if number > last:
            kept.append(directory)
        elif committed.get(number) not in (None, directory.relative_to(opened.path).as_posix()):
            orphans.append(directory)
    leftovers = _temporary_files(opened, last)
    removed = sum(map(_size, [*orphans, *leftovers]))
    for directory in orphans:
        opened.files.remove_tree(directory)
    for path in leftovers:
        opened.files.unlink(path)
    return CleanUp(tuple(orphans), tuple(leftovers), removed, tuple(kept))


def _open_target(target: str | Path, files: Files) -> LoadTarget:
    path = local_path(target)
    opened = LoadTarget.find(path, files)
    if opened is None:
        raise LoadTargetError(f"{path}: nothing was ever loaded into this directory")
    return opened


def _escaped(path: Path) -> str:
    """A path in which Spark finds no pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", str(path))


def _temporary_files(target: LoadTarget, last: int) -> list[Path]:
    """Files of committed loads that never got their name; others may be being written just now."""
    found = []
    for directory in (target.plans.parent, target.plans, target.manifests):
        for name in target.files.names(directory):
            if not (name.startswith(".") and name.endswith(".tmp")):
                continue
            number = numbered(name[1:].rsplit(".", 2)[0])
            if number is None or number <= last:
                found.append(directory / name)
    return found


def _size(path: Path) -> int:
    try:
        inner = path.rglob("*") if path.is_dir() else [path]
        return sum(each.stat().st_size for each in inner if each.is_file())
    except FileNotFoundError:
        return 0  # its owner has removed it meanwhile
