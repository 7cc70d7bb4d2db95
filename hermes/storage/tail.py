"""The tail of a log: what was appended and may not be on disk yet, and how a flush puts it there.

An append goes into the page cache at the log's end. A flush puts on disk what was appended until
it began: first the bytes, then the names of new files, then the promise that all this is on disk
(`.kafka`), and at last the entries of the time indexes. Only then may the log show it to readers.

The log's lock guards a tail; `sync` and `write_indexes` run without it, under the log's lock for
flushes, so that appends continue meanwhile. A tail lives from one opening of its log to the next.
"""

from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple
from zlib import crc32

from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import IOV_MAX, Buffer, FileLayer, NotInMemoryError, write_all
from hermes.storage.log_directory import LogDirectory
from hermes.storage.log_format import LogFormat
from hermes.storage.segment import UNFLUSHED_SUFFIX, FlushedEnd, LogView, Segment
from hermes.storage.settings import MAX_SEGMENT_BYTES, LogSettings
from hermes.storage.time_index import NO_CRC, TAIL_BYTES

#: How many entries wait for a flush at most; beyond it every second one is dropped, which makes
#: the index coarser and never wrong.
MAX_PENDING_ENTRIES = 4096

#: A segment with more messages than this takes no more: Kafka's indexes have 31 bits for them, and
#: one append may bring as many again.
MAX_SEGMENT_OFFSETS = 2**30

#: Of so many batches at most the flush knows what to index; the others it reads back.
MOST_NOTED: Final = 256

#: For how long an index stays open before it is looked for by its name again.
_INDEX_OPEN_MS: Final = 1000

#: Later than every time.
_NEVER_MS = 2**63
#: Earlier than every time.
_NO_ENTRY_MS = -(2**63)


class FlushWork(NamedTuple):
    """What one flush has to do: a snapshot, so that appends continue meanwhile.

    Attributes:
        appended_bytes: how many bytes were appended before, since the log was opened.
        dirty: the segments to sync, oldest first, with their descriptors.
        entries, batches: for the indexes, the second of the last segment: see `TimeIndex.write`.
        has_new_names: whether the directory must be synced.
    """

    end: FlushedEnd
    messages: int
    appended_bytes: int
    dirty: tuple[tuple[Segment, int], ...]
    entries: list[tuple[int, int, int]]
    batches: Sequence[tuple[int, int, int, int]]
    has_new_names: bool


