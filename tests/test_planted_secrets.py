"""Planted secrets are found in whatever the tests write, and by the name of what they are."""

import os
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest
from certificates import Certificates
from planted_secrets import leaks, planted

from hermes.security.users import Users

SECRET = planted("alice")
PROGRAM = Path(__file__).parent / "support" / "planted_secrets.py"


@pytest.mark.parametrize(
    ("written", "what"),
    [
        (f"ClientSecurity(password={SECRET!r})", "a password"),
        (f"Authorization: Basic {b64encode(f'a:{SECRET}'.encode()).decode()}", "base64"),
        (f"Basic {urlsafe_b64encode(f'al:{SECRET}'.encode()).decode()}", "base64"),
        (b64encode(f"ali:{SECRET}".encode()), "base64"),
        (SECRET.encode().hex(), "hexadecimal"),
        (SECRET.encode().hex(" ").replace(" ", "").upper(), "hexadecimal"),
    ],
)
def test_a_password_is_found_in_any_form(written: str | bytes, what: str) -> None:
    text = written if isinstance(written, str) else written.decode()
    assert leaks(text) == leaks(text.encode())
    (leak,) = leaks(f"nothing\n{text}")
    assert leak.startswith("line 2: ")
    assert what in leak
    assert SECRET not in leak


def test_keys_and_verifiers_are_found(certificates: Certificates) -> None:
    key = certificates.client("alice").key.read_text()
    assert "a private key" in leaks(key)[0]
    body = "".join(key.splitlines()[1:-1])
    assert "a private key" in leaks(f"key={body}")[0]
    users = Users.none().with_user("alice", SECRET, iterations=4096)
    found = leaks(users.encode())
    assert found
    assert all("a SCRAM verifier" in each for each in found)


def test_what_is_no_secret_is_not_found(certificates: Certificates) -> None:
    shown = certificates.ca.read_text() + "password_file: /run/secrets/hermes\nSCRAM-SHA-256\n"
    assert leaks(shown) == []


def test_files_are_looked_through(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("nothing")
    bad.write_text(f"one\ntwo {SECRET}\n")
    look = [sys.executable, str(PROGRAM)]
    assert subprocess.run([*look, good], capture_output=True).returncode == 0
    ended = subprocess.run([*look, good, bad], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stdout.startswith(f"{bad}: line 2: a password")
    assert SECRET not in ended.stdout


@pytest.mark.parametrize("call", ["print", "logging.warning"])
def test_a_test_that_writes_one_fails(tmp_path: Path, call: str) -> None:
    test = tmp_path / "test_writing.py"
    lines = f"import logging\nfrom planted_secrets import planted\ndef test_it():\n    {call}("
    plugins = ["-p", "secrets_hook", "-p", "no:cacheprovider", "-c", "/dev/null"]
    for written, status in (("planted('eve')", 1), ("'nothing'", 0)):
        test.write_text(f"{lines}{written})\n")
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *plugins, test],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PROGRAM.parent)},
        )
        assert ended.returncode == status, ended.stdout
        assert ("shows a secret" in ended.stdout) == bool(status)
