"""Ports of processes that are no brokers ask for users and passwords, by TLS and without."""

import base64
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from click.testing import CliRunner

from hermes.cli import program
from hermes.config.listeners import ListenerConfig
from hermes.errors import ConfigError
from hermes.security.users import Users
from hermes.testing import RunningBroker, running_broker
from hermes.web import Health, WebThread

HERMES = str(Path(sys.executable).with_name("hermes"))
RIGHT, WRONG = "correct horse battery", "incorrect"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as broker:
        yield broker


@pytest.fixture
def users_file(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_bytes(Users.parse(b"").with_user("alice", RIGHT).encode())
    os.chmod(path, 0o600)
    return path


def status(port: int, path: str, password: str = "", ca: Path | None = None) -> int:
    context = None if ca is None else ssl.create_default_context(cafile=str(ca))
    connection = (
        HTTPConnection("127.0.0.1", port, timeout=60)
        if context is None
        else HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    )
    proof = base64.b64encode(f"alice:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {proof}"} if password else {}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse().status
    connection.close()
    return answer


@contextmanager
def served(*arguments: str) -> Iterator[int]:
    """Run a command that serves; the port that it names."""
    with subprocess.Popen(
        [HERMES, *arguments], stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    ) as process:
        assert process.stderr is not None
        try:
            line = next(line for line in process.stderr if re.search(r" is at |served at", line))
            yield int(re.findall(r":(\d+)", line)[-1])
        finally:
            process.terminate()
            process.stderr.read()


@pytest.mark.parametrize("command", ["registry", "console"])
def test_a_command_s_port_asks_for_users(
    command: str, broker: RunningBroker, users_file: Path, certificates: Certificates
) -> None:
    pair = certificates.server
    listen = (
        "{endpoint: 'tcp:0:interface=127.0.0.1', authentication: scram, "
        f"tls: {{certificate: '{pair.certificate}', key: '{pair.key}'}}}}"
    )
    where = ("-b", f"{broker.host}:{broker.port}")
    with served(command, *where, "--listen", listen, "--users-file", str(users_file)) as port:
        path = "/subjects" if command == "registry" else "/topics"
        assert status(port, path, ca=certificates.ca) == 401
        assert status(port, path, WRONG, ca=certificates.ca) == 401
        if command == "registry":  # people log in to the console by its form
            assert status(port, path, RIGHT, ca=certificates.ca) == 200


def test_without_users_nobody_is_asked_for() -> None:
    listen = "{endpoint: 'tcp:0:interface=127.0.0.1', authentication: scram}"
    ran = subprocess.run(
        [HERMES, "registry", "-b", "127.0.0.1:1", "--listen", listen],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    assert "there are no users: set --users-file" in ran.stderr


def thread(users_file: Path | None, authentication: str) -> WebThread:
    def mount(web: Any, reactor: Any) -> None:
        web.root.add("status", Health(_Anything()))

    listener = ListenerConfig("tcp:0:interface=127.0.0.1", authentication=authentication)
    return WebThread("http_listen", [listener], mount, users_file=users_file)


class _Anything:
    def render(self, request: Any) -> bytes:
        return b"ready"


def test_a_mirror_s_port_asks_for_users(users_file: Path) -> None:
    """As a mirror and `hermes audit count` have it: a server in a thread of its own."""
    web = thread(users_file, "scram")
    web.start()
    try:
        ((_, port),) = web.addresses
        assert status(port, "/status") == 401
        assert status(port, "/status", WRONG) == 401
        assert status(port, "/status", RIGHT) != 401
    finally:
        web.stop()


def test_who_asks_a_mirror_says_who_it_is(users_file: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(RIGHT + "\n")
    (tmp_path / "wrong").write_text(WRONG + "\n")
    web = thread(users_file, "scram")
    web.start()
    try:
        ((_, port),) = web.addresses

        def ask(*arguments: str) -> tuple[int, str]:
            ran = CliRunner().invoke(program, ["mirror", "ask", f"127.0.0.1:{port}", *arguments])
            return ran.exit_code, ran.output

        exit_code, said = ask()
        assert exit_code == 5
        assert "anonymous what a mirror does: HTTP Error 401" in said
        user = ("--user", "alice", "--password-file")
        assert ask(*user, str(tmp_path / "wrong"))[0] == 5
        # It is let in, to something that is no mirror's state.
        assert "HTTP Error 404" in ask(*user, str(tmp_path / "password"))[1]
    finally:
        web.stop()


def test_users_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="users_file"):
        thread(tmp_path / "gone", "scram").start()
