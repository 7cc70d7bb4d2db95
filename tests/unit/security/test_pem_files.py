"""Files of certificates: nothing waits for them, and whoever asks learns which one is at fault."""

import os
from pathlib import Path

import pytest

from hermes.errors import ConfigError
from hermes.security.pem_files import open_pem, read_pem, stamp


def test_a_file_is_another_once_it_was_replaced_or_written_to(tmp_path: Path) -> None:
    path, other = tmp_path / "ca.pem", tmp_path / "other.pem"
    assert stamp(path) is None
    path.write_text("one")
    other.write_text("two")
    first = stamp(path)
    assert first is not None
    assert stamp(str(path)) == first
    os.replace(other, path)  # of the same size, and perhaps of the same time
    second = stamp(path)
    assert second not in (None, first)
    path.write_text("three")
    assert stamp(path) not in (None, first, second)
    assert stamp("\0") is None


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert read_pem(path, "tls_ca") == b""
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(path, os.O_WRONLY)
    assert read_pem(path, "tls_ca") == b""
    os.close(writer)
    os.close(reader)


@pytest.mark.parametrize(
    ("path", "words"), [("missing.pem", "No such file"), (".", "Is a directory"), ("\0", "null")]
)
def test_what_can_not_be_read_is_named_with_its_setting(
    tmp_path: Path, path: str, words: str
) -> None:
    for read in (read_pem, open_pem):
        with pytest.raises(ConfigError, match=f"can't be read: .*{words}") as refused:
            read(tmp_path / path, "listen: tls.key")
        assert refused.value.key == "listen: tls.key"
        assert "PRIVATE" not in str(refused.value)
