"""The file of what was set for single topics."""

import json
from pathlib import Path
from typing import Any

import pytest
from storage_fakes import Crash, WatchedFiles

from hermes.errors import CorruptEntriesError, DiskFullError, StorageError
from hermes.offline.inspection import Limits
from hermes.offline.verification import DirectoryCheck
from hermes.storage.files import FileLayer
from hermes.storage.topic_entries import ENTRIES_NAME, EntryLines, read_entries, write_entries

OLD = {"clicks": {"partitions": "8", "retention_time": "30d"}, "\u00e9": {}}
NEW = {"clicks": {"flush_messages": "10"}}
FILES = FileLayer()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert read_entries(directory, FILES) == {}
    for entries in (OLD, NEW, {}):
        write_entries(directory, entries, FILES)
        assert read_entries(directory, FILES) == entries
    assert [path.name for path in tmp_path.iterdir()] == [ENTRIES_NAME]


def test_a_new_topic_costs_the_encoding_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[Any] = []
    dumps = json.dumps
    monkeypatch.setattr(json, "dumps", lambda value: encoded.append(value) or dumps(value))
    lines, entries = EntryLines(), {}
    for number in range(100):
        entries = {**entries, f"topic-{number}": {"partitions": str(number)}}
        write_entries(str(tmp_path), entries, FILES, lines)
    assert sum("settings" in each for each in encoded) == 100
    entries = {**entries, "topic-7": {"partitions": "8"}}
    del entries["topic-9"]
    write_entries(str(tmp_path), entries, FILES, lines)
    assert sum("settings" in each for each in encoded) == 101
    assert read_entries(str(tmp_path), FILES) == entries


def test_a_person_can_read_it(tmp_path: Path) -> None:
    write_entries(str(tmp_path), NEW, FILES)
    lines = (tmp_path / ENTRIES_NAME).read_text().splitlines()
    assert json.loads(lines[1]) == {"topic": "clicks", "settings": {"flush_messages": "10"}}


def test_any_damage_is_noticed(tmp_path: Path) -> None:
    write_entries(str(tmp_path), OLD, FILES)
    path = tmp_path / ENTRIES_NAME
    data = path.read_bytes()
    damaged = [data[:length] for length in range(len(data))]
    damaged += [data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :] for n in range(len(data))]
    damaged += [data + b"x", data + data, b"\n", b"null\n"]
    for each in damaged:
        path.write_bytes(each)
        with pytest.raises(CorruptEntriesError, match="move it away"):
            read_entries(str(tmp_path), FILES)


def test_check_log_finds_the_damage(tmp_path: Path) -> None:
    write_entries(str(tmp_path), OLD, FILES)
    check = DirectoryCheck(tmp_path, Limits(), pause=lambda: None)
    assert list(check.run()) == []
    path = tmp_path / ENTRIES_NAME
    path.write_bytes(path.read_bytes()[:-1])
    (finding,) = check.run()
    assert (finding.kind, finding.path) == ("problem", ENTRIES_NAME)
    assert "is damaged" in finding.text


class FailingCall(WatchedFiles):
    """Raises at its nth call."""

    def __init__(self, number: int, error: BaseException) -> None:
        super().__init__()
        self.left = number
        self.error = error

    def before(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        self.left -= 1
        if not self.left:
            raise self.error
        return arguments


@pytest.mark.parametrize("error", [OSError(28, "no space"), Crash()], ids=["full", "crash"])
def test_whatever_fails_there_is_the_old_one_or_the_new_one(
    tmp_path: Path, error: BaseException
) -> None:
    write_entries(str(tmp_path), OLD, FILES)
    found = []
    for number in range(1, 20):
        files = FailingCall(number, error)
        try:
            write_entries(str(tmp_path), NEW, files)
        except (DiskFullError, StorageError, Crash):
            found.append(read_entries(str(tmp_path), FILES))
        files.close_all()
        if files.left > 0:
            break
        write_entries(str(tmp_path), OLD, FILES)
    assert read_entries(str(tmp_path), FILES) == NEW
    assert found[0] == OLD
    assert found[-1] in (OLD, NEW)
    assert all(each in (OLD, NEW) for each in found)
    assert len(found) >= 6
