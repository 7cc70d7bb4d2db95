"""The response to an acknowledged produce, or to a mirrored one, which has other entries.

What was appended is answered with its offset or with "outcome unknown", never with a code that
says that nothing was written.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from twisted.internet.defer import Deferred

from hermes.partition.acknowledgements import Acknowledgements, FlushedResponse, Safety
from hermes.protocol import (
    ErrorCode,
    MirroredEntry,
    ProducedEntry,
    encode_mirrored_entries,
    encode_produced_entries,
    encode_produced_entry,
    encode_reasons,
    join_produced_entries,
)
from hermes.server.fairness import FairScheduler, cooperatively, in_slices
from hermes.server.outcomes import then
from hermes.storage import Log

# Looked up for each request, which takes long of enumerations.
_FINE: Final = ErrorCode.NONE
_FLUSHED: Final = Safety.FLUSHED

_Entry = TypeVar("_Entry")


class Encoding(NamedTuple, Generic[_Entry]):
    """How the entries of a response are encoded.

    `unknown`: makes the entry for one whose outcome isn't known out of what it would have been.
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
class AppendedEntry(Generic[_Entry]):
    """What became of one entry of a produce.

    Attributes:
        entry: what will be answered for it.
        reason: why it wasn't appended, where the entry's code says too little.
    """

    entry: _Entry
    log: Log | None = None
    opening: int = 0
    end_offset: int = 0
    reason: str = ""

    @classmethod
    def to(cls, log: Log, entry: _Entry) -> "AppendedEntry[_Entry]":
        return cls(entry, log, log.openings, log.end_offset)


class PlainFlush(FlushedResponse):
    """The response to one plain request that waits for its flush.

    Attributes:
        offset: where its messages are.
        taken: when the request was.
        observe: called with that when it is answered.
    """

    __slots__ = ("observe", "offset", "partition", "taken")

    partition: int
    offset: int
    taken: float
    observe: Callable[[float], None]

    def answer(self, safety: Safety) -> bytes:
        self.observe(self.taken)
        if safety is not _FLUSHED:
            return encode_produced_entry(self.partition, ErrorCode.OUTCOME_UNKNOWN, -1)
        return encode_produced_entry(self.partition, _FINE, self.offset)


def respond_when_flushed(
    acknowledgements: Acknowledgements,
    scheduler: FairScheduler,
    appended: Sequence[AppendedEntry[_Entry]],
    timeout_ms: int,
    encoding: Encoding[_Entry],
) -> "Deferred[bytes]":
    """The encoded response to what was appended, once it is on disk or the time is up.

    It never fails: a failed or late flush is answered with the code of its entries. A `timeout_ms`
    of 0 or less waits for as long as the disk takes.
    """

    def respond(safety_of: Callable[[AppendedEntry[_Entry]], Safety]) -> Any:
        def entry_of(each: AppendedEntry[_Entry]) -> _Entry:
            if each.log is None or safety_of(each) is Safety.FLUSHED:
                return each.entry
            return encoding.unknown(each.entry)

        return _encode(scheduler, appended, entry_of, encoding)

    timeout_seconds = timeout_ms / 1000 if timeout_ms > 0 else None
    return acknowledgements.flushed(appended, timeout_seconds).addCallback(respond)


def respond_when_written(
    scheduler: FairScheduler, appended: Sequence[AppendedEntry[_Entry]], encoding: Encoding[_Entry]
) -> "bytes | Deferred[bytes]":
    return _encode(scheduler, appended, lambda each: each.entry, encoding)


def _encode(
    scheduler: FairScheduler,
    appended: Sequence[AppendedEntry[_Entry]],
    entry_of: Callable[[AppendedEntry[_Entry]], _Entry],
    encoding: Encoding[_Entry],
) -> "bytes | Deferred[bytes]":
    reasons: list[bytes] = []
    has_reasons = False

    def encode(part: Sequence[AppendedEntry[_Entry]]) -> bytes:
        nonlocal has_reasons
        if any(each.reason for each in part):
            has_reasons = True
            reasons.append(encode_reasons(each.reason for each in part))
        else:
            reasons.append(bytes(2 * len(part)))  # of each an empty string
        return encoding.encode(map(entry_of, part))

    def join(parts: list[bytes]) -> bytes:
        return join_produced_entries(count, [*parts, *reasons] if has_reasons else parts)

    count = len(appended)
    encoded = cooperatively(scheduler, in_slices(appended), encode)
    response: bytes | Deferred[bytes] = then(encoded, join)
    return response
