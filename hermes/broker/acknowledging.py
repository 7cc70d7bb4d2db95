"""The response to an acknowledged produce: collected from flushes, bounded by a timeout.

Appending is over when this begins. With acks=written the response is complete at once; with
acks=flushed each log that was appended to is asked for a group commit, and the response leaves when
all of them are on disk, have failed, or the client's time is up.

What was appended is answered with its offset or with "outcome unknown", never with a code that
says that nothing was written: after a failed flush the bytes may still be kept by re-opening.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hermes.broker.fairness import FairScheduler, cooperatively
from hermes.broker.flushing import FlushScheduler
from hermes.protocol import ErrorCode, ProducedEntry, encode_acknowledged_produce_response
from hermes.storage import Log

#: A request of no more logs than this is flushed before the others that are due.
_FEW_LOGS = 16


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of one entry of an acknowledged produce.

    Attributes:
        entry: what will be answered for it.
        log: where it was appended; None when it wasn't.
        opening: which of the log's openings that was in.
    """

    entry: ProducedEntry
    log: Log | None = None
    opening: int = 0


def respond_when_flushed(
    clock: IReactorTime,
    scheduler: FairScheduler,
    flusher: FlushScheduler,
    appended: Sequence[Appended],
    timeout_ms: int,
) -> "Deferred[bytes]":
    """Wait for the flush of everything that was appended.

    Args:
        clock: the reactor.
        scheduler: shares the reactor among connections.
        flusher: schedules the flushes.
        appended: what became of each entry, in order.
        timeout_ms: how long to wait; 0 or less waits for as long as the disk takes.

    Returns:
        A Deferred of the encoded response. It never fails: a failed or late flush is answered
        with the code of its entries.
    """
    response: Deferred[bytes] = Deferred()
    # Many sets are appended and flushed in several quanta: a log may fail and come back meanwhile.
    appended = [a if a.log is None or a.opening == a.log.openings else _lost(a) for a in appended]
    openings = {a.log: a.opening for a in appended if a.log is not None}
    codes: dict[Log, ErrorCode | None] = dict.fromkeys(openings)
    pending = len(codes)
    is_urgent = pending <= _FEW_LOGS
    timer: Any = None

    def settle(log: Log, code: ErrorCode) -> None:
        nonlocal pending
        codes[log] = code
        pending -= 1
        if not pending:
            finish()

    def finish() -> None:
        if response.called:
            return
        if timer is not None and timer.active():
            timer.cancel()
        response.callback(
            encode_acknowledged_produce_response([_entry(a, codes) for a in appended])
        )

    def flush(log: Log) -> None:
        if log.openings != openings[log]:
            settle(log, ErrorCode.OUTCOME_UNKNOWN)
            return
        flusher.flush_now(log, is_urgent).addCallbacks(
            lambda _: settle(log, ErrorCode.NONE),
            lambda _: settle(log, ErrorCode.OUTCOME_UNKNOWN),
        )

    if not codes:
        finish()
    cooperatively(scheduler, list(codes), flush)
    if timeout_ms > 0 and not response.called:
        timer = clock.callLater(timeout_ms / 1000, finish)
    return response


def _entry(appended: Appended, codes: dict[Log, ErrorCode | None]) -> ProducedEntry:
    if appended.log is None:
        return appended.entry
    if codes[appended.log] is ErrorCode.NONE:
        return appended.entry
    return _lost(appended).entry


def _lost(appended: Appended) -> Appended:
    return Appended(ProducedEntry(appended.entry.partition, ErrorCode.OUTCOME_UNKNOWN, -1))
