"""What a broker does on its own: retention, compaction, and reopening logs that went offline.

All walk over the logs, one at a time, in a worker thread; a log that fails is reported and tried
again at the next pass, and never stops the others.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.internet.interfaces import IDelayedCall

from hermes.broker.clocks import BelievedClock
from hermes.config.kinds import FORMAT_KAFKA
from hermes.errors import HermesError, LogOfflineError, StorageError
from hermes.interfaces import IRetentionPolicy
from hermes.logs import ModuleLogger
from hermes.storage import AppendAges, DataDirectory, Log, apply_retention
from hermes.storage.compaction import STEP_BYTES, CompactionReport, compaction, is_due
from hermes.storage.producer_states import MOST_OF_ALL, keep_together

#: How fast logs are compacted: bytes that are read, in a second.
COMPACTION_BYTES_PER_SECOND = 16 * 1024 * 1024


_OVER = object()


class Maintenance:
    """The periodic passes over all logs; lives in the reactor's thread.

    Args:
        policy_for: the retention policy of a topic.
        now_ms: the wall clock, in ms since 1970.
        seconds: a clock that can't be set.
        on_reopened: called with each log that is online again.
        is_flushing: whether somebody has yet to hear of the end of a log's flush.
        compacts: whether a topic is compacted, and how long its tombstones stay, in ms.
        call_later: calls a function after some seconds, as a reactor does.

    Attributes:
        compactions: how often a log was compacted, which has freed `compacted_bytes`.
        retention_deletes: how often retention has deleted something of a log.
        retention_failures: how often a log could not be checked, or its policy failed.
        reopened: how many offline logs are back.
    """

    _logger = ModuleLogger()

    def __init__(
        self,
        directory: DataDirectory,
        policy_for: Callable[[str], IRetentionPolicy],
        now_ms: Callable[[], int],
        seconds: Callable[[], float],
        in_thread: Callable[..., "Deferred[Any]"],
        on_reopened: Callable[[Log], None] = lambda log: None,
        is_flushing: Callable[[Log], bool] = lambda log: False,
        compacts: Callable[[str], tuple[bool, int]] = lambda topic: (False, 0),
        call_later: Callable[..., IDelayedCall] | None = None,
    ) -> None:
        self._directory = directory
        self._policy_for = policy_for
        self._now_ms = now_ms
        self._clock = BelievedClock(now_ms, seconds)
        self._ages = {log: AppendAges(log.end_offset) for log in directory.logs.values()}
        self._in_thread = in_thread
        self._on_reopened = on_reopened
        self._is_flushing = is_flushing
        self.retention_deletes = self.retention_deleted_bytes = self.retention_failures = 0
        self.reopened = 0
        self._failed_reopens: dict[Log, int] = {}
        self._compacts = compacts
        self._call_later = call_later
        self._pause: tuple[IDelayedCall, Deferred[None]] | None = None
        self._is_stopped = False
        self._compacted_to: dict[Log, int] = {}
        self.compactions = self.compacted_bytes = 0

    def watch_clock(self) -> None:
        """Check whether the wall clock was set; call it every minute or so."""
        self._clock.now_ms()

    def bound_producers(self) -> None:
        """Have logs forget idempotent producers beyond what memory allows."""
        logs = self._directory.logs.values()
        keep_together((log.producers for log in logs if log.producers), MOST_OF_ALL)

    @inlineCallbacks
    def apply_retention(self) -> "Any":
        logs = list(self._directory.logs.values())
        self._ages = {log: self._ages.get(log) or AppendAges(0) for log in logs}
        for log in logs:
            if log.is_offline:
                continue
            try:
                policy = self._policy_for(log.topic)
                deleted = yield self._in_thread(
                    apply_retention,
                    log,
                    policy,
                    self._clock.now_ms(),
                    self._ages[log],
                    int(self._clock.seconds() * 1000),
                )
            except LogOfflineError as error:
                self.retention_failures += not log.is_closed
                if not log.is_closed:  # closed: its topic was deleted meanwhile
                    self._logger.error(
                        "{log} is offline: {reason}",
                        log=log.name,
                        reason=error,
                    )
                continue
            except StorageError as error:
                self.retention_failures += 1
                self._logger.error("retention of {log} failed: {error}", log=log.name, error=error)
                continue
            except Exception:  # a third party's policy may raise anything
                self.retention_failures += 1
                self._logger.failure("retention of {log} failed", log=log.name)
                continue
            if deleted:
                self.retention_deletes += 1
                self.retention_deleted_bytes += deleted
                self._logger.info(
                    "retention deleted {bytes} bytes of {log}; it now starts at offset {earliest}",
                    bytes=deleted,
                    log=log.name,
                    earliest=log.earliest,
                )

    @inlineCallbacks
    def compact(self) -> "Any":
        """Compact the logs that need it, one after the other, at a bounded rate."""
        logs = [log for log in self._directory.logs.values() if log.format.name == FORMAT_KAFKA]
        self._compacted_to = {log: self._compacted_to.get(log, 0) for log in logs}
        for log in logs:
            is_compacted, tombstone_ms = self._compacts(log.topic)
            if not is_compacted or log.is_offline:
                continue
            report = CompactionReport()
            try:
                if not (yield self._in_thread(is_due, log, self._compacted_to[log])):
                    continue
                done = self._compacted_to[log]
                steps = compaction(log, done, self._clock.now_ms(), tombstone_ms, report)
                while (yield self._in_thread(next, steps, _OVER)) is not _OVER:
                    yield self._wait(STEP_BYTES / COMPACTION_BYTES_PER_SECOND)
                    if self._is_stopped:
                        steps.close()
                        return
            except HermesError as error:
                if not log.is_closed:  # closed: its topic was deleted meanwhile
                    self._logger.error(
                        "{log} could not be compacted: {error}", log=log.name, error=error
                    )
                continue
            except Exception:  # the logs after it are compacted all the same
                self._logger.failure("compacting {log} failed", log=log.name)
                continue
            self._compacted_to[log] = report.end
            self.compactions += 1
            self.compacted_bytes += report.freed_bytes
            self._logger.info(
                "compaction freed {bytes} bytes of {log}, up to offset {end}",
                bytes=report.freed_bytes,
                log=log.name,
                end=report.end,
            )

    def _wait(self, seconds: float) -> "Deferred[None]":
        waited: Deferred[None] = Deferred()
        if self._call_later is None or self._is_stopped:
            return succeed(None)
        self._pause = self._call_later(seconds, waited.callback, None), waited
        return waited

    def stop(self) -> None:
        """End a compaction under way; what is done of it stays done."""
        self._is_stopped = True
        pause, self._pause = self._pause, None
        if pause is not None and pause[0].active():
            pause[0].cancel()
            pause[1].callback(None)

    @inlineCallbacks
    def reopen_offline(self) -> "Any":
        for log in list(self._directory.logs.values()):
            # First those who wait for a flush are told that it failed: afterwards the log may be
            # another one, and nobody could say any more what of theirs was in it.
            if not log.is_offline or self._is_flushing(log):
                continue
            try:
                report = yield self._in_thread(self._directory.reopen, log, self._now_ms())
            except Exception as error:
                self._stays_offline(log, error)
                continue
            self._failed_reopens.pop(log, None)
            self.reopened += 1
            self._on_reopened(log)
            self._logger.info(
                "{log} is back online; recovery dropped {dropped} bytes",
                log=log.name,
                dropped=report.dropped_bytes,
            )
            for text in log.sidecar.mended:
                self._logger.warn("mended {text}", text=text)

    def _stays_offline(self, log: Log, error: Exception) -> None:
        """Log it after 1, 2, 4, 8 ... failed attempts: it may last a weekend."""
        if log.is_closed:
            self._failed_reopens.pop(log, None)
            return
        failures = self._failed_reopens[log] = self._failed_reopens.get(log, 0) + 1
        if not failures & (failures - 1):
            self._logger.warn(
                "{log} stays offline: {error} ({failures} attempts)",
                log=log.name,
                error=error,
                failures=failures,
            )
