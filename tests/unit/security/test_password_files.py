"""Files with passwords: what is one, and that errors have nothing of it."""

import os
import threading
from pathlib import Path

import pytest

from hermes.errors import ConfigError
from hermes.security.password_files import read_password_file


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_line_is_the_password(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "a password"
    path.write_bytes(f" s€cret {ending}".encode())
    assert read_password_file(path) == " s€cret "
    assert read_password_file(str(path)) == " s€cret "


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"secret\nsecret\n", b"secret\xff", b"secret" * 700]
)
def test_anything_else_is_refused_without_being_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "password"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="expected one line") as caught:
        read_password_file(path, "the_setting")
    assert caught.value.key == "the_setting"
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("path", ["", ".", "nowhere/password", "a\0b"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="password_file: "):
        read_password_file(path)


def test_a_pipe_will_do(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=["from a pipe\n"])
    writer.start()
    assert read_password_file(path) == "from a pipe"
    writer.join()
