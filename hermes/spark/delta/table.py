"""Delta tables without a jar: files that Spark has written, committed by `deltalake`, exactly once.

The driver adds files to a table in one atomic commit, which also carries the version of an
application transaction: the number of a load, or of a micro-batch. A number that is committed
already isn't committed again, whoever tries, however often.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from hermes.errors import LoadError, LoadTargetError
from hermes.extras import install_command
from hermes.spark.file_system import ancestors, sync_all
from hermes.spark.parquet import DataFile
from hermes.spark.stores import FileStore
from hermes.spark.stores.error_texts import error_text

try:
    from deltalake import DeltaTable as DeltaTable  # for others, after the check
    from deltalake import Field, Schema
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
except ModuleNotFoundError as missing:
    raise LoadError(f"Delta tables need another package: {install_command('delta')}") from missing

Result = TypeVar("Result")

# How many commits of others may come first before this gives up.
_ATTEMPTS: Final = 100

_LOG: Final = "_delta_log"
# How many commits the package makes a checkpoint after, unless the table says otherwise.
_CHECKPOINT_INTERVAL: Final = 100
# What a table may require of its readers without changing what its files say. Others mark rows as
# deleted, or rename columns.
_HARMLESS: Final = {"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint"}
_MAPPING: Final = "delta.columnMapping.mode"


def open_table(store: FileStore) -> DeltaTable | None:
    """Open the current version of a table; None when there is none. Raises LoadTargetError."""
    address, options = _address(store)
    if store.path is not None and store.path.exists() and not store.path.is_dir():
        raise LoadTargetError(f"{store.place()} is not a directory: choose another place")
    try:
        return DeltaTable(address, storage_options=options)
    except TableNotFoundError:
        return None
    except OSError as error:
        raise LoadTargetError(f"{store.place()}: {_first_line(error)}") from None
    except DeltaError as error:
        raise LoadTargetError(
            f"{store.place()}: the Delta log can't be read ({_first_line(error)}): restore "
            "_delta_log from a copy"
        ) from None


def _address(store: FileStore) -> tuple[str, dict[str, str] | None]:
    address, options = store.delta_table()
    if unquote(address) != address:
        raise LoadTargetError(
            f"{store.place()}: deltalake takes a % with two digits for another character: choose "
            "another name"
        )
    return address, options


def required_features(table: DeltaTable) -> list[str]:
    """What keeps a table's files from being read as they are, sorted."""
    needs = set(table.protocol().reader_features or ()) - _HARMLESS
    needs.discard("columnMapping")
    if table.metadata().configuration.get(_MAPPING, "none") != "none":
        needs.add("columnMapping")
    return sorted(needs)


def commits(store: FileStore, table: DeltaTable) -> Iterator[Mapping[str, Any]]:
    """What each commit says of itself, the newest first, as far as the log goes back.

    Read from the log's files: the package's own history is silently empty if the path has a # or ?.
    """
    for version in range(table.version(), -1, -1):
        content = store.read(f"{_LOG}/{version:020d}.json")
        if content is None:
            return  # it has expired, and so have those before it
        for action in map(json.loads, content.splitlines()):
            if "commitInfo" in action:
                yield action["commitInfo"]


def table_files(table: DeltaTable) -> list[tuple[str, dict[str, Any]]]:
    """The files of a table's version: path, relative to the table, and partition values."""
    actions = pa.table(table.get_add_actions())
    if "partition" not in actions.column_names:
        return [(unquote(path), {}) for path in actions["path"].to_pylist()]
    pairs = zip(actions["path"].to_pylist(), actions["partition"].to_pylist(), strict=True)
    return [(unquote(path), values or {}) for path, values in pairs]


