"""What people see: notes and progress on stderr, tables and JSON on stdout.

Progress and status appear only where a terminal is attached; a note (a fallback, skipped data)
always does, because nothing that was lost or changed may pass in silence.

Names and payloads come from anybody, and a terminal obeys what they hold: it can be cleared, be
renamed, be made to type. So what goes to a terminal is shown with escapes for all that isn't plain
text, and what goes into a file or a pipe stays as it is.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from hermes.quoting import printable

__all__ = [
    "format_bytes",
    "harmless",
    "note",
    "progress",
    "status",
    "write_json",
    "write_line",
    "write_table",
]


def note(text: str) -> None:
    """Say something on stderr that the user must know.

    Args:
        text: one line, without the program's name.
    """
    click.echo(f"hermes: {printable(text)}", err=True)


def status(text: str, *, quiet: bool = False) -> None:
    """Say on stderr what is going on, if somebody watches a terminal.

    Args:
        text: one line, without the program's name.
        quiet: whether the user asked for silence.
    """
    if not quiet and sys.stderr.isatty():
        note(text)


@contextmanager
def progress(
    length: int | None, label: str, *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr, if that is a terminal.

    Args:
        length: the number of steps (bytes, messages) to come; None when that can't be known.
        label: what is going on.
        quiet: whether the user asked for silence.

    Yields:
        A function to call with the number of steps done since the last call.
    """
    if quiet or length is None or not sys.stderr.isatty():
        yield lambda _steps: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update


def write_line(text: str) -> None:
    """Write a line on stdout. Buffered, since some commands write millions.

    Args:
        text: without its newline; escaped for a terminal.
    """
    sys.stdout.write(_shown(text) + "\n")


def write_json(value: Any) -> None:
    """Write one value as one line of JSON on stdout.

    Args:
        value: what `json.dumps` takes.
    """
    write_line(json.dumps(value))


def write_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write rows as aligned columns on stdout; numbers stand to the right.

    Args:
        headings: one per column.
        rows: as many cells each; None shows as `-`.
    """
    cells = [["-" if cell is None else _shown(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    to_the_right = [bool(rows) and all(isinstance(row[i], int | None) for row in rows)
                    for i in range(len(headings))]  # fmt: skip
    for line in [list(headings), *cells]:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_the_right, strict=True)
        )
        write_line("  ".join(padded).rstrip())


def harmless(data: bytes) -> bytes:
    """Make bytes fit for a terminal: text stays, with its lines and tabs; all else is escaped.

    Args:
        data: any bytes, UTF-8 where they are text.
    """
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines).encode()


def _shown(text: str) -> str:
    return printable(text) if sys.stdout.isatty() else text


def format_bytes(count: int) -> str:
    """A number of bytes as people read it: `512 B`, `1.4 MiB`.

    Args:
        count: 0 or more.
    """
    if count < 1024:
        return f"{count} B"
    size = float(count)
    units = iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    while size >= 1024:
        size /= 1024
        unit = next(units)
    return f"{size:.1f} {unit}"
