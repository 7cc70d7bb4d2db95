"""`hermes load` without loading: expires, compacts, verifies or cleans up a target."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

import click

from hermes.cli.exit_codes import EXIT_FAILURE
from hermes.cli.terminal import note, write_json, write_line, write_table
from hermes.config.units import format_bytes

Function = TypeVar("Function", bound=Callable[..., Any])


class Upkeep(Protocol):
    def __call__(
        self, target: str, *, spark: Any, storage: Mapping[str, str], as_json: bool
    ) -> None: ...


def upkeep_options(command: Function) -> Function:
    """Add the options to a command, which gets `clean_up`, `expire`, `compact` and `verify`."""
    options = (
        click.option(
            "--expire",
            metavar="OLDER_THAN",
            help="Only remove the days (or hours) that ended longer ago than this (30d), or that "
            "are before this one (2026-10-01): all in one commit.",
        ),
        click.option("--compact", is_flag=True, help="Only make small files into larger ones."),
        click.option(
            "--verify",
            is_flag=True,
            help="Only compare what is in the target with its records: offsets without a gap or an "
            "overlap, counts, files.",
        ),
        click.option(
            "--clean-up",
            is_flag=True,
            help="Only remove what failed runs have left in the target.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def chosen_upkeep(
    clean_up: bool, expire: str | None, compact: bool, verify: bool, chosen: Mapping[str, Any]
) -> Upkeep | None:
    """What to do instead of loading; None to load. Raises UsageError for several."""
    topics, is_dry = chosen["topics"], chosen["dry_run"]
    wanted: dict[str, Upkeep] = {}
    if clean_up:
        wanted["--clean-up"] = _clean_up
    if expire is not None:
        wanted["--expire"] = partial(_expire, expire, topics, is_dry)
    if compact:
        wanted["--compact"] = partial(_compact, topics)
    if verify:
        wanted["--verify"] = _verify
    if len(wanted) > 1:
        raise click.UsageError(f"{' and '.join(wanted)} exclude each other")
    for name, each in wanted.items():
        if is_dry and name != "--expire":
            raise click.UsageError(f"--dry-run is for loads and --expire, not for {name}")
        return each
    return None


def _expire(
    older_than: str,
    topics: tuple[str, ...],
    is_dry: bool,
    target: str,
    *,
    spark: Any,
    storage: Mapping[str, str],
    as_json: bool,
) -> None:
    from hermes.spark.load import expire

    done = expire(target, older_than, topics=topics, dry_run=is_dry, spark=spark, storage=storage)
    folders = [{"topic": topic, "period": period} for topic, period in done.folders]
    if as_json:
        counts = {key: getattr(done, key) for key in ("before", "files", "messages", "file_bytes")}
        write_json({**counts, "dry_run": is_dry, "folders": folders})
        return
    would = "would remove" if is_dry else "removed"
    write_line(
        f"{would} what is before {done.before}: {done.messages} messages in {done.files} files of "
        f"{format_bytes(done.file_bytes)}"
    )
    if folders:
        write_table(["TOPIC", "PERIOD"], [list(each.values()) for each in folders])


def _compact(
    topics: tuple[str, ...], target: str, *, spark: Any, storage: Mapping[str, str], as_json: bool
) -> None:
    from hermes.spark.load import compact

    done = compact(target, topics=topics, spark=spark, storage=storage)
    keys = ("topic", "period", "files_before", "files_after", "bytes_before", "bytes_after")
    folders = [{key: getattr(each, key) for key in keys} for each in done.folders]
    if as_json:
        conflicts = [{"topic": topic, "period": period} for topic, period in done.conflicts]
        write_json({"folders": folders, "conflicts": conflicts})
        return
    if not folders:
        write_line("nothing to compact")
    else:
        sizes = ("bytes_before", "bytes_after")
        rows = [
            [format_bytes(each[key]) if key in sizes else each[key] for key in keys]
            for each in folders
        ]
        write_table(["TOPIC", "PERIOD", "FILES", "NOW", "BYTES", "NOW"], rows)
    for topic, period in done.conflicts:
        note(f"{topic}, {period}: another run changed it meanwhile; it is as it was")


def _verify(target: str, *, spark: Any, storage: Mapping[str, str], as_json: bool) -> None:
    from hermes.spark.load import verify

    found = verify(target, spark=spark, storage=storage)
    if as_json:
        keys = ("loads", "files", "messages", "file_bytes", "problems", "notes")
        write_json({key: getattr(found, key) for key in keys})
    else:
        for text in found.notes:
            write_line(f"note: {text}")
        for text in found.problems:
            write_line(f"PROBLEM: {text}")
        size = format_bytes(found.file_bytes)
        write_line(
            f"{found.messages} messages of {found.loads} loads in {found.files} files of {size}: "
            f"{len(found.problems) or 'no'} problems"
        )
    if found.problems:
        raise SystemExit(EXIT_FAILURE)


def _clean_up(target: str, *, spark: Any, storage: Mapping[str, str], as_json: bool) -> None:
    from hermes.spark.load import clean_up

    done = clean_up(target, spark=spark, storage=storage)
    removed = [str(path) for path in (*done.directories, *done.temporary_files)]
    if as_json:
        kept = [str(path) for path in done.kept]
        write_json({"removed": removed, "removed_bytes": done.removed_bytes, "kept": kept})
        return
    for path in removed:
        write_line(f"removed {path}")
    write_line(f"removed {format_bytes(done.removed_bytes)} in all")
    if done.kept:
        note(f"{len(done.kept)} attempts at the next load are kept: one may be running")
