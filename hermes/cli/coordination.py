"""`hermes coordination`: the file of the embedded server: its condition, and restoring it."""

import time
from pathlib import Path

import click

from hermes.cli.exit_codes import EXIT_FAILURE
from hermes.cli.terminal import format_time_ms, write_line
from hermes.coordination.embedded.snapshots import Condition, condition_of, restore, snapshot_path
from hermes.coordination.embedded.store import FILE_NAME
from hermes.errors import StorageError

_DIRECTORY = click.argument(
    "directory",
    metavar="LOG_DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)


@click.group("coordination")
def command() -> None:
    """Inspect what embedded coordination stores in a broker's log_dir, or restore it."""


@command.command("show", short_help="Show what the file and its snapshot hold.")
@_DIRECTORY
@click.pass_context
def show(ctx: click.Context, directory: Path) -> None:
    """Show what the coordination file in LOG_DIR and its snapshot hold, and the snapshot's age.

    The file itself can't be read while a broker serves from it. The exit status is 1 unless both
    are intact.
    """
    path = directory / FILE_NAME
    are_intact = True
    for each in (path, snapshot_path(path)):
        try:
            click.echo(f"{each}: {_text(condition_of(each))}")
        except StorageError as error:
            are_intact = False
            write_line(str(error))
    if not are_intact:
        ctx.exit(EXIT_FAILURE)


@command.command("restore", short_help="Replace the file by a snapshot.")
@_DIRECTORY
@click.option(
    "--from",
    "source",
    metavar="COPY",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The copy to restore; by default the snapshot in LOG_DIR.",
)
def restore_(directory: Path, source: Path | None) -> None:
    """Replace the file in LOG_DIR by the broker's own snapshot, or by a COPY of one.

    Works while the broker is stopped, and while it runs and reports that coordination is out of
    service: it then resumes by itself within seconds. The replaced file is kept, as
    `.hermes_coordination.damaged`.

    Groups continue from the offsets of the snapshot's time: they repeat what they have consumed
    since, and skip nothing, unless their offsets were moved back by hand since then.
    """
    path = directory / FILE_NAME
    source = source or snapshot_path(path)
    condition = restore(path, source)
    click.echo(f"{path}: restored from {source}, {_text(condition)}")


def _text(condition: Condition) -> str:
    text = f"{condition.nodes} nodes, {condition.groups} consumer groups"
    if condition.taken_ms is None:
        return text
    minutes = max(0, time.time_ns() // 1_000_000 - condition.taken_ms) // 60_000
    return f"{text}, taken at {format_time_ms(condition.taken_ms)}, {minutes} minutes ago"
