"""A target after loads: `read_loaded` opens what is committed, `clean_up` removes the rest.

Attempts that failed are never read.
"""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

from hermes.errors import LoadTargetError
from hermes.spark.files import Files, local_path
from hermes.spark.load.commits import open_commits
from hermes.spark.load.target import DATA, RECORDS, LoadTarget, numbered
from hermes.spark.load.tasks import loaded_schema
from hermes.spark.stores import LocalStore, Place


@dataclass(frozen=True, slots=True)
class CleanUp:
    """What was removed.

    Attributes:
        directories: of attempts at loads that another attempt has committed.
        temporary_files: that were never given their name.
        removed_bytes: how large all these were.
        kept: directories of attempts at the load that is not committed yet: it may be running.
    """

    directories: tuple[Place, ...]
    temporary_files: tuple[Place, ...]
    removed_bytes: int
    kept: tuple[Place, ...]


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
    opened = _open_target(target)
    if opened.settings.sink == "delta":
        from hermes.spark.delta import read_delta  # needs the extra `delta`

        return read_delta(spark, str(opened.place()))
    schema = loaded_schema(opened.settings.partition_by)
    directories = open_commits(opened).directories().values()
    if not directories:
        return spark.createDataFrame([], schema)
    with_attempt = StructType([*schema.fields]).add("attempt", StringType())
    rows = (
        spark.read.schema(with_attempt)
        .option("basePath", opened.store.url(DATA))
        .parquet(*(_escaped(opened.store.url(each)) for each in directories))
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
    opened = _open_target(target, files)
    commits = open_commits(opened)
    last, committed = commits.last().number, commits.directories()
    orphans, kept = [], []
    for number, directory in opened.attempts():
        if number > last:
            kept.append(directory)
        elif committed.get(number) not in (None, directory):
            orphans.append(directory)
    leftovers = _temporary_files(opened, last)
    inner = [each for name in orphans for each in opened.store.walk(name)]
    removed = sum(each.size_bytes for each in inner) + sum(leftovers.values())
    for directory in orphans:
        opened.store.delete_tree(directory)
    for name in leftovers:
        opened.store.delete(name)
    places = (tuple(map(opened.place, names)) for names in (orphans, leftovers, kept))
    directories, temporary, left = places
    return CleanUp(directories, temporary, removed, left)


def _open_target(target: str | Path, files: Files | None = None) -> LoadTarget:
    store = LocalStore(local_path(target), files)
    opened = LoadTarget.find(store)
    if opened is None:
        raise LoadTargetError(f"{store.place()}: nothing was ever loaded into this directory")
    return opened


def _escaped(url: str) -> str:
    """An address in which Spark finds no pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", url)


def _temporary_files(target: LoadTarget, last: int) -> dict[str, int]:
    """Files of committed loads that never got their name, and how large they are.

    Others may be being written just now.
    """
    found = {}
    for each in target.store.walk(RECORDS):
        name = PurePosixPath(each.name).name
        if not (name.startswith(".") and name.endswith(".tmp")):
            continue
        number = numbered(name[1:].rsplit(".", 2)[0])
        if number is None or number <= last:
            found[each.name] = each.size_bytes
    return found