def add_files(
    store: FileStore,
    files: Sequence[DataFile],
    schema: pa.Schema,
    partition_by: Sequence[str],
    app_id: str,
    version: int,
    metadata: Mapping[str, Any],
    *,
    merge_schema: bool = False,
) -> bool:
    """Add files to a table, created if need be, in one commit. They are below it, and flushed.

    Args:
        schema: all columns of the table.
        partition_by: which of them are not in the files.
        version: of the application, 0 or more; each is committed once, in ascending order.
        metadata: what else the commit says; values that JSON can hold.
        merge_schema: whether the table may get new columns, which are null in its other rows, and
            files may lack columns of the table that can be null.

    Returns:
        Whether it was committed; False when this version, or a later one, had been committed.

    Raises:
        LoadError: the table has other columns, or the commit failed.
    """
    table = open_table(store) or _created(store, schema, partition_by)
    table = _fitting(store, table, schema, partition_by, merge_schema)
    actions: list[AddAction | RemoveAction] = list(map(_action, files))
    properties = CommitProperties(
        dict(metadata), max_commit_retries=0, app_transactions=[Transaction(app_id, version)]
    )

    def append(table: DeltaTable) -> bool:
        last = table.transaction_version(app_id)
        if last is not None and last >= version:
            return False
        # The commit is for this very version of the table: it fails if another came first.
        table.create_write_transaction(
            actions, "append", table.schema(), list(partition_by), commit_properties=properties
        )
        return True

    is_new = commit(store, append, table)
    sync_log(store)  # what is there already may be our own, although an error was reported
    return is_new


def replace_files(
    store: FileStore, old: Mapping[str, int], new: Sequence[DataFile], metadata: Mapping[str, Any]
) -> bool | None:
    """Let files count instead of others that hold the same rows, in one commit. They are flushed.

    The package's own compaction may double rows: it is committed although another one has replaced
    the same files meanwhile.

    Args:
        old: the files' sizes by name; all of them, and the new ones, are of one partition.
        metadata: what else the commit says; values that JSON can hold.

    Returns:
        Whether it was committed; False when an old file doesn't count any more, None when the
        store has failed before that, so that the commit may still be found to have been done.

    Raises:
        LoadError: the commit failed.
    """
    may_be_done = False
    properties = CommitProperties(dict(metadata), max_commit_retries=0)

    def attempt(table: DeltaTable) -> bool | None:
        nonlocal may_be_done
        paths = {unquote(path): path for path in table.get_add_actions().column("path").to_pylist()}
        if all(each.name in paths for each in new):
            return True  # although an error was reported
        if not old.keys() <= paths.keys():
            return None if may_be_done else False
        values, now_ms = dict(new[0].partition_values), time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [_action(each, is_new=False) for each in new]
        actions += [
            RemoveAction(paths[name], False, now_ms, size_bytes, values)
            for name, size_bytes in old.items()
        ]
        may_be_done = True
        # The commit is for this very version of the table: it fails if another came first.
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=properties,
        )
        return True

    is_done = commit(store, attempt)
    if is_done is not False:
        sync_log(store)
    return is_done


def commit(
    store: FileStore,
    attempt: Callable[[DeltaTable], Result],
    table: DeltaTable | None = None,
    conflicts: type[DeltaError] = CommitFailedError,
) -> Result:
    """Do something to the current version of a table, again while others are first, or raise."""
    table = table or open_table(store)
    if table is None:
        raise LoadError(f"{store.place()}: nothing was loaded into this table yet")
    for _ in range(_ATTEMPTS):
        before = table.version()
        try:
            return attempt(table)
        except (DeltaError, OSError, ValueError) as error:
            if isinstance(error, conflicts):
                table = open_table(store) or table
                if table.version() != before:
                    continue
            raise LoadError(f"{store.place()}: the commit failed: {_first_line(error)}") from None
    raise LoadError(f"{store.place()}: too many concurrent commits; try again")


