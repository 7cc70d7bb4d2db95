"""What clients did with one partition and what they were told, held against "a partition is a log".

The checks are those of Jepsen's workload for Kafka that make sense without transactions. They go by
the values, of which each is appended once at most, and by the log as it was read at the very end.
`for_porcupine` writes the same history for the checker of linearizability (`porcupine/`), which
goes by what could have been true at any one moment.

Times are the simulation's, in us: who calls when another returns calls beside it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

__all__ = ["Append", "History", "Look", "Poll"]

#: How long an operation takes that was never answered, for the checker: longer than any schedule.
_FOREVER_US: Final = 1 << 62


@dataclass(eq=False)
class _Operation:
    """`returned_us`: None for one that was not answered, or with an error that leaves it open."""

    client: int
    called_us: int
    returned_us: int | None = field(default=None, kw_only=True)


@dataclass(eq=False)
class Append(_Operation):
    """One message.

    Attributes:
        value: no other append has it.
        offset: where it was appended, once it was acknowledged for all replicas; None before.
        is_refused: whether it is known not to be in the log.
        is_idempotent: whether its client writes each value once however often it sends it, and
            sends the next one when that is answered.
    """

    value: int
    offset: int | None = None
    is_refused: bool = False
    is_idempotent: bool = True

    def acknowledged(self, now_us: int, offset: int) -> None:
        self.returned_us, self.offset = now_us, offset

    def refused(self, now_us: int) -> None:
        self.returned_us, self.is_refused = now_us, True


@dataclass(eq=False)
class Poll(_Operation):
    """A read from an offset on; `found` has values by offset. Nothing found says nothing."""

    offset: int
    found: Mapping[int, int] = field(default_factory=dict)

    def answered(self, now_us: int, found: Mapping[int, int]) -> None:
        self.returned_us, self.found = now_us, dict(found)


@dataclass(eq=False)
class Look(_Operation):
    """Asks for the log's end."""

    end: int | None = None

    def answered(self, now_us: int, end: int) -> None:
        self.returned_us, self.end = now_us, end


class History:
    """What happened to a partition; operations are appended to as they are called."""

    def __init__(self) -> None:
        self.operations: list[Append | Poll | Look] = []

    def append(self, client: int, now_us: int, value: int, *, is_idempotent: bool = True) -> Append:
        operation = Append(client, now_us, value, is_idempotent=is_idempotent)
        self.operations.append(operation)
        return operation

    def poll(self, client: int, now_us: int, offset: int) -> Poll:
        operation = Poll(client, now_us, offset)
        self.operations.append(operation)
        return operation

    def look(self, client: int, now_us: int) -> Look:
        operation = Look(client, now_us)
        self.operations.append(operation)
        return operation

    @property
    def acknowledged(self) -> int:
        return sum(each.offset is not None for each in self._all(Append))

    def _all(self, kind: type[Any]) -> list[Any]:
        return [each for each in self.operations if isinstance(each, kind)]

    def excusing(self, lost: AbstractSet[tuple[int, int]]) -> "History":
        """The same without what was lost with leave, as (offset, value).

        Ends are left out: they may have gone back with that.
        """
        kept = History()
        for each in self.operations:
            if isinstance(each, Poll):
                left = {at: value for at, value in each.found.items() if (at, value) not in lost}
                kept.poll(each.client, each.called_us, each.offset).answered(
                    each.returned_us or each.called_us, left
                )
            elif isinstance(each, Append) and (each.offset, each.value) not in lost:
                kept.operations.append(each)
        return kept

    # -- checks ---------------------------------------------------------------------------------

    def problems(self, final: Mapping[int, int], start: int = 0) -> list[str]:
        """What is wrong, in words; nothing where all is well.

        Args:
            final: the log's values by offset, when everything had come to rest.
            start: where the log begins by then; before that, nothing is known to be missing.
        """
        appends = self._all(Append)
        return [
            *_lost(appends, final, start),
            *_refused(appends, final),
            *self._holes(),
            *self._changed(final, start),
            *_doubled(appends, final),
            *_reordered(appends, final),
            *self._ends_that_go_back(),
        ]

    def _holes(self) -> Iterator[str]:
        """What a poll has skipped: nothing is compacted here."""
        for poll in self._all(Poll):
            for before, after in pairwise(sorted(poll.found)):
                if after != before + 1:
                    yield f"a hole: {after} came after {before}"

    def _changed(self, final: Mapping[int, int], start: int) -> Iterator[str]:
        """Two values at one offset, and what was seen and is gone."""
        seen: dict[int, int] = {}
        for poll in self._all(Poll):
            for offset, value in poll.found.items():
                if seen.setdefault(offset, value) != value:
                    yield f"changed: offset {offset} had {seen[offset]}, and {value}"
        for offset, value in sorted(seen.items()):
            if offset >= start and final.get(offset) != value:
                yield f"seen and gone: offset {offset} had {value}, and has {final.get(offset)}"

    def _ends_that_go_back(self) -> Iterator[str]:
        """An end that is before what was known when it was asked for."""
        known = sorted(
            (operation.returned_us, _known_end(operation))
            for operation in self.operations
            if operation.returned_us is not None and _known_end(operation)
        )
        for look in self._all(Look):
            if look.end is not None:
                before = [end for returned_us, end in known if returned_us < look.called_us]
                if look.end < max(before, default=0):
                    yield f"the end went back to {look.end} from {max(before)}"

    # -- for the checker ------------------------------------------------------------------------

    def for_porcupine(self, final: Mapping[int, int]) -> list[dict[str, Any]]:
        """The operations as the checker reads them; see `porcupine/main.go`.

        An append that wasn't acknowledged may have been done at any later time, or never: the last
        read tells, which is a poll after all others.
        """
        places = {value: offset for offset, value in final.items()}
        written = [each for each in map(_written, self.operations) if each is not None]
        written += [
            {
                "kind": "append",
                "client": each.client,
                "call": each.called_us,
                "return": _FOREVER_US,
                "offset": places[each.value],
                "values": [each.value],
            }
            for each in self._all(Append)
            if each.offset is None and each.value in places
        ]
        last = Poll(0, _FOREVER_US + 1, offset=0)
        last.answered(_FOREVER_US + 1, final)
        return written + [each for each in (_written(last),) if each is not None]


