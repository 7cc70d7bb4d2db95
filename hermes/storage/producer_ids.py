"""The file of the next producer id that nobody has had: `.hermes_producer_ids` in log_dir.

One decimal number. It is replaced before any id below it is given out, and so never goes back. With
coordination the ids are taken there, and the file says where to go on should coordination be lost.
Of the file and its copy the larger number counts: an older version writes the file alone.

A partition may come from a Kafka, or go to one, whose ids begin at 0. A new producer with an id
that is known in the partition would be taken for the old one, and its first batches perhaps for
repeated ones. So ours begin where no Kafka gets to, and leave out those that a log knows (a backup
of another cluster's may have been restored).
"""

import os
from collections.abc import Iterable
from typing import Final

from hermes.errors import StorageError
from hermes.storage.files import FileLayer, storage_error
from hermes.storage.whole_files import mend_with_copy, read_whole, replace_with_copy

PRODUCER_IDS_NAME: Final = ".hermes_producer_ids"

#: The first id that is given out: Kafka's begin at 0, and it takes them by the thousand.
FIRST_PRODUCER_ID: Final = 1 << 40

_MOST_BYTES: Final = 32
_END: Final = 1 << 63


def read_producer_ids(directory: str, files: FileLayer) -> int:
    """Read the first id that is free; `FIRST_PRODUCER_ID` when there is no file. Blocks.

    Raises StorageError: the file holds something else, or can't be read.
    """
    path = os.path.join(directory, PRODUCER_IDS_NAME)
    try:
        data = read_whole(path, _MOST_BYTES, files)
    except OSError as error:
        raise storage_error(f"read {path}", error) from error
    if data is None:
        return FIRST_PRODUCER_ID
    following = _number(data.removesuffix(b"\n"))
    if following is None:
        raise StorageError(
            f"{path} holds no producer id; put back what was there, or write a number into it that "
            "is larger than the id of any producer so far"
        )
    return following


def mend_producer_ids(directory: str, files: FileLayer) -> str:
    def counts(line: bytes, copy: bytes | None) -> bool:
        number, other = _number(line), None if copy is None else _number(copy)
        return number is not None and (other is None or number >= other)

    return mend_with_copy(os.path.join(directory, PRODUCER_IDS_NAME), files, counts)


def _number(line: bytes) -> int | None:
    text = line.decode("ascii", "replace")
    return int(text) if text.isascii() and text.isdecimal() and int(text) < _END else None


def free_from(first: int, count: int, known: Iterable[int]) -> int:
    """Find the first of so many ids in a row, from an id on, of which none is known."""
    for each in sorted(known):
        if first <= each < first + count:
            first = each + 1
    return first


def write_producer_ids(directory: str, following: int, files: FileLayer) -> None:
    """Let all ids below a number be taken. Blocks; it is on disk when this returns.

    Raises StorageError: the disk refused.
    """
    if following >= _END:
        raise StorageError("no producer id is left")
    replace_with_copy(os.path.join(directory, PRODUCER_IDS_NAME), b"%d" % following, files)
