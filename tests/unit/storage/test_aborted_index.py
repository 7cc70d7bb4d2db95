"""What was aborted is told at all times, also while a log is recovered or cut."""

from pathlib import Path
from typing import Any

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
