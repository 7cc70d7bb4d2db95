"""Expiring, compacting and verifying targets that are Delta tables: the table's log is the record.

Needs the extra `delta`.
"""

import datetime
import secrets
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from deltalake.transaction import CommitProperties

from hermes.errors import LoadError
from hermes.spark.delta.table import (
    DeltaTable,
    commit,
    commits,
    open_table,
    replace_files,
    required_features,
    sync_log,
    table_files,
)
from hermes.spark.load.coverage import TargetContents
from hermes.spark.load.delta_commits import LOAD_KEY
from hermes.spark.load.journal_entries import LoadedFile
from hermes.spark.load.journal_snapshot import ExpiryRecord, LoadRecord
from hermes.spark.load.load_target import DATA, LoadTarget
from hermes.spark.load.rewriting import rewritten
from hermes.spark.parquet import DataFile, data_files
from hermes.spark.stores import FileStore

_EXPIRE_KEY: Final = "hermes.expire"
_COMPACT_KEY: Final = "hermes.compact"
_CODEC: Final = "zstd"


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
    store: FileStore, topics: Collection[str], target_bytes: int
) -> tuple[list[tuple[str, str, int, int, int, int]], list[tuple[str, str]]]:
    """Compact folders, a commit each; the values of each `compacting.Compacted`, and conflicts."""
    done: list[tuple[str, str, int, int, int, int]] = []
    conflicts: list[tuple[str, str]] = []
    table = open_table(store)
    if table is None:
        return done, conflicts
    for (topic, period), files in _folders(table).items():
        small = [each for each in files if each.size_bytes < target_bytes]
        if len(small) < 2 or (topics and topic not in topics):
            continue
        if needs := required_features(table):
            raise LoadError(
                f"{store.place()}: compacting this table needs {', '.join(needs)}: use Delta's own "
                "OPTIMIZE"
            )
        new = _compact(store, table, (topic, period), small, target_bytes)
        if new is None:
            conflicts.append((topic, period))
            continue
        before = sum(each.size_bytes for each in small)
        after = sum(each.size_bytes for each in new)
        done.append((topic, period, len(small), len(new), before, after))
    return done, conflicts


def _compact(
    store: FileStore,
    table: DeltaTable,
    folder: tuple[str, str],
    small: Sequence[LoadedFile],
    target_bytes: int,
) -> list[DataFile] | None:
    """Replace files of a folder by larger ones; None when others have changed it meanwhile."""
    directory = f"{DATA}/compact={secrets.token_hex(8)}"
    old = {each.name: each.size_bytes for each in small}
    try:
        new = _written(store, table, directory, folder, small, target_bytes)
    except FileNotFoundError:
        store.delete_tree(directory)
        if old.keys() <= {name for name, _ in table_files(open_table(store) or table)}:
            raise
        return None  # and a vacuum was fast
    except (Exception, KeyboardInterrupt):
        store.delete_tree(directory)
        raise
    is_done = replace_files(store, old, new, {_COMPACT_KEY: directory})
    if is_done is False:
        store.delete_tree(directory)
    return new if is_done else None


def _written(
    store: FileStore,
    table: DeltaTable,
    directory: str,
    folder: tuple[str, str],
    files: Sequence[LoadedFile],
    target_bytes: int,
) -> list[DataFile]:
    topic, period = folder
    values = {"topic": topic, "day": period[:10]}
    if len(period) > 10:
        values["hour"] = str(int(period[11:]))
    below = "/".join([directory, *(f"{name}={quote(text, '')}" for name, text in values.items())])
    columns = [each for each in pa.schema(table.schema().to_arrow()) if each.name not in values]
    adapt = partial(_with_columns, pa.schema(columns))
    store.make_directory(below)
    for index, (content, _) in enumerate(rewritten(store, files, target_bytes, adapt, _CODEC)):
        store.create(f"{below}/part-{index:05d}.parquet", content)
    store.flush_tree(directory)
    return data_files(store, directory)


def _with_columns(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The table's columns, of which an older file may lack some."""
    arrays = [
        batch.column(each.name).cast(each.type)
        if each.name in batch.schema.names
        else pa.nulls(batch.num_rows, each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def table_records(target: LoadTarget) -> TargetContents:
    table = open_table(target.store)
    loads: dict[int, LoadRecord] = {}
    expiries = []
    if table is not None:
        for each in commits(target.store, table):
            if LOAD_KEY in each:
                load = each[LOAD_KEY]
                loads[load["number"]] = LoadRecord(
                    load["messages"], "", load["directory"], load["may_lack"]
                )
            if _EXPIRE_KEY in each:
                said = each[_EXPIRE_KEY]
                expiries.append(ExpiryRecord(said["before"], tuple(said["topics"]), said["load"]))
    return TargetContents(_folders(table), loads, expiries)


def _folders(table: DeltaTable | None) -> dict[tuple[str, str], list[LoadedFile]]:
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
