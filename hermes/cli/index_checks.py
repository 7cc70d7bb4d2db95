"""Whether a time index tells the truth about its segment.

A time index is a comfort: whatever is wrong with it is ignored by the broker, and costs accuracy
of times and speed of recovery, never a message. Layout and meaning: `hermes.storage.time_index`.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from hermes.cli.segments import SegmentFile
from hermes.storage.time_index import (
    ENTRY_BYTES,
    SYNC_EVERY_BYTES,
    TAIL_BYTES,
    IndexEntry,
    decode_entry,
)

__all__ = ["IndexFault", "index_faults"]


class IndexFault(NamedTuple):
    """Something wrong with an index.

    Attributes:
        kind: `problem` when the disk has damaged it, `notice` for what a crash leaves behind and
            the broker puts right by itself.
        text: what is wrong.
    """

    kind: str
    text: str


def index_faults(
    data: bytes, segment: SegmentFile, *, will_be_mended: bool
) -> Iterator[IndexFault]:
    """Check an index.

    Args:
        data: the index file's bytes, read before the segment was opened, so that every entry
            speaks of bytes that the segment has.
        segment: the segment it belongs to.
        will_be_mended: whether the broker's next start recovers the segment, and so leaves out of
            its index what a power loss has torn.

    Yields:
        At most one fault of a kind, with how many entries have it.
    """
    entries = [
        decode_entry(data, position)
        for position in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES)
    ]
    torn = len(data) % ENTRY_BYTES > 0
    while entries and entries[-1] is None:
        torn = True
        entries.pop()
    if torn:
        yield IndexFault("notice", "its end is torn; the broker ignores that")
    good = [entry for entry in entries if entry is not None]
    mended_from = _unsynced(entries) if will_be_mended else len(entries)
    for kind, part, what_comes in (
        ("problem", entries[:mended_from], ""),
        ("notice", entries[mended_from:], "; recovery leaves them out"),
    ):
        if damaged := part.count(None):
            text = f"{damaged} of {len(entries)} entries are damaged{what_comes}"
            yield IndexFault(kind, text)
        if unordered := _unordered([entry for entry in part if entry is not None]):
            text = f"{unordered} of {len(good)} entries are out of order{what_comes}"
            yield IndexFault(kind, text)
    if foreign := sum(not _fits(entry, segment) for entry in good):
        yield IndexFault(
            "notice",
            f"{foreign} of {len(good)} entries are about other bytes than the segment has now; "
            "the broker ignores them",
        )


def _unsynced(entries: list[IndexEntry | None]) -> int:
    """The number of the first entry that a power loss may have torn: see `TimeIndex.mend`."""
    last = entries[-1] if entries else None
    known = last.end_offset - SYNC_EVERY_BYTES if last is not None else 0
    for number in reversed(range(len(entries))):
        entry = entries[number]
        if entry is not None and entry.end_offset < known:
            return number + 1
    return 0


def _unordered(entries: list[IndexEntry]) -> int:
    """How many entries are earlier, in time or offset, than the one before."""
    return sum(
        after.time_ms < before.time_ms or after.end_offset < before.end_offset
        for before, after in pairwise(entries)
    )


def _fits(entry: IndexEntry, segment: SegmentFile) -> bool:
    if not segment.base_offset < entry.end_offset <= segment.end_offset:
        return False
    length = min(TAIL_BYTES, entry.end_offset - segment.base_offset)
    return crc32(segment.read(entry.end_offset - length, length)) == entry.tail_crc
