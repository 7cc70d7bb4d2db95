"""`hermes check-log`: verify a whole data directory and change nothing."""

import os
import time
from dataclasses import asdict
from pathlib import Path

import click

from hermes.cli.exit_codes import EXIT_FAILURE
from hermes.cli.options import JSON_OPTION, MAX_EXPANDED_OPTION, MAX_MESSAGE_OPTION
from hermes.cli.terminal import progress, write_json, write_line
from hermes.config.units import format_bytes
from hermes.offline.inspection import Limits
from hermes.offline.verification import DirectoryCheck, Finding, Totals, data_bytes

_APPEND_CHECK_SECONDS = 0.05


@click.command("check-log", short_help="Verify a whole data directory.")
@click.argument(
    "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@MAX_MESSAGE_OPTION
@MAX_EXPANDED_OPTION
@JSON_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    directory: Path,
    max_message_bytes: int,
    max_expanded_bytes: int,
    as_json: bool,
) -> None:
    """Verify the data directory DIR (or one partition's directory), reading every byte.

    A broker may be using it; nothing is changed. Problems are lost, damaged or unreachable
    messages, or a directory that isn't a broker's: then the exit status is 1. Notices are oddities
    that cost no message.
    """
    with progress(data_bytes(directory), "checking") as advance:
        check = DirectoryCheck(
            directory,
            Limits(max_message_bytes, max_expanded_bytes),
            pause=lambda: time.sleep(_APPEND_CHECK_SECONDS),
            advance=advance,
        )
        for finding in check.run():
            if as_json:
                write_json(asdict(finding))
            else:
                write_line(_finding_text(finding, directory))
    if as_json:
        write_json({"kind": "summary", **asdict(check.totals)})
    else:
        write_line(_summary_text(check.totals))
    if check.totals.problems:
        ctx.exit(EXIT_FAILURE)


def _finding_text(finding: Finding, directory: Path) -> str:
    path = directory if finding.path == os.curdir else finding.path
    text = f"{finding.kind}: {path}: "
    if finding.offset is not None:
        text += f"offset {finding.offset}: "
    text += finding.text
    if finding.next_offset is not None:
        text += f"; the next good message starts at {finding.next_offset}"
    return text


def _summary_text(totals: Totals) -> str:
    checked = ", ".join(
        (
            _counted(totals.partitions, "partition"),
            _counted(totals.segments, "segment"),
            _counted(totals.messages, "message"),
            format_bytes(totals.size_bytes),
        )
    )
    found = f"{_counted(totals.problems, 'problem')}, {_counted(totals.notices, 'notice')}"
    return f"checked {checked}: {found}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
