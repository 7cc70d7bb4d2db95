"""The program `hermes`: its table of commands, and how their outcomes become exit codes."""

import difflib
import importlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from hermes import __version__
from hermes.cli import exits

__all__ = ["LazyGroup", "main", "program"]

# Name -> the module below hermes.cli whose `command` it is, in the order of `hermes --help`.
_COMMANDS: Final = {
    "produce": "produce",
    "consume": "consume",
    "topics": "topics",
    "offsets": "offsets",
    "groups": "groups",
    "export-offsets": "export_offsets",
    "import-offsets": "import_offsets",
    "verify-rebalance": "verify_rebalance",
    "coordination": "coordination",
    "load": "load",
    "dump-log": "dump_log",
    "check-log": "check_log",
    "config": "config",
    "perf": "perf",
}


class LazyGroup(click.Group):
    """A group of commands that imports a command's module when it is first asked for.

    Args:
        modules: command name -> the module below `hermes.cli` whose `command` it is.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order in which a newcomer meets them."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None for an unknown one."""
        module = self._modules.get(cmd_name)
        if module is None:
            return None
        command = importlib.import_module(f"hermes.cli.{module}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; an unknown one may be a slip."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            for close in difflib.get_close_matches(name, self._modules, n=1):
                raise click.UsageError(f"No such command {name!r}; did you mean {close!r}?", ctx)
        return super().resolve_command(ctx, args)


class _Ended(Exception):  # noqa: N818 - it is no error
    """A command was ended from outside; carries the reason past click, which has its own ideas."""


class _Program(LazyGroup):
    """The outermost group: whatever happens ends in one line on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
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
        """Run a command line and exit; as click's, which would word the errors differently."""
        _open_closed_streams()
        try:
            code = super().main(args, "hermes", complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except BaseException as error:
            code = self._end_badly(error)
        sys.exit(code if isinstance(code, int) else exits.EXIT_OK)

    def _end_badly(self, error: BaseException) -> int:
        if isinstance(error, SystemExit):
            raise error
        reason = error.__cause__ if isinstance(error, _Ended) else None
        code = exits.conclude(reason or error)
        try:
            sys.stdout.flush()
        except OSError:
            exits.discard_stdout()
        return code


def _show_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        kind = importlib.import_module("hermes.protocol.core").KIND  # loaded for this alone
        click.echo(f"hermes {__version__} (core: {kind})")
        ctx.exit()


@click.group(
    cls=_Program,
    modules=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=exits.EXITS_EPILOG,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def program(ctx: click.Context) -> None:
    """Publish to, read from and look after a Hermes (or Kafka 0.7) broker."""
    exits.require_subcommand(ctx)
    logging.basicConfig(
        level=logging.DEBUG if exits.debugging() else logging.WARNING,
        format="hermes: %(message)s",
    )


def _open_closed_streams() -> None:
    """Stand in for standard streams that the caller has closed: empty input, unread output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as we run


def main() -> None:
    """The entry point of the program `hermes`; ends the process."""
    program()
