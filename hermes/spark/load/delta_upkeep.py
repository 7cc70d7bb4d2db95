"""Expiring, compacting and verifying targets that are Delta tables: the table's log is the record.

Needs the extra `delta`.
"""

import datetime
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import CommitProperties

from hermes.errors import LoadError
from hermes.spark.delta.table import DeltaTable, commits, open_table, sync_log, table_files
from hermes.spark.load.coverage import TargetContents
from hermes.spark.load.delta_commits import LOAD_KEY
from hermes.spark.load.journal_entries import LoadedFile
from hermes.spark.load.journal_snapshot import Expired, LoadRecord
from hermes.spark.load.load_target import LoadTarget
from hermes.spark.stores import FileStore

Result = TypeVar("Result")

_EXPIRE_KEY: Final = "hermes.expire"
# How often a commit of others may come first before this gives up.
_ATTEMPTS: Final = 100


def expire_table(
    store: FileStore, before: str, topics: Sequence[str], dry_run: bool
) -> tuple[tuple[tuple[str, str], ...], int, int, int]:
    """Remove the folders before a day or hour from a table, in one commit.

    Returns:
        The folders, and how many files, messages and bytes were in them.

    Raises:
        LoadError: the commit failed; the text says why.
    """

    def attempt(table: DeltaTable) -> tuple[tuple[tuple[str, str], ...], int, int, int]:
        files = [each for each in _files(table) if each[1] < before]
        files = [each for each in files if not topics or each[0] in topics]
        if files and not dry_run:
            said = {"before": before, "topics": list(topics), "load": _last_load(store, table)}
            table.delete(
                _predicate(before, topics),
                commit_properties=CommitProperties({_EXPIRE_KEY: said}, max_commit_retries=0),
            )
            sync_log(store)
        return (
            tuple(sorted({(topic, period) for topic, period, _ in files})),
            len(files),
            sum(each.rows for _, _, each in files),
            sum(each.size_bytes for _, _, each in files),
        )

    return _committed(store, attempt)


def compact_table(
    store: FileStore, topics: Sequence[str], target_bytes: int
) -> Iterator[tuple[str, str, int, int, int, int]]:
    """Make small files of a table into larger ones; each folder is a commit.

    Yields:
        The values of a `compacting.Compacted`.

    Raises:
        LoadError: the commit failed; the text says why.
    """
    table = open_table(store)
    by_folder: dict[tuple[str, str], list[LoadedFile]] = {}
    for topic, period, file in [] if table is None else _files(table):
        by_folder.setdefault((topic, period), []).append(file)
    for (topic, period), files in sorted(by_folder.items()):
        small = [each for each in files if each.size_bytes < target_bytes]
        if len(small) < 2 or (topics and topic not in topics):
            continue
        filters: list[tuple[str, str, Any]] = [("topic", "=", topic), ("day", "=", period[:10])]
        if len(period) > 10:
            filters.append(("hour", "=", str(int(period[11:]))))

        def attempt(table: DeltaTable, filters: Any = filters) -> dict[str, Any]:
            return table.optimize.compact(filters, target_size=target_bytes)

        done = _committed(store, attempt)
        if done["numFilesRemoved"]:
            sync_log(store)
            added, removed = (_totals(done[key]) for key in ("filesAdded", "filesRemoved"))
            yield topic, period, done["numFilesRemoved"], done["numFilesAdded"], removed, added


def table_records(target: LoadTarget) -> TargetContents:
    """What a table's log says of loads, files and expiries."""
    table = open_table(target.store)
    folders: dict[tuple[str, str], list[LoadedFile]] = {}
    loads: dict[int, LoadRecord] = {}
    expiries = []
    if table is not None:
        for topic, period, file in _files(table):
            folders.setdefault((topic, period), []).append(file)
        for each in commits(target.store, table):
            if LOAD_KEY in each:
                load = each[LOAD_KEY]
                loads[load["number"]] = LoadRecord(
                    load["messages"], "", load["directory"], load.get("may_lack")
                )
            if _EXPIRE_KEY in each:
                said = each[_EXPIRE_KEY]
                expiries.append(Expired(said["before"], tuple(said["topics"]), said["load"]))
    return TargetContents(folders, loads, expiries)


def _committed(store: FileStore, attempt: Callable[[DeltaTable], Result]) -> Result:
    """Do something to the current version of a table, again while others are first."""
    for _ in range(_ATTEMPTS):
        table = open_table(store)
        if table is None:
            raise LoadError(f"{store.place()}: nothing was loaded into this table yet")
        before = table.version()
        try:
            return attempt(table)
        except CommitFailedError as error:
            now = open_table(store)
            if now is None or now.version() == before:
                raise LoadError(f"{store.place()}: the commit failed: {error}") from error
        except (DeltaError, OSError, ValueError) as error:
            text = str(error).partition("\n")[0]
            raise LoadError(f"{store.place()}: the commit failed: {text}") from error
    raise LoadError(f"{store.place()}: too many concurrent commits; try again")


def _files(table: DeltaTable) -> list[tuple[str, str, LoadedFile]]:
    """The files of a table, each with its topic and period."""
    actions = pa.table(table.get_add_actions())
    sizes, rows = (actions[name].to_pylist() for name in ("size_bytes", "num_records"))
    found = []
    for (name, values), size, count in zip(table_files(table), sizes, rows, strict=True):
        file = LoadedFile(name, size, count or 0)
        found.append((str(values["topic"]), _period(values), file))
    return sorted(found)


def _period(values: dict[str, Any]) -> str:
    day = values["day"]
    text = day.isoformat() if isinstance(day, datetime.date) else str(day)
    return text if values.get("hour") is None else f"{text}T{int(values['hour']):02d}"


def _predicate(before: str, topics: Sequence[str]) -> str:
    text = f"day < '{before[:10]}'"
    if len(before) > 10:
        text = f"({text} OR (day = '{before[:10]}' AND hour < {int(before[11:])}))"
    if topics:
        names = ", ".join("'" + each.replace("'", "''") + "'" for each in topics)
        text = f"{text} AND topic IN ({names})"
    return text


def _last_load(store: FileStore, table: DeltaTable) -> int:
    numbers = (each[LOAD_KEY]["number"] for each in commits(store, table) if LOAD_KEY in each)
    return max(numbers, default=0)


def _totals(metrics: Any) -> int:
    """The bytes of files, of which some releases give the totals as text."""
    values = metrics if isinstance(metrics, dict) else json.loads(metrics)
    return int(values.get("totalSize") or 0)
