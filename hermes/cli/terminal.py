"""Output for people: notes and progress on stderr, tables and JSON on stdout.

Progress and status appear only on a terminal; a note (a fallback, skipped data) always appears,
because nothing may be lost or changed silently.

Names and payloads come from anybody, and a terminal obeys what they hold: it can be cleared,
renamed, made to type. So a terminal gets everything but plain text escaped; a file or a pipe gets
it as it is.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from hermes.config.units import moment_of
from hermes.quoting import printable


def note(text: str, max_length: int | None = None) -> None:
    """Write a line to stderr that the user must know, the first `max_length` characters of it."""
    click.echo(f"hermes: {printable(text, max_length)}", err=True)


def status(text: str, *, quiet: bool = False) -> None:
    """Write to stderr what is going on, if that is a terminal."""
    if not quiet and sys.stderr.isatty():
        note(text)


@contextmanager
def progress(
    length: int | None, label: str, *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr, if that is a terminal.

    `length` is the number of steps (bytes, messages) to come. Yields a function to call with the
    number of steps done since the last call.
    """
    if quiet or length is None or not sys.stderr.isatty():
        yield lambda _steps: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update


def confirm(question: str, *, yes: bool) -> None:
    """Ask on stderr before something that can't be undone; click.Abort unless the answer is yes."""
    if not yes:
        click.confirm(question, abort=True, err=True)


def ask_password() -> str:
    """A new password: typed twice, or a line of stdin."""
    if sys.stdin.isatty():
        password: str = click.prompt(
            "Password", hide_input=True, confirmation_prompt=True, err=True
        )
        return password
    return sys.stdin.readline().rstrip("\r\n")


def write_line(text: str) -> None:
    """Write a line to stdout, escaped for a terminal. Buffered: some commands write millions."""
    sys.stdout.write(_shown(text) + "\n")


def write_json(value: Any) -> None:
    write_line(json.dumps(value))


def write_rows(names: Sequence[str], rows: Sequence[Mapping[str, object]], as_json: bool) -> None:
    """Write one line of JSON per row, or a table with the keys as headings and None as `-`."""
    if not as_json:
        write_table([each.upper() for each in names], [[row[key] for key in names] for row in rows])
        return
    for row in rows:
        write_json(row)


def write_done(what: str, name: str, as_json: bool) -> None:
    if as_json:
        write_json({what: name})
    else:
        write_line(f"{what} {name}")


def write_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write rows as aligned columns to stdout, numbers to the right and None as `-`."""
    for line in table_lines(headings, rows):
        write_line(line)


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    cells = [["-" if cell is None else _shown(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(headings)
    to_the_right = [
        any(cell is not None for cell in column)
        and all(isinstance(cell, int | None) for cell in column)
        for column in columns
    ]
    lines = []
    for line in [list(headings), *cells]:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_the_right, strict=True)
        )
        lines.append("  ".join(padded).rstrip())
    return lines


def harmless(data: bytes) -> bytes:
    """Make bytes safe for a terminal: UTF-8 stays, with its lines and tabs; all else is escaped."""
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines).encode()


def _shown(text: str) -> str:
    return printable(text) if sys.stdout.isatty() else text


def format_time_ms(time_ms: int) -> str:
    """Format ms since 1970, 0 or more, as ISO 8601 in UTC: `2025-05-17T10:05:03.000Z`.

    Times that no calendar reaches stay numbers.
    """
    moment = moment_of(time_ms)
    if moment is None:
        return str(time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"
