import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hermes import __version__
from hermes.cli import program
from hermes.protocol import core


def test_the_version(run):
    result = run("--version")
    version = f"hermes {__version__} (core: {core.KIND})\n"
    assert (result.exit_code, result.output) == (0, version)


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
        (["restore"], "hermes restore /backups/hermes /var/lib/hermes\n"),
        (["backup", "create"], "hermes backup create "),
        (["replay"], "hermes replay -t clicks --to trial --rate 500\n"),
    ],
)
def test_examples_have_lines_of_their_own(run, args, line):
    shown = run(*args, "--help").stdout
    assert f"\n    {line}" in shown
    assert "\\b" not in shown


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


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_fault(closed: str) -> None:
    hermes = Path(sys.executable).with_name("hermes")
    ended = subprocess.run(
        ["bash", "-c", f'"$0" topics list -b 127.0.0.1:1 {closed}', str(hermes)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "fault of Hermes" not in ended.stderr


@pytest.mark.parametrize("command", ["check-log", "dump-log"])
def test_a_file_name_that_is_not_utf_8_comes_through(command: str, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9"
    Path(os.fsdecode(path)).touch()
    (tmp_path / ".kafka_cleanshutdown").touch()
    ended = subprocess.run(
        [
            Path(sys.executable).with_name("hermes"),
            command,
            path if command == "dump-log" else tmp_path,
        ],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},  # as in most locales
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"caf\xe9: " in ended.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "-t", "t", "--timeout", "nan"],
        ["consume", "-t", "t", "--timeout", "inf"],
        ["consume", "-t", "t", "-o", "@99999999999999999999999"],
        ["consume", "-t", "t", "-p", "99999999999"],
        ["offsets", "-t", "t", "--time", "99999999999999999999999"],
        ["produce", "-t", "t", "-p", "99999999999"],
    ],
)
def test_numbers_that_nothing_can_carry_are_usage_errors(arguments: list[str]) -> None:
    hermes = Path(sys.executable).with_name("hermes")
    ended = subprocess.run(
        [str(hermes), arguments[0], "-b", "127.0.0.1:1", *arguments[1:]],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 2, ended.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [(["prodcue"], "did you mean 'produce'?"), (["xyz"], "No such command 'xyz' (see")],
)
def test_a_slip_in_a_command_is_told(run, arguments: list[str], hint: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert hint in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["produce", "consume", "offsets", "perf"])
def test_no_option_is_called_after_what_converts_it(run, command: str) -> None:
    assert "CONVERT" not in run(command, "--help").stdout
    assert "CONVERT" not in run(command, "produce", "--help").stdout


def test_what_is_wrong_shows_in_the_status_also_if_nobody_reads_stdout(make_segment, tmp_path):
    make_segment(b"no message")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as stdout:
        command = [sys.executable, "-c", "from hermes.cli.app import main; main()"]
        checked = subprocess.run(
            [*command, "check-log", tmp_path / "data"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )
    assert (checked.returncode, checked.stderr) == (1, b"")
