"""When what was appended is as safe as its producer wants it: one wait, for both protocols.

Each log that was appended to is asked for a group commit; the wait is over when all of them are
committed, have failed, or the time is up. After a failed flush the bytes may still be kept by
re-opening, so nothing that was appended is ever said not to be.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hermes.partition.flushing import FlushScheduler
from hermes.server.fairness import QUANTUM_ENTRIES, FairScheduler, cooperatively, in_slices
from hermes.server.outcomes import then
from hermes.storage import Log

#: What is in no more logs than this is flushed before the logs that are due.
_FEW_LOGS = 16


class Appended(Protocol):
    """What was appended to a log, or is there already.

    Attributes:
        log: None for what wasn't appended, for which nothing is waited.
        opening: which of the log's openings that was in.
        end_offset: the high watermark that covers it.
    """

    @property
    def log(self) -> Log | None: ...

    @property
    def opening(self) -> int: ...

    @property
    def end_offset(self) -> int: ...


_Appended = TypeVar("_Appended", bound=Appended)


class Safety(Enum):
    """What is known of something appended when the wait is over."""

    #: It is committed: on the disk of each copy that must have it.
    FLUSHED = "flushed"
    #: Its flush failed, or its log was opened again since: it may be kept or not.
    UNKNOWN = "unknown"
    #: The time is up.
    LATE = "late"


class Acknowledgements:
    """Waits for flushes. Lives in the reactor's thread."""

    def __init__(
        self, clock: IReactorTime, scheduler: FairScheduler, flusher: FlushScheduler
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._flusher = flusher

    def flushed(
        self,
        appended: Sequence[_Appended],
        timeout_seconds: float | None,
        on_unknown: Callable[[_Appended], None] = lambda each: None,
    ) -> "Deferred[Callable[[_Appended], Safety]]":
        """Wait for the flush of everything that was appended.

        Args:
            timeout_seconds: how long to wait; None for as long as the disk takes.
            on_unknown: called with each that comes to be `UNKNOWN`, also after the time was up.

        Returns:
            A Deferred of what says of each how safe it is. It never fails.
        """
        return _FlushWait(
            self._clock, self._scheduler, self._flusher, appended, timeout_seconds, on_unknown
        ).over


class _FlushWait(Generic[_Appended]):
    def __init__(
        self,
        clock: IReactorTime,
        scheduler: FairScheduler,
        flusher: FlushScheduler,
        appended: Sequence[_Appended],
        timeout_seconds: float | None,
        on_unknown: Callable[[_Appended], None],
    ) -> None:
        self.over: Deferred[Callable[[_Appended], Safety]] = Deferred()
        self._scheduler = scheduler
        self._flusher = flusher
        self._on_unknown = on_unknown
        self._by_log: dict[Log, list[_Appended]] = {}
        # Of each log that is settled the opening that was flushed; -1 if that failed.
        self._openings: dict[Log, int] = {}
        self._timer: Any = None
        if timeout_seconds is not None:
            self._timer = clock.callLater(timeout_seconds, self._end)
        if len(appended) <= QUANTUM_ENTRIES:
            self._note(appended)
            self._flush_all()
        else:
            then(cooperatively(scheduler, in_slices(appended), self._note), self._flush_all)

    def _note(self, some: Sequence[_Appended]) -> None:
        for each in some:
            if each.log is not None:
                self._by_log.setdefault(each.log, []).append(each)

    def _flush_all(self, _: object = None) -> None:
        logs = list(self._by_log)
        if not logs:
            self._end()
        elif len(logs) <= _FEW_LOGS:
            for log in logs:
                self._flush(log, is_urgent=True)
        else:
            cooperatively(self._scheduler, logs, self._flush)

    def _flush(self, log: Log, is_urgent: bool = False) -> None:
        # Much is appended and noted in several quanta: the log may fail and come back between.
        if self._by_log[log][-1].opening != log.openings:
            self._settle(log, -1)
            return
        self._flusher.commit_now(log, is_urgent).addCallbacks(
            lambda _: self._settle(log, log.openings), lambda _: self._settle(log, -1)
        )

    def _settle(self, log: Log, opening: int) -> None:
        self._openings[log] = opening
        for each in self._by_log[log]:
            if each.opening != opening:
                self._on_unknown(each)
        if len(self._openings) == len(self._by_log):
            self._end()

    def _end(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if not self.over.called:
            self.over.callback(self._safety_of)

    def _safety_of(self, each: _Appended) -> Safety:
        log = each.log
        assert log is not None
        opening = self._openings.get(log)
        if opening is not None:
            return Safety.FLUSHED if opening == each.opening else Safety.UNKNOWN
        # Of another opening there may be other messages at these offsets.
        is_there = each.opening == log.openings and log.high_watermark >= each.end_offset
        return Safety.FLUSHED if is_there else Safety.LATE
