"""Fetches that wait until there is enough, and what there is of a log for a fetch."""

from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed

from hermes.cluster.shared import Shared
from hermes.errors import HermesError
from hermes.kafka.legacy import range_of
from hermes.partition.waiting import WaitingFetches
from hermes.protocol import FetchRequest
from hermes.storage import Log, LogSlice, NotInMemoryError

#: The share of `request_memory` that fetches that wait may take.
_WAITING_SHARE: Final = 0.25


class Waits:
    """The fetches that wait. Lives in the reactor's thread.

    Args:
        shared: the broker's logs and settings.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._waiting = WaitingFetches(
            shared.clock, shared.scheduler, self._available, 0, decode=lambda data: None
        )
        self._settings_changed()
        shared.settings.on_change(self._settings_changed)
        shared.flusher.on_flushed(lambda log: self._waiting.changed(log.topic, log.partition))

    def __len__(self) -> int:
        """How many fetches wait."""
        return len(self._waiting)

    def wait(self, wait: "Wait") -> "Deferred[Any] | None":
        """Wait until there is enough; None when there is already, or an error."""
        return self._waiting.wait(wait)

    def end(self) -> "Deferred[None]":
        """Let nobody wait any longer: the broker stops."""
        self._waiting.wake_all()
        return succeed(None)

    def _settings_changed(self) -> None:
        memory_bytes = self._shared.config.request_memory_bytes
        self._waiting.limit_bytes = int(memory_bytes * _WAITING_SHARE)

    def _available(self, fetch: FetchRequest) -> int | None:
        """How many bytes there are for a fetch now; None when it is answered at once."""
        log = self._shared.directory.get(fetch.topic, fetch.partition)
        if log is None:
            return None
        try:
            return _available(log, fetch.offset, fetch.max_size)
        except (HermesError, NotInMemoryError):  # which a thread looks at when it is read again
            return None


@dataclass(slots=True)
class Wait:
    """What a fetch waits for, as `WaitingFetches` wants it.

    Attributes:
        fetches: what is wanted of each partition, by the logs' own numbers.
        min_bytes: how much is enough.
        max_wait_ms: how long.
    """

    fetches: list[FetchRequest]
    min_bytes: int
    max_wait_ms: int

    def encode(self) -> bytes:
        """Nothing: the request is kept anyway, as it was decoded."""
        return b""


def slice_of(
    log: Log, offset: int, max_bytes: int, is_first: bool, *, resident: bool = False
) -> LogSlice | None:
    """Batches from the one on that holds an offset; None where there is nothing to read.

    Raises:
        NotInMemoryError: as `Log.read` says.
        OffsetOutOfRangeError: the offset is before the log's start or beyond its end.
        StorageError: it can't be read.
    """
    # What is appended and not flushed yet isn't there, but no error either.
    if log.high_watermark <= offset <= log.end_offset:
        return None
    if not (max_bytes or is_first):
        return None
    records = log.read(offset, max_bytes, whole_first=is_first, resident=resident)
    if records.length:
        return records
    records.release()
    return None


def _available(log: Log, offset: int, max_bytes: int) -> int:
    if not log.counts_messages:
        wanted = range_of(log, offset, max_bytes)
        return 0 if wanted is None else wanted.length
    found = slice_of(log, offset, max_bytes, True, resident=True)
    if found is None:
        return 0
    with found:
        return found.length
