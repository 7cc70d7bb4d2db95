"""`hermes restore`: a data directory from a backup."""

from pathlib import Path

import click

from hermes.cli.backup import REPOSITORY_ARGUMENT
from hermes.cli.options import JSON_OPTION, QUIET_OPTION
from hermes.cli.terminal import (
    format_time_ms,
    note,
    progress,
    write_json,
    write_line,
)
from hermes.config.units import format_bytes
from hermes.coordination.embedded import snapshots
from hermes.coordination.embedded.store import FILE_NAME
from hermes.offline.backup import Repository, restore


@click.command("restore", short_help="Restore a data directory from a backup.")
@click.option(
    "--from", "name", metavar="NAME", help="Which backup; by default the newest. See backup list."
)
@JSON_OPTION
@QUIET_OPTION
@REPOSITORY_ARGUMENT
@click.argument("log_dir", metavar="LOG_DIR", type=click.Path(file_okay=False))
def command(name: str | None, as_json: bool, quiet: bool, repository: str, log_dir: str) -> None:
    r"""Restore a backup in BACKUPS to LOG_DIR, which must be empty or not exist.

    Every byte is compared with its checksum. A broker refuses to start in LOG_DIR until all of it
    is there. Groups of embedded coordination continue from the offsets that the backup has: they
    repeat what they consumed since, and skip nothing.

    \b
    Examples:
      hermes restore /backups/hermes /var/lib/hermes
      hermes restore /backups/hermes /tmp/look --from 20260522T101500.000Z
    """
    backups = Repository(repository)
    name = name or backups.latest()
    manifest = backups.read(name)
    with progress(manifest.size_bytes, "restoring", quiet=quiet) as advance:
        restore(
            backups.directory(name),
            manifest,
            log_dir,
            finish=lambda: _restore_coordination(Path(log_dir)),
            advance=advance,
        )
    for fault in manifest.faults:
        note(f"when it was backed up: {fault}")
    for each in manifest.damaged or ():
        note(f"as it was backed up, {each}")
    if as_json:
        partitions = [
            {"topic": topic, "partition": partition, "earliest": earliest, "end": end}
            for topic, partition, earliest, end in manifest.partitions
        ]
        values = {"name": name, "taken_ms": manifest.taken_ms, "partitions": partitions}
        faults = list(manifest.faults)
        write_json({**values, "size_bytes": manifest.size_bytes, "faults": faults})
        return
    write_line(
        f"{log_dir}: {len(manifest.partitions)} partitions, {format_bytes(manifest.size_bytes)}, "
        f"as of {format_time_ms(manifest.taken_ms)}"
    )


def _restore_coordination(log_dir: Path) -> None:
    """Start from the snapshot, if only that was copied because the broker was running."""
    path = log_dir / FILE_NAME
    snapshot = snapshots.snapshot_path(path)
    if snapshot.exists() and not path.exists():
        snapshots.restore(path, snapshot)
