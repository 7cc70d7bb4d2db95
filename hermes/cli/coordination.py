"""`hermes coordination`: what the embedded server keeps: how it is, and its restoration."""

import time
from pathlib import Path

import click

from hermes.cli.exits import require_subcommand
from hermes.cli.times import format_time_ms
from hermes.coordination.embedded.snapshots import Condition, condition_of, restore, snapshot_path
from hermes.coordination.embedded.store import FILE_NAME
from hermes.errors import StorageError

__all__ = ["command"]

_DIRECTORY = click.argument(
    "directory",
    metavar="LOG_DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)


@click.group("coordination", invoke_without_command=True, subcommand_metavar="COMMAND [ARGS]...")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Look at what embedded coordination keeps in a broker's log_dir, or restore it."""
    require_subcommand(ctx)


@command.command("show", short_help="Say what the file and its snapshot hold.")
@_DIRECTORY
@click.pass_context
def show(ctx: click.Context, directory: Path) -> None:
    """Say what the coordination file in LOG_DIR and its snapshot hold, and how old the latter is.

    The file itself can't be read while a broker serves from it. The exit status is 1 unless both
    are whole.
    """
    path = directory / FILE_NAME
    are_whole = True
    for each in (path, snapshot_path(path)):
        try:
            click.echo(f"{each}: {_text(condition_of(each))}")
        except StorageError as error:
            are_whole = False
            click.echo(str(error))
    if not are_whole:
        ctx.exit(1)


@command.command("restore", short_help="Put a snapshot in the place of the file.")
@_DIRECTORY
@click.option(
    "--from",
    "source",
    metavar="COPY",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The copy to restore; by default the snapshot in LOG_DIR.",
)
def restore_(directory: Path, source: Path | None) -> None:
    """Put the broker's own snapshot, or a COPY of one, in the place of the file in LOG_DIR.

    Works while the broker is stopped, and while it runs and says that coordination is out of
    service: it then goes on by itself within seconds. The file that was there is kept, as
    `.hermes_coordination.damaged`.

    Groups have the offsets of the snapshot's time again: they repeat what they consumed since then,
    and skip nothing, unless their offsets were set back by hand since then.
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
