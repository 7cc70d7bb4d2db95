"""What a log has of the sources of mirrors, in a file beside its segments: `sources.positions`.

Once it *takes* ranges, every range is written down before its bytes are appended, in this order:

    begin        "opened" is on disk
    append       a record of the range -> the range's bytes       (both into the page cache)
    flush        a checkpoint, if other bytes came after the last range -> fdatasync of this file
                 -> fdatasync of the segments -> the high watermark moves
    close        "closed" is on disk, with everything

So after a stop that wasn't clean:

- The machine went on (`kill -9`): the files are as they were written. Of a range that isn't there
  the record goes, and of one that is there in part that part goes, too.
- The machine was started again, which the boot id tells: of what no flush had covered anything may
  be there, and anything not. The log keeps what the records that are there account for; after that
  there may be ranges whose records are lost, so that goes: it was never acknowledged nor visible.
- After "closed" there are no ranges, whoever has appended: nothing goes. Kafka 0.7, which knows
  nothing of this file, may have been at work.

What is kept is written to a new file, and that one is "closed". A file that grows beyond several
times what its contents need is replaced while the log is in use. One that is damaged is set aside
under another name, and no range is taken until somebody has looked.
"""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from errno import ESTALE
from typing import Final

from hermes.errors import CorruptLogError
from hermes.protocol import SourceFlags, SourceSpan
from hermes.storage.descriptors import CachedFile, DescriptorCache
from hermes.storage.files import FileLayer, exists, identity, read_exactly, write_all
from hermes.storage.source_records import (
    HEADER,
    Checkpoint,
    Closed,
    Copied,
    Named,
    Opened,
    Record,
    encode_record,
    is_whole,
    parse_records,
    records_beyond,
)
from hermes.storage.source_spans import SourceRange, SourceSpans

POSITIONS_NAME: Final = "sources.positions"
_DRAFT_NAME: Final = f"{POSITIONS_NAME}.new"
DAMAGED_NAME: Final = f"{POSITIONS_NAME}.damaged"

#: The files that belong to a log besides its segments, in the order to delete them.
POSITIONS_NAMES: Final = (_DRAFT_NAME, POSITIONS_NAME)

#: A file is replaced by a shorter one when it has this size, and several times what it needs.
_LEAST_REWRITE_BYTES: Final = 64 * 1024
_REWRITE_FACTOR: Final = 4

#: The largest file that is believed: many times what one that is replaced in time can have.
_MAX_BYTES: Final = 256 * 1024 * 1024


