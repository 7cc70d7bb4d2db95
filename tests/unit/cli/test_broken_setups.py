"""Every command of `hermes` without a broker, with one that never answers, and with a bad file.

The commands are found, not listed: a new one is tried as soon as it exists, and if it wants an
argument that no earlier one does, `VALUES` must say what to give it.
"""

import socket
import time

import click
import pytest

from hermes.cli import program
from hermes.storage import FileLayer
from hermes.storage.lock import DirectoryLock

# A value for each argument that is required and each option that must be given, by its name.
VALUES = {
    "topic": "clicks",
    "topics": "clicks",
    "group": "search",
    "groups": "search",
    "position": "earliest",
    "target": "{directory}/new",
    "new_topic": "copies",
    "name": "a-transactional-id",
    "shell": "bash",
    "repository": "{directory}/none",
    "log_dir": "{directory}",
    "directory": "{directory}",
    "path": "{bad}",
    "paths": "{bad}",
    "file": "{bad}",
    "messages": "1",
    "settings": "retention_time=1h",
    "source": "127.0.0.1:1",
    "broker_id": "1",
    "rate": "1MB",
}

# Those that serve until they are stopped, and show what can't be reached.
SERVERS = {"console"}

# What is needed beside that to get as far as the broker.
MORE = {
    "topics delete": ["--yes"],
    "groups delete": ["--yes"],
    "load": ["--dry-run"],
    "produce": ["{bad}"],
}

# Arguments that are files or directories to read.
FILES = ("path", "paths", "file", "directory", "repository", "log_dir")

# These report on stdout what is in disorder.
REPORTS = {"check-log", "coordination show"}

LONGEST_SECONDS = 25  # less than the default of --timeout, with room for a busy machine


def leaves(group=program, prefix=""):
    """All commands that do something, by what one types."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from leaves(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


COMMANDS = dict(leaves())


def arguments_for(name, **places):
    """A complete command line, apart from where a broker is."""
    line = [*name.split(), *(each.format(**places) for each in MORE.get(name, ()))]
    for parameter in COMMANDS[name].params:
        if parameter.required and parameter.name not in ("broker", "zookeeper"):
            assert parameter.name in VALUES, f"tell VALUES what `hermes {name}` is to be given"
            value = VALUES[parameter.name].format(**places)
            is_option = isinstance(parameter, click.Option)
            line += [parameter.opts[0], value] if is_option else [value]
    return line


def options_of(name):
    return {option for parameter in COMMANDS[name].params for option in parameter.opts}


@pytest.fixture
def places(tmp_path):
    """What the values of files stand for: nothing that anybody could want."""
    (tmp_path / "bad").write_bytes(b"\xff\0: [\n")
    (tmp_path / "directory").mkdir()
    return {"bad": tmp_path / "bad", "directory": tmp_path / "directory"}


@pytest.fixture
def nobody():
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"127.0.0.1:{port}"


@pytest.fixture
def silent():
    """An address that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def check_told(result, began):
    """One line that says what is wrong, within the time, and no exit status 0."""
    assert time.monotonic() - began < LONGEST_SECONDS
    assert result.exit_code in (1, 2), result.output
    lines = result.stderr.splitlines()
    assert lines, result.output
    assert all(line.startswith("hermes: ") for line in lines), result.stderr
    assert "fault of Hermes" not in result.stderr
    assert len(lines) == 1 or (
        len(lines) == 2 and ("waiting" in lines[0] or "trying for" in lines[0])
    ), result.stderr
    assert len(lines[-1]) > len("hermes: ") + 10


def with_server(option):
    return [name for name in COMMANDS if option in options_of(name) and name not in SERVERS]


@pytest.mark.parametrize("whose", ["nobody", "silent"])
@pytest.mark.parametrize(
    ("option", "name"),
    [
        (option, name)
        for option in ("--broker", "--zookeeper", "--bootstrap-servers")
        for name in with_server(option)
    ],
)
def test_a_server_that_is_not_there_or_never_answers(
    run, request, places, monkeypatch, option, name, whose
):
    # It has no --timeout: it runs for good.
    monkeypatch.setattr("hermes.cli.registry._TIMEOUT_SECONDS", 0.5)
    line = [*arguments_for(name, **places), option, request.getfixturevalue(whose)]
    if "--timeout" in options_of(name):
        line += ["--timeout", "0.1"]
    (places["directory"] / "clicks-0").mkdir()
    lock = DirectoryLock(str(places["directory"]), FileLayer())
    request.addfinalizer(lock.release)
    began = time.monotonic()
    check_told(run(*line, input="", env={"HERMES_BROKER": None, "HERMES_ZOOKEEPER": None}), began)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, command in COMMANDS.items()
        if any(p.name in FILES for p in command.params if isinstance(p, click.Argument))
    ],
)
def test_a_bad_file(run, places, name, nobody):
    line = arguments_for(name, **places)
    if "path" in {p.name for p in COMMANDS[name].params if not p.required}:
        line.append(str(places["bad"]))
    if "--broker" in options_of(name):
        line += ["--broker", nobody]
    (places["directory"] / "clicks-0").mkdir()
    (places["directory"] / "clicks-0" / f"{0:020}.kafka").write_bytes(b"\0\0\0\x05damage")
    began = time.monotonic()
    result = run(*line, env={"HERMES_BROKER": None, "HERMES_ZOOKEEPER": None})
    assert "Traceback" not in result.output
    if name in REPORTS:
        assert result.exit_code == 1
    else:
        check_told(result, began)
