"""Where a target's loads are committed: the contract, and the one for plain Parquet.

A commit is one atomic act that says both which data count and where the next load starts.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from hermes.errors import ConfigError
from hermes.spark.load.journal import Journal
from hermes.spark.load.journal_entries import Addition, JournalEntry, LoadedFile, folder_of
from hermes.spark.load.load_target import DATA, LoadTarget
from hermes.spark.load.plans import LoadCheckpoint, LoadManifest
from hermes.spark.options import ExtraColumns
from hermes.spark.parquet import DataFile

_NONE: Final = ExtraColumns()


class Commits(Protocol):
    def last(self) -> LoadCheckpoint:
        """How far the target has come. Raises LoadTargetError when its record is damaged."""

    def commit(self, manifest: LoadManifest, files: Sequence[DataFile]) -> bool:
        """Commit a load whose data are on the disk; False when another attempt at it was first."""

    def settle(self) -> None:
        """Finish what earlier runs have committed, and not brought to its end."""

    def give_up(self, directory: str) -> bool:
        """When `commit` failed, make sure that it won't happen after all; True if it has."""

    def directories(self) -> dict[int, str]:
        """The directories of the loads whose record has not expired, by number."""


def open_commits(
    target: LoadTarget, columns: ExtraColumns = _NONE, *, merge_schema: bool = False
) -> Commits:
    """Find where a target's loads are committed.

    `columns` are those beside what all loads have; `merge_schema` says whether a table may get
    those that it lacks, or has more.

    Raises:
        ConfigError: plain Parquet has the same columns always.
        LoadError: a Delta table needs a package that isn't installed.
    """
    if target.settings.sink == "parquet":
        if merge_schema or columns.key or columns.headers:
            option = "includeKey" if columns.key else "includeHeaders"
            raise ConfigError(
                "merge_schema" if merge_schema else option,
                f"{target.place()} is plain Parquet, where all loads have the same columns: load "
                'into a Delta table (sink="delta")',
            )
        return JournalCommits(target)
    from hermes.spark.load.delta_commits import DeltaCommits  # needs the extra `delta`

    return DeltaCommits(target, columns, merge_schema=merge_schema)


class JournalCommits:
    def __init__(self, target: LoadTarget) -> None:
        self._journal = Journal(target.store)

    def last(self) -> LoadCheckpoint:
        state = self._journal.read()
        return LoadCheckpoint(state.load, state.offsets)

    def commit(self, manifest: LoadManifest, files: Sequence[DataFile]) -> bool:
        entry = load_entry(manifest, files)
        is_next = manifest.number - 1
        self._journal.read()
        if self._journal.commit(lambda state: entry if state.load == is_next else None) is None:
            return False
        self._journal.settle()
        return True

    def settle(self) -> None:
        self._journal.read()
        self._journal.settle()

    def give_up(self, directory: str) -> bool:
        return self._journal.give_up(directory)

    def directories(self) -> dict[int, str]:
        return {number: load.attempt for number, load in self._journal.read().loads.items()}


def load_entry(manifest: LoadManifest, files: Sequence[DataFile]) -> JournalEntry:
    attempt = manifest.directory
    added = []
    for index, each in enumerate(files):
        folder = folder_of(each.name.removeprefix(f"{attempt}/"))
        name = f"{DATA}/{folder}/{attempt.rpartition('/')[2]}-{index:05d}.parquet"
        added.append(Addition(LoadedFile(name, each.size_bytes, each.rows), each.name))
    return JournalEntry("load", attempt, manifest, tuple(added))