class SourcePositions:
    """The sources of one log. The log's lock guards it, its lock for flushes what takes long.

    Attributes:
        takes_ranges: whether ranges may be appended.
        is_set_aside: whether there was a file that is damaged.
    """

    def __init__(self, directory: str, files: FileLayer, descriptors: DescriptorCache) -> None:
        self._directory = directory
        self._files = files
        self._descriptors = descriptors
        self.is_set_aside = False
        self._start_over()

    def _start_over(self) -> None:
        self.spans = SourceSpans()
        self.takes_ranges = False
        self._file = CachedFile(os.path.join(self._directory, POSITIONS_NAME))
        self._descriptor = -1  # open while something isn't synced
        self._is_dirty = self._is_name_new = False
        self._is_there = self._is_torn = False
        self._size = 0
        self._rewrite_at = _LEAST_REWRITE_BYTES
        self._since: list[bytes] | None = None  # what is written while the file is replaced
        self._named = 0  # how many sources the file names
        self._moved: set[int] = set()  # whose positions the file doesn't tell
        # What the file says: whether ranges may follow, in which start of the machine, up to where
        # they are written down, and up to where the log was flushed for certain.
        self._is_open = self._has_state = False
        self._boot_id = ""
        self._accounted = self._proven = 0
        self._fitted: SourceSpans | None = None

    # -- loading --------------------------------------------------------------------------------

    @classmethod
    def load(
        cls, directory: str, files: FileLayer, descriptors: DescriptorCache, *, clean: bool
    ) -> "SourcePositions | None":
        """Read a log's file; None when it has none.

        `clean`: whether the last stop was: then nothing can be missing at its end.
        """
        loaded = cls(directory, files, descriptors)
        data = read_positions(directory, files)
        if data is None:
            return None
        loaded._read(data)
        if not data.startswith(HEADER) or (loaded._is_torn and (clean or loaded._is_damaged(data))):
            loaded._set_aside()
        return loaded

    def _read(self, data: bytes) -> None:
        self._is_there, self._size = True, len(HEADER)
        for record, end in parse_records(data):
            if not self._replay(record):
                break
            self._size = end
        self._named = len(self.spans.names)
        self._is_torn = self._size < len(data)

    def _is_damaged(self, data: bytes) -> bool:
        beyond = tuple(records_beyond(data, self._size))
        if not self._is_open:  # "opened" is on disk before anything is written after it
            return not self._has_state or bool(beyond)
        if self._is_same_boot():  # a kill cuts the last write off
            return bool(beyond) or is_whole(data, self._size)
        # A power loss takes what no flush had covered.
        return any(
            not isinstance(each, Named) and each.flushed > self._accounted for each in beyond
        )

    def _replay(self, record: Record) -> bool:
        """Take a record in; False for one that can't follow what came before."""
        match record:
            case Named(number, name):
                if number != len(self.spans.names) or self.spans.number(name) is not None:
                    return False
                self.spans.add(name)
                return True
            case Copied(span, flushed):
                if not 0 <= span.number < len(self.spans.names):
                    return False
                self.spans.note(span, flushed)
                end = span.log_end
            case Opened(boot_id, end, flushed):
                self._is_open, self._boot_id, self._has_state = True, boot_id, True
            case Closed(end, flushed):
                self._is_open, self._has_state = False, True
            case Checkpoint(end, flushed):
                pass
        self._accounted, self._proven = max(self._accounted, end), max(self._proven, flushed)
        return True

    def _set_aside(self) -> None:
        """Keep a damaged file for whoever looks, and know nothing."""
        self._files.rename(self._file.path, os.path.join(self._directory, DAMAGED_NAME))
        self._start_over()
        self.is_set_aside = True

    def end_for(self, start: int, end: int, bad_ranges: Sequence[tuple[int, int]]) -> int:
        """As `Sidecar.end_for`; `settle` makes it so.

        Raises OSError: the file is damaged, and can't be set aside.
        """
        if self._is_open and not self._is_same_boot():
            if self._accounted < start:  # records of what was flushed are missing
                self._set_aside()
                return end
            end = min(end, self._accounted)
        damaged = self.spans.first_damaged(bad_ranges, max(start, self._proven))
        if damaged is not None:
            end = min(end, damaged)
        self._fitted = self.spans.copy()
        return self._fitted.fit(end, start)

    def _is_same_boot(self) -> bool:
        return self._boot_id != "" and self._boot_id == self._files.boot_id()

    def settle(self, end: int) -> None:
        """Start from a log that was loaded or recovered up to `end`, all of it flushed. Blocks.

        Raises OSError: the disk failed; load it again, or recover again.
        """
        fitted = self._fitted
        if fitted is None:
            fitted = self.spans.copy()
            fitted.fit(end, end)
        is_changed = fitted.positions != self.spans.positions
        if self._is_there and (is_changed or self._is_open or self._is_torn):
            self._named = len(fitted.names)
            self._replace(self._image(fitted, Closed(end, end)))
        self.spans, self._fitted = fitted, None
        self._moved.clear()
        self.takes_ranges = self._is_open = self._is_torn = False
        self._accounted = self._proven = end

    # -- writing --------------------------------------------------------------------------------

    def begin(self, end: int, flushed: int) -> None:
        """Take ranges from now on, of a log that ends at `end`. Blocks.

        Raises:
            CorruptLogError: a damaged file was set aside, and somebody has to look.
            OSError: the disk refused. What the file says now isn't certain, but for a want of room
                or of descriptors: then it says what it did.
        """
        damaged = os.path.join(self._directory, DAMAGED_NAME)
        if exists(damaged, self._files):
            raise CorruptLogError(
                f"{damaged} is damaged, so it isn't known what mirrors have stored here; restore "
                "the partition from a backup, or remove that file to go on: what was stored before "
                "may be stored again"
            )
        opened = Opened(self._files.boot_id(), end, flushed)
        self._is_open, self._boot_id = True, opened.boot_id  # for all that is known from here on
        if self._is_there:
            mark = self.mark()
            try:
                self.prepare()
                self._write(encode_record(opened))
                self.sync()
            except OSError:
                self.cancel(mark)
                self._is_open = False
                raise
        else:
            self._replace(self._image(self.spans, opened))
        self._accounted, self._proven = end, flushed
        self.takes_ranges = True

    def mark(self) -> tuple[int, int, int]:
        return self._size, self._named, self._accounted

    def prepare(self) -> None:
        if self._descriptor < 0:
            self._descriptor = self._descriptors.acquire(self._file, writable=True)

    def write(self, wanted: SourceRange, log_begin: int, log_end: int, flushed: int) -> SourceSpan:
        """Write down where a new range is about to be appended: one write into the page cache.

        `prepare` comes first; `spans.note` or `cancel` follows. Raises OSError: the disk refused;
        `cancel` it.
        """
        _, begin, end, flags = wanted
        number = self.number(wanted.source)
        span = SourceSpan(number, flags & SourceFlags.VERBATIM, begin, end, log_begin, log_end)
        self.write_spans((span,), flushed)
        return span

    def write_spans(self, spans: Sequence[SourceSpan], flushed: int) -> None:
        """The same of spans that lie elsewhere, of sources that have numbers; at least one."""
        named = max(each.number for each in spans) + 1
        records = [encode_record(Copied(each, flushed)) for each in spans]
        self._write(b"".join((self._names(named), *records)))
        self._named = max(self._named, named)
        self._accounted = max(self._accounted, *(each.log_end for each in spans))

    def move(self, wanted: SourceRange) -> None:
        """Move a position over a range of which nothing is appended.

        The next flush writes that down, and so does a clean stop: nothing is lost with it but time,
        and a partition may get nothing else for days.
        """
        number = self.number(wanted.source)
        self.spans.positions[number] = wanted.end
        self._moved.add(number)

    def number(self, source: str) -> int:
        number = self.spans.number(source)
        return self.spans.add(source) if number is None else number

    def _names(self, end: int) -> bytes:
        if end <= self._named:
            return b""
        names = enumerate(self.spans.names[self._named : end], start=self._named)
        return b"".join(encode_record(Named(*each)) for each in names)

    def _write_moved(self, end: int, flushed: int, *others: Record) -> None:
        """Write down positions that have moved, and other records after them.

        Raises OSError: the disk refused; nothing has changed, or that can't be made so.
        """
        named = max(self._moved, default=-1) + 1
        parts = [self._names(named)]
        for number in sorted(self._moved):
            position = self.spans.positions[number]
            moved = SourceSpan(number, 0, position, position, end, end)
            parts.append(encode_record(Copied(moved, flushed)))
        mark = self.mark()
        self.prepare()
        try:
            self._write(b"".join((*parts, *map(encode_record, others))))
        except OSError:
            self.cancel(mark)
            raise
        self._named = max(self._named, named)
        self._accounted = max(self._accounted, end)
        self._moved.clear()

    def _write(self, data: bytes) -> None:
        try:
            write_all(self._files, self._descriptor, (data,), self._size)
        finally:
            self._is_dirty = True  # not before: a sync in another thread would take it for its own
        self._size += len(data)
        if self._since is not None:
            self._since.append(data)

    def cancel(self, mark: tuple[int, int, int]) -> None:
        """Take back what was written since a mark, in one hold of the log's lock."""
        if self._descriptor < 0:
            return
        if self._since and self._size > mark[0]:
            self._since.pop()
        self._size, self._named, self._accounted = mark
        self._files.ftruncate(self._descriptor, self._size)

    # -- flushing -------------------------------------------------------------------------------

    def checkpoint(self, end: int, flushed: int) -> None:
        """Before a flush: write down that all ranges before the log's end are; `sync` follows.

        Raises OSError: the disk refused; nothing has changed, or that can't be made so.
        """
        if self._is_dirty:
            self.prepare()
        if self.takes_ranges and (self._moved or end > self._accounted):
            self._write_moved(end, flushed, Checkpoint(end, flushed))

    def sync(self) -> None:
        """Put on disk what was written, where a later start looks for it. Needs no lock.

        Raises OSError: the disk failed, or the file isn't where it was.
        """
        if self._is_name_new:
            self._descriptors.opening(self._files.fsync_directory, self._directory)
            self._is_name_new = False
        if not self._is_dirty:
            return
        self._is_dirty = False
        try:
            self._files.fdatasync(self._descriptor)
            self._check_place()
        except BaseException:
            self._is_dirty = True
            raise

    def _check_place(self) -> None:
        try:
            is_same = identity(self._files.lstat(self._file.path)) == self._file.identity
        except (FileNotFoundError, NotADirectoryError):
            is_same = False
        if not is_same:
            raise OSError(ESTALE, f"{self._file.path} was removed or replaced")

    def tidy(self, lock: AbstractContextManager[object], earliest: int, flushed: int) -> None:
        """After a flush: close the file, forget what was deleted, replace a file that is too large.

        The log's lock is held for moments only.
        """
        with lock:
            self.spans.drop_before(earliest)
            if not self._is_dirty:
                self.release()
            if self._size < self._rewrite_at or not self.takes_ranges:
                return
            spans, opened = self.spans.copy(), Opened(self._boot_id, self._accounted, flushed)
            self._since = []
        try:
            self._replace(self._image(spans, opened), lock)
        except OSError:
            # The old one stands, or a sync says what is wrong.
            self._rewrite_at = 2 * self._size
        finally:
            with lock:
                self._since = None

    def release(self) -> None:
        if self._descriptor >= 0:
            self._descriptors.release(self._file)
            self._descriptor = -1

    def close(self, end: int) -> None:
        """Say that all of the log is flushed, if ranges were taken. Blocks.

        Raises OSError: the disk refused; the next start has to look then.
        """
        if self.takes_ranges:
            self.takes_ranges = False
            self._write_moved(end, end, Closed(end, end))
            self.sync()

    def retire(self) -> None:
        self.takes_ranges = False
        self.release()
        self._descriptors.retire(self._file)

    # -- replacing ------------------------------------------------------------------------------

    def _image(self, spans: SourceSpans, state: Opened | Closed) -> bytes:
        names, flushed = spans.names[: self._named], state.flushed
        parts = [HEADER, *(encode_record(Named(*each)) for each in enumerate(names))]
        told = [-1] * len(names)
        for span in spans.spans():
            parts.append(encode_record(Copied(span, flushed)))
            told[span.number] = span.source_end
        for number, position in enumerate(spans.positions[: len(names)]):
            if position != told[number]:
                moved = SourceSpan(number, 0, position, position, state.end, state.end)
                parts.append(encode_record(Copied(moved, flushed)))
        return b"".join((*parts, encode_record(state)))

    def _replace(self, image: bytes, lock: AbstractContextManager[object] | None = None) -> None:
        """Put a new file in the place of what is there, with what is written meanwhile."""
        files, draft = self._files, os.path.join(self._directory, _DRAFT_NAME)
        with suppress(FileNotFoundError):
            files.unlink(draft)
        descriptor = self._descriptors.opening(files.open_new, draft)
        try:
            write_all(files, descriptor, (image,), 0)
            files.fdatasync(descriptor)
            with lock or nullcontext():
                since = b"".join(self._since or ())
                write_all(files, descriptor, (since,), len(image))
                self._is_name_new = True
                files.rename(draft, self._file.path)
                self._adopt(len(image) + len(since), is_dirty=bool(since))
        except OSError:
            with suppress(OSError):
                files.unlink(draft)
            raise
        finally:
            files.close(descriptor)
        self._descriptors.opening(files.fsync_directory, self._directory)
        self._is_name_new = False

    def _adopt(self, size: int, *, is_dirty: bool) -> None:
        self.release()
        self._descriptors.retire(self._file)
        self._file = CachedFile(self._file.path)
        self._size, self._is_there, self._is_dirty = size, True, is_dirty
        self._rewrite_at = max(_LEAST_REWRITE_BYTES, _REWRITE_FACTOR * size)
        self._since = None


def read_positions(directory: str, files: FileLayer) -> bytes | None:
    path = os.path.join(directory, POSITIONS_NAME)
    if not exists(path, files):
        return None
    descriptor = files.open_read(path)
    try:
        size = files.fstat(descriptor).st_size
        return read_exactly(files, descriptor, min(size, _MAX_BYTES), 0)
    finally:
        files.close(descriptor)