class Tail:
    """What isn't flushed of one log.

    Args:
        descriptors: opens segments. Those with bytes (or names) that aren't on disk yet stay open
            until a flush has covered them.
        size_bytes: how large the active segment is.
        has_new_names: whether the directory must be synced already.

    Attributes:
        end: the offset after the last byte appended; the next append starts there.
        messages: how many were appended and not flushed.
        descriptor: the active segment's; -1 when `prepare` must come before the next append.
        roll_after_ms: the time after which the active segment is too old to be appended to.
    """

    __slots__ = (
        "_batches",
        "_counts_messages",
        "_descriptors",
        "_directory",
        "_dirty",
        "_entries",
        "_entry_ms",
        "_files",
        "_flushed_bytes",
        "_flushing",
        "_format",
        "_has_new_names",
        "_pwrite",
        "_rested",
        "_roll_beyond",
        "_rolled_bytes",
        "descriptor",
        "end",
        "messages",
        "roll_after_ms",
        "size_bytes",
    )

    def __init__(
        self,
        files: FileLayer,
        descriptors: DescriptorCache,
        directory: LogDirectory,
        log_format: LogFormat,
        end: int = 0,
        size_bytes: int = 0,
        *,
        has_new_names: bool = False,
    ) -> None:
        self._files = files
        self._descriptors = descriptors
        self._directory = directory
        self._format = log_format
        self._counts_messages = log_format.counts_messages
        self._pwrite = files.pwrite
        self.end = end
        self.size_bytes = size_bytes
        self.messages = 0
        # Of all that was appended: what lies in earlier segments, and what is flushed.
        self._rolled_bytes = 0
        self._flushed_bytes = size_bytes
        # For the time index: of each ms with appends that no flush has taken yet three numbers,
        # the ms, where the log ended then, and the CRC of its end. An array, since there may be
        # thousands of logs with hundreds of them each.
        self._entries = array("q")
        # For Kafka's indexes: of the active segment, what no flush has taken yet.
        self._batches: list[tuple[int, int, int, int]] = []
        self.descriptor = -1
        self.roll_after_ms = _NEVER_MS
        # Beyond this offset a segment is full whatever its size; for formats that count messages.
        self._roll_beyond = _NEVER_MS
        # The active segment, if the last flush has left nothing to be flushed.
        self._rested: Segment | None = None
        # Oldest first, contiguous up to the active one.
        self._dirty: list[tuple[Segment, int]] = []
        self._flushing: Sequence[tuple[int, int, int]] = ()
        self._has_new_names = has_new_names
        self._entry_ms = _NO_ENTRY_MS

    @property
    def first_ms(self) -> int | None:
        """When the oldest append that isn't flushed was made."""
        # Looked up once: a flush exchanges them, and not everybody who asks has the lock.
        flushing, entries = self._flushing, self._entries
        if flushing:
            return flushing[0][0]
        return entries[0] if entries else None

    @property
    def last_ms(self) -> int | None:
        """When the last append was made that no flush has taken yet."""
        return self._entries[-3] if self._entries else None

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(time_ms, end_offset), one for each ms with appends that no flush has taken yet."""
        entries = self._entries
        return list(zip(entries[::3], entries[1::3], strict=True))

    @property
    def unflushed_bytes(self) -> int:
        return self._rolled_bytes + self.size_bytes - self._flushed_bytes

    # -- append ---------------------------------------------------------------------------------

    def append(
        self,
        buffers: Sequence[Buffer],
        byte_count: int,
        message_count: int,
        now_ms: int,
        batches: Sequence[tuple[int, int, int]] = (),
    ) -> int:
        """Write at the end of the active segment; see `Log.append`.

        Raises OSError: nothing of it counts; `cut` must take off what was written of it.
        """
        position = self.size_bytes
        if len(buffers) == 1:
            written = self._pwrite(self.descriptor, buffers[0], position)
        else:
            some = buffers if len(buffers) <= IOV_MAX else buffers[:IOV_MAX]
            written = self._files.pwritev(self.descriptor, some, position)
        if written != byte_count:
            self._write_rest(buffers, byte_count, written)
        start = self.end
        self.size_bytes = position + byte_count
        if self._counts_messages:
            self.end = end = start + message_count
            if end > self._roll_beyond:
                self.roll_after_ms = _NO_ENTRY_MS
        else:
            self.end = end = start + byte_count
        self.messages += message_count
        last = buffers[-1] if buffers else b""
        if len(last) < TAIL_BYTES:
            last = b"".join(buffers[-2:])
            crc = crc32(last[-TAIL_BYTES:]) if len(last) >= TAIL_BYTES else NO_CRC
        else:
            crc = crc32(last[-TAIL_BYTES:])
        entries = self._entries
        if now_ms > self._entry_ms:
            if len(entries) >= 3 * MAX_PENDING_ENTRIES:
                self._drop_entries()
                entries = self._entries
            entries.extend((now_ms, end, crc))
            self._entry_ms = now_ms
        else:
            entries[-2] = end
            entries[-1] = crc
        noted = self._batches
        if batches and len(noted) < MOST_NOTED:
            for size, last_offset, newest_ms in batches:
                noted.append((position, size, last_offset, newest_ms))
                position += size
        elif noted and not batches:
            noted.clear()
        return start

    def _drop_entries(self) -> None:
        entries = list(zip(*[iter(self._entries)] * 3, strict=True))
        del entries[1:-1:2]
        self._entries = array("q", chain.from_iterable(entries))

    def _write_rest(self, buffers: Sequence[Buffer], byte_count: int, written: int) -> None:
        rest = list(buffers)
        if sum(map(len, rest)) != byte_count:
            self.cut()
            raise ValueError(f"byte_count is {byte_count}, the buffers hold {sum(map(len, rest))}")
        skipped = 0
        while rest and skipped + len(rest[0]) <= written:
            skipped += len(rest[0])
            del rest[0]
        if rest:
            rest[0] = memoryview(rest[0])[written - skipped :]
            write_all(self._files, self.descriptor, rest, self.size_bytes + written)

    def cut(self) -> None:
        """Take off what an append that failed has written: it may hold whole messages."""
        self._files.ftruncate(self.descriptor, self.size_bytes)

    def prepare(
        self, view: LogView, settings: LogSettings, now_ms: int, byte_count: int
    ) -> Segment | None:
        """Get ready to append so many bytes: open the active segment, roll if that is due.

        Returns:
            The new active segment after a roll, for the view; else None.

        Raises:
            FileExistsError: a segment can't be created, since something has its name.
            OSError: the disk failed, or there is no room or descriptor.
        """
        active = view.segments[-1]
        max_age_ms = settings.segment_age_ms
        rolled = None
        if self.descriptor < 0:
            self._pin(active)
        size = self.size_bytes
        if size and self.roll_after_ms == _NEVER_MS:
            first = active.index.first()
            self.roll_after_ms = (now_ms if first is None else first.time_ms) + max_age_ms
        is_full = self._counts_messages and self.end - active.base_offset > MAX_SEGMENT_OFFSETS
        is_due = size > settings.segment_bytes or now_ms > self.roll_after_ms
        is_due |= size + byte_count > MAX_SEGMENT_BYTES
        if is_full or (size and is_due):
            rolled = self._roll(active, is_flushed=view.flushed_end == self.end)
            size = 0
        self._roll_beyond = (rolled or active).base_offset + MAX_SEGMENT_OFFSETS
        # The earlier limit holds: a clock that was ahead when the segment began, and is right
        # again, must not keep it from ageing.
        limit = now_ms + max_age_ms
        self.roll_after_ms = min(self.roll_after_ms, limit) if size else limit
        return rolled

    def resume(self, settings: LogSettings, now_ms: int) -> None:
        """Get ready as `prepare` does, where the last flush has left the active segment open."""
        rested, self._rested = self._rested, None
        if rested is None:
            return
        try:
            descriptor = self._descriptors.acquire(rested.file, resident=True)
        except NotInMemoryError:
            return
        self._dirty.append((rested, descriptor))
        self.descriptor = descriptor
        limit = now_ms + settings.segment_age_ms
        if limit < self.roll_after_ms:
            self.roll_after_ms = limit

    def skip_to(self, start: int) -> None:
        """Before an append whose offset is given: end there, if the hole before it is large.

        `prepare` begins a segment then where the indexes of the active one have no bits for it.
        """
        if start - self.end > MAX_SEGMENT_OFFSETS // 2:
            self.end = start

    def _pin(self, active: Segment) -> None:
        if not self._dirty or self._dirty[-1][0] is not active:
            descriptor = self._descriptors.acquire(active.file, writable=True)
            self._dirty.append((active, descriptor))
            if not active.index.is_loaded:
                # An index that can't be read is done without.
                with suppress(OSError):
                    active.index.load(descriptor, self.end)
        self.descriptor = self._dirty[-1][1]

    def _roll(self, active: Segment, *, is_flushed: bool) -> Segment:
        """Begin a new segment at the end of the log; it is created, never taken over."""
        suffix = None if is_flushed else UNFLUSHED_SUFFIX
        segment = Segment(self._files, self._format, self._directory.path, self.end, suffix)
        if not is_flushed:
            segment.check_final_name()
        self._directory.check()
        self._begin(segment, active)
        return segment

    def _begin(self, segment: Segment, active: Segment) -> None:
        self.descriptor = self._descriptors.create(segment.file)
        active.size_bytes = self.size_bytes
        self._rolled_bytes += self.size_bytes
        segment.index.begin()
        self._dirty.append((segment, self.descriptor))
        self._has_new_names = True
        self._entry_ms = _NO_ENTRY_MS
        self._batches = []
        self.size_bytes = 0

    def replace(self, segments: Sequence[Segment]) -> Segment:
        """Let an empty segment stand in for all segments, once everything is flushed.

        Returns:
            The new one. It isn't called `.kafka` from the start: nothing is to be deleted before
            its name is on disk for certain, and then a flush calls it that.

        Raises:
            OSError: it can't be created; nothing was changed.
        """
        path = self._directory.path
        stand_in = Segment(self._files, self._format, path, self.end, UNFLUSHED_SUFFIX)
        self._begin(stand_in, segments[-1])
        self.forget(segments)
        # `prepare` has more to do before it is appended to.
        self.stop()
        return stand_in

    def stop(self) -> None:
        self.descriptor, self._rested = -1, None

    def release(self) -> None:
        self.stop()
        self.forget([segment for segment, _ in self._dirty])

    def forget(self, segments: Sequence[Segment]) -> None:
        for segment, _ in self._dirty:
            if segment in segments:
                self._descriptors.release(segment.file)
        if self._rested in segments:
            self._rested = None
        self._dirty = [each for each in self._dirty if each[0] not in segments]

    # -- flush ----------------------------------------------------------------------------------

    def take(self) -> FlushWork:
        """Say what must be flushed; what comes later is for the next flush."""
        entries = list(zip(*[iter(self._entries)] * 3, strict=True))
        work = FlushWork(
            FlushedEnd(self.end),
            self.messages,
            self._rolled_bytes + self.size_bytes,
            tuple(self._dirty),
            entries,
            self._batches,
            self._has_new_names,
        )
        self._flushing = entries
        self._entries = array("q")
        self._batches = []
        self._entry_ms = _NO_ENTRY_MS
        self._has_new_names = False
        return work

    def put_back(self, work: FlushWork) -> None:
        self._entries[:0] = array("q", chain.from_iterable(work.entries))
        self._flushing = ()
        # It may have made and renamed files.
        self._has_new_names = True

    def sync(self, work: FlushWork) -> None:
        """Put data on disk, then names, then give `.unflushed` segments their final names.

        Raises:
            OSError: the disk failed, there is no descriptor, or the files aren't where they were.
        """
        directory = self._directory
        segments, is_bare, drafts = [], False, []
        for segment, descriptor in work.dirty:
            self._files.fdatasync(descriptor)
            segments.append(segment)
            is_bare |= segment.index.last is None
            if not segment.is_flushed_name:
                drafts.append(segment)
        # Before anything is promised, and after what takes long.
        directory.check(segments)
        has_new_names = work.has_new_names
        if is_bare:
            has_new_names |= self._ensure_indexes(segments, work.end)
        if has_new_names:
            directory.sync()
        if directory.is_new:
            directory.sync_parent()
        for segment in drafts:
            segment.rename_flushed()
        if drafts:
            directory.sync()

    @staticmethod
    def _ensure_indexes(segments: Sequence[Segment], end: int) -> bool:
        """Make what is missing; whether anything was."""
        is_made = False
        for segment in segments:
            if segment.index.last is None and segment.base_offset < end:
                with suppress(OSError):
                    is_made |= segment.index.ensure_file()
        return is_made

    def write_indexes(self, work: FlushWork, start: int) -> int:
        """Write what has become true into the time indexes, from the flushed end so far on.

        Returns how many indexes could not be written. That costs accuracy, and no message.
        """
        failures, entries, dirty = 0, work.entries, work.dirty
        for place, (segment, descriptor) in enumerate(dirty, start=1):
            base, batches, is_complete = segment.base_offset, work.batches, place < len(dirty)
            end: int = work.end
            if is_complete:
                end, batches = dirty[place][0].base_offset, ()
            if len(dirty) > 1:
                entries = [each for each in work.entries if base < each[1] <= end]
            index = segment.index
            try:
                if not index.is_loaded:
                    index.load(descriptor, end)
                if entries or (is_complete and index.last is not None):
                    opened, now_ms = segment.file.beside, entries[-1][0] if entries else 0
                    is_recent = 0 <= now_ms - segment.file.beside_ms < _INDEX_OPEN_MS
                    if is_complete or opened < 0 or not is_recent:
                        opened = self._descriptors.open_beside(segment.file, index.path, now_ms)
                    first = start if start > base else base
                    index.write(entries, descriptor, opened, first, batches, complete=is_complete)
                if is_complete:
                    self._descriptors.close_beside(segment.file)
            except OSError:
                failures += 1
        return failures

    def finish(self, work: FlushWork) -> None:
        self.messages -= work.messages
        self._flushed_bytes = work.appended_bytes
        self._flushing = ()
        dirty, clean = self._dirty, len(work.dirty)
        # While the last segment was being synced it may have grown, and the log have rolled to
        # another one. One that is complete only since then stays for the next flush, which syncs
        # its index.
        if clean and (clean < len(dirty) or self.end > work.end):
            clean -= 1
        for segment, _ in dirty[:clean]:
            self._descriptors.release(segment.file)
        del dirty[:clean]
        if not dirty and work.dirty:
            self.descriptor, self._rested = -1, work.dirty[-1][0]
