"""When what was appended is as safe as its producer wants it: one wait, for both protocols.

Each log that was appended to is asked for a group commit; the wait is over when all of them are
committed, have failed, or the time is up. After a failed flush the bytes may still be kept by
re-opening, so nothing that was appended is ever said not to be.

Almost every wait is over in milliseconds, long before its time is up. So one timer serves them all,
and isn't set anew for each.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hermes.errors import EpochEndedError, StorageError
from hermes.partition.deadlines import Deadlines
from hermes.partition.flushing import FlushScheduler
from hermes.server.fairness import QUANTUM_ENTRIES, FairScheduler, cooperatively, in_slices
from hermes.server.outcomes import DeferredResponse, then
from hermes.storage import Log

#: What is in no more logs than this is flushed before the logs that are due.
_FEW_LOGS = 16

# Of those that wait for as long as it takes.
_NOWHERE: Final[dict[Any, None]] = {}


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


class AppendedEnd(NamedTuple):
    """The least of what is `Appended`."""

    log: Log
    opening: int
    end_offset: int


_Appended = TypeVar("_Appended", bound=Appended)


class Safety(Enum):
    """What is known of something appended when the wait is over."""

    #: It is committed: on the disk of each copy that must have it.
    FLUSHED = "flushed"
    #: Its flush failed, or its log was opened again since: it may be kept or not.
    UNKNOWN = "unknown"
    #: This broker leads it no more: others may keep it or not.
    ENDED = "ended"
    #: The time is up.
    LATE = "late"


# Looked up for each request, which takes long of an enumeration.
_FLUSHED: Final = Safety.FLUSHED


class Acknowledgements:
    """Waits for flushes. Lives in the reactor's thread."""

    def __init__(
        self, clock: IReactorTime, scheduler: FairScheduler, flusher: FlushScheduler
    ) -> None:
        self._scheduler = scheduler
        self._flusher = flusher
        self._deadlines = Deadlines(clock, scheduler)

    def wait(self, response: "FlushedResponse", timeout_seconds: float | None) -> None:
        """Wait for the flush of what one response is about; None for as long as the disk takes.

        It may be known before this returns.
        """
        if timeout_seconds is not None:
            self._deadlines.add(response, timeout_seconds)
        if response.opening == response.log.state.openings:
            self._flusher.when_committed(response.log, response.settle)
        else:
            response.settle(None)

    def flushed(
        self,
        appended: Sequence[_Appended],
        timeout_seconds: float | None,
        on_unknown: Callable[[_Appended], None] = lambda each: None,
    ) -> "Deferred[Callable[[_Appended], Safety]]":
        """Wait for all that was appended; fires with what says of each how safe it is."""
        over: Deferred[Callable[[_Appended], Safety]] = Deferred()
        wait = _LogsWait(over, self._scheduler, self._flusher, on_unknown)
        if timeout_seconds is not None:
            self._deadlines.add(wait, timeout_seconds)
        wait.begin(appended)
        return over

    def stop(self) -> None:
        self._deadlines.stop()


class FlushedResponse(DeferredResponse):
    """A response to one thing that was appended, which waits for its flush.

    Attributes:
        log, opening, end_offset: as those of anything `Appended`.
        deadline, among: see `Deadlines`.
    """

    __slots__ = ("among", "deadline", "end_offset", "log", "opening")

    log: Log

    def __init__(self, log: Log, end_offset: int) -> None:
        super().__init__(None, False)
        self.log = log
        self.opening = log.state.openings
        self.end_offset = end_offset
        self.deadline = 0.0
        self.among = _NOWHERE

    def answer(self, safety: Safety) -> bytes:
        """What is answered, once, when so much is known of it."""
        raise NotImplementedError

    def unknown(self) -> None:
        """Told once if it comes to be `UNKNOWN`, also after the time was up."""

    def settle(self, error: StorageError | None) -> None:
        safety = _FLUSHED
        if type(error) is EpochEndedError:
            safety = Safety.ENDED
        elif error is not None or self.opening != self.log.state.openings:
            safety = Safety.UNKNOWN
            self.unknown()
        if not self.is_known:
            self.among.pop(self, None)
            self.resolve(self.answer(safety))

    def late(self) -> None:
        if not self.is_known:
            self.resolve(self.answer(_FLUSHED if _is_there(self) else Safety.LATE))


def _is_there(each: Appended) -> bool:
    """Whether it is committed. Of another opening there may be other messages at these offsets."""
    log = each.log
    assert log is not None
    return each.opening == log.openings and log.high_watermark >= each.end_offset


class _LogsWait(Generic[_Appended]):
    deadline = 0.0
    among = _NOWHERE

    def __init__(
        self,
        over: "Deferred[Callable[[_Appended], Safety]]",
        scheduler: FairScheduler,
        flusher: FlushScheduler,
        on_unknown: Callable[[_Appended], None],
    ) -> None:
        self._over: Deferred[Callable[[_Appended], Safety]] | None = over
        self._scheduler = scheduler
        self._flusher = flusher
        self._on_unknown = on_unknown
        self._by_log: dict[Log, list[_Appended]] = {}
        # Of each log that is settled the opening that was flushed; -1 if that failed.
        self._openings: dict[Log, int] = {}
        self._ended: set[Log] = set()

    def begin(self, appended: Sequence[_Appended]) -> None:
        if len(appended) <= QUANTUM_ENTRIES:
            self._note(appended)
            self._flush_all()
        else:
            then(cooperatively(self._scheduler, in_slices(appended), self._note), self._flush_all)

    def _note(self, some: Sequence[_Appended]) -> None:
        for each in some:
            if each.log is not None:
                self._by_log.setdefault(each.log, []).append(each)

    def _flush_all(self, _: object = None) -> None:
        logs = list(self._by_log)
        if not logs:
            self.late()
        elif len(logs) <= _FEW_LOGS:
            for log in logs:
                self._flush(log, is_urgent=True)
        else:
            cooperatively(self._scheduler, logs, self._flush)

    def _flush(self, log: Log, is_urgent: bool = False) -> None:
        # Much is appended and noted in several quanta: the log may fail and come back between.
        if self._by_log[log][-1].opening != log.openings:
            self._settle(log, -1)
        else:
            self._flusher.when_committed(log, partial(self._flushed, log), is_urgent)

    def _flushed(self, log: Log, error: StorageError | None) -> None:
        if type(error) is EpochEndedError:
            self._ended.add(log)
        self._settle(log, log.openings if error is None else -1)

    def _settle(self, log: Log, opening: int) -> None:
        self._openings[log] = opening
        for each in self._by_log[log]:
            if each.opening != opening and log not in self._ended:
                self._on_unknown(each)
        if len(self._openings) == len(self._by_log):
            self.late()

    def late(self) -> None:
        """It is over: all is settled, or the time is up."""
        self.among.pop(self, None)
        over, self._over = self._over, None  # whose result refers to this
        if over is not None:
            over.callback(self._safety_of)

    def _safety_of(self, each: _Appended) -> Safety:
        log = each.log
        assert log is not None
        opening = self._openings.get(log)
        if opening is not None:
            if opening == each.opening:
                return Safety.FLUSHED
            return Safety.ENDED if log in self._ended else Safety.UNKNOWN
        return Safety.FLUSHED if _is_there(each) else Safety.LATE
