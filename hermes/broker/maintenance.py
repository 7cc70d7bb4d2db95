"""What a broker does on its own: retention, and bringing back logs that went offline.

Both walk over all logs, one log at a time, in a worker thread; a log that fails is reported and
tried again at the next pass, and never stops the others.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from hermes.broker.clocks import BelievedClock
from hermes.errors import LogOfflineError
from hermes.interfaces import IRetentionPolicy
from hermes.logs import ModuleLogger
from hermes.storage import AppendAges, DataDirectory, Log, apply_retention


class Maintenance:
    """The periodic passes over all logs; lives in the reactor's thread.

    Args:
        directory: the opened data directory.
        policy_for: the retention policy of a topic.
        now_ms: the wall clock, in ms since 1970.
        seconds: a clock that can't be set.
        in_thread: calls a function in a worker thread and returns its Deferred.
        on_reopened: called with each log that is online again.

    Attributes:
        retention_deletes: how often retention has deleted something of a log.
        retention_deleted_bytes: what it has deleted.
        retention_failures: how often a log could not be looked at, or its policy failed.
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
    ) -> None:
        self._directory = directory
        self._policy_for = policy_for
        self._now_ms = now_ms
        self._clock = BelievedClock(now_ms, seconds)
        self._ages = {log: AppendAges(log.end_offset) for log in directory.logs.values()}
        self._in_thread = in_thread
        self._on_reopened = on_reopened
        self.retention_deletes = self.retention_deleted_bytes = self.retention_failures = 0
        self.reopened = 0
        self._failed_reopens: dict[Log, int] = {}

    def watch_clock(self) -> None:
        """Look whether the wall clock was set; call it every minute or so."""
        self._clock.now_ms()

    @inlineCallbacks
    def apply_retention(self) -> "Any":
        """Delete what the retention policies no longer keep."""
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
    def reopen_offline(self) -> "Any":
        """Try to recover the logs that an I/O error took offline."""
        for log in list(self._directory.logs.values()):
            if not log.is_offline:
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

    def _stays_offline(self, log: Log, error: Exception) -> None:
        """Say so after 1, 2, 4, 8 ... failed attempts: an operator may take a weekend."""
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
