"""`clean_up`: removes from a target what doesn't count, and can't count any more."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hermes.spark.file_system import LocalFileSystem
from hermes.spark.load.commits import open_commits
from hermes.spark.load.journal import Journal
from hermes.spark.load.journal_entries import JournalEntry
from hermes.spark.load.journal_snapshot import JournalSnapshot
from hermes.spark.load.load_target import (
    ATTEMPTS,
    COMPACTION,
    DATA,
    PLANS,
    RECORDS,
    LoadTarget,
    numbered,
    plan_name,
)
from hermes.spark.load.loaded import open_target
from hermes.spark.stores import FileStore, Place, Session


@dataclass(frozen=True, slots=True)
class CleanUp:
    """What was removed.

    Attributes:
        directories: of attempts that can't be committed any more.
        temporary_files: that were never given their name, and data files that don't count.
        removed_bytes: how large all these were.
        kept: directories of attempts at the load that is not committed yet: it may be running.
    """

    directories: tuple[Place, ...]
    temporary_files: tuple[Place, ...]
    removed_bytes: int
    kept: tuple[Place, ...]


def clean_up(
    target: str | Path,
    *,
    spark: Session = None,
    storage: Mapping[str, str] | None = None,
    files: LocalFileSystem | None = None,
) -> CleanUp:
    """Remove what failed attempts left in a target. Safe while loads run.

    Only what can't count any more is removed: attempts at loads that are committed. Attempts at the
    next load stay until it is committed. A compaction that runs meanwhile has to start over.
    What a run has committed, and not brought to its end, is finished first.

    Example:
        print(clean_up("/data/clicks").removed_bytes)

    Args:
        target, storage, files: as for `load`.
        spark: a session, or a function that starts one, for HDFS and for S3 as Spark is set up.

    Raises:
        LoadTargetError: it isn't a target of loads, or is damaged.
    """
    opened = open_target(target, spark, storage, files)
    if opened.settings.sink == "delta":
        last, orphans, kept = _delta_attempts(opened)
        leftovers: dict[str, int] = {}
    else:
        journal = Journal(opened.store)
        last, orphans, kept, leftovers = _attempts(opened, journal)
    leftovers |= _temporary_files(opened.store, last)
    inner = [each for name in orphans for each in opened.store.walk(name)]
    removed = sum(each.size_bytes for each in inner) + sum(leftovers.values())
    for directory in orphans:
        opened.store.delete_tree(directory)
    for name in leftovers:
        opened.store.delete(name)
    places = (tuple(map(opened.place, names)) for names in (orphans, leftovers, kept))
    directories, temporary, left = places
    return CleanUp(directories, temporary, removed, left)


def remove_plans(store: FileStore, state: JournalSnapshot) -> None:
    for name in store.names(PLANS):
        number = numbered(name)
        if number is not None and number <= state.load and number not in state.loads:
            store.delete(plan_name(number))


def _attempts(
    target: LoadTarget, journal: Journal
) -> tuple[int, list[str], list[str], dict[str, int]]:
    store = target.store
    # What is listed first can't become part of the data afterwards: files follow their commit.
    listed = {each.name: each.size_bytes for each in store.walk(DATA)}
    compactions = [f"{ATTEMPTS}/{each}" for each in store.names(ATTEMPTS)]
    compactions = [each for each in compactions if COMPACTION.fullmatch(each)]
    journal.read()
    if compactions:
        journal.commit(lambda state: JournalEntry("fence", fenced=tuple(compactions)))
        compactions = [each for each in compactions if not journal.has_committed(each)]
    journal.settle()
    state = journal.state
    remove_plans(store, state)
    attempts = target.attempts()
    kept = [directory for number, directory in attempts if number > state.load]
    orphans = [*compactions, *(directory for number, directory in attempts if number <= state.load)]
    strays = {name: size for name, size in listed.items() if name not in state.files}
    return state.load, orphans, kept, strays


def _delta_attempts(target: LoadTarget) -> tuple[int, list[str], list[str]]:
    commits = open_commits(target)
    last, committed = commits.last().number, commits.directories()
    attempts = target.attempts()
    kept = [directory for number, directory in attempts if number > last]
    orphans = [
        directory
        for number, directory in attempts
        if number <= last and committed.get(number) not in (None, directory)
    ]
    return last, orphans, kept


def _temporary_files(store: FileStore, last: int) -> dict[str, int]:
    """Files that never got their name, with their sizes. Those of the next load are in use."""
    found = {}
    for each in store.walk(RECORDS):
        name = PurePosixPath(each.name).name
        if not (name.startswith(".") and name.endswith(".tmp")):
            continue
        number = numbered(name[1:].rsplit(".", 2)[0])
        if number is None or number <= last:
            found[each.name] = each.size_bytes
    return found
