"""Expiring, compacting and verifying targets that are Delta tables: the table's log is the record.

Needs the extra `delta`.
"""

import datetime
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from deltalake.transaction import CommitProperties

from hermes.spark.delta.table import (
    DeltaTable,
    commit,
    commits,
    open_table,
    sync_log,
    table_files,
)
from hermes.spark.load.coverage import TargetContents
from hermes.spark.load.delta_commits import LOAD_KEY
from hermes.spark.load.journal_entries import LoadedFile
from hermes.spark.load.journal_snapshot import ExpiryRecord, LoadRecord
from hermes.spark.load.load_target import LoadTarget
from hermes.spark.stores import FileStore

_EXPIRE_KEY: Final = "hermes.expire"


def expire_table(
    store: FileStore, before: str, topics: Sequence[str], dry_run: bool
) -> tuple[tuple[tuple[str, str], ...], int, int, int]:
    """Remove folders in one commit; also returns how many files, messages and bytes they had."""

    def attempt(table: DeltaTable) -> tuple[tuple[tuple[str, str], ...], int, int, int]:
        folders = {
            (topic, period): listed
            for (topic, period), listed in _folders(table).items()
            if period < before and (not topics or topic in topics)
        }
        files = [each for listed in folders.values() for each in listed]
        if files and not dry_run:
            said = {"before": before, "topics": list(topics), "load": _last_load(store, table)}
            table.delete(
                _predicate(before, topics),
                commit_properties=CommitProperties({_EXPIRE_KEY: said}, max_commit_retries=0),
            )
        return (
            tuple(folders),
            len(files),
            sum(each.rows for each in files),
            sum(each.size_bytes for each in files),
        )

    outcome = commit(store, attempt)
    if outcome[0] and not dry_run:
        sync_log(store)
    return outcome


def compact_table(
    store: FileStore, topics: Sequence[str], target_bytes: int
) -> Iterator[tuple[str, str, int, int, int, int]]:
    """Compact folders, a commit each; yields the values of a `compacting.Compacted`."""
    for (topic, period), files in _folders(open_table(store)).items():
        small = [each for each in files if each.size_bytes < target_bytes]
        if len(small) < 2 or (topics and topic not in topics):
            continue
        filters: list[tuple[str, str, Any]] = [("topic", "=", topic), ("day", "=", period[:10])]
        if len(period) > 10:
            filters.append(("hour", "=", str(int(period[11:]))))

        def attempt(table: DeltaTable, filters: Any = filters) -> dict[str, Any]:
            return table.optimize.compact(filters, target_size=target_bytes)

        done = commit(store, attempt)
        if done["numFilesRemoved"]:
            sync_log(store)
            added, removed = (_totals(done[key]) for key in ("filesAdded", "filesRemoved"))
            yield topic, period, done["numFilesRemoved"], done["numFilesAdded"], removed, added


def table_records(target: LoadTarget) -> TargetContents:
    table = open_table(target.store)
    loads: dict[int, LoadRecord] = {}
    expiries = []
    if table is not None:
        for each in commits(target.store, table):
            if LOAD_KEY in each:
                load = each[LOAD_KEY]
                loads[load["number"]] = LoadRecord(
                    load["messages"], "", load["directory"], load.get("may_lack")
                )
            if _EXPIRE_KEY in each:
                said = each[_EXPIRE_KEY]
                expiries.append(ExpiryRecord(said["before"], tuple(said["topics"]), said["load"]))
    return TargetContents(_folders(table), loads, expiries)


def _folders(table: DeltaTable | None) -> dict[tuple[str, str], list[LoadedFile]]:
    """The files of a table by topic and period, all sorted."""
    found: dict[tuple[str, str], list[LoadedFile]] = {}
    if table is None:
        return found
    actions = pa.table(table.get_add_actions())
    sizes, rows = (actions[name].to_pylist() for name in ("size_bytes", "num_records"))
    for (name, values), size, count in zip(table_files(table), sizes, rows, strict=True):
        folder = str(values["topic"]), _period(values)
        found.setdefault(folder, []).append(LoadedFile(name, size, count or 0))
    return {folder: sorted(found[folder]) for folder in sorted(found)}


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
