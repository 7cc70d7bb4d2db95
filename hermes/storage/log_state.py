"""What a log is at one moment, the locks that guard it, and the steps that several uses share.

A log is made of these objects. Its *view* is what readers see: immutable, and replaced as a whole,
so that `hermes.storage.reader` takes no lock. Its *tail* is what isn't flushed:
`hermes.storage.tail`. Its *directory* is where all that lies: `hermes.storage.log_directory`. Its
*sidecars* are what else lies there and follows its life: `hermes.storage.sidecar`. What is done
with them has a module for each thing: `log` (appends and reads), `log_flush`, `log_opening`,
`log_deletion`, `log_exchange`, `log_sources`, `log_replica`. The rules that all of them rest on:

- `lock` guards the view, the tail and what says whether the log is online. It is held for a few
  instructions, or for one write into the page cache (and the creation of a file, when rolling),
  never over a sync, a delete or a scan.
- `flush_lock` is held by whatever needs the tail to itself for long: flush, reopen, close, a cut,
  and the exchange of segments in a delete. Always taken before `lock`.
- Segments that are in no view any more are deleted by the directory, with neither lock held.
- An error while syncing says nothing about which bytes were lost, and the kernel reports it once.
  So it is never tried again as if nothing had happened: the log goes offline and refuses appends
  until a recovery has read, rewritten and synced its tail.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from errno import EBADMSG, EIO

from hermes.errors import (
    DamagedMessagesError,
    DiskFullError,
    LogOfflineError,
    StorageError,
    UncertainAppendError,
)
from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import FileLayer, is_no_descriptor, is_no_room, storage_error
from hermes.storage.loading import LoadedLog
from hermes.storage.log_directory import LogDirectory
from hermes.storage.log_format import LogFormat
from hermes.storage.segment import FlushedEnd, HighWatermark, LastStableOffset, LogView, Segment
from hermes.storage.settings import LogSettings
from hermes.storage.sidecar import Sidecar, busy_at
from hermes.storage.tail import Tail
from hermes.storage.transactions import Transactions


class LogState:
    """What a log is at one moment. `Log` and the objects that it is made of share it.

    Attributes:
        sidecars: in the order in which they are called.
        transactions: which are open; none ever is in a format that has none.
        prepared, accounted, synced, told_of_flushes: those of them that an append or a flush calls.
        view: what readers see; empty before the log was opened.
        offline_reason: why it takes no appends, in words for an operator; None when it does.
        is_closed: whether it was closed, or deleted with its topic: it never comes back.
        is_sole_copy: whether nobody else has a copy, so that what is flushed is committed.
        has_lost_power: whether files may have holes where nothing was flushed, not recovered yet.
        openings, last_append_ms, index_failures, is_suspect: as `Log` has them.
        has_cut_damage, is_unreadable: as its `replica` has them.
    """

    def __init__(
        self,
        name: str,
        settings: LogSettings,
        files: FileLayer,
        descriptors: DescriptorCache,
        log_format: LogFormat,
        directory: str,
        sidecars: Sequence[Sidecar],
        transactions: Transactions,
    ) -> None:
        self.name = name
        self.settings = settings
        self.files = files
        self.descriptors = descriptors
        self.format = log_format
        self.directory = LogDirectory(directory, log_format, files, descriptors)
        self.sidecars = sidecars
        self.transactions = transactions
        self.enlist()
        self.lock = threading.Lock()
        self.flush_lock = threading.Lock()
        self.view = LogView((), (), FlushedEnd(0), HighWatermark(0), LastStableOffset(0))
        self.tail = Tail(files, descriptors, self.directory, log_format)
        self.offline_reason: str | None = "not opened yet"
        self.is_closed = False
        self.is_sole_copy = True
        self.openings = 0
        self.last_append_ms: int | None = None
        self.index_failures = 0
        self.is_suspect = self.has_cut_damage = self.is_unreadable = self.has_lost_power = False

    def enlist(self) -> None:
        """Note which sidecars an append or a flush calls: most logs have nothing of most."""
        self.prepared = busy_at("prepare", self.sidecars)
        self.accounted = busy_at("account", self.sidecars)
        self.synced = busy_at("sync", self.sidecars)
        self.told_of_flushes = busy_at("flushed", self.sidecars)

    def current_view(self) -> LogView:
        return self.view

    def check_online(self) -> None:
        if self.offline_reason is not None:
            raise self.offline_error()

    def offline_error(self) -> LogOfflineError:
        return LogOfflineError(f"{self.name} is offline: {self.offline_reason}")

    def go_offline(self, reason: str) -> None:
        """Under the lock: refuse appends from now on. The first reason stands."""
        if self.offline_reason is None:
            self.offline_reason = reason
        self.tail.stop()

    def refused(self, what: str, error: OSError) -> StorageError:
        """Under the lock: go offline, unless the disk is only short of something; what to raise."""
        failure = storage_error(f"{self.name}: {what}", error)
        if isinstance(failure, DiskFullError) or is_no_descriptor(error):
            return failure
        self.go_offline(str(failure))
        return LogOfflineError(str(failure))

    def unreadable(self, error: OSError) -> StorageError:
        self.is_suspect |= error.errno in (EIO, EBADMSG)
        if error.errno == EBADMSG and self.is_sole_copy:
            return DamagedMessagesError(f"{self.name}: {error.strerror}")
        return storage_error(f"{self.name}: read {error.filename or 'a segment'}", error)

    def prepare(self, now_ms: int, byte_count: int) -> None:
        if self.offline_reason is not None:
            raise self.offline_error()
        view = self.view
        try:
            for each in self.prepared:
                each.prepare()
            rolled = self.tail.prepare(view, self.settings, now_ms, byte_count)
        except FileExistsError as error:
            # Never write over what is there, whatever it is.
            self.go_offline(f"a segment can't be created: {error.filename} exists already")
            raise LogOfflineError(f"{self.name}: {error.filename} exists already") from error
        except OSError as error:
            raise self.refused("prepare an append", error) from error
        if rolled is not None:
            for each in self.sidecars:
                each.rolled(self.tail.end)
            self.view = view.with_segments((*view.segments, rolled))

    def undo_append(self, error: OSError) -> StorageError:
        """Under the lock: cut a failed append off; say what to raise."""
        reason = f"{self.name}: append at offset {self.tail.end}: {error.strerror or error}"
        failure: type[LogOfflineError] = UncertainAppendError
        # What was written of it may be whole messages, which a later start would take for good.
        with suppress(OSError):
            self.tail.cut()
            if is_no_room(error):
                return DiskFullError(reason)
            failure = LogOfflineError
        self.go_offline(reason)
        return failure(reason)

    def check_directory(self) -> None:
        """Under the flush lock: go offline (LogOfflineError) if the directory is another one."""
        try:
            self.directory.check()
        except OSError as error:
            reason = f"{self.name}: {error.strerror}"
            with self.lock:
                self.go_offline(reason)
            raise LogOfflineError(reason) from error

    def show(self, view: LogView) -> None:
        """Under the lock: let readers have a view whose flushed end or segments are others.

        What was visible stays so, but for what a cut has taken. Where there is no other copy, what
        is flushed is committed.
        """
        known = view.flushed_end if self.is_sole_copy else self.view.high_watermark
        mark = HighWatermark(min(view.flushed_end, max(known, view.earliest)))
        stable_end = self.stable_end(mark, view.earliest)
        self.view = view._replace(high_watermark=mark, stable_end=stable_end)

    def stable_end(self, mark: HighWatermark, earliest: int) -> LastStableOffset:
        """Under the lock: up to where all is decided, with a high watermark and a start."""
        first = self.transactions.commit(mark)
        return LastStableOffset(mark if first >= mark else max(first, earliest))

    def install(self, loaded: LoadedLog, earliest: int) -> None:
        """Under the lock: start from what was loaded, all of it flushed."""
        self.openings += 1
        self.is_unreadable = self.has_lost_power = False
        self.is_suspect |= loaded.has_damage or bool(loaded.report and loaded.report.bad_ranges)
        self.has_cut_damage = loaded.report is not None and loaded.report.has_cut_damage
        ends = FlushedEnd(loaded.end), HighWatermark(0), LastStableOffset(0)
        self.show(LogView.of(loaded.segments, *ends, earliest))
        self.tail = Tail(
            self.files,
            self.descriptors,
            self.directory,
            self.format,
            loaded.end,
            loaded.segments[-1].size_bytes,
            has_new_names=loaded.has_new_names,
        )
        self.offline_reason = None
        self.enlist()

    def retire(self, segments: Sequence[Segment]) -> None:
        """Close the files of segments that are in no view any more, once nobody reads them."""
        for segment in segments:
            self.descriptors.retire(segment.file)