def _written(operation: Append | Poll | Look) -> dict[str, Any] | None:
    if operation.returned_us is None:
        return None
    kind, offset, values = "look", None, []
    if isinstance(operation, Append):
        kind, offset, values = "append", operation.offset, [operation.value]
    elif isinstance(operation, Look):
        offset = operation.end
    elif operation.found:
        kind, offset = "poll", min(operation.found)
        values = [value for _, value in sorted(operation.found.items())]
    if offset is None:
        return None
    return {
        "kind": kind,
        "client": operation.client,
        "call": operation.called_us,
        "return": operation.returned_us,
        "offset": offset,
        "values": values,
    }


def _lost(appends: Sequence[Append], final: Mapping[int, int], start: int) -> Iterator[str]:
    for each in appends:
        if (
            each.offset is not None
            and each.offset >= start
            and final.get(each.offset) != each.value
        ):
            yield f"lost: {each.value} was acknowledged at {each.offset}: {final.get(each.offset)}"


def _refused(appends: Sequence[Append], final: Mapping[int, int]) -> Iterator[str]:
    values = set(final.values())
    for each in appends:
        if each.is_refused and each.value in values:
            yield f"refused, and there: {each.value}"


def _doubled(appends: Sequence[Append], final: Mapping[int, int]) -> Iterator[str]:
    once = {each.value for each in appends if each.is_idempotent}
    for value, count in Counter(final.values()).items():
        if count > 1 and value in once:
            yield f"doubled: {value} is there {count} times"


def _reordered(appends: Sequence[Append], final: Mapping[int, int]) -> Iterator[str]:
    places = {value: offset for offset, value in final.items()}
    by_client: defaultdict[int, list[Append]] = defaultdict(list)
    for each in appends:
        if each.is_idempotent and each.value in places:
            by_client[each.client].append(each)
    for sent in by_client.values():
        for before, after in pairwise(sent):
            if places[before.value] > places[after.value]:
                yield f"reordered: {after.value} stands before {before.value}, sent earlier"


def _known_end(operation: Append | Poll | Look) -> int:
    """How long the log was at least when this was answered."""
    if isinstance(operation, Append):
        return 0 if operation.offset is None else operation.offset + 1
    if isinstance(operation, Poll):
        return max(operation.found, default=-1) + 1
    return operation.end or 0
