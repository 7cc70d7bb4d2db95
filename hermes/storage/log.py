"""One partition's log: append, flush, read, delete, go offline and come back.

Life of an append: bytes go to the page cache at the log's end (`append`, in the reactor's thread);
they are put on disk by a later `flush` in a worker thread; only then the *high watermark* moves
over them and they become visible. What the disk confirmed is never taken back.

A log is made of three objects. Its *view* is what readers see: immutable, and replaced as a whole,
so that `hermes.storage.reader` takes no lock. Its *tail* is what isn't flushed:
`hermes.storage.tail`. Its *directory* is where all that lies: `hermes.storage.log_directory`. What
is here is their order, and the rules that all of them rest on:

- `_lock` guards the view, the tail and what says whether the log is online. It is held for a few
  instructions, or for one write into the page cache (and the creation of a file, when rolling),
  never over a sync, a delete or a scan.
- `_flush_lock` is held by whatever needs the tail to itself for long: flush, reopen, close, and the
  exchange of segments in a delete. Always taken before `_lock`.
- Segments that are in no view any more are deleted by the directory, with neither lock held.
- An error while syncing says nothing about which bytes were lost, and the kernel reports it once.
  So it is never tried again as if nothing had happened: the log goes offline and refuses appends
  until `reopen` has read, rewritten and synced its tail.

Which thread may call what:

- `append`, `read` and the properties: the reactor's thread. `read` may open a file, never reads it.
- `offsets_before`, `offset_at_time`, `latest_timestamp`, `boundary_before`, `append_times`,
  `segment_infos`: any thread; they read a little (the boundary and what goes by messages'
  timestamps sometimes more), so a worker thread is the better place.
- `flush`, `delete_oldest`, `delete_records`, `delete`, `check_directory`, `reopen`, `open`,
  `close`: worker threads; they wait for the disk, and for each other where they must.

It is long because all that takes these locks is here, so that their order can be checked in one
file; more than a third of it is docstrings.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from errno import EIO
from typing import Concatenate, ParamSpec, TypeVar
from uuid import UUID

from hermes.errors import (
    DiskFullError,
    LogOfflineError,
    OffsetOutOfRangeError,
    StorageError,
    UncertainAppendError,
)
from hermes.interfaces import SegmentInfo
from hermes.protocol import AppendRun, SourcePosition, SourceSpan
from hermes.storage.append_times import MAX_RUNS
from hermes.storage.checkpoints import Checkpoints
from hermes.storage.damage import Damage
from hermes.storage.descriptors import DescriptorCache, LogSlice, SegmentRetiredError
from hermes.storage.files import (
    Buffer,
    FileLayer,
    Identity,
    identity,
    is_no_descriptor,
    is_no_room,
    storage_error,
)
from hermes.storage.kafka_0_7 import KAFKA_0_7
from hermes.storage.kafka_format import KAFKA
from hermes.storage.kafka_partition import KafkaPartition
from hermes.storage.loading import LoadedLog, load
from hermes.storage.log_directory import LogDirectory
from hermes.storage.log_format import LogFormat
from hermes.storage.message_times import TimestampedOffset
from hermes.storage.reader import LogReader
from hermes.storage.recovery import RecoveryReport, TailRecovery
from hermes.storage.segment import LogView, Segment
from hermes.storage.segment_files import (
    LoadingSegment,
    find_again,
    remove_segment,
    remove_unbegun,
)
from hermes.storage.settings import LogSettings
from hermes.storage.source_positions import DAMAGED_NAME, SourcePositions
from hermes.storage.source_spans import SourceRange
from hermes.storage.tail import Tail

#: How often segments are looked at again when one was renamed or deleted at that moment.
_LOOKS = 10

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Log:
    """An append-only sequence of bytes (whole messages), addressed by offset.

    Made offline; `open` brings it into service. `DataDirectory` does that for all partitions.

    Args:
        topic: the topic's name.
        partition: the partition's number.
        directory: the partition's directory.
        settings: the topic's settings.
        files: the file layer; the operating system's unless given.
        descriptors: opens segments; a cache of its own unless given.
        log_format: what its segments hold; Kafka 0.7's messages unless given.
        topic_id: the topic's id, of Kafka's format.
        checkpoints: what the data directory says of its logs of Kafka's format; those of the
            directory above unless given.

    Attributes:
        topic, partition, directory, settings: as given.
        format: what its segments hold.
        counts_messages: whether its offsets count messages; else they count bytes.
        strange_files: names in the directory that belong to no segment; they are left alone.
        openings: how often it was brought into service: what was appended before the last time may
            have been dropped then, if no flush had confirmed it.
        last_append_ms: when something was last appended, in ms since 1970; None when nothing was
            since it was made.
        index_failures: how often the time index, or a snapshot of producers, could not be written:
            an answer by time may be coarser, and a recovery may read more.
        producers: what is known of idempotent producers; None in a format that has none.
        has_made_up_id: whether the id of its topic was lost, and it has another one for now.
        is_suspect: whether somebody has met damage in it, and it should be looked at as a whole.
        damage: what is known to be damaged, by segment. Replaced as a whole by whoever looks.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        settings: LogSettings,
        files: FileLayer | None = None,
        descriptors: DescriptorCache | None = None,
        log_format: LogFormat = KAFKA_0_7,
        topic_id: UUID | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.settings = settings
        self.strange_files: tuple[str, ...] = ()
        self.openings = 0
        self.has_made_up_id = False
        self.is_suspect = False
        self.damage: Mapping[Segment, Sequence[Damage]] = {}
        self.index_failures = 0
        self.last_append_ms: int | None = None
        self._files = FileLayer() if files is None else files
        self._descriptors = DescriptorCache(self._files) if descriptors is None else descriptors
        self.counts_messages = log_format.counts_messages
        self.format = self._format = log_format
        self._kafka: KafkaPartition | None = None
        if log_format is KAFKA:
            self._kafka = KafkaPartition(
                topic, partition, directory, self._files, topic_id, checkpoints
            )
        self.producers = None if self._kafka is None else self._kafka.producers
        self._directory = LogDirectory(directory, log_format.suffix, self._files, self._descriptors)
        self._reader = LogReader(self._files, self._descriptors, log_format)
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._view = LogView((), (), 0)
        self._tail = Tail(self._files, self._descriptors, self._directory, log_format)
        self._sources: SourcePositions | None = None
        self._offline_reason: str | None = "not opened yet"
        # (A segment, what was to take its place, that file) while nobody knows whether it has.
        self._replacing: tuple[Segment, Segment, Identity] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Log {self.name}>"

    # -- state ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The partition as people and directories write it: `clicks-0`."""
        return f"{self.topic}-{self.partition}"

    @property
    def earliest(self) -> int:
        """The first offset; 0 for a log that was never opened."""
        return self._view.earliest

    @property
    def topic_id(self) -> UUID | None:
        """The topic's id; None for a log of another format than Kafka's."""
        return None if self._kafka is None else self._kafka.topic_id

    def adopt_topic_id(self, topic_id: UUID) -> None:
        """Take the topic's id if a loss of power took it, and another was made up; else nothing.

        Raises:
            StorageError: it can't be written.
        """
        if self._kafka is not None and self.has_made_up_id:
            try:
                self._kafka.adopt(topic_id)
            except OSError as error:
                raise storage_error(f"{self.name}: write its topic's id", error) from error
            self.has_made_up_id = False

    @property
    def mended(self) -> tuple[str, ...]:
        """Of the small files beside it which were damaged, and what is true, in words."""
        return () if self._kafka is None else tuple(self._kafka.mended)

    @property
    def lost(self) -> str:
        """What was there before it was opened, and isn't any more, in words; else empty."""
        return "" if self._kafka is None else self._kafka.lost

    @property
    def leader_epoch(self) -> int:
        """In which epoch batches are appended to a log of Kafka's format; 0 for others."""
        return 0 if self._kafka is None else self._kafka.leader_epoch

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Find where a leader epoch ends; see `LeaderEpochs.end_of`."""
        if self._kafka is None:
            return (0, self.high_watermark) if epoch == 0 else (-1, -1)
        return self._kafka.end_of_epoch(epoch, self.high_watermark)

    @property
    def end_offset(self) -> int:
        """The offset after the last byte appended; the next append starts there."""
        return self._tail.end

    @property
    def high_watermark(self) -> int:
        """The offset up to which the log is on disk, and therefore visible."""
        return self._view.high_watermark

    @property
    def size_bytes(self) -> int:
        """How many bytes of messages the log holds, visible or not."""
        sealed = self._view.segments[:-1]
        return sum(segment.size_bytes for segment in sealed) + self._tail.size_bytes

    @property
    def segment_count(self) -> int:
        """How many segments it has."""
        return len(self._view.segments)

    @property
    def unflushed_bytes(self) -> int:
        """How many bytes were appended and are not yet visible."""
        return self._tail.unflushed_bytes

    @property
    def unflushed_messages(self) -> int:
        """How many messages were appended and are not yet visible."""
        return self._tail.messages

    @property
    def first_unflushed_ms(self) -> int | None:
        """When the oldest append that isn't visible yet was made; None when all is visible."""
        return self._tail.first_ms

    @property
    def is_offline(self) -> bool:
        """Whether appends are refused until `reopen`. What is visible can still be read."""
        return self._offline_reason is not None

    @property
    def offline_reason(self) -> str | None:
        """Why the log is offline, in words for an operator; None when it isn't."""
        return self._offline_reason

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed, or deleted with its topic: it never comes back."""
        return self._is_closed

    def check_readable(self) -> None:
        """Refuse to say where a log begins and ends that could not be opened: nobody knows.

        Raises:
            LogOfflineError: it couldn't, or was closed.
        """
        if not self._view.bases:
            self.check_online()

    def check_online(self) -> None:
        """Make sure that the log takes appends.

        Raises:
            LogOfflineError: it doesn't; `reopen` must come first.
        """
        if self._offline_reason is not None:
            raise self._offline()

    def _offline(self) -> LogOfflineError:
        return LogOfflineError(f"{self.name} is offline: {self._offline_reason}")

    def _go_offline(self, reason: str) -> None:
        """Under the lock: refuse appends from now on. The first reason stands."""
        if self._offline_reason is None:
            self._offline_reason = reason
        self._tail.stop()

    # -- append and flush -----------------------------------------------------------------------

    def append(
        self, buffers: Sequence[Buffer], byte_count: int, message_count: int, now_ms: int
    ) -> int:
        """Append whole messages at the end of the log. Fast: one write into the page cache.

        Call it from one thread only (the reactor's). Nothing is visible before the next `flush`.

        Args:
            buffers: the bytes, in order: whole, valid messages. Not kept.
            byte_count: the sum of their lengths, > 0.
            message_count: how many messages they hold (inner ones of compressed sets counted).
            now_ms: ms since 1970.

        Returns:
            The offset of the first byte.

        Raises:
            DiskFullError: nothing of it remains; the same append may succeed later.
            UncertainAppendError: the disk failed on the way, and some of it may come back.
            LogOfflineError: nothing was appended; `reopen` must come first.
            StorageError: no descriptor was available; nothing was appended, try again later.
        """
        with self._lock:
            tail = self._tail
            if (
                tail.descriptor < 0
                or tail.size_bytes > self.settings.segment_bytes
                or now_ms > tail.roll_after_ms
            ):
                self._prepare(now_ms)
            self.last_append_ms = now_ms
            try:
                return tail.append(buffers, byte_count, message_count, now_ms)
            except OSError as error:
                raise self._undo_append(error) from error

    @property
    def takes_sources(self) -> bool:
        """Whether ranges of sources can be appended now; if not, `begin_sources` comes first."""
        return self._sources is not None and self._sources.takes_ranges

    def begin_sources(self) -> None:
        """Get ready to append ranges of sources. Blocks; any worker thread. Again is harmless.

        Raises:
            LogOfflineError: the log is offline.
            StorageError: the disk refused; nothing has changed.
        """
        with self._flush_lock:
            self.check_online()
            if self.takes_sources:
                return
            sources = self._sources
            if sources is None:
                sources = SourcePositions(self.directory, self._files, self._descriptors)
            end, what = self.end_offset, f"{self.name}: get ready for ranges of sources"
            try:
                sources.begin(end, self.high_watermark)
            except OSError as error:
                failure = storage_error(what, error)
                if isinstance(failure, DiskFullError) or is_no_descriptor(error):
                    raise failure from error
                with self._lock:
                    self._sources = sources
                    self._go_offline(str(failure))
                raise LogOfflineError(str(failure)) from error
            self._sources = sources

    def source_position(self, source: str) -> int:
        """Up to where the log has a source, flushed or not; -1 when it has nothing of it."""
        return -1 if self._sources is None else self._sources.spans.position(source)

    @property
    def has_sources(self) -> bool:
        """Whether it has anything of a source."""
        return self._sources is not None

    def source_positions(self, first: int, limit: int) -> tuple[int, list[SourcePosition]]:
        """Tell the positions of sources, flushed or not.

        Args:
            first: the number of the first one.
            limit: how many at most.

        Returns:
            (where the log ends, the positions by number): of one moment, so that what follows the
            end is of none of them.
        """
        with self._lock:
            spans = None if self._sources is None else self._sources.spans
            if spans is None:
                return self._tail.end, []
            last = min(first + limit, len(spans.names))
            positions = [
                SourcePosition(number, spans.positions[number], spans.names[number])
                for number in range(first, last)
            ]
            return self._tail.end, positions

    def source_spans(self, first: int, limit: int) -> tuple[int, list[SourceSpan]]:
        """Tell where ranges of sources lie, flushed or not.

        Args:
            first: spans that begin before this offset are left out.
            limit: how many at most.

        Returns:
            (where the log ends, the spans in their order): of one moment.
        """
        with self._lock:
            if self._sources is None:
                return self._tail.end, []
            return self._tail.end, list(self._sources.spans.spans(first, limit))

    def append_range(
        self,
        wanted: SourceRange,
        buffers: Sequence[Buffer],
        byte_count: int,
        message_count: int,
        now_ms: int,
    ) -> int | None:
        """Append what stands for a range of a source, unless it is there already.

        Call it as `append`, once `takes_sources` is true.

        Args:
            wanted: the range.
            buffers: as for `append`.
            byte_count: as for `append`; without any bytes only the position moves.
            message_count: as for `append`.
            now_ms: as for `append`.

        Returns:
            The offset of the first byte; None when nothing was appended.

        Raises:
            InvalidSourceError, SourceOverlapError, SourceGapError: as for `SourceSpans.is_done`;
                nothing was appended.
            StorageError: as for `append`.
        """
        with self._lock:
            self.check_online()
            sources, tail = self._sources, self._tail
            if sources is None or not sources.takes_ranges:
                raise StorageError(f"{self.name} is not ready for ranges of sources yet; try again")
            if sources.spans.is_done(wanted, byte_count):
                return None
            if not byte_count:
                sources.move(wanted)
                return None
            self._prepare(now_ms)
            counted = message_count if self._format.counts_messages else byte_count
            flushed, mark = self._view.high_watermark, sources.mark()
            try:
                span = sources.write(wanted, tail.end, tail.end + counted, flushed)
                self.last_append_ms = now_ms
                tail.append(buffers, byte_count, message_count, now_ms)
            except OSError as error:
                # The bytes go first: without the record they would be anybody's.
                failure = self._undo_append(error)
                try:
                    sources.cancel(mark)
                except OSError:
                    self._go_offline(str(failure))
                raise failure from error
            sources.spans.note(span, flushed)
            return span.log_begin

    def _prepare(self, now_ms: int) -> None:
        """Under the lock: let the tail get ready for an append, and show what it has begun."""
        self.check_online()
        view = self._view
        try:
            if self._sources is not None and self._sources.takes_ranges:
                self._sources.prepare()
            rolled = self._tail.prepare(view, self.settings, now_ms)
        except FileExistsError as error:
            # Never write over what is there, whatever it is.
            self._go_offline(f"a segment can't be created: {error.filename} exists already")
            raise LogOfflineError(f"{self.name}: {error.filename} exists already") from error
        except OSError as error:
            failure = storage_error(f"{self.name}: prepare an append", error)
            if isinstance(failure, DiskFullError) or is_no_descriptor(error):
                raise failure from error
            self._go_offline(str(failure))
            raise LogOfflineError(str(failure)) from error
        if rolled is not None:
            if self.producers is not None:
                self.producers.capture(self._tail.end)
            segments = (*view.segments, rolled)
            self._view = LogView.of(segments, view.high_watermark, view.earliest)

    def _undo_append(self, error: OSError) -> StorageError:
        """Under the lock: cut a failed append off; say what to raise."""
        reason = f"{self.name}: append at offset {self._tail.end}: {error.strerror or error}"
        failure: type[LogOfflineError] = UncertainAppendError
        # What was written of it may be whole messages, which a later start would take for good.
        with suppress(OSError):
            self._tail.cut()
            if is_no_room(error):
                return DiskFullError(reason)
            failure = LogOfflineError
        self._go_offline(reason)
        return failure(reason)

    def flush(self) -> int:
        """Put on disk what was appended so far and make it visible. Blocks; any worker thread.

        Appends continue meanwhile and wait for the next flush. Calls for one log run one after the
        other.

        Returns:
            The high watermark.

        Raises:
            LogOfflineError: the disk failed (now or before); the high watermark has not moved
                and nothing of what it covers is lost. `reopen` finds out what is left of the rest.
            StorageError: no descriptor was available, and nothing is lost: flush again later.
        """
        with self._flush_lock:
            return self._flush()

    def _flush(self) -> int:
        """Under the flush lock: one flush."""
        with self._lock:
            self.check_online()
            tail, sources = self._tail, self._sources
            if sources is not None:
                self._account(sources)
            work = tail.take()
        try:
            if sources is not None:
                sources.sync()
            if self._kafka is not None:
                self._kafka.sync()
            tail.sync(work)
        except OSError as error:
            what = f"{self.name}: flush up to offset {work.end}"
            with self._lock:
                tail.put_back(work)
                if is_no_descriptor(error):
                    raise storage_error(what, error) from error
                reason = f"{what}: {error.strerror or error}"
                self._go_offline(reason)
            raise LogOfflineError(reason) from error
        self.index_failures += tail.write_indexes(work, self._view.high_watermark)
        with self._lock:
            tail.finish(work)
            bases, segments, _ = self._view
            self._view = LogView(bases, segments, work.end)
        if sources is not None:
            sources.tidy(self._lock, self.earliest, work.end)
        if self._kafka is not None:
            try:
                self._kafka.flushed(work.end)
                self._kafka.record(self._current_view)
            except (OSError, StorageError):
                self.index_failures += 1
        return work.end

    def _account(self, sources: SourcePositions) -> None:
        """Under the lock: write down that the log's end is accounted for, before a flush."""
        try:
            sources.checkpoint(self._tail.end, self._view.high_watermark)
        except OSError as error:
            failure = storage_error(f"{self.name}: flush the positions of sources", error)
            if isinstance(failure, DiskFullError) or is_no_descriptor(error):
                raise failure from error
            self._go_offline(str(failure))
            raise LogOfflineError(str(failure)) from error

    # -- reading --------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, whole_first: bool = False, resident: bool = False
    ) -> LogSlice:
        """Find visible bytes, without reading them.

        Of Kafka's format a little is read: what says where the offset lies, and headers of batches
        close to it.

        Args:
            offset: where to start; it needn't be a message boundary.
            max_bytes: how many bytes at most, >= 0.
            whole_first: let the slice be longer where its first message is, or in Kafka's format
                its first batch.
            resident: read nothing for it that isn't in memory, and open nothing, so that it waits
                for no disk.

        Returns:
            A slice of one segment, which the caller releases: it ends where the segment or the
            visible part ends, or after `max_bytes`. It is empty at the visible end. In Kafka's
            format it begins with the batch that holds the offset, or with the next one.

        Raises:
            OffsetOutOfRangeError: the offset is before the earliest or beyond the visible end.
            LogOfflineError: the log could not be opened at all, or was closed.
            NotInMemoryError: it is to be `resident` and isn't: call again in a worker thread.
            StorageError: the segment can't be opened now (no descriptor, say).
        """
        # What `_through_view` does, written out: this runs for every fetch.
        view = self._view
        try:
            return self._reader.read(view, offset, max_bytes, whole_first, resident)
        except (OffsetOutOfRangeError, SegmentRetiredError):
            return self._through_view(self._reader.read, offset, max_bytes, whole_first, resident)
        except OSError as error:
            raise self._unreadable(error) from error

    def _through_view(
        self,
        look: Callable[Concatenate[LogView, _Arguments], _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Look at the current view; when a segment was deleted meanwhile, at the next one."""
        while True:
            view = self._view
            self.check_readable()
            try:
                return look(view, *args, **kwargs)
            except SegmentRetiredError:
                if self._view is view:
                    raise self._offline() from None
            except OSError as error:
                raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> StorageError:
        self.is_suspect |= error.errno == EIO
        return storage_error(f"{self.name}: read {error.filename or 'a segment'}", error)

    def offsets_before(self, time_ms: int, max_offsets: int, now_ms: int) -> list[int]:
        """List offsets up to a time, newest first; `hermes.storage.reader` says what is exact.

        Args:
            time_ms: ms since 1970; -1 for the visible end and all segment starts; -2 for the
                earliest offset only.
            max_offsets: the length of the answer at most; 0 or less gives none.
            now_ms: ms since 1970.

        Returns:
            A new list of descending offsets. The first is where the log had ended at that time
            (bytes appended in that very ms included), or a segment's start where only that is
            known.

        Raises:
            LogOfflineError: the log could not be opened at all, or was closed.
            StorageError: a segment can't be looked at.
        """
        return self._through_view(self._reader.offsets_before, time_ms, max_offsets, now_ms)

    def offset_at_time(self, time_ms: int) -> TimestampedOffset | None:
        """Find the first visible message whose own timestamp is not before a time. Blocks.

        For a log of Kafka's format; `offsets_before` goes by when something was appended.

        Args:
            time_ms: ms since 1970.

        Returns:
            Its offset and timestamp; None when no message is that late.

        Raises:
            LogOfflineError: the log could not be opened at all, or was closed.
            StorageError: a segment can't be read, or the log is of another format.
        """
        return self._through_view(self._reader.offset_at_time, time_ms)

    def latest_timestamp(self) -> TimestampedOffset | None:
        """Find the first of the messages with the largest timestamp. As `offset_at_time`."""
        return self._through_view(self._reader.latest_timestamp)

    def boundary_before(self, offset: int) -> int:
        """Find the largest message boundary that is not after an offset. Blocks.

        Args:
            offset: any offset from the earliest on; beyond the visible end it means that end.

        Returns:
            An offset from the earliest to the visible end.

        Raises:
            OffsetOutOfRangeError: the offset is before the earliest.
            LogOfflineError: the log could not be opened at all, or was closed.
            StorageError: the segment can't be read.
        """
        limit = self.settings.max_message_bytes
        return self._through_view(self._reader.boundary_before, offset, limit)

    def append_times(
        self, start: int, end: int, interval_ms: int, max_runs: int = MAX_RUNS
    ) -> tuple[int, list[AppendRun]]:
        """Find when a range was appended; `hermes.storage.append_times` says what is known.

        Args:
            start: the range's first offset, from the earliest to the visible end.
            end: the offset after its last byte; beyond the visible end it means that end, and
                not beyond `start` an empty range.
            interval_ms: what times are rounded down to multiples of, >= 1.
            max_runs: how many runs to answer with at most, >= 1.

        Returns:
            (the range's end, cut at the visible end; runs from `start` on without holes). When the
            last run ends before the range's end, there are more runs from there on.

        Raises:
            OffsetOutOfRangeError: the start is before the earliest or beyond the visible end.
            LogOfflineError: the log could not be opened at all, or was closed.
            StorageError: an index can't be opened now.
        """
        while True:
            found = self._through_view(self._reader.append_times, start, end, interval_ms, max_runs)
            if self._is_closed:
                raise self._offline()
            # Of a segment that was deleted meanwhile nothing that was found is to be believed.
            if self.earliest <= start:
                return found

    def segment_infos(self) -> tuple[SegmentInfo, ...]:
        """Describe the segments, for retention policies and people.

        Returns:
            A tuple, oldest first; the last one is active. Empty for a log never opened.

        Raises:
            StorageError: a segment can't be looked at.
        """
        tries = _LOOKS
        while True:
            with self._lock:
                view, tail = self._view, self._tail
                end, size = tail.end, tail.size_bytes
                newest_ms = tail.last_ms
            try:
                return self._reader.segment_infos(view, end, size, newest_ms)
            except (OSError, SegmentRetiredError) as error:
                # A flush renames and retention deletes meanwhile: then look again.
                tries -= 1
                if tries and isinstance(error, FileNotFoundError | SegmentRetiredError):
                    continue
                if isinstance(error, SegmentRetiredError):
                    raise self._offline() from error
                raise storage_error(f"{self.name}: describe the segments", error) from error

    # -- opening and closing --------------------------------------------------------------------

    def open(
        self, *, clean: bool, now_ms: int, is_new_directory: bool = False
    ) -> RecoveryReport | None:
        """Load the partition's directory and start serving. Blocks.

        Args:
            clean: True when the last stop was clean: nothing is read then.
            now_ms: ms since 1970.
            is_new_directory: True when the directory's name may be in memory only: the first flush
                then syncs its parent as well.

        Returns:
            What recovery did; None when there was nothing to recover.

        Raises:
            CorruptLogError: the segments don't fit together; the log stays offline, untouched.
            StorageError: the disk failed; the log stays offline, `reopen` may be tried.
        """
        with self._flush_lock:
            self._directory.is_new |= is_new_directory
            try:
                self._directory.identity = self._directory.current_identity()
                sources = SourcePositions.load(
                    self.directory, self._files, self._descriptors, clean=clean
                )
                loaded = self._load(now_ms, sources, clean=clean)
                if sources is not None:
                    sources.settle(loaded.end)
                earliest = loaded.segments[0].base_offset
                if self._kafka is not None:
                    earliest = self._kafka.open(
                        loaded.segments, loaded.end, now_ms, is_new=self._directory.is_new
                    )
            except OSError as error:
                failure = storage_error(f"{self.name}: open", error)
                self._offline_reason = str(failure)
                raise failure from error
            except StorageError as error:
                self._offline_reason = str(error)
                raise
            self.strange_files = loaded.strange
            if sources is not None and sources.is_set_aside:
                self.strange_files = tuple({*loaded.strange, DAMAGED_NAME})
            with self._lock:
                self._sources = sources
                self._install(loaded, earliest)
            if self._kafka is not None and not self._directory.is_new:
                with suppress(OSError, StorageError):
                    self._kafka.record(self._current_view)
            return loaded.report

    def _load(self, now_ms: int, sources: SourcePositions | None, *, clean: bool) -> LoadedLog:
        """Load the directory; one of Kafka's must have the segments that it had."""
        known = None if self._kafka is None else self._kafka.recall()
        segments = () if known is None else known.segments

        def loaded(clean: bool) -> LoadedLog:
            recovery = self._recovery(now_ms, sources, is_clean=clean)
            return load(
                self.directory, self._files, self._format, recovery, clean=clean, known=segments
            )

        found = loaded(clean)
        if clean and known is not None and found.end < known.end:
            # Whatever has happened to it, it is not what the marker was written for.
            found = loaded(False)
        return found

    def _current_view(self) -> LogView:
        return self._view

    def _install(self, loaded: LoadedLog, earliest: int) -> None:
        """Under the lock: start from what was loaded, all of it flushed."""
        self.openings += 1
        self.is_suspect |= loaded.report is not None and bool(loaded.report.bad_ranges)
        self._view = LogView.of(loaded.segments, loaded.end, earliest)
        self._tail = Tail(
            self._files,
            self._descriptors,
            self._directory,
            self._format,
            loaded.end,
            loaded.segments[-1].size_bytes,
            has_new_names=loaded.has_new_names,
        )
        self._offline_reason = None

    def reopen(self, now_ms: int) -> RecoveryReport:
        """Bring an offline log back: read its tail, keep what is valid, write and sync it again.

        Blocks. A log that is online is left as it is. The files are looked for again, by their
        names; the log only comes back when everything that was visible exists.

        Args:
            now_ms: ms since 1970.

        Returns:
            What was found; `dropped_bytes` are bytes of appends that were accepted, but
            never flushed.

        Raises:
            CorruptLogError: the segments don't fit together; still offline.
            LogOfflineError: the disk still fails, something that was visible is missing, or the
                log was closed; still offline.
        """
        if not self._view.segments and not self._is_closed:
            # Whoever made the directory may not have come to syncing its name.
            report = self.open(clean=False, now_ms=now_ms, is_new_directory=True)
            return report or RecoveryReport(self.end_offset, self.end_offset)
        with self._flush_lock:
            if self._is_closed:
                self.check_online()
            if self._offline_reason is None:
                return RecoveryReport(self.high_watermark, self.high_watermark)
            try:
                return self._recover(now_ms)
            except OSError as error:
                failure = storage_error(f"{self.name}: reopen", error)
                self._offline_reason = str(failure)
                raise LogOfflineError(str(failure)) from error

    def _recovery(
        self, now_ms: int, sources: SourcePositions | None, *, is_clean: bool = True
    ) -> TailRecovery:
        end_for = None if sources is None else sources.end_for
        known_end = 0
        if self._kafka is not None and not is_clean:
            known_end = self._kafka.recovery_point()
        settings = self.settings
        return TailRecovery(self._files, self._descriptors, settings, now_ms, end_for, known_end)

    def _recover(self, now_ms: int) -> RecoveryReport:
        """Under the flush lock, offline: recover from the high watermark on.

        All segments are new objects. The old ones may be open in a file system that was taken away,
        or hold names that an earlier attempt has changed half.
        """
        if self._replacing is not None:
            old, new, _ = self._replacing
            if self._has_been_replaced():
                with self._lock:
                    self._exchange(old, (new,))
                self._retire([old])
            self._replacing = None
        view, tail = self._view, self._tail
        segments = find_again(view, tail.end, self._files)
        remove_unbegun(view, tail.end, self._files)
        place = self._directory.current_identity()
        first = view.position_of(view.high_watermark)
        self._directory.sync_parent()
        try:
            if first and not self._format.is_dense:
                # The flush that failed was to complete what is kept beside it.
                complete = [LoadingSegment.of(segments[first - 1], self._files)]
                self._recovery(now_ms, self._sources).mend_indexes(complete)
            kept, report = self._recovery(now_ms, self._sources).after_failure(
                segments[first:],
                view.high_watermark,
                tail.end,
                tail.unflushed_bytes,
                tail.entries,
                # Nobody was told that any of it is on disk. Producers of Kafka's send it again in
                # order, and couldn't fill a hole; its consumers couldn't read over one.
                until_damage=self._kafka is not None,
            )
            if self._sources is not None:
                self._sources.settle(report.valid_end)
            loaded = (*segments[:first], *kept)
            if self._kafka is not None:
                end = report.valid_end
                self._kafka.load_producers(loaded, view.earliest, end, now_ms)
        except BaseException:
            self._retire(segments)
            raise
        with self._lock:
            tail.release()
            self._directory.identity = place
            if self._kafka is not None:
                self._kafka.cut(view.earliest, report.valid_end)
            self._install(
                LoadedLog(loaded, report.valid_end, report, self.strange_files), view.earliest
            )
        self._retire((*view.segments, *segments[first + len(kept) :]))
        return report

    def _retire(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._descriptors.retire(segment.file)

    def close(self) -> None:
        """Stop serving, for good. Waits for a flush or delete under way, but does not flush.

        Slices that are held stay readable until they are released.
        """
        with self._flush_lock, suppress(OSError):
            if not self.is_offline and self.unflushed_bytes == 0:
                if self._sources is not None:
                    self._sources.close(self.end_offset)
                if self._kafka is not None:
                    self._kafka.close(self.end_offset)
                    with suppress(StorageError):
                        self._kafka.record(self._current_view, has_new_end=True)
                self._view.segments[-1].index.close()
        self._shut("the log is closed")

    def _shut(self, reason: str) -> None:
        with self._flush_lock, self._lock:
            self._is_closed = True
            self._offline_reason = None
            self._go_offline(reason)
            self._tail.release()
            self._retire(self._view.segments)
            if self._sources is not None:
                self._sources.retire()
        self._directory.forget_removed()

    # -- deleting -------------------------------------------------------------------------------

    def delete_oldest(self, count: int, *, expected_end: int | None = None) -> int:
        """Delete segments at the start of the log. Blocks; any worker thread.

        Readers continue: slices of deleted segments stay readable until they are released. What is
        not yet flushed stays. When all segments go, what is unflushed is flushed first, and an
        empty segment named by the end offset takes their place before any file is deleted.

        Args:
            count: how many segments, 0 to all of them.
            expected_end: the end offset that the decision was made at. When the log has grown
                since, the active segment stays.

        Returns:
            How many bytes were deleted.

        Raises:
            LogOfflineError: the log is offline; nothing was deleted.
            StorageError: a file could not be created or deleted. The segments are gone from
                service nevertheless; the next call tries their files again, and what is left of
                them at the next start comes back.
        """
        with self._flush_lock:
            self.check_online()
            self._check_directory()
            removed = self._remove_from_view(count, expected_end)
        self._delete_removed()
        return sum(segment.size_bytes for segment in removed)

    @property
    def files(self) -> FileLayer:
        """The file layer."""
        return self._files

    def complete_segments(self) -> tuple[Segment, ...]:
        """The segments that nothing is appended to any more, all of them on disk."""
        view = self._view
        count = len(view.segments) - 1
        while count > 0 and not (
            view.segments[count].is_flushed_name and view.bases[count] <= view.high_watermark
        ):
            count -= 1
        return view.segments[: max(0, count)]

    def visible_segments(self) -> list[tuple[Segment, int]]:
        """The segments that have something visible, each with where that ends."""
        view = self._view
        ends = [(each, view.visible_end_of(place)) for place, each in enumerate(view.segments)]
        return [(each, end) for each, end in ends if end > each.base_offset]

    @property
    def complete_end(self) -> int:
        """Where the last of `complete_segments` ends."""
        count = len(self.complete_segments())
        return self._view.bases[count] if count else self.earliest

    def replace_segment(self, old: Segment, draft: str, size_bytes: int) -> int:
        """Let a file take a complete segment's place, of Kafka's format. Blocks; worker threads.

        Readers go on: slices of the old one stay readable until they are released.

        Args:
            old: one of `complete_segments`.
            draft: the path of a file in the log's directory, synced: some of the segment's batches.
                Without any, the segment goes, unless it is the first one.
            size_bytes: how large that is.

        Returns:
            By how many bytes the log became smaller.

        Raises:
            LogOfflineError: the log is offline; nothing was changed.
            StorageError: the disk refused, or the segment is none of the log's any more.
        """
        with self._flush_lock:
            self.check_online()
            self._check_directory()
            if old not in self.complete_segments():
                raise StorageError(f"{self.name}: {old.path} was deleted meanwhile")
            try:
                return self._replace_segment(old, draft, size_bytes)
            except OSError as error:
                raise storage_error(f"{self.name}: replace {old.path}", error) from error

    def _replace_segment(self, old: Segment, draft: str, size_bytes: int) -> int:
        last_ms = self._last_append_ms(old)
        is_dropped = not size_bytes and old is not self._view.segments[0]
        new = Segment(self._files, self._format, self.directory, old.base_offset)
        new.size_bytes = size_bytes
        for path in new.index.paths:
            with suppress(FileNotFoundError):
                self._files.unlink(path)
        with self._lock:
            if not is_dropped:
                self._rename(draft, old, new)
            self._exchange(old, () if is_dropped else (new,))
        self._retire([old])
        if is_dropped:
            if self._kafka is not None:
                self._kafka.record(self._current_view, is_synced=True)
            remove_segment(old, self._files)
        self._directory.sync()
        if not is_dropped:
            with suppress(OSError):  # no message depends on it
                self._index_again(new, last_ms)
        return old.size_bytes - size_bytes

    def _exchange(self, old: Segment, new: tuple[Segment, ...]) -> None:
        """Under the lock: let readers have another segment, or none, in a segment's place."""
        view, place = self._view, self._view.segments.index(old)
        segments = (*view.segments[:place], *new, *view.segments[place + 1 :])
        self._view = LogView.of(segments, view.high_watermark, view.earliest)

    def _rename(self, draft: str, old: Segment, new: Segment) -> None:
        """Under the lock: give a file a segment's name.

        A rename that fails may have been done all the same. Then the segment's file is gone, and
        whoever took it to be there would miss its messages.

        Raises:
            LogOfflineError: nobody knows which of both is there; `reopen` finds out.
            OSError: it was not done.
        """
        self._replacing = (old, new, identity(self._files.lstat(draft)))
        try:
            self._files.rename(draft, old.path)
        except OSError as error:
            try:
                is_done = self._has_been_replaced()
            except OSError:
                reason = f"{self.name}: replace {old.path}: {error.strerror or error}"
                self._go_offline(reason)
                raise LogOfflineError(reason) from error
            if not is_done:
                self._replacing = None
                raise
        self._replacing = None

    def _has_been_replaced(self) -> bool:
        """Whether the name of `_replacing` has the new file."""
        assert self._replacing is not None
        old, _, made = self._replacing
        return identity(self._files.lstat(old.path)) == made

    def _last_append_ms(self, segment: Segment) -> int | None:
        """When a complete segment was appended to last, if its index tells."""
        descriptor = self._descriptors.acquire(segment.file)
        try:
            end = self._format.end_of(self._files, segment, segment.size_bytes)
            segment.index.load(descriptor, end)
        finally:
            self._descriptors.release(segment.file)
        return None if segment.index.last is None else segment.index.last.time_ms

    def _index_again(self, segment: Segment, last_ms: int | None) -> None:
        """Write what is kept beside a segment that has replaced another."""
        base = segment.base_offset
        descriptor = self._descriptors.acquire(segment.file)
        try:
            end = self._format.end_of(self._files, segment, segment.size_bytes)
            segment.index.load(descriptor, end)
            segment.index.settle(descriptor, base, end, complete=True)
            if last_ms is not None and end > base:
                segment.index.append([(last_ms, end)], descriptor, start=end, complete=True)
        finally:
            self._descriptors.release(segment.file)

    def delete_records(self, offset: int) -> int:
        """Let the log begin at an offset from now on. Blocks; any worker thread.

        For a log of Kafka's format. Segments that lie before it as a whole are deleted; of the
        others nothing is, but no reader gets at it any more.

        Args:
            offset: the first one that is kept; before the earliest one nothing changes.

        Returns:
            The earliest offset now.

        Raises:
            OffsetOutOfRangeError: the offset is beyond the visible end.
            LogOfflineError: the log is offline; nothing was changed.
            StorageError: the disk refused, or the log is of another format; as for
                `delete_oldest`.
        """
        if self._kafka is None:
            text = f"{self.name} is of the format {self._format.name}"
            raise StorageError(f"{text}: only whole segments can be deleted at its start")
        with self._flush_lock:
            self.check_online()
            self._check_directory()
            view = self._view
            if offset > view.high_watermark:
                raise OffsetOutOfRangeError(offset, view.earliest, view.high_watermark)
            if offset <= view.earliest:
                return view.earliest
            try:
                self._kafka.keep_start(offset, self._current_view)
            except OSError as error:
                raise storage_error(f"{self.name}: delete records", error) from error
            with self._lock:
                view = self._view
                self._view = LogView.of(view.segments, view.high_watermark, offset)
            self._kafka.cut(offset, self.end_offset)
            self._remove_from_view(view.position_of(offset), None)
        self._delete_removed()
        return self.earliest

    def check_directory(self) -> None:
        """Make sure that the directory is still the one that was opened. Blocks; any worker thread.

        For logs that nobody writes to: a flush looks by itself.

        Raises:
            LogOfflineError: it isn't, or the log was offline before; it is now in any case.
        """
        with self._flush_lock:
            self.check_online()
            self._check_directory()

    def _check_directory(self) -> None:
        """Under the flush lock: go offline when the directory isn't the one that was opened."""
        try:
            self._directory.check()
        except OSError as error:
            reason = f"{self.name}: {error.strerror}"
            with self._lock:
                self._go_offline(reason)
            raise LogOfflineError(reason) from error

    def _delete_removed(self) -> None:
        """Delete the files of segments that are in no view any more."""
        try:
            if self._kafka is not None and self._directory.has_removed:
                self._kafka.record(self._current_view, is_synced=True)
            self._directory.delete_removed(lambda: self._view.segments[0].is_flushed_name)
        except OSError as error:
            raise storage_error(f"{self.name}: delete segments", error) from error

    def _remove_from_view(self, count: int, expected_end: int | None) -> tuple[Segment, ...]:
        """Under the flush lock: take segments out of the view; they are to be deleted now."""
        total, tail = len(self._view.bases), self._tail
        if count >= total and expected_end in (None, tail.end) and tail.size_bytes:
            removed = self._replace_all()
            if removed:
                return removed
        with self._lock:
            view = self._view
            count = min(count, len(view.bases) - 1)
            while count > 0 and view.bases[count] > view.high_watermark:
                count -= 1
            if count <= 0:
                return ()
            removed = view.segments[:count]
            # An active one that was only opened, to see whether it was to be rolled, is among them.
            tail.forget(removed)
            self._view = LogView.of(view.segments[count:], view.high_watermark, view.earliest)
        self._retire(removed)
        self._directory.remove(removed)
        return removed

    def _replace_all(self) -> tuple[Segment, ...]:
        """Under the flush lock: let an empty segment stand in for all; () if the log grew."""
        end = self._flush()
        with self._lock:
            view, tail = self._view, self._tail
            if tail.end != end or not tail.size_bytes:
                return ()
            try:
                stand_in = tail.replace(view.segments)
            except OSError as error:
                what = f"{self.name}: begin an empty segment"
                raise storage_error(what, error) from error
            self._view = LogView.of((stand_in,), end)
        self._retire(view.segments)
        self._directory.remove(view.segments)
        self._flush()
        return view.segments

    def delete(self) -> int:
        """Delete the log with its directory, oldest segment first: what a crash leaves is a log.

        Slices that are held stay readable until they are released. The caller syncs the parent
        directory.

        Returns:
            How many bytes of messages were deleted.

        Raises:
            StorageError: a file or the directory can't be deleted (files that aren't ours are
                left alone, and with them the directory); the log is gone from service all the
                same.
        """
        self._shut("the topic was deleted")
        try:
            if self._kafka is not None:
                self._kafka.forget()
            self._directory.delete()
        except OSError as error:
            what = f"{self.name}: delete {error.filename or ''}"
            raise storage_error(what, error) from error
        return self.size_bytes
