"""What was aborted is told at all times, also while a log is recovered or cut."""

from pathlib import Path
from typing import Any

import pytest

from hermes.storage import aborted_index
from hermes.storage.aborted_index import AbortedIndex, AbortedTransaction
from hermes.storage.files import FileLayer


def test_while_files_are_looked_through_what_was_known_is_told(tmp_path: Path) -> None:
    """A log that its disk has failed is served while it is recovered: its consumers ask on."""
    files = FileLayer()
    index = AbortedIndex(str(tmp_path), files)
    entry = AbortedTransaction(7, 3, 9, 3)
    index.append(0, [entry])
    told: list[Any] = []
    open_read = files.open_read

    def asked_meanwhile(path: str) -> int:
        if not told:
            told.append(None)
            told.append((index.newest, index.find(0, 0, 20)))
        return open_read(path)

    files.open_read = asked_meanwhile  # type: ignore[method-assign]
    index.settle([0], 20, [])
    assert told[1] == (9, [entry])


def test_what_is_aborted_while_compaction_removes_entries_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = AbortedIndex(str(tmp_path), FileLayer())
    index.append(0, [AbortedTransaction(7, each, each + 5, each) for each in (0, 10)])
    late = [AbortedTransaction(7, 20, 25, 20)]
    wanted = late[:]

    def larger(*numbers: int) -> int:
        """The reactor's thread comes in before the result is stored."""
        found = max(*numbers)
        if late:
            index.append(20, [late.pop()])
        return found

    monkeypatch.setattr(aborted_index, "max", larger, raising=False)
    index.forget(0, lambda each: each.last_offset < 10)
    larger(0, 1)  # if it hasn't come in yet
    assert index.find(20, 20, 30) == wanted
