"""`hermes backup`: take backups of a data directory, also of a broker that runs; verify them."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from hermes import __version__
from hermes.cli.exit_codes import EXIT_DAMAGED, fail_for
from hermes.cli.options import (
    JSON_OPTION,
    MAX_MESSAGE_OPTION,
    QUIET_OPTION,
    BrokerOption,
    CommandConnection,
    broker_option,
)
from hermes.cli.security_options import connection_options
from hermes.cli.terminal import (
    format_time_ms,
    note,
    progress,
    write_json,
    write_line,
    write_rows,
    write_table,
)
from hermes.client import SimpleConsumer
from hermes.config.units import format_bytes
from hermes.coordination.embedded.store import BESIDE, FILE_NAME
from hermes.errors import BrokerError, ClientError, StorageError
from hermes.offline.backup import BackupManifest, BackupSource, Repository, take_backup, verify
from hermes.offline.verification import data_bytes
from hermes.protocol import ErrorCode, MetadataRequest, error_for
from hermes.storage import LogSettings

_PAUSE_SECONDS: Final = 0.2

REPOSITORY_ARGUMENT: Final = click.argument(
    "repository", metavar="BACKUPS", type=click.Path(exists=True, file_okay=False)
)


@click.group("backup", short_help="Take, list and verify backups of a data directory.")
def command() -> None:
    """Take backups of a data directory, while a broker uses it or not; list and verify them.

    BACKUPS is a directory for nothing else. `hermes restore` makes a data directory of a backup.
    """


@command.command("create", short_help="Back up a data directory.")
@broker_option(required=False)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Delete older backups afterwards, so that N are left; none if this one lacks something.",
)
@MAX_MESSAGE_OPTION
@JSON_OPTION
@QUIET_OPTION
@connection_options
@click.argument("log_dir", metavar="LOG_DIR", type=click.Path(exists=True, file_okay=False))
@click.argument("repository", metavar="BACKUPS", type=click.Path(file_okay=False))
def create(
    broker: BrokerOption | None,
    keep: int | None,
    max_message_bytes: int,
    as_json: bool,
    quiet: bool,
    connection: CommandConnection,
    log_dir: str,
    repository: str,
) -> None:
    r"""Back up LOG_DIR into BACKUPS: all that was flushed when the command began.

    While a broker uses LOG_DIR, -b must name it. Without a broker, none can start in the meantime.
    Segments that an earlier backup has are linked, not copied. Exit status 0 means that the backup
    is whole and on disk; 3 that it is, with messages that are damaged in LOG_DIR and are named;
    1 that there is none, or that it lacks what the errors name. A kill leaves the earlier backups
    as they were.

    \b
    Examples:
      hermes backup create /var/lib/hermes /backups/hermes -b localhost:9092 --keep 7
      hermes backup create /var/lib/hermes /backups/hermes          a stopped broker
    """
    backups = Repository(repository)
    with ExitStack() as stack:
        flushed = None
        if broker is not None:
            consumer = stack.enter_context(broker.consumer(connection))

            def flushed(topic: str) -> Mapping[int, int]:
                return _high_watermarks(consumer, topic)

        source = BackupSource(
            log_dir,
            flushed,
            LogSettings(max_message_bytes=max_message_bytes),
            live_names=(FILE_NAME, *(f"{FILE_NAME}{each}" for each in BESIDE)),
        )
        advance = stack.enter_context(
            progress(data_bytes(Path(log_dir)), "backing up", quiet=quiet)
        )
        taken = take_backup(
            backups,
            source,
            now_ms=time.time_ns() // 1_000_000,
            version=__version__,
            pause=lambda: time.sleep(_PAUSE_SECONDS),
            advance=advance,
            keep=keep,
        )
    for line in taken.manifest.notes:
        note(line)
    if as_json:
        shown = _shown(taken.name, taken.manifest)
        sizes = {"copied_bytes": taken.copied_bytes, "linked_bytes": taken.linked_bytes}
        write_json({**shown, **sizes, "deleted": list(taken.deleted)})
    else:
        write_line(
            f"{backups.directory(taken.name)}: {len(taken.manifest.partitions)} partitions, "
            f"{format_bytes(taken.copied_bytes)} copied, {format_bytes(taken.linked_bytes)} linked"
        )
        for name in taken.deleted:
            write_line(f"deleted {name}")
    damaged = taken.manifest.damaged or ()
    if taken.manifest.faults and keep is not None:
        note("it lacks something, so older backups are kept")
    if taken.manifest.faults:
        fail_for((*damaged, *taken.manifest.faults))
    fail_for(damaged, EXIT_DAMAGED)


def _high_watermarks(consumer: SimpleConsumer, topic: str) -> Mapping[int, int]:
    if not consumer.supports(MetadataRequest.TYPE):
        raise ClientError(
            f"{consumer.address} is a broker of Kafka 0.7, which can't tell what is on disk: "
            "stop it to back up its log.dir"
        )
    (described,) = consumer.metadata([topic]).topics
    if described.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC):
        error: BrokerError = error_for(described.error, f"topic {topic!r}")
        raise error
    return {each.partition: each.high_watermark for each in described.partitions}


@command.command("list", short_help="List the backups.")
@JSON_OPTION
@REPOSITORY_ARGUMENT
def list_(as_json: bool, repository: str) -> None:
    """List the whole backups in BACKUPS, oldest first.

    The exit status is 1 if the manifest of one can't be used; the others are listed.
    """
    backups = Repository(repository)
    shown, faults = [], []
    for name in backups.names():
        try:
            shown.append(_shown(name, backups.read(name)))
        except StorageError as error:
            faults.append(error)
    _write_list(shown, as_json)
    fail_for(faults)


def _write_list(shown: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        write_rows((), shown, as_json=True)
        return
    rows = [
        (
            each["name"],
            format_time_ms(each["taken_ms"]),
            each["partitions"],
            format_bytes(each["size_bytes"]),
            len(each["faults"]),
            len(each["damaged"]),
        )
        for each in shown
    ]
    write_table(("NAME", "TAKEN", "PARTITIONS", "SIZE", "FAULTS", "DAMAGED"), rows)


@command.command("verify", short_help="Compare a backup with its checksums.")
@JSON_OPTION
@QUIET_OPTION
@REPOSITORY_ARGUMENT
@click.argument("name", metavar="[NAME]", required=False)
def verify_(as_json: bool, quiet: bool, repository: str, name: str | None) -> None:
    """Read every byte of a backup, the newest unless NAME is given, and compare checksums.

    The exit status is 1 if anything is missing or damaged, with a line for each file.
    """
    backups = Repository(repository)
    name = name or backups.latest()
    manifest = backups.read(name)
    with progress(manifest.size_bytes, "verifying", quiet=quiet) as advance:
        faults = list(verify(backups.directory(name), manifest, advance=advance))
    if as_json:
        write_json({"name": name, "files": len(manifest.files), "damaged": faults})
    elif not faults:
        write_line(f"{name}: {len(manifest.files)} files are as they were written")
    fail_for(faults)


def _shown(name: str, manifest: BackupManifest) -> dict[str, Any]:
    return {
        "name": name,
        "taken_ms": manifest.taken_ms,
        "source": manifest.source,
        "was_running": manifest.was_running,
        "partitions": len(manifest.partitions),
        "size_bytes": manifest.size_bytes,
        "faults": list(manifest.faults),
        "damaged": [each._asdict() for each in manifest.damaged or ()],
    }
