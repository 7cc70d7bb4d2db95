"""Exit codes, and the one line that an exception becomes."""

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

import click

from hermes.cli.terminal import note
from hermes.errors import (
    HermesError,
    NotAuthenticatedError,
    NotAuthorizedError,
    SchemaRegistryError,
)

EXIT_OK: Final = 0
EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_DAMAGED: Final = 3
"""A backup is whole, and holds messages that were damaged before."""
EXIT_REFUSED: Final = 5
"""Authentication or authorization failed, at a broker, ZooKeeper or a registry."""
EXIT_INTERRUPTED: Final = 130
"""128 + SIGINT, as shells report a command that was ended with Ctrl-C."""

EXITS_EPILOG: Final = (
    "Exit status: 0 when all went well, 1 when it did not (the broker can't be reached or "
    "responded with an error, corrupt data was found), 2 when the command line is wrong, "
    "3 when a backup is whole but what was backed up is damaged, "
    "5 when authentication or authorization fails, 130 after Ctrl-C."
)


def debugging() -> bool:
    """Whether HERMES_DEBUG asks for debug logs, and for tracebacks in addition to the one line."""
    return os.environ.get("HERMES_DEBUG", "") not in ("", "0")


# Of HTTP.
_REFUSALS: Final = (401, 403)

#: How much of an error is shown: one that quotes what it found may be long.
_MAX_TEXT: Final = 2000


def conclude(error: BaseException) -> int:
    """Write to stderr, in one line, what ended a command, and return the exit code.

    A reader of stdout that has seen enough (`| head`) is not a failure.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return EXIT_USAGE
    code, text = _judge(error)
    if text:
        if debugging():
            traceback.print_exception(error)
        note(" ".join(text.split()), _MAX_TEXT)
    elif code == EXIT_INTERRUPTED and sys.stderr is not None and sys.stderr.isatty():
        click.echo(err=True)  # the terminal shows ^C, and the prompt should not follow it
    return code


def fail_for(faults: Sequence[object], code: int = EXIT_FAILURE) -> None:
    """End a command that has done what it could with an exit code, unless there are no faults."""
    for fault in faults:
        note(str(fault))
    if faults:
        raise click.exceptions.Exit(code)


def _judge(error: BaseException) -> tuple[int, str]:
    """The exit code for an exception, and the text for stderr; "" for none."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code, ""
    if isinstance(error, click.UsageError):
        return EXIT_USAGE, _usage_text(error)
    if isinstance(error, click.ClickException):
        return EXIT_FAILURE, error.format_message()
    if isinstance(error, click.Abort):
        interrupt = isinstance(error.__cause__ or error.__context__, KeyboardInterrupt)
        return (EXIT_INTERRUPTED, "") if interrupt else (EXIT_FAILURE, "aborted: nothing was done")
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED, ""
    if isinstance(error, BrokenPipeError):
        return EXIT_OK, ""
    if isinstance(error, HermesError):
        code = EXIT_REFUSED if is_refusal(error) else EXIT_FAILURE
        return code, (str(error) or type(error).__name__) + _advice(error)
    if isinstance(error, OSError):
        return EXIT_FAILURE, _os_text(error)
    if isinstance(error, MemoryError):
        return EXIT_FAILURE, "not enough memory"
    return EXIT_FAILURE, (
        f"this is a fault of Hermes, please report it: {type(error).__name__}: {error} "
        "(HERMES_DEBUG=1 shows where)"
    )


def _advice(error: HermesError) -> str:
    if isinstance(error, NotAuthenticatedError) and "wants to know who" in str(error):
        return " (say it by --user, or by --tls-certificate)"
    return ""


def is_refusal(error: BaseException) -> bool:
    if isinstance(error, NotAuthenticatedError | NotAuthorizedError):
        return True
    if isinstance(error, SchemaRegistryError) and error.status in _REFUSALS:
        return True
    return error.__cause__ is not None and is_refusal(error.__cause__)


def _usage_text(error: click.UsageError) -> str:
    text = error.format_message().rstrip(".")
    if error.ctx is None:
        return text
    path = error.ctx.command_path
    command = path.removeprefix("hermes").strip()
    return f"{command + ': ' if command else ''}{text} (see '{path} --help')"


def _os_text(error: OSError) -> str:
    what = error.strerror or str(error) or type(error).__name__
    return f"{os.fsdecode(error.filename)}: {what}" if error.filename is not None else what


def discard_stdout() -> None:
    """Point stdout at nothing: its reader has gone, and the interpreter would complain at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # not a real file: a test has replaced it
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C would, so that the group is left at once.

    Otherwise the member's partitions would have no reader until its session expires.
    """

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)  # as a shell reports it

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
