"""`compact`: makes the small files of each day or hour of a target into larger ones.

Each folder is a commit of its own: the new files count, and those that they were made from don't
any more. It fails if one of these doesn't count by then, as when another run was first.
"""

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hermes.config.units import format_size
from hermes.errors import ConfigError
from hermes.spark.file_system import LocalFileSystem
from hermes.spark.load.journal import Journal
from hermes.spark.load.journal_entries import Addition, JournalEntry, LoadedFile, folder_of
from hermes.spark.load.load_target import ATTEMPTS
from hermes.spark.load.loaded import open_target
from hermes.spark.load.rewriting import rewritten
from hermes.spark.stores import FileStore, Session

#: How large files should be.
TARGET_BYTES: Final = 128 * 1024 * 1024
_SMALLEST_TARGET_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Compacted:
    topic: str
    period: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction has done.

    Attributes:
        folders: what was compacted, sorted.
        conflicts: topic and period of folders that others changed meanwhile: they are as they were.
    """

    folders: tuple[Compacted, ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()


def compact(
    target: str | Path,
    *,
    topics: Collection[str] = (),
    target_bytes: int = TARGET_BYTES,
    spark: Session = None,
    storage: Mapping[str, str] | None = None,
    files: LocalFileSystem | None = None,
) -> Compaction:
    """Make the small files of each day or hour of a target into larger ones.

    The messages are the same, each once, for readers of `read_loaded` at any moment. Loads go on
    meanwhile. Holds about three times `target_bytes` in memory, and needs no Spark.

    Example:
        print(compact("/data/clicks").folders)

    Args:
        target, storage, files: as for `load`.
        topics: only folders of these; empty for all.
        target_bytes: files of this size are left alone, and new ones reach it; 64 KiB or more.
        spark: a session, or a function that starts one, for HDFS and for S3 as Spark is set up.

    Raises:
        ConfigError: `target_bytes` is too small.
        LoadTargetError: the directory isn't a target of loads, or is damaged.
        LoadError: a Delta table couldn't be changed; the text says why.
    """
    if target_bytes < _SMALLEST_TARGET_BYTES:
        least, given = format_size(_SMALLEST_TARGET_BYTES), format_size(target_bytes)
        raise ConfigError("target_bytes", f"expected {least} or more, got {given}")
    opened = open_target(target, spark, storage, files)
    if opened.settings.sink == "delta":
        from hermes.spark.load.delta_upkeep import compact_table  # needs the extra `delta`

        compacted, changed = compact_table(opened.store, topics, target_bytes)
        return Compaction(tuple(Compacted(*each) for each in compacted), tuple(changed))
    journal = Journal(opened.store)
    journal.read()
    journal.settle()
    done: list[Compacted] = []
    conflicts: list[tuple[str, str]] = []
    for (topic, period), listed in journal.state.in_folders().items():
        small = _small(listed, target_bytes)
        if not small or (topics and topic not in topics):
            continue
        new = _compact(opened.store, journal, small, target_bytes)
        if new is None:
            conflicts.append((topic, period))
            continue
        sizes = (sum(each.size_bytes for each in listed) for listed in (small, new))
        done.append(Compacted(topic, period, len(small), len(new), *sizes))
    return Compaction(tuple(done), tuple(conflicts))


def _small(listed: Sequence[LoadedFile], target_bytes: int) -> list[LoadedFile]:
    """The files of a folder that should become others; none if that would change nothing."""
    small = [each for each in listed if each.size_bytes < target_bytes]
    return small if len(small) > 1 else []


def _compact(
    store: FileStore, journal: Journal, small: Sequence[LoadedFile], target_bytes: int
) -> list[LoadedFile] | None:
    token = f"compact-{journal.state.sequence:020d}-{secrets.token_hex(4)}"
    attempt = f"{ATTEMPTS}/{token}"
    names = tuple(each.name for each in small)
    is_committing = False
    try:
        added = list(_written(store, attempt, small, target_bytes))
        store.flush_tree(attempt)
        entry = JournalEntry("compact", attempt, added=tuple(added), removed=names)
        is_committing = True
        committed = journal.commit(
            lambda state: entry if set(names) <= state.files.keys() else None, attempt=attempt
        )
    except FileNotFoundError:
        committed = None
        journal.read()
        if set(names) <= journal.state.files.keys():
            store.delete_tree(attempt)
            raise
    except BaseException as error:
        if isinstance(error, Exception | KeyboardInterrupt) and not (
            is_committing and journal.give_up(attempt)
        ):
            store.delete_tree(attempt)
        raise
    if committed is None:
        store.delete_tree(attempt)
        return None
    journal.settle()
    return [each.file for each in added]


def _written(
    store: FileStore, attempt: str, files: Sequence[LoadedFile], target_bytes: int
) -> Iterator[Addition]:
    folder = folder_of(files[0].name)
    store.make_directory(attempt)
    for index, (content, rows) in enumerate(rewritten(store, files, target_bytes)):
        source = f"{attempt}/part-{index:05d}.parquet"
        name = f"{folder}/{attempt.rpartition('/')[2]}-{index:05d}.parquet"
        store.create(source, content)
        yield Addition(LoadedFile(name, len(content), rows), source)
