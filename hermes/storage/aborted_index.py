"""Kafka's `.txnindex`: which transactions were aborted, beside the segment with the marker.

    <base>.txnindex   entries of 34 bytes, in the order of the markers:
    + 0   2  int16  version: 0
    + 2   8  int64  producer id
    + 10  8  int64  the transaction's first offset
    + 18  8  int64  its marker's
    + 26  8  int64  the last stable offset once it had ended

An entry is written before its marker is appended, into the page cache, and put on disk before the
flush that covers the marker: who may read the marker finds the entry. What a crash leaves beyond
the log's end, or takes, is mended from the batches when the log is opened. Nothing but where each
file's entries lie is in memory.

Format: Kafka 4 (`TransactionIndex`).
"""

import os
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from hermes.storage.checkpoints import CLEANED_SUFFIX
from hermes.storage.files import FileLayer, read_exactly, write_all
from hermes.storage.segment import parse_segment_name, segment_name

ABORTED_SUFFIX: Final = ".txnindex"

_LOG_SUFFIX: Final = ".log"
_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
_BLOCK: Final = 512
#: What most logs have, and there may be thousands of them.
_NONE: Final = frozenset[int]()


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted.

    Attributes:
        last_offset: its marker's.
        stable_offset: the last stable offset once it had ended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


class _File(NamedTuple):
    """What is known of a segment's entries, of which there are some."""

    entries: int
    first_offset: int
    last_offset: int


