"""`hermes users`: what it changes, what it asks for, and that a crash harms nothing."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes.security.passwords import verify_password
from hermes.security.users import Users
from hermes.security.users_file import change_users_file, read_users

FAST = ("--iterations", 4096)
HERMES = (sys.executable, "-c", "from hermes.cli import main; main()")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users"


def add(run: Any, path: Path, name: str, password: str, *more: object) -> Any:
    return run("users", "add", name, "--file", path, *FAST, *more, input=f"{password}\n")


def is_right(path: Path, name: str, password: str) -> bool:
    return verify_password(read_users(path)[0], name, password) is not None


def test_users_come_change_and_go(run: Any, path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("builder\n")
    assert add(run, path, "alice", "wonder", "--group", "ops").stdout == "added alice\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert add(run, path, "bob", "", "--password-file", secret).exit_code == 0
    assert run("users", "add", "web", "--no-password", "--file", path).exit_code == 0
    assert is_right(path, "alice", "wonder")
    assert is_right(path, "bob", "builder")
    changed = run("users", "passwd", "alice", "--file", path, *FAST, input="new\n")
    assert changed.stdout == "changed alice\n"
    assert is_right(path, "alice", "new")
    assert not is_right(path, "alice", "wonder")
    assert run("users", "groups", "alice", "x", "y", "--file", path).exit_code == 0
    listed = run("users", "list", "--file", path, "--json").stdout.splitlines()
    both = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert [json.loads(line) for line in listed] == [
        {"name": "alice", "groups": ["x", "y"], "mechanisms": both, "iterations": 4096},
        {"name": "bob", "groups": [], "mechanisms": both, "iterations": 4096},
        {"name": "web", "groups": [], "mechanisms": [], "iterations": None},
    ]
    assert "alice  x,y" in run("users", "list", "--file", path).stdout
    assert run("users", "remove", "bob", "--file", path).stdout == "removed bob\n"
    assert read_users(path)[0].names == ["alice", "web"]


def test_the_file_may_be_named_by_the_environment(run: Any, path: Path) -> None:
    add(run, path, "alice", "x")
    assert run("users", "list", env={"HERMES_USERS_FILE": str(path)}).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("add", "alice"), "there is a user 'alice' already"),
        (("add", "a:b"), "can't be a user's name"),
        (("add", "anonymous"), "reserved"),
        (("add", "bob", "--group", "a b"), "'a b' can't be a group's name"),
        (("passwd", "bob"), "there is no user 'bob'"),
        (("remove", "bob"), "there is no user 'bob'"),
        (("groups", "bob", "a"), "there is no user 'bob'"),
        (("groups", "alice", "a,b"), "'a,b' can't be a group's name"),
    ],
)
def test_what_can_not_be_is_refused_before_a_password_is_asked_for(
    run: Any, path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    add(run, path, "alice", "x")
    before = path.read_bytes()
    result = run("users", *arguments, "--file", path)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert reason in result.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("password", ["", "\x01secret", "s" * 1001])
def test_a_password_that_can_not_be_is_refused_and_not_shown(
    run: Any, path: Path, password: str
) -> None:
    result = add(run, path, "alice", password)
    assert result.exit_code == 1
    assert "password" in result.stderr
    assert "secret" not in result.stderr
    assert "sss" not in result.stderr
    assert not path.exists()


def test_a_new_file_is_refused_before_a_password_is_asked_for(run: Any, tmp_path: Path) -> None:
    for name, file in (("alice", "none/users"), ("a b", "users")):
        result = run("users", "add", name, "--file", tmp_path / file)
        assert result.exit_code == 1
        assert "password" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_others_is_refused(run: Any, path: Path) -> None:
    add(run, path, "alice", "x")
    path.chmod(0o644)
    result = run("users", "list", "--file", path)
    assert (result.exit_code, f"chmod 600 {path}" in result.stderr) == (1, True)
    assert add(run, path, "bob", "x").exit_code == 1


def test_no_password_and_a_password_file_exclude_each_other(run: Any, path: Path) -> None:
    result = run("users", "add", "a", "--no-password", "--password-file", "x", "--file", path)
    assert result.exit_code == 2


def test_on_a_terminal_the_password_is_asked_for_twice_and_never_shown(path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*HERMES, "users", "add", "alice", "--file", str(path), "--iterations", "4096"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    for prompt in (b"Password: ", b"confirmation: "):
        while prompt not in shown:
            shown += os.read(ours, 1024)
        shown = shown.partition(prompt)[2]
        os.write(ours, b"wonder\n")
    rest = b""
    while True:
        try:
            rest += os.read(ours, 1024)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert process.wait(60) == 0
    assert b"added alice" in rest
    assert b"wonder" not in rest
    assert is_right(path, "alice", "wonder")


def test_several_commands_at_once_lose_nothing(path: Path) -> None:
    change_users_file(path, lambda users: users, may_create=True)

    def adding(number: int) -> None:
        for n in range(20):
            name = f"user-{number}-{n}"
            change_users_file(path, lambda users: users.with_user(name, None))  # noqa: B023

    threads = [threading.Thread(target=adding, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_users(path)[0].names) == 100


def test_a_kill_at_any_moment_leaves_a_file_that_can_be_used(path: Path) -> None:
    """A process that changes it without end, killed again and again."""
    change_users_file(path, lambda users: users.with_user("0", None), may_create=True)
    code = (
        "import sys; from hermes.security.users_file import change_users_file as change\n"
        "print('go', flush=True)\n"
        "while True:\n"
        "    change(sys.argv[1], lambda users: users.with_user(str(len(users.names)), None))\n"
        "    print('once', flush=True)\n"
    )
    made = 1
    for _ in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        seen = 19 + sum("once" in line for line in process.stdout)
        process.wait(60)
        process.stdout.close()
        names = read_users(path)[0].names
        assert names == [str(n) for n in range(len(names))]
        assert made + seen <= len(names) <= made + seen + 1
        made = len(names)
    assert path.stat().st_mode & 0o777 == 0o600
    assert isinstance(read_users(path)[0], Users)
