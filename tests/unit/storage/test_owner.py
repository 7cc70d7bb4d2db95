"""Whose a data directory is: remembered, refused to others, given away on purpose."""

from pathlib import Path

import pytest
from storage_fakes import FaultyFiles, UnsyncedFiles
from storage_logs import NOW_MS, settings

from hermes.errors import StorageError
from hermes.storage import DataDirectory, FileLayer, OpenReport
from hermes.storage.owner import read_owner, write_owner
from hermes.storage.whole_files import decode_checked, encode_checked

KAFKA_4 = (
    "#\n#Tue Nov 24 10:00:00 UTC 2026\nnode.id=7\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
)


def started(path: Path, broker_id: int, files: FileLayer | None = None) -> OpenReport:
    """A start that succeeds, and a clean stop."""
    directory = DataDirectory(path, lambda topic: settings(), files or UnsyncedFiles())
    report = directory.open(NOW_MS, broker_id=broker_id)
    directory.keep_owner()
    assert directory.close()
    return report


def refused(path: Path, broker_id: int) -> str:
    before = {each: each.read_bytes() for each in path.iterdir() if each.name != ".hermes_lock"}
    with pytest.raises(StorageError) as caught:
        started(path, broker_id)
    after = {each: each.read_bytes() for each in path.iterdir() if each.name != ".hermes_lock"}
    assert after == before, "a refused start changes nothing"
    return str(caught.value)


def test_another_broker_is_refused_and_told_what_to_do(tmp_path: Path) -> None:
    started(tmp_path, 3)
    text = refused(tmp_path, 5)
    assert (
        "is the data directory of broker 3, as its .hermes_broker says, and not of broker 5" in text
    )
    assert "hermes config adopt" in text
    assert started(tmp_path, 3).healed == ()
    write_owner(str(tmp_path), 5, UnsyncedFiles())
    started(tmp_path, 5)
    assert "broker 5" in refused(tmp_path, 3)


def test_a_start_that_fails_later_leaves_no_memory_of_a_wrong_id(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, lambda topic: settings(), UnsyncedFiles())
    directory.open(NOW_MS, broker_id=33)
    directory.close(clean=False)
    started(tmp_path, 3)


def test_a_directory_of_before_is_taken_over_and_remembered(tmp_path: Path) -> None:
    """With Kafka's file of another id, too, where Hermes has been at work already."""
    (tmp_path / ".hermes_cluster_id").write_text("0f8fad5b-d9cb-469f-a165-70867728950e\n")
    (tmp_path / "meta.properties").write_text(KAFKA_4)
    assert started(tmp_path, 0).healed == ()
    assert read_owner(str(tmp_path), FileLayer()) == 0
    refused(tmp_path, 7)


@pytest.mark.parametrize("text", [KAFKA_4, "version=0\nbroker.id = 7\n"])
def test_kafkas_own_directory_is_that_of_its_node(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    assert "broker 7, as its meta.properties says" in refused(tmp_path, 0)
    assert "broker 7, as its meta.properties says" in refused(tmp_path, 0), "the lock is no memory"
    started(tmp_path, 7)
    assert (tmp_path / "meta.properties").read_text() == text
    refused(tmp_path, 0)


@pytest.mark.parametrize("text", ["", "node.id=\nbroker.id=x", "\0\xff", "#node.id=7"])
def test_what_kafkas_file_does_not_say_is_no_reason_to_refuse(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text, encoding="latin-1")
    started(tmp_path, 0)


def test_a_damaged_memory_is_said_and_written_anew(tmp_path: Path) -> None:
    started(tmp_path, 3)
    path = tmp_path / ".hermes_broker"
    whole = path.read_bytes()
    for position in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[position] ^= 1 << bit
            path.write_bytes(data)
            (told,) = started(tmp_path, 3).healed
            assert told.startswith(".hermes_broker, which was damaged (")
            assert path.read_bytes() == whole
    path.unlink()
    assert started(tmp_path, 3).healed == ()
    assert path.read_bytes() == whole


def test_a_memory_that_cannot_be_read_is_none_of_another_broker(tmp_path: Path) -> None:
    started(tmp_path, 3)
    files = FaultyFiles(0, only=("open_read",), path_part=".hermes_broker")
    directory = DataDirectory(tmp_path, lambda topic: settings(), files)
    with pytest.raises(StorageError, match="open data directory"):
        directory.open(NOW_MS, broker_id=3)


@pytest.mark.parametrize("value", [{}, {"broker_id": "3"}, {"broker_id": True}])
def test_a_memory_without_an_id_is_damaged(tmp_path: Path, value: dict[str, object]) -> None:
    (tmp_path / ".hermes_broker").write_bytes(encode_checked(value))
    with pytest.raises(ValueError, match="has no broker_id"):
        read_owner(str(tmp_path), FileLayer())


def test_the_bytes_of_a_checked_file() -> None:
    data = encode_checked({"broker_id": 3})
    assert data == b'{"broker_id": 3}\n{"crc32": "8a931d6b"}\n'
    assert decode_checked(data) == {"broker_id": 3}
    for cut in range(len(data)):
        with pytest.raises(ValueError):
            decode_checked(data[:cut])
