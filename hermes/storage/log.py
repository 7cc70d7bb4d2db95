"""One partition's log: append, flush, read, delete, go offline and come back.

Life of an append: bytes go to the page cache at the log's end (`append`, in the reactor's thread);
they are put on disk by a later `flush` in a worker thread, which moves the *flushed end* over them;
`commit` moves the *high watermark*, and they become visible. Where there is one copy only, a flush
commits, too. What was committed is never taken back.

The module is long because a log is the face of its parts: most of it hands on to them.

A log's parts, its locks and their order: `hermes.storage.log_state`. Which thread may call what:

- `append`, `read`, the properties, `sources.append_range` and `transactions`: the reactor's thread.
  `read` may open a file, never reads it.
- `offsets_before`, `offset_at_time`, `latest_timestamp`, `boundary_before`, `append_times`,
  `segment_infos`: any thread; they read a little (the boundary and what goes by messages'
  timestamps sometimes more), so a worker thread is the better place.
- `commit`: any thread.
- `flush`, `delete_oldest`, `delete_records`, `delete`, `check_directory`, `reopen`, `open`,
  `close`, `exchange.replace`, `sources.begin`: worker threads; they wait for the disk, and for each
  other where they must.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar
from uuid import UUID

from hermes.errors import DiskFullError, OffsetOutOfRangeError, StorageError
from hermes.interfaces import SegmentInfo
from hermes.protocol import AppendRun
from hermes.storage.append_times import MAX_RUNS
from hermes.storage.checkpoints import Checkpoints
from hermes.storage.damage import Damage
from hermes.storage.descriptors import DescriptorCache, LogSlice, SegmentRetiredError
from hermes.storage.files import Buffer, FileLayer, storage_error
from hermes.storage.formats import new_sidecar
from hermes.storage.kafka_0_7 import KAFKA_0_7
from hermes.storage.log_deletion import LogDeletion
from hermes.storage.log_exchange import LogExchange
from hermes.storage.log_flush import flush
from hermes.storage.log_format import LogFormat
from hermes.storage.log_opening import LogOpening
from hermes.storage.log_replica import LogReplica
from hermes.storage.log_sources import LogSources, SourcesSidecar
from hermes.storage.log_state import LogState
from hermes.storage.log_transactions import LogTransactions
from hermes.storage.message_times import TimestampedOffset
from hermes.storage.reader import LogReader
from hermes.storage.recovery import RecoveryReport
from hermes.storage.segment import FlushedEnd, HighWatermark, LastStableOffset, LogView, Segment
from hermes.storage.settings import MAX_SEGMENT_BYTES, LogSettings

#: How often segments are looked at again when one was renamed or deleted at that moment.
_LOOKS = 10

#: How long a flush under way is waited for in between.
_LOOK_SECONDS = 0.1

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Log:
    """An append-only sequence of bytes (whole messages), addressed by offset.

    Made offline; `open` brings it into service. `DataDirectory` does that for all partitions.

    Args:
        files: the file layer; the operating system's unless given.
        descriptors: opens segments; a cache of its own unless given.
        topic_id: the topic's id, if its format has ids and it is known.
        checkpoints: the data directory's; those of the directory above unless given.

    Attributes:
        counts_messages: whether its offsets count messages; else they count bytes.
        producers: what is known of idempotent producers; None in a format that has none.
        damage: what is known to be damaged, by segment. Replaced as a whole by whoever looks.
        state: what its parts share. What asks for each request does it there: the properties here
            are calls.
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
        self.format = log_format
        self.counts_messages = log_format.counts_messages
        self.damage: Mapping[Segment, Sequence[Damage]] = {}
        self.files = FileLayer() if files is None else files
        descriptors = DescriptorCache(self.files) if descriptors is None else descriptors
        self.sidecar = new_sidecar(
            log_format, topic, partition, directory, self.files, topic_id, checkpoints
        )
        self.producers = self.sidecar.producers
        sources = SourcesSidecar(directory, self.files, descriptors)
        self.state = LogState(
            self.name,
            settings,
            self.files,
            descriptors,
            log_format,
            directory,
            (sources, self.sidecar),
            self.sidecar.transactions,
        )
        self._reader = LogReader(self.files, descriptors, log_format)
        self.sources = LogSources(self.state, sources)
        self.transactions = LogTransactions(self.state, self.sidecar)
        self.exchange = LogExchange(self.state)
        self._opening = LogOpening(self.state, self.sidecar, self.exchange)
        self._deletion = LogDeletion(self.state, self.sidecar)
        self.replica = LogReplica(
            self.state, self.sidecar, self.sources, self._opening, self._deletion, self._reader
        )

    def __repr__(self) -> str:
        return f"<Log {self.name}>"

    # -- state ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The partition as people and directories write it: `clicks-0`."""
        return f"{self.topic}-{self.partition}"

    @property
    def settings(self) -> LogSettings:
        """They may change at any time."""
        return self.state.settings

    @settings.setter
    def settings(self, settings: LogSettings) -> None:
        self.state.settings = settings

    @property
    def earliest(self) -> int:
        """The first offset; 0 for a log that was never opened."""
        return self.state.view.earliest

    @property
    def topic_id(self) -> UUID | None:
        return self.sidecar.topic_id

    def adopt_topic_id(self, topic_id: UUID) -> None:
        """Take the topic's id if a loss of power took it, and another was made up; else nothing.

        Raises StorageError: it can't be written.
        """
        if self.sidecar.has_provisional_id:
            try:
                self.sidecar.adopt(topic_id)
            except OSError as error:
                raise storage_error(f"{self.name}: write its topic's id", error) from error

    @property
    def has_provisional_id(self) -> bool:
        """Whether its topic's id was lost, with nothing flushed, and it has another one for now."""
        return self.sidecar.has_provisional_id

    @property
    def leader_epoch(self) -> int:
        """In which epoch to append; 0 in a format that has none."""
        return self.sidecar.epochs.latest

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        return self.sidecar.end_of_epoch(epoch, self.high_watermark)

    @property
    def end_offset(self) -> int:
        """The offset after the last byte appended; the next append starts there."""
        return self.state.tail.end

    @property
    def flushed_end(self) -> FlushedEnd:
        """The offset up to which the log is on this disk."""
        return self.state.view.flushed_end

    @property
    def view(self) -> LogView:
        """What the log shows to readers now."""
        return self.state.view

    @property
    def high_watermark(self) -> HighWatermark:
        """The offset up to which the log is committed, and therefore visible."""
        return self.state.view.high_watermark

    @property
    def stable_end(self) -> LastStableOffset:
        """The offset up to which all is committed and no transaction is open."""
        return self.state.view.stable_end

    @property
    def size_bytes(self) -> int:
        """How many bytes of messages the log holds, visible or not."""
        sealed = self.state.view.segments[:-1]
        return sum(segment.size_bytes for segment in sealed) + self.state.tail.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self.state.view.segments)

    @property
    def last_append_ms(self) -> int | None:
        """When something was last appended, in ms since 1970; None for not since it was made."""
        return self.state.last_append_ms

    @property
    def openings(self) -> int:
        """How often it was brought into service.

        What was appended before the last time may have been dropped then, unless it was flushed.
        """
        return self.state.openings

    @property
    def index_failures(self) -> int:
        """How often the time index, or a snapshot of producers, could not be written.

        An answer by time may be coarser then, and a recovery may read more.
        """
        return self.state.index_failures

    @property
    def is_suspect(self) -> bool:
        """Whether somebody has met damage in it, and it should be looked at as a whole."""
        return self.state.is_suspect

    @is_suspect.setter
    def is_suspect(self, is_suspect: bool) -> None:
        self.state.is_suspect = is_suspect

    @property
    def strange_files(self) -> tuple[str, ...]:
        """Names in the directory that belong to no segment; they are left alone."""
        return self._opening.strange_files

    @property
    def is_offline(self) -> bool:
        """Whether appends are refused until `reopen`. What is visible can still be read."""
        return self.state.offline_reason is not None

    @property
    def offline_reason(self) -> str | None:
        """Why the log is offline, in words for an operator; None when it isn't."""
        return self.state.offline_reason

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed, or deleted with its topic: it never comes back."""
        return self.state.is_closed

    def complete_segments(self) -> tuple[Segment, ...]:
        """The segments that nothing is appended to any more, all of them committed."""
        return self.state.view.complete_segments()

    def flushed_segments(self) -> list[tuple[Segment, int]]:
        """The segments that have something on this disk, each with up to where."""
        view = self.state.view
        found: list[tuple[Segment, int]] = []
        for place, each in enumerate(view.segments):
            end = min(view.end_of(place, view.flushed_end), view.flushed_end)
            if end > each.base_offset:
                found.append((each, end))
        return found

    @property
    def complete_end(self) -> int:
        view = self.state.view
        count = len(view.complete_segments())
        return view.bases[count] if count else view.earliest

    def check_readable(self) -> None:
        """Raise `LogOfflineError` for a log that was never opened: nobody knows where it ends."""
        if not self.state.view.bases:
            self.state.check_online()

    def check_online(self) -> None:
        """Raise `LogOfflineError` when the log takes no appends: `reopen` must come first."""
        self.state.check_online()

    # -- append and flush -----------------------------------------------------------------------

    def append(
        self,
        buffers: Sequence[Buffer],
        byte_count: int,
        message_count: int,
        now_ms: int,
        batches: Sequence[tuple[int, int, int]] = (),
    ) -> int:
        """Append whole messages at the end of the log. Fast: one write into the page cache.

        Call it from one thread only (the reactor's). Nothing is visible before the next `flush`.

        Args:
            buffers: the bytes, in order: whole, valid messages. Not kept.
            byte_count: the sum of their lengths, > 0.
            message_count: how many messages they hold (inner ones of compressed sets counted).
            batches: in Kafka's format, of each batch its size in bytes, its last offset and its
                largest timestamp. A flush reads back what it isn't told of.

        Returns:
            The offset of the first message.

        Raises:
            DiskFullError: nothing of it remains; the same append may succeed later.
            UncertainAppendError: the disk failed on the way, and some of it may come back.
            LogOfflineError: nothing was appended; `reopen` must come first.
            StorageError: no descriptor was available; nothing was appended, try again later.
        """
        state = self.state
        with state.lock:
            tail = state.tail
            if tail.descriptor < 0 and not state.prepared:
                tail.resume(state.settings, now_ms)
            if (
                tail.descriptor < 0
                or tail.size_bytes > state.settings.segment_bytes
                or now_ms > tail.roll_after_ms
                or tail.size_bytes + byte_count > MAX_SEGMENT_BYTES
            ):
                state.prepare(now_ms, byte_count)
            state.last_append_ms = now_ms
            try:
                return tail.append(buffers, byte_count, message_count, now_ms, batches)
            except OSError as error:
                raise state.undo_append(error) from error

    def flush(self) -> FlushedEnd:
        """Put on disk what was appended so far. Blocks; any worker thread.

        It becomes visible with that, unless there are other copies (`is_sole_copy`).

        Appends continue meanwhile and wait for the next flush. One call per log runs at a time.

        Raises:
            LogOfflineError: the disk failed (now or before); the flushed end has not moved
                and nothing of what it covers is lost. `reopen` finds out what is left of the rest.
            StorageError: no descriptor was available, and nothing is lost: flush again later.
        """
        with self.state.flush_lock:
            return flush(self.state)

    @property
    def is_sole_copy(self) -> bool:
        """Whether nobody else has a copy, so that a flush commits."""
        return self.state.is_sole_copy

    @is_sole_copy.setter
    def is_sole_copy(self, is_sole_copy: bool) -> None:
        self.state.is_sole_copy = is_sole_copy

    def commit(self, offset: int) -> HighWatermark:
        """Make visible what is on as many disks as must have it, this one included. Any thread.

        `offset`: up to where that is; beyond the flushed end it means that end, and what was
        visible stays so.
        """
        state = self.state
        with state.lock:
            view = state.view
            mark = HighWatermark(max(view.high_watermark, min(offset, view.flushed_end)))
            stable_end = state.stable_end(mark, view.earliest)
            state.view = view._replace(high_watermark=mark, stable_end=stable_end)
            return mark

    # -- reading --------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, whole_first: bool = False, resident: bool = False
    ) -> LogSlice:
        """Find visible bytes, without reading them.

        Of Kafka's format a little is read: what says where the offset lies, and headers nearby.

        Args:
            offset: where to start; it needn't be a message boundary.
            max_bytes: how many bytes at most, >= 0.
            whole_first: let the slice be longer where its first message is, or in Kafka's format
                its first batch.
            resident: read only what is in memory, and open nothing, so that it waits for no disk.

        Returns:
            A slice of one segment, which the caller releases: it ends where the segment or the
            visible part ends, or after `max_bytes`. It is empty at the visible end. In Kafka's
            format it begins with the batch that holds the offset, or with the next one.

        Raises:
            OffsetOutOfRangeError: the offset is before the earliest or beyond the visible end.
            LogOfflineError: the log could not be opened at all, or was closed.
            NotInMemoryError: it is to be `resident` and isn't: call again in a worker thread.
            DamagedMessagesError: what was at the offset is damaged, and there is no other copy.
            StorageError: the segment can't be opened now (no descriptor, say).
        """
        return self._through_view(self._reader.read, offset, max_bytes, whole_first, resident)

    def fetch(
        self,
        offset: int,
        max_bytes: int,
        whole_first: bool,
        resident: bool,
        is_committed: bool = False,
    ) -> tuple[LogSlice | bytes, LogView]:
        """`read` for a response: bytes where they are few and `resident` in memory, or none.

        `is_committed`: as if the log ended at the last stable offset. Returns where it read, too.
        """
        # What `_through_view` does, written out: this runs for every fetch.
        view = self.state.view
        if offset == (view.stable_end if is_committed else view.high_watermark) and view.bases:
            return b"", view
        read = self._reader.fetch_stable if is_committed else self._reader.fetch
        try:
            return read(view, offset, max_bytes, whole_first, resident, resident), view
        except (OffsetOutOfRangeError, SegmentRetiredError):
            found = self._through_view(read, offset, max_bytes, whole_first, resident, resident)
            return found, self.state.view
        except OSError as error:
            raise self.state.unreadable(error) from error

    def _through_view(
        self,
        look: Callable[Concatenate[LogView, _Arguments], _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Look at the current view; when a segment was deleted meanwhile, at the next one."""
        while True:
            view = self.state.view
            self.check_readable()
            try:
                return look(view, *args, **kwargs)
            except SegmentRetiredError:
                if self.state.view is view:
                    raise self.state.offline_error() from None
            except OSError as error:
                raise self.state.unreadable(error) from error

    def offsets_before(self, time_ms: int, max_offsets: int, now_ms: int) -> list[int]:
        """List offsets up to a time, newest first; `hermes.storage.reader` says what is exact.

        Args:
            time_ms: ms since 1970; -1 for the visible end and all segment starts; -2 for the
                earliest offset only.
            max_offsets: the length of the answer at most; 0 or less gives none.

        Returns:
            A new list of descending offsets. The first is where the log ended at that time (bytes
            appended in that very ms included), or a segment's start if only that is known.

        Raises StorageError: as for `boundary_before`.
        """
        return self._through_view(self._reader.offsets_before, time_ms, max_offsets, now_ms)

    def offset_at_time(self, time_ms: int) -> TimestampedOffset | None:
        """Find the first visible message whose own timestamp is not before a time. Blocks.

        Where the format has timestamps; `offsets_before` goes by when something was appended.
        Raises StorageError: as for `boundary_before`, or messages have no timestamps.
        """
        return self._through_view(self._reader.offset_at_time, time_ms)

    def latest_timestamp(self) -> TimestampedOffset | None:
        """Find the first of the messages with the largest timestamp; else as `offset_at_time`."""
        return self._through_view(self._reader.latest_timestamp)

    def boundary_before(self, offset: int) -> int:
        """Find the largest message boundary that is not after an offset. Blocks.

        Args:
            offset: any offset from the earliest on; beyond the visible end it means that end.

        Raises:
            OffsetOutOfRangeError: the offset is before the earliest.
            StorageError: the log could not be opened, or the segment can't be read.
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
            StorageError: as for `boundary_before`, of an index.
        """
        while True:
            found = self._through_view(self._reader.append_times, start, end, interval_ms, max_runs)
            if self.is_closed:
                raise self.state.offline_error()
            # Of a segment that was deleted meanwhile nothing that was found is to be believed.
            if self.earliest <= start:
                return found

    def segment_infos(self) -> tuple[SegmentInfo, ...]:
        """Describe the segments; the last one is active. Raises StorageError as of `read`."""
        tries = _LOOKS
        while True:
            state = self.state
            with state.lock:
                view, tail = state.view, state.tail
                end, size = tail.end, tail.size_bytes
                newest_ms = tail.last_ms
            try:
                return self._reader.segment_infos(view, end, size, newest_ms)
            except (OSError, SegmentRetiredError) as error:
                # A flush renames and retention deletes meanwhile: then look again.
                is_passing = isinstance(error, FileNotFoundError | SegmentRetiredError)
                if is_passing and state.view is not view:
                    continue
                tries -= 1
                if is_passing and tries:
                    if state.flush_lock.acquire(timeout=_LOOK_SECONDS):  # it has the new name then
                        state.flush_lock.release()
                    continue
                if isinstance(error, SegmentRetiredError):
                    raise state.offline_error() from error
                raise storage_error(f"{self.name}: describe the segments", error) from error

    # -- opening and closing --------------------------------------------------------------------

    def open(
        self, *, clean: bool, now_ms: int, is_new_directory: bool = False
    ) -> RecoveryReport | None:
        """Load the partition's directory and start serving. Blocks.

        Args:
            clean: True when the last stop was clean: nothing is read then.
            is_new_directory: True when the directory's name may be in memory only: the first flush
                then syncs its parent as well.

        Returns:
            None when there was nothing to recover.

        Raises:
            CorruptLogError: the segments don't fit together; the log stays offline, untouched.
            StorageError: the disk failed; the log stays offline, `reopen` may be tried.
        """
        return self._opening.open(clean=clean, now_ms=now_ms, is_new_directory=is_new_directory)

    def keep_offline(self, reason: str) -> None:
        self.state.offline_reason = reason

    def reopen(self, now_ms: int) -> RecoveryReport:
        """Bring an offline log back: read its tail, keep what is valid, write and sync it again.

        Blocks. A log that is online is left as it is. The files are looked for again, by their
        names; the log only comes back when everything that was flushed exists.

        Returns:
            What was found; `dropped_bytes` are of appends that were accepted, but never flushed.

        Raises:
            CorruptLogError: the segments don't fit together; still offline.
            LogOfflineError: the disk still fails, something that was flushed is missing, or the
                log was closed; still offline.
        """
        return self._opening.reopen(now_ms)

    def close(self) -> None:
        """Stop serving, for good. Waits for a flush or delete under way, but does not flush.

        Slices that are held stay readable until they are released.
        """
        state = self.state
        with state.flush_lock, suppress(OSError):
            if not self.is_offline and state.tail.unflushed_bytes == 0:
                for each in state.sidecars:
                    each.close(state.tail.end)
                    with suppress(StorageError):
                        each.record(state.current_view, has_new_end=True)
                state.view.segments[-1].index.close()
        self._shut("the log is closed")

    def _shut(self, reason: str) -> None:
        state = self.state
        with state.flush_lock, state.lock:
            state.is_closed = True
            state.offline_reason = None
            state.go_offline(reason)
            state.tail.release()
            state.retire(state.view.segments)
            for each in state.sidecars:
                each.retire()
        state.directory.forget_removed()

    # -- deleting -------------------------------------------------------------------------------

    def delete_oldest(self, count: int, *, up_to: int | None = None) -> int:
        """Delete segments at the start of the log. Blocks; any worker thread.

        Readers continue: slices of deleted segments stay readable until they are released. What is
        not yet flushed stays. When all segments go, what is unflushed is flushed first, and an
        empty segment named by the end offset takes their place before any file is deleted.

        Args:
            count: how many segments, 0 to all of them.
            up_to: where the last of them ended when that was decided. What lies beyond stays:
                others may have deleted some of them since, and the log may have grown.

        Returns:
            How many bytes were deleted.

        Raises:
            LogOfflineError: the log is offline; nothing was deleted.
            StorageError: a file could not be created or deleted. The segments are gone from
                service nevertheless; the next call tries their files again, and what is left of
                them at the next start comes back.
        """
        return self._deletion.oldest(count, up_to)

    def delete_records(self, offset: int, *, keeps_files: bool = False) -> int:
        """Let the log begin at an offset from now on; where it begins then. Blocks; worker threads.

        Segments that lie before it as a whole are deleted; of the others nothing is, but no reader
        gets at it any more. An offset before the earliest one changes nothing. `keeps_files`: their
        files are deleted with the next that are, since that may take long.

        Raises:
            OffsetOutOfRangeError: the offset is beyond the visible end.
            LogOfflineError: the log is offline; nothing was changed.
            StorageError: as for `delete_oldest`; or the format has whole segments only.
        """
        return self._deletion.records(offset, keeps_files=keeps_files)

    def check_directory(self) -> None:
        """Make sure that the directory is still the one that was opened. Blocks; any worker thread.

        For logs that nobody writes to: a flush looks by itself. Raises LogOfflineError: it isn't,
        or the log was offline before; it is now in any case.
        """
        with self.state.flush_lock:
            self.state.check_online()
            self.state.check_directory()

    def delete(self) -> int:
        """Delete the log with its directory, oldest segment first: what a crash leaves is a log.

        One that has other copies goes from its end, since what is left may be a copy's beginning.
        Slices that are held stay readable. The caller syncs the parent directory. Returns how many
        bytes of messages were deleted. Raises StorageError: a file or the directory can't be (those
        that aren't ours are left alone); the log is out of service anyway.
        """
        self._shut("the topic was deleted")
        try:
            # First, lest a crash leaves it to the next log; a full disk has no room before.
            with suppress(DiskFullError):
                self.sidecar.forget()
            self.state.directory.delete(from_end=not self.state.is_sole_copy)
            self.sidecar.forget()
        except OSError as error:
            what = f"{self.name}: delete {error.filename or ''}"
            raise storage_error(what, error) from error
        return self.size_bytes
