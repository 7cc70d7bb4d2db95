import subprocess
import sys

import click
import pytest

from hermes import __version__
from hermes.cli import program


def test_the_version(run):
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"hermes {__version__}\n")


def test_the_help_lists_every_command_and_the_exit_codes(run):
    result = run("--help")
    assert result.exit_code == 0
    for name in ("produce", "consume", "topics", "offsets", "dump-log", "check-log", "perf"):
        assert f"\n  {name} " in result.stdout
    assert "Exit status: 0" in result.stdout


@pytest.mark.parametrize("name", program.list_commands(click.Context(program)))
def test_every_command_explains_itself(run, name):
    assert run(name, "--help").exit_code == 0


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["config", "fly"], "hermes: config: No such command 'fly' (see 'hermes config --help')\n"),
        (["fly"], "hermes: No such command 'fly' (see 'hermes --help')\n"),
        (
            ["consume", "-b", "localhost"],
            "hermes: consume: Missing option '-t' / '--topic' (see 'hermes consume --help')\n",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(run, args, line):
    result = run(*args, env={"HERMES_BROKER": None})
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line)


@pytest.mark.parametrize("args", [[], ["config"], ["topics"], ["perf"]])
def test_a_group_alone_shows_its_help_where_it_does_no_harm(run, args):
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"Usage: {' '.join(['hermes', *args])} ")


def test_the_program_starts_without_loading_any_command():
    script = (
        "import sys; from hermes.cli import main; sys.argv = ['hermes', '--version']\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        "assert code == 0\n"
        "assert 'hermes.cli.consume' not in sys.modules\n"
        "assert 'twisted' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
