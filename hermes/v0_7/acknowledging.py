"""The response to an acknowledged produce: collected from flushes, bounded by a timeout.

That to a mirrored produce, too: the entries are other ones, and so is their encoding.

Appending is over when this begins. With acks=written the response is complete at once; with
acks=flushed each log that was appended to is asked for a group commit, and the response leaves when
all of them are on disk, have failed, or the client's time is up.

What was appended is answered with its offset or with "outcome unknown", never with a code that
says that nothing was written: after a failed flush the bytes may still be kept by re-opening.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hermes.partition.flushing import FlushScheduler
from hermes.protocol import (
    ErrorCode,
    MirroredEntry,
    ProducedEntry,
    encode_mirrored_entries,
    encode_produced_entries,
    encode_reasons,
    join_produced_entries,
)
from hermes.server.fairness import FairScheduler, cooperatively
from hermes.server.outcomes import then
from hermes.storage import Log

_Entry = TypeVar("_Entry")

#: So many entries are looked at before others may have a turn.
_SLICE = 256

#: A request of no more logs than this is flushed before the others that are due.
_FEW_LOGS = 16


class Encoding(NamedTuple, Generic[_Entry]):
    """How the entries of a response are encoded.

    Attributes:
        encode: encodes some of them.
        unknown: makes the entry for one whose outcome isn't known out of what it would have been.
    """

    encode: Callable[[Iterable[_Entry]], bytes]
    unknown: Callable[[_Entry], _Entry]


#: Of an acknowledged produce.
PRODUCED: Encoding[ProducedEntry] = Encoding(
    encode_produced_entries,
    lambda entry: ProducedEntry(entry.partition, ErrorCode.OUTCOME_UNKNOWN, -1),
)
#: Of a mirrored produce.
MIRRORED: Encoding[MirroredEntry] = Encoding(
    encode_mirrored_entries, lambda entry: MirroredEntry(ErrorCode.OUTCOME_UNKNOWN, -1, -1)
)


@dataclass(frozen=True, slots=True)
class Appended(Generic[_Entry]):
    """What became of one entry of an acknowledged or a mirrored produce.

    Attributes:
        entry: what will be answered for it.
        log: where it was appended, or is already; None when it isn't.
        opening: which of the log's openings that was in.
        reason: why it wasn't appended, where the entry's code says too little.
    """

    entry: _Entry
    log: Log | None = None
    opening: int = 0
    reason: str = ""


def respond_when_flushed(
    clock: IReactorTime,
    scheduler: FairScheduler,
    flusher: FlushScheduler,
    appended: Sequence[Appended[_Entry]],
    timeout_ms: int,
    encoding: Encoding[_Entry],
) -> "Deferred[bytes]":
    """Wait for the flush of everything that was appended.

    Args:
        clock: the reactor.
        scheduler: shares the reactor among connections.
        flusher: schedules the flushes.
        appended: what became of each entry, in order.
        timeout_ms: how long to wait; 0 or less waits for as long as the disk takes.
        encoding: encodes the response.

    Returns:
        A Deferred of the encoded response. It never fails: a failed or late flush is answered
        with the code of its entries.
    """
    response: Deferred[bytes] = Deferred()
    slices = _slices(appended)
    openings: dict[Log, int] = {}
    codes: dict[Log, ErrorCode] = {}
    is_finished = False

    def note(part: Sequence[Appended[_Entry]]) -> None:
        # Many sets are appended and noted in several quanta: a log may fail and come back between.
        for each in part:
            if each.log is not None and each.opening == each.log.openings:
                openings[each.log] = each.opening

    def flush_all(_: object) -> None:
        logs = list(openings)
        if logs:
            is_urgent = len(logs) <= _FEW_LOGS
            cooperatively(scheduler, logs, partial(flush, is_urgent))
        else:
            finish()

    def flush(is_urgent: bool, log: Log) -> None:
        if log.openings != openings[log]:
            settle(log, ErrorCode.OUTCOME_UNKNOWN)
            return
        flusher.flush_now(log, is_urgent).addCallbacks(
            lambda _: settle(log, ErrorCode.NONE),
            lambda _: settle(log, ErrorCode.OUTCOME_UNKNOWN),
        )

    def settle(log: Log, code: ErrorCode) -> None:
        codes[log] = code
        if len(codes) == len(openings):
            finish()

    def finish() -> None:
        nonlocal is_finished
        if is_finished:
            return
        is_finished = True
        if timer is not None and timer.active():
            timer.cancel()
        then(_encode(scheduler, slices, entry_of, encoding), response.callback)

    def entry_of(each: Appended[_Entry]) -> _Entry:
        log = each.log
        if log is None:
            return each.entry
        if codes.get(log) is ErrorCode.NONE and each.opening == openings[log]:
            return each.entry
        return encoding.unknown(each.entry)

    timer = clock.callLater(timeout_ms / 1000, finish) if timeout_ms > 0 else None
    then(cooperatively(scheduler, slices, note), flush_all)
    return response


def respond_when_written(
    scheduler: FairScheduler, appended: Sequence[Appended[_Entry]], encoding: Encoding[_Entry]
) -> "bytes | Deferred[bytes]":
    """The encoded response to what was appended and need not be flushed."""
    return _encode(scheduler, _slices(appended), lambda each: each.entry, encoding)


def _slices(appended: Sequence[Appended[_Entry]]) -> list[Sequence[Appended[_Entry]]]:
    return [appended[n : n + _SLICE] for n in range(0, len(appended), _SLICE)]


def _encode(
    scheduler: FairScheduler,
    slices: list[Sequence[Appended[_Entry]]],
    entry_of: Callable[[Appended[_Entry]], _Entry],
    encoding: Encoding[_Entry],
) -> "bytes | Deferred[bytes]":
    reasons: list[bytes] = []
    has_reasons = False

    def encode(part: Sequence[Appended[_Entry]]) -> bytes:
        nonlocal has_reasons
        if any(each.reason for each in part):
            has_reasons = True
            reasons.append(encode_reasons(each.reason for each in part))
        else:
            reasons.append(bytes(2 * len(part)))  # of each an empty string
        return encoding.encode(map(entry_of, part))

    def join(parts: list[bytes]) -> bytes:
        return join_produced_entries(count, [*parts, *reasons] if has_reasons else parts)

    count = sum(map(len, slices))
    response: bytes | Deferred[bytes] = then(cooperatively(scheduler, slices, encode), join)
    return response
