"""The file of what was set by request: whole, or said to be damaged."""

from pathlib import Path

import pytest

from hermes.errors import CorruptEntriesError
from hermes.storage import FileLayer
from hermes.storage.requested_file import (
    REQUESTED_NAME,
    USERS_NAME,
    read_requested,
    write_requested,
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    place, files = str(tmp_path), FileLayer()
    assert read_requested(place, files) is None
    for line in (b'{"acls": []}', b"{}"):
        write_requested(place, line, files)
        assert read_requested(place, files) == line
    assert [each.name for each in tmp_path.iterdir()] == [REQUESTED_NAME]
    assert (tmp_path / REQUESTED_NAME).stat().st_mode & 0o777 == 0o600
    write_requested(place, b"5", files, USERS_NAME)
    assert read_requested(place, files, USERS_NAME) == b"5"
    assert read_requested(place, files) == b"{}"


def test_each_flipped_bit_and_each_cut_is_found(tmp_path: Path) -> None:
    place, files = str(tmp_path), FileLayer()
    write_requested(place, b'{"acls": [[2, "clicks", 3]]}', files)
    path = tmp_path / REQUESTED_NAME
    whole = path.read_bytes()
    damaged = [whole[:at] for at in range(len(whole))]
    damaged += [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        for at in range(len(whole))
        for bit in range(8)
    ]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(CorruptEntriesError, match="move it away"):
            read_requested(place, files)
