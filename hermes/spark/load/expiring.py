"""`expire`: removes the oldest days or hours of a target, all in one commit."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hermes.config.units import parse_duration
from hermes.errors import ConfigError
from hermes.quoting import quoted
from hermes.spark.file_system import LocalFileSystem
from hermes.spark.load.cleaning import remove_plans
from hermes.spark.load.journal import Journal
from hermes.spark.load.journal_entries import JournalEntry
from hermes.spark.load.journal_snapshot import JournalSnapshot, period_of, topic_of
from hermes.spark.load.load_target import LoadTarget
from hermes.spark.load.loaded import open_target
from hermes.spark.load.plans import PERIOD, Granularity, period_at
from hermes.spark.stores import Session

_EXPECTED: Final = "expected an age such as 30d, or a day or an hour such as 2026-10-01"


@dataclass(frozen=True, slots=True)
class Expiry:
    """What has expired, or in a dry run would.

    Attributes:
        before: the first day or hour that is kept.
        folders: topic and day or hour of each folder that was emptied, sorted.
        files: how many data files they held.
        messages: how many messages.
        file_bytes: how large the files were together.
    """

    before: str
    folders: tuple[tuple[str, str], ...] = ()
    files: int = 0
    messages: int = 0
    file_bytes: int = 0


def expire(
    target: str | Path,
    older_than: str,
    *,
    topics: Collection[str] = (),
    dry_run: bool = False,
    spark: Session = None,
    storage: Mapping[str, str] | None = None,
    files: LocalFileSystem | None = None,
    clock: Callable[[], float] = time.time,
) -> Expiry:
    """Remove whole days or hours of what was loaded into a directory, in one commit.

    Which days these are is decided by their folders: when the broker appended the messages. Loads
    go on meanwhile, and load nothing again. Readers of `read_loaded` see the data before or after.
    Of a Delta table the files stay until its vacuum removes them.

    Example:
        print(expire("/data/clicks", "90d").messages)

    Args:
        target, storage, files: as for `load`.
        older_than: an age, as in `90d`: a day is removed if it ended longer ago than that; or the
            first day, or hour, that is kept: `2026-10-01`, `2026-10-01T05` (UTC).
        topics: only what was loaded from these; empty for all.
        dry_run: only report what would be removed.
        spark: a session, or a function that starts one, for HDFS and for S3 as Spark is set up.
        clock: returns the time in seconds since 1970; for tests.

    Raises:
        ConfigError: `older_than` is neither, or lies ahead.
        LoadTargetError: the directory isn't a target of loads, or is damaged.
        LoadError: a Delta table couldn't be changed; the text says why.
    """
    opened = open_target(target, spark, storage, files)
    before = first_kept(older_than, opened.settings.partition_by, int(clock() * 1000))
    if opened.settings.sink == "delta":
        from hermes.spark.load.delta_upkeep import expire_table  # needs the extra `delta`

        return Expiry(before, *expire_table(opened.store, before, sorted(topics), dry_run))
    return _expire(opened, before, tuple(sorted(topics)), dry_run)


def first_kept(older_than: str, partition_by: Granularity, now_ms: int) -> str:
    """The first day or hour that is kept. Raises ConfigError as `expire`."""
    now = period_at(now_ms, partition_by)
    if PERIOD.fullmatch(older_than):
        before = older_than[: len(now)]
        before = before if len(before) == len(now) else f"{before}T00"
        if before > now:
            raise ConfigError("older_than", f"{older_than} lies ahead: {_EXPECTED}")
        return before
    try:
        age_ms = parse_duration(older_than)
    except ValueError as error:
        raise ConfigError("older_than", f"{_EXPECTED}, got {quoted(older_than)}") from error
    return period_at(max(0, now_ms - age_ms), partition_by)


def _expire(target: LoadTarget, before: str, topics: tuple[str, ...], dry_run: bool) -> Expiry:
    journal = Journal(target.store)
    journal.read()
    if dry_run:
        return _outcome(journal.state, before, _expired(journal.state, before, topics))
    outcome = Expiry(before)

    def entry(state: JournalSnapshot) -> JournalEntry | None:
        nonlocal outcome
        names = _expired(state, before, topics)
        outcome = _outcome(state, before, names)
        removed = tuple(names)
        return (
            JournalEntry("expire", removed=removed, before=before, topics=topics) if names else None
        )

    journal.settle()
    if journal.commit(entry) is not None:
        journal.settle()
        remove_plans(target.store, journal.state)
    return outcome


def _expired(state: JournalSnapshot, before: str, topics: Collection[str]) -> list[str]:
    found = (name for name in state.files if "" < period_of(name) < before)
    return sorted(name for name in found if not topics or topic_of(name) in topics)


def _outcome(state: JournalSnapshot, before: str, names: list[str]) -> Expiry:
    files = [state.files[name] for name in names]
    return Expiry(
        before,
        tuple(sorted({(topic_of(name), period_of(name)) for name in names})),
        len(files),
        sum(each.rows for each in files),
        sum(each.size_bytes for each in files),
    )