class AbortedIndex:
    """The entries of one log.

    `append` and `undo` belong under the log's lock, `find` in any thread, all else under the log's
    lock for flushes.

    Attributes:
        newest: the largest offset of a marker that aborts; -1 without any.
        is_dirty: whether `sync` has something to do.
    """

    __slots__ = (
        "_bases",
        "_directory",
        "_dirty",
        "_files",
        "_known",
        "_replacing",
        "_torn",
        "is_dirty",
        "newest",
    )

    def __init__(self, directory: str, files: FileLayer) -> None:
        self._directory = directory
        self._files = files
        # While files are read, or others take their place; no other lock is taken in it.
        self._replacing = threading.Lock()
        self._known: dict[int, _File] = {}
        self._bases: list[int] = []
        self._torn = _NONE  # those of which what follows the last entry is none
        self._dirty = _NONE
        self.is_dirty = False
        self.newest = -1

    def _path(self, base: int) -> str:
        return os.path.join(self._directory, segment_name(base, ABORTED_SUFFIX))

    # -- asking ---------------------------------------------------------------------------------

    def find(self, base: int, start: int, end: int) -> list[AbortedTransaction]:
        """List what was aborted of a range of offsets. Reads files where there may be something.

        Args:
            base: of the segment that holds the start.
            end: the offset after the range's last one.

        Raises OSError: FileNotFoundError for a segment that was deleted meanwhile, for one.
        """
        found: list[AbortedTransaction] = []
        if start > self.newest:
            return found
        with self._replacing:
            bases = self._bases
            for each in bases[bisect_left(bases, base) :]:
                known = self._known.get(each)
                if known is None or known.last_offset < start:
                    continue
                for entry in self._read(each, known.entries, start):
                    if entry.first_offset < end:
                        found.append(entry)
                    if entry.stable_offset >= end:
                        return found
        return found

    def _read(self, base: int, count: int, start: int = 0) -> Iterator[AbortedTransaction]:
        """The entries whose markers are at an offset or behind it."""
        descriptor = self._files.open_read(self._path(base))
        try:

            def block(first: int, length: int) -> Iterator[AbortedTransaction]:
                length = min(length, count - first) * _ENTRY.size
                data = read_exactly(self._files, descriptor, length, first * _ENTRY.size)
                return (AbortedTransaction(*each[1:]) for each in _ENTRY.iter_unpack(data))

            first = 0
            if start:
                first = bisect_left(range(count), start, key=lambda n: next(block(n, 1))[2])
            for number in range(first, count, _BLOCK):
                yield from block(number, _BLOCK)
        finally:
            self._files.close(descriptor)

    # -- growing --------------------------------------------------------------------------------

    def append(self, base: int, entries: Sequence[AbortedTransaction]) -> None:
        """Write what ends with markers that are about to be appended to a segment.

        Raises OSError: nothing of it counts.
        """
        known = self._known.get(base)
        count = 0 if known is None else known.entries
        descriptor = self._files.open_append(self._path(base), create=True)
        try:
            write_all(self._files, descriptor, [_encoded(entries)], count * _ENTRY.size)
        finally:
            self._files.close(descriptor)
        self._note(base, entries, known)
        self.newest = max(self.newest, entries[-1].last_offset)
        self._dirty |= {base}
        self.is_dirty = True

    def undo(self, base: int, count: int) -> None:
        """Of the entries of a segment the last ones don't count: their markers aren't there.

        They are written over, or left to `settle`. What is known of the rest may be too wide.
        """
        known = self._known[base]
        if known.entries > count:
            self._known[base] = known._replace(entries=known.entries - count)
        else:
            del self._known[base]
            self._bases.remove(base)

    def _note(self, base: int, entries: Sequence[AbortedTransaction], known: _File | None) -> None:
        first = min(each.first_offset for each in entries)
        if known is not None:
            first = min(first, known.first_offset)
        elif base not in self._known:
            insort(self._bases, base)
        last, before = entries[-1].last_offset, 0 if known is None else known.entries
        self._known[base] = _File(before + len(entries), first, last)

    def sync(self) -> None:
        """Put on disk what was written so far."""
        dirty, self._dirty, self.is_dirty = self._dirty, _NONE, False
        try:
            for base in dirty:
                with suppress(FileNotFoundError):  # its segment was deleted
                    self._sync(base)
            self._files.fsync_directory(self._directory)
        except OSError:
            self._dirty, self.is_dirty = self._dirty | dirty, True
            raise

    def _sync(self, base: int) -> None:
        descriptor = self._files.open_append(self._path(base))
        try:
            self._files.fdatasync(descriptor)
        finally:
            self._files.close(descriptor)

    # -- what there is --------------------------------------------------------------------------

    def load(self) -> None:
        """Look through the files that there are; what is damaged at an end doesn't count."""
        # Apart: of a log that is recovered readers ask meanwhile.
        found = AbortedIndex(self._directory, self._files)
        for name in sorted(self._files.listdir(self._directory)):
            parsed = parse_segment_name(name, _LOG_SUFFIX)
            if parsed is not None and parsed[1] == ABORTED_SUFFIX:
                found._load(parsed[0])
        with self._replacing:
            self._known, self._bases = found._known, found._bases
            self._torn, self.newest = found._torn, found.newest

    def _load(self, base: int) -> None:
        descriptor = self._files.open_read(self._path(base))
        try:
            size = self._files.fstat(descriptor).st_size
            data = read_exactly(self._files, descriptor, size - size % _ENTRY.size, 0)
        finally:
            self._files.close(descriptor)
        entries: list[AbortedTransaction] = []
        last = -1
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            if version != _VERSION or not last < entry.last_offset >= entry.first_offset >= 0:
                break
            entries.append(entry)
            last = entry.last_offset
        if len(entries) * _ENTRY.size < size:
            self._torn |= {base}
        if entries:
            self._note(base, entries, None)
            self.newest = max(self.newest, last)

    def settle(self, bases: Sequence[int], since: int, found: Iterable[AbortedTransaction]) -> None:
        """Let the files say of a log's part from an offset on what its batches do.

        Args:
            bases: of the log's segments.
            since: up to where the files are believed.
            found: what was aborted, by the markers' offsets.
        """
        by_base: dict[int, list[AbortedTransaction]] = {}
        for each in found:
            base = bases[bisect_right(bases, each.last_offset) - 1]
            by_base.setdefault(base, []).append(each)
        self.load()
        # After a sync that failed, what was written may be in memory only.
        doubtful = self._torn | self._dirty
        for base in sorted({*self._bases, *doubtful, *by_base}):
            if base not in bases:
                with suppress(FileNotFoundError):
                    self._files.unlink(self._path(base))
                continue
            known = self._known.get(base)
            is_whole = base not in by_base and (known is None or known.last_offset < since)
            if is_whole and base not in doubtful:
                continue
            there = [] if known is None else list(self._read(base, known.entries))
            kept = [each for each in there if each.last_offset < since]
            wanted = kept + by_base.get(base, [])
            if wanted != there or base in doubtful:
                self._rewrite(base, wanted)
        self._dirty, self.is_dirty = _NONE, False
        self.load()

    def forget(self, base: int, is_gone: Callable[[AbortedTransaction], bool]) -> None:
        """Remove entries whose markers compaction is about to remove; on disk on return.

        Of a complete segment, in any thread.
        """
        known = self._known.get(base)
        if known is None:
            return
        there = list(self._read(base, known.entries))
        kept = [each for each in there if not is_gone(each)]
        if len(kept) < len(there):
            self._draft(base, kept)
            with self._replacing:  # else a reader would take the new file for the old one
                self._take_draft(base, kept)
                self._known.pop(base)
                self._bases.remove(base)
                if kept:
                    self._note(base, kept, None)
            self._files.fsync_directory(self._directory)

    def _rewrite(self, base: int, entries: Sequence[AbortedTransaction]) -> None:
        self._draft(base, entries)
        self._take_draft(base, entries)
        self._files.fsync_directory(self._directory)

    def _take_draft(self, base: int, entries: Sequence[AbortedTransaction]) -> None:
        path = self._path(base)
        if entries:
            self._files.rename(path + CLEANED_SUFFIX, path)
        else:
            with suppress(FileNotFoundError):
                self._files.unlink(path)

    def _draft(self, base: int, entries: Sequence[AbortedTransaction]) -> None:
        if not entries:
            return
        draft = self._path(base) + CLEANED_SUFFIX
        with suppress(FileNotFoundError):
            self._files.unlink(draft)
        descriptor = self._files.open_new(draft)
        try:
            write_all(self._files, descriptor, [_encoded(entries)], 0)
            self._files.fdatasync(descriptor)
        finally:
            self._files.close(descriptor)

    def begin_at(self, base: int) -> None:
        """The log begins with this segment: what lies before is deleted with its segments."""
        gone = self._bases[: bisect_left(self._bases, base)]
        for each in gone:
            self._known.pop(each, None)
        if gone:
            self._bases = self._bases[len(gone) :]


def _encoded(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *each) for each in entries)