def _created(store: FileStore, schema: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
    address, options = _address(store)
    fields = Schema.from_arrow(schema)
    try:
        return DeltaTable.create(
            address, fields, "error", list(partition_by), storage_options=options
        )
    except (DeltaError, OSError) as error:
        table = open_table(store)
        if table is None:
            raise LoadError(
                f"{store.place()}: can't create a Delta table: {_first_line(error)}"
            ) from None
        return table


def _fitting(
    store: FileStore,
    table: DeltaTable,
    schema: pa.Schema,
    partition_by: Sequence[str],
    merge_schema: bool,
) -> DeltaTable:
    """The table, once these columns fit into it; LoadError if they don't."""
    # New ones are a commit of their own: a run that ends after it has changed nothing that a reader
    # could see but a column of nulls.

    def fit(table: DeltaTable) -> DeltaTable:
        new = _new_columns(store, table, schema, merge_schema)
        if table.metadata().partition_columns != list(partition_by):
            by = ", ".join(table.metadata().partition_columns) or "nothing"
            raise LoadError(f"{store.place()}: the table is partitioned by {by}, and keeps to that")
        if not new:
            return table
        table.alter.add_columns(new, commit_properties=CommitProperties(max_commit_retries=0))
        return open_table(store) or table

    return commit(store, fit, table, conflicts=DeltaError)


def _new_columns(
    store: FileStore, table: DeltaTable, schema: pa.Schema, merge_schema: bool
) -> list[Field]:
    existing = {each.name: each for each in table.schema().fields}
    wanted = {each.name: each for each in Schema.from_arrow(schema).fields}
    odd = {
        name
        for name in existing.keys() & wanted.keys()
        if str(existing[name].type) != str(wanted[name].type)
    }
    lower = {name.lower() for name in existing}
    new = [name for name in wanted if name not in existing]
    odd |= {name for name in new if not merge_schema or name.lower() in lower}
    missing = existing.keys() - wanted.keys()
    odd |= {name for name in missing if not merge_schema or not existing[name].nullable}
    if not odd and not merge_schema and list(existing) != list(wanted):
        odd = {"their order"}
    if odd:
        may_merge = all(name in new for name in odd) and not merge_schema
        advice = " or let it get new columns (merge_schema)" if may_merge else ""
        raise LoadError(
            f"{store.place()}: the table has other columns, see {', '.join(sorted(odd))}: write "
            f"to another one{advice}"
        )
    required = {name for name, each in existing.items() if not each.nullable}
    if nullable := sorted(required.intersection(each.name for each in schema if each.nullable)):
        raise LoadError(
            f"{store.place()}: the table allows no null in {', '.join(nullable)}: drop rows with "
            "nulls and declare the columns as not null, or write to another table"
        )
    return [Field(name, wanted[name].type, nullable=True) for name in new]


def _action(file: DataFile, *, is_new: bool = True) -> AddAction:
    return AddAction(
        file.name,
        file.size_bytes,
        file.partition_values,
        file.modified_ms,
        is_new,
        json.dumps(file.statistics),
    )


def sync_log(store: FileStore) -> None:
    """Flush the log to the disk, which the package leaves to the system, and what it rewrote.

    That is everything that a reader needs, also the commits of others, since the last checkpoint.
    Files that rows were moved to, as by a compaction of the package's own, come first: it doesn't
    flush them, and a durable log without them would have lost rows that were durable before.
    Other stores flush what they are given.
    """
    if store.path is None:
        return
    last = store.read(f"{_LOG}/_last_checkpoint")
    start = 0 if last is None else json.loads(last)["version"]
    names = [each for each in store.names(_LOG) if each[:1].isdigit()]
    # Of a rewrite just before the checkpoint nobody may have flushed the files yet.
    recent = f"{max(0, start - _CHECKPOINT_INTERVAL):020d}"
    for each in names:
        if each >= recent and each.endswith(".json"):
            _sync_names(store, _rewritten(store.read(f"{_LOG}/{each}") or b""))
    names = [each for each in names if each >= f"{start:020d}"]
    store.flush([*(f"{_LOG}/{each}" for each in names), f"{_LOG}/_last_checkpoint", _LOG, ""])
    sync_all(ancestors(store.path))


def sync_files(store: FileStore, files: Sequence[DataFile]) -> None:
    _sync_names(store, [each.name for each in files])


def _sync_names(store: FileStore, names: Sequence[str]) -> None:
    folders = {str(each) for name in names for each in PurePosixPath(name).parents}
    store.flush([*names, *folders])


def _rewritten(commit: bytes) -> list[str]:
    """The files of a table that a commit adds instead of others; none of one that only adds."""
    if b'"remove"' not in commit:
        return []
    actions = [json.loads(line) for line in commit.splitlines()]
    if not any("remove" in each for each in actions):
        return []
    paths = [unquote(each["add"]["path"]) for each in actions if "add" in each]
    # A clone's files are another table's, and have addresses.
    return [each for each in paths if "://" not in each and not each.startswith("/")]


def _first_line(error: Exception) -> str:
    """What an error of the package says, without the stack that it appends.

    An answer of a store's server may quote what was signed: errors are raised without it.
    """
    return error_text(str(error))
