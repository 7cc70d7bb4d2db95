"""Every command against a cluster that asks who comes, by TLS: let in, refused, and never leaking.

One broker with coordination and HTTP of its own, users, rules; the commands are processes.
"""

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from planted_secrets import leaks, planted

from hermes.testing import RunningBroker, running_broker

from .conftest import DEADLINE_SECONDS, HERMES

USERS = {name: planted(name) for name in ("admin", "reader")}
ACCESS = [
    {"principal": "admin", "operations": ["all"]},
    {"principal": "reader", "operations": ["consume"], "topic": "clicks"},
]


@pytest.fixture(scope="module")
def secured() -> Iterator[RunningBroker]:
    settings = {
        "access": ACCESS,
        "coordination": "embedded",
        "http_listen": "tcp:0:interface=127.0.0.1",
    }
    with running_broker(tls=True, users=USERS, settings=settings) as broker:
        yield broker


class Commands:
    """Runs `hermes` as somebody; whatever it writes is looked through."""

    def __init__(self, broker: RunningBroker, folder: Path) -> None:
        self.broker = broker
        self.passwords: dict[str, str] = {}
        for name, password in {**USERS, "nobody": planted("nobody")}.items():
            path = folder / f"{name}.password"
            path.write_text(f"{password}\n")
            self.passwords[name] = str(path)
        wrong = folder / "wrong.password"
        wrong.write_text(planted("wrong"))
        self.passwords["wrong"] = str(wrong)

    def environment(self, user: str | None = "admin", **changed: str | None) -> dict[str, str]:
        """What a shell would have; None takes a variable away."""
        kept = {name: value for name, value in os.environ.items() if "HERMES_" not in name}
        ours: dict[str, str | None] = {
            "HERMES_BROKER": f"{self.broker.host}:{self.broker.port}",
            "HERMES_TLS_CA": str(self.broker.tls_ca),
        }
        if user is not None:
            ours |= {"HERMES_USER": user, "HERMES_PASSWORD_FILE": self.passwords[user]}
        ours |= changed
        return {**kept, **{name: value for name, value in ours.items() if value is not None}}

    def __call__(
        self,
        *arguments: object,
        code: int = 0,
        stdin: bytes = b"",
        user: str | None = "admin",
        **environment: str | None,
    ) -> str:
        ended = subprocess.run(
            [HERMES, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            timeout=DEADLINE_SECONDS,
            env=self.environment(user, **environment),
        )
        written = ended.stdout + ended.stderr
        assert ended.returncode == code, (ended.returncode, written)
        assert not leaks(written), leaks(written)
        if "HERMES_DEBUG" not in environment:
            assert b"Traceback" not in ended.stderr
        return written.decode()


@pytest.fixture(scope="module")
def commands(secured: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    made = Commands(secured, tmp_path_factory.mktemp("as somebody"))
    made("produce", "-t", "clicks", stdin=b"first\nsecond\n")
    made("import-offsets", "-", stdin=b"/consumers/search/offsets/clicks/0-0:0\n")
    return made


#: Commands that reach a broker, coordination or both, with what they show when all is well.
REACHING: list[tuple[list[str], str]] = [
    (["produce", "-t", "made", "{empty}"], ""),
    (["consume", "-t", "clicks", "-e"], "second"),
    (["tail", "clicks", "-n", "1", "-e"], "second"),
    (["topics", "list"], "clicks"),
    (["topics", "describe", "clicks"], "CLICKS"),
    (["topics", "describe", "clicks", "--settings"], "retention_time"),
    (["replay", "-t", "clicks", "--to", "clicks-again", "-q"], "2 messages"),
    (["top", "--once", "--interval", "0.1"], "clicks"),
    (["offsets", "-t", "clicks"], "EARLIEST"),
    (["groups", "list"], "search"),
    (["groups", "describe", "search"], "clicks"),
    (["export-offsets", "search"], "/consumers/search/offsets/clicks/0-0:"),
    (["verify-rebalance", "search"], "has no members"),
    (["mirror", "status"], "no mirror writes"),
    (["mirror", "origins"], "CLUSTER"),
    (["audit", "--window", "1"], ""),
    (["config", "reload"], ""),
    (["perf", "produce", "-t", "perf", "-n", "10"], "messages/s"),
    (["perf", "consume", "-t", "clicks"], "messages/s"),
    (["doctor"], "is broker 0"),
]


def names(case: tuple[list[str], str]) -> str:
    return " ".join(case[0][:2])


@pytest.mark.parametrize("case", REACHING, ids=names)
def test_somebody_who_may_is_served(commands: Commands, tmp_path: Path, case: Any) -> None:
    arguments, shown = case
    empty = tmp_path / "empty"
    empty.touch()
    may_fail = {"verify-rebalance": 1, "config": 1}.get(arguments[0], 0)
    written = commands(*(each.format(empty=empty) for each in arguments), code=may_fail)
    assert shown.lower() in written.lower()


@pytest.mark.parametrize("case", REACHING[::2], ids=names)
def test_nobody_is_refused_with_a_status_of_its_own(
    commands: Commands, tmp_path: Path, case: Any
) -> None:
    (tmp_path / "line").write_text("a line\n")
    arguments = [each.format(empty=tmp_path / "line") for each in case[0]]
    if arguments[0] == "doctor":
        assert "wants to know who asks" in commands(*arguments, code=1, user=None)
    else:
        written = commands(*arguments, code=5, user=None, HERMES_DEBUG="1")
        assert written.rstrip().endswith("(say it by --user, or by --tls-certificate)")


#: What somebody who may only read a topic can't do.
REFUSED = [
    ["produce", "-t", "clicks", "{line}"],
    ["topics", "create", "new"],
    ["topics", "delete", "clicks", "--yes"],
    ["topics", "alter", "--set", "retention_time=1d", "clicks"],
    ["replay", "-t", "clicks", "--to", "stolen", "--to-partition", "0", "-q"],
    ["groups", "describe", "search"],
    ["groups", "reset", "search", "--to", "latest"],
    ["groups", "delete", "search", "--yes"],
    ["config", "reload"],
    ["perf", "produce", "-t", "clicks", "-n", "10", "--acks", "written"],
]


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_who_may_not_is_refused_likewise(
    commands: Commands, tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "line").write_text("a line\n")
    given = [each.format(line=tmp_path / "line") for each in arguments]
    commands(*given, user="reader", code=5)
    assert commands("consume", "-t", "clicks", "-e", user="reader") == "first\nsecond\n"


def test_a_wrong_password_and_an_unknown_user_are_told_alike(tmp_path: Path) -> None:
    with running_broker(tls=True, users=USERS) as broker:  # it is slow to answer the next ones
        commands = Commands(broker, tmp_path)
        wrong = commands.passwords["wrong"]
        one = commands("topics", "list", code=5, HERMES_PASSWORD_FILE=wrong, HERMES_DEBUG="1")
        other = commands("topics", "list", code=5, user="nobody")
        last = other.replace("nobody", "admin").splitlines()[-1]
        assert one.splitlines()[-1] == last
        assert "the name or the password is wrong" in last


def test_a_broker_that_is_not_trusted_is_told_nothing(
    commands: Commands, certificates: Certificates
) -> None:
    written = commands("topics", "list", code=1, HERMES_TLS_CA=str(certificates.other_ca))
    assert "certificate" in written
    commands("topics", "list", code=1, HERMES_TLS_CA=str(certificates.other_ca), HERMES_DEBUG="1")


def test_a_port_for_tls_is_recognised_without(commands: Commands) -> None:
    written = commands("topics", "list", code=1, user=None, HERMES_TLS_CA=None)
    assert "TLS" in written


def test_a_registry_takes_the_same_user(commands: Commands, tmp_path: Path) -> None:
    schema = tmp_path / "click.avsc"
    fields = [{"name": "page", "type": "string"}]
    schema.write_text(json.dumps({"type": "record", "name": "Click", "fields": fields}))
    registry = ("--registry", f"{commands.broker.http}/registry")
    line = b'{"page": "/a"}\n'
    commands("produce", "-t", "records", "--schema", schema, *registry, stdin=line)
    shown = commands("consume", "-t", "records", "-e", *registry)
    assert json.loads(shown) == {"page": "/a"}
    refused = commands(
        *("produce", "-t", "records", "--schema", schema, *registry),
        stdin=line,
        code=5,
        user="reader",
    )
    assert "403" in refused


def test_a_member_of_a_group(commands: Commands) -> None:
    first = commands("consume", "-t", "clicks", "-g", "members", "-c", "1", "-q")
    assert first == "first\n"
    assert "members" in commands("groups", "list")
    member = ("consume", "-t", "clicks", "-g", "members", "-c", "1", "-q")
    commands(*member, user="reader", code=5)


# The terminal becomes the one that the process, in a session of its own, asks on.
_ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def test_on_a_terminal_the_password_is_asked_for_and_not_shown(commands: Commands) -> None:
    leader, follower = pty.openpty()
    environment = commands.environment("admin", HERMES_PASSWORD_FILE=None)
    process = subprocess.Popen(
        [sys.executable, "-c", _ON_TERMINAL, HERMES, "topics", "list"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
        start_new_session=True,
    )
    os.close(follower)
    try:
        shown = _read_until(leader, b"Password of admin: ")
        os.write(leader, f"{USERS['admin']}\n".encode())
        shown += _read_until(leader, b"clicks")
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert not leaks(shown)


def _read_until(descriptor: int, text: bytes) -> bytes:
    found = b""
    while text not in found:
        assert select.select([descriptor], [], [], DEADLINE_SECONDS)[0], found
        found += os.read(descriptor, 4096)
    return found


def test_passwords_by_a_pipe_and_the_environment(commands: Commands) -> None:
    by_environment = {"HERMES_PASSWORD_FILE": None, "HERMES_PASSWORD": USERS["admin"]}
    assert "clicks" in commands("topics", "list", **by_environment)
    piped = subprocess.run(
        [HERMES, "topics", "list", "--user", "reader", "--password-file", "/dev/stdin"],
        input=f"{USERS['reader']}\n".encode(),
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        env=commands.environment(None),
    )
    assert b"clicks" in piped.stdout, piped.stderr
