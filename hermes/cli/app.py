"""The program `hermes`: its table of commands, and exit codes."""

import difflib
import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from hermes import __version__
from hermes.cli import exit_codes

# Name -> the command, in a module below hermes.cli; in the order of `hermes --help`.
_COMMANDS: Final = {
    "produce": "produce.command",
    "consume": "consume.command",
    "tail": "tail.command",
    "topics": "topics.command",
    "replicas": "replicas.command",
    "replay": "replay.command",
    "top": "top.command",
    "offsets": "offsets.command",
    "groups": "groups.command",
    "transactions": "transactions.command",
    "mirror": "mirror.command",
    "audit": "audit.command",
    "export-offsets": "group_tools.export_offsets",
    "import-offsets": "group_tools.import_offsets",
    "verify-rebalance": "group_tools.verify_rebalance",
    "console": "console.command",
    "registry": "registry.command",
    "coordination": "coordination.command",
    "load": "load.command",
    "dump-log": "dump_log.command",
    "check-log": "check_log.command",
    "backup": "backup.command",
    "restore": "restore.command",
    "users": "users.command",
    "doctor": "doctor.command",
    "config": "config.command",
    "access": "access.command",
    "perf": "perf.command",
    "completion": "completion.command",
}


class _Ended(Exception):  # noqa: N818 - it is not an error
    """A command was ended from outside; carries the reason past click's own handling."""


class _Program(click.Group):
    """The top-level group: every outcome ends in one line on stderr and an exit code.

    A command's module is imported when the command is first asked for.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(".")
        command = getattr(importlib.import_module(f"hermes.cli.{module}"), name)
        assert isinstance(command, click.Command)
        _keep_lines(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            for close in difflib.get_close_matches(name, _COMMANDS, n=1):
                raise click.UsageError(f"No such command {name!r}; did you mean {close!r}?", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, KeyboardInterrupt) as reason:
            raise _Ended from reason

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line and exit; as click's, which would word errors differently."""
        _prepare_streams()
        code: Any = exit_codes.EXIT_OK
        try:
            code = super().main(args, "hermes", complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except BaseException as error:
            # What a command has found holds whether or not anybody has read all of it.
            code = self._end_badly(error) or code
        sys.exit(code if isinstance(code, int) else exit_codes.EXIT_OK)

    def _end_badly(self, error: BaseException) -> int:
        if isinstance(error, SystemExit):
            raise error
        reason = error.__cause__ if isinstance(error, _Ended) else None
        code = exit_codes.conclude(reason or error)
        try:
            sys.stdout.flush()
        except OSError:
            exit_codes.discard_stdout()
        return code


def _keep_lines(command: click.Command) -> None:
    r"""Replace \b in docstrings by the character with which click keeps line breaks."""
    if command.help:
        command.help = command.help.replace("\\b\n", "\b\n")
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _keep_lines(each)


def _show_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        kind = importlib.import_module("hermes.protocol.core").KIND  # loaded for this alone
        click.echo(f"hermes {__version__} (core: {kind})")
        ctx.exit()


@click.group(
    cls=_Program,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=exit_codes.EXITS_EPILOG,
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def program() -> None:
    """Publish to, read from and look after a Hermes (or Kafka 0.7) broker."""
    logging.basicConfig(
        level=logging.DEBUG if exit_codes.debugging() else logging.WARNING,
        format="hermes: %(message)s",
    )


def _prepare_streams() -> None:
    """Replace standard streams that the caller has closed, and let stdout take any file name."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as we run
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The bytes of a name that aren't UTF-8 are lone surrogates in a str.
        sys.stdout.reconfigure(errors="surrogateescape")


def main() -> None:
    program()
