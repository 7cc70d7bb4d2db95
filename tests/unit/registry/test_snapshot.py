"""The file beside the topic, whole and damaged."""

import logging
import os
from pathlib import Path

import pytest

from hermes.errors import StorageError
from hermes.registry.home import HomeBroker
from hermes.registry.log_records import LogRecord, encode_record
from hermes.registry.replica import Replica
from hermes.registry.snapshot import SnapshotFile, Snapshots

EVENT = {"event": "mode-changed", "subject": None, "mode": "READONLY"}
HOME = HomeBroker(2, "localhost", 9092)


def fed(count: int) -> Replica:
    replica = Replica()
    for number in range(1, count + 1):
        after = f"r{number - 1}" if number > 1 else ""
        payload = encode_record(LogRecord(number, after, f"r{number}", EVENT))
        assert replica.read_message(number * 100, number * 100 + 100, payload)
    return replica


def test_a_copy_comes_back_with_its_home(tmp_path: Path) -> None:
    file, replica = SnapshotFile(tmp_path / "snapshot"), fed(3)
    Snapshots(file, replica).write(HOME)
    other = Replica()
    assert Snapshots(file, other).load() == 2
    assert other.to_json() == replica.to_json()
    assert os.listdir(tmp_path) == ["snapshot"]


def test_without_a_file_there_is_nothing(tmp_path: Path) -> None:
    assert Snapshots(SnapshotFile(tmp_path / "snapshot"), Replica()).load() is None
    Snapshots(None, fed(1)).write(HOME)
    assert Snapshots(None, Replica()).load() is None


def test_every_damaged_byte_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = SnapshotFile(tmp_path / "snapshot")
    Snapshots(file, fed(1)).write(HOME)
    content = file.path.read_bytes()
    for place in range(len(content)):
        file.path.write_bytes(
            content[:place] + bytes([content[place] ^ 0x20]) + content[place + 1 :]
        )
        with pytest.raises(StorageError, match="snapshot"):
            file.read()
        file.path.write_bytes(content[:place])
        with pytest.raises(StorageError, match="snapshot"):
            file.read()
    replica = Replica()
    with caplog.at_level(logging.WARNING):
        assert Snapshots(file, replica).load() is None
    assert replica.mark.events == 0
    (line,) = caplog.messages
    assert "the whole topic is read" in line
    assert str(file.path) in line


def test_one_is_written_when_much_has_come(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path / "snapshot")
    Snapshots(file, fed(100)).write_if_due(HOME)
    assert file.read() is None
    replica = fed(101)
    snapshots = Snapshots(file, replica)
    snapshots.write_if_due(HOME)
    first = file.path.stat().st_ino
    snapshots.write_if_due(HOME)
    snapshots.write(HOME)
    assert file.path.stat().st_ino == first


def test_a_disk_that_refuses_is_said_once_and_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = SnapshotFile(tmp_path / "gone" / "snapshot")
    snapshots = Snapshots(file, fed(1))
    with caplog.at_level(logging.WARNING):
        snapshots.write(HOME)
        snapshots.write(HOME)
    assert len(caplog.messages) == 1


def test_what_a_disk_refuses_is_not_written_again_and_again(tmp_path: Path) -> None:
    replica = fed(101)
    snapshots = Snapshots(SnapshotFile(tmp_path / "gone" / "snapshot"), replica)
    snapshots.write_if_due(HOME)
    (tmp_path / "gone").mkdir()
    snapshots.write_if_due(HOME)
    assert snapshots.file is not None
    assert snapshots.file.read() is None
    snapshots.write(HOME)  # at the end
    assert snapshots.file.read() is not None


def test_a_disk_that_refuses_even_to_clean_up_is_said_likewise(tmp_path: Path) -> None:
    (tmp_path / "no directory").touch()  # as one that is read-only since it failed, say
    with pytest.raises(StorageError, match="Not a directory"):
        SnapshotFile(tmp_path / "no directory" / "snapshot").write({})


def test_what_is_written_is_json(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path / "snapshot")
    values = ({}, {"a": {}, "b": [], "c": {"d": [1, {"e": [None]}, "\ud800ü"], "f": True}})
    for value in values:
        file.write(value)
        assert file.read() == value
