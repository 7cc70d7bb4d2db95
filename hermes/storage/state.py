"""The state of one partition's log, and the rules that everything that touches it keeps.

`LogState` holds the fields and says when they may change; `hermes.storage.writer` appends and
flushes, `hermes.storage.reader` reads, `hermes.storage.log` opens, brings back and deletes.

- `_lock` guards the fields. It is held for a few instructions, or for one write into the page
  cache (and the creation of a file, when rolling), never over a sync, a delete or a scan.
- `_flush_lock` is held by whatever needs the tail to itself for long: flush, reopen, close, and the
  exchange of segments in a delete. Always taken before `_lock`.
- `_delete_lock` is held while files are deleted: those of `_doomed`, segments that are in no view
  any more. It is taken alone.
- `_search_lock` guards the segments' `boundaries`; it is held while some MiB are searched for more,
  so that searches share their work. It is taken alone.
- `_view` is immutable and replaced as a whole, and `_high_watermark` only grows: readers take no
  lock. The watermark never passes what the disk has confirmed.
- `_dirty` are the segments with bytes (or names) that aren't on disk yet, oldest first, contiguous
  up to the active one. Their descriptors stay open until a flush has covered them.
- `_pending` is what the time index will be told once it is true: one entry per ms with appends.
- An error while syncing says nothing about which bytes were lost, and the kernel reports it once.
  So it is never tried again as if nothing had happened: the log goes offline and refuses appends
  until `Log.reopen` has read, rewritten and synced its tail.
"""

import threading

from hermes.errors import LogOfflineError
from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import FileLayer, Identity
from hermes.storage.loading import LoadedLog
from hermes.storage.segment import Segment, SegmentView
from hermes.storage.settings import LogSettings

__all__ = ["NEVER_MS", "NO_ENTRY_MS", "LogState"]

#: Later than every time.
NEVER_MS = 2**63
#: Earlier than every time.
NO_ENTRY_MS = -(2**63)


class LogState:
    """What a log knows and guards; see the module for the rules.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        directory: the partition's directory.
        settings: the topic's settings.
        strange_files: names in the directory that belong to no segment; they are left alone.
        openings: how often it was brought into service: what was appended before the last time may
            have been dropped then, if no flush had confirmed it.
        index_failures: how often the time index could not be written: an answer by time may be
            coarser, and a recovery may read more.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        settings: LogSettings,
        files: FileLayer,
        descriptors: DescriptorCache,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.settings = settings
        self.strange_files: tuple[str, ...] = ()
        self.openings = 0
        self.index_failures = 0
        self._files = files
        self._descriptors = descriptors
        self._pwrite = files.pwrite
        # The directory that was opened.
        self._place: Identity | None = None
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._delete_lock = threading.Lock()
        self._search_lock = threading.Lock()
        self._view = SegmentView((), ())
        self._offline_reason: str | None = "not opened yet"
        self._is_closed = False
        self._end = 0
        self._high_watermark = 0
        # The active segment: where it starts, its descriptor while it is dirty (else -1), and
        # the time after which it is too old to be appended to.
        self._base = 0
        self._descriptor = -1
        self._roll_after_ms = NEVER_MS
        self._dirty: list[Segment] = []
        self._has_new_names = False
        self._has_new_directory = False
        self._doomed: list[Segment] = []
        self._pending: list[tuple[int, int]] = []
        self._entry_ms = NO_ENTRY_MS
        self._unflushed_messages = 0
        self._first_unflushed_ms: int | None = None
        self._flushing_first_ms: int | None = None

    def __repr__(self) -> str:
        return f"<Log {self.name}>"

    # -- state ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The partition as people and directories write it: `clicks-0`."""
        return f"{self.topic}-{self.partition}"

    @property
    def earliest(self) -> int:
        """The first offset there is; 0 for a log that was never opened."""
        bases = self._view.bases
        return bases[0] if bases else 0

    @property
    def end_offset(self) -> int:
        """The offset after the last byte appended; the next append starts there."""
        return self._end

    @property
    def high_watermark(self) -> int:
        """The offset up to which the log is on disk, and therefore visible."""
        return self._high_watermark

    @property
    def size_bytes(self) -> int:
        """How many bytes of messages the log holds, visible or not."""
        return self._end - self.earliest

    @property
    def unflushed_bytes(self) -> int:
        """How many bytes were appended and are not yet visible."""
        return self._end - self._high_watermark

    @property
    def unflushed_messages(self) -> int:
        """How many messages were appended and are not yet visible."""
        return self._unflushed_messages

    @property
    def first_unflushed_ms(self) -> int | None:
        """When the oldest append that isn't visible yet was made; None when all is visible."""
        first = self._flushing_first_ms
        return self._first_unflushed_ms if first is None else first

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

    def _check_online(self) -> None:
        if self._offline_reason is not None:
            raise LogOfflineError(f"{self.name} is offline: {self._offline_reason}")

    def _go_offline(self, reason: str) -> None:
        """Under the lock: refuse appends from now on. The first reason stands."""
        if self._offline_reason is None:
            self._offline_reason = reason
        self._descriptor = -1

    def _install(self, loaded: LoadedLog) -> None:
        """Under the lock: start from what was loaded, all of it flushed."""
        self.openings += 1
        self._view = SegmentView.of(loaded.segments)
        self._base = loaded.segments[-1].base_offset
        self._end = self._high_watermark = loaded.end
        self._descriptor = -1
        self._roll_after_ms = NEVER_MS
        self._has_new_names = loaded.has_new_names
        self._pending = []
        self._entry_ms = NO_ENTRY_MS
        self._unflushed_messages = 0
        self._first_unflushed_ms = self._flushing_first_ms = None
        self._offline_reason = None

    def _unpin(self) -> None:
        """Under the lock: let go of all dirty segments."""
        for segment in self._dirty:
            self._descriptors.release(segment.file)
        self._dirty.clear()
        self._descriptor = -1
