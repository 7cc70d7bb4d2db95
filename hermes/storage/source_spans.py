"""Which ranges of which sources a log holds, and where they lie in it: a value, without a file.

A mirror appends what stands for a range of a *source* (a partition of another cluster). A log's
*position* of a source is the end of what it has of it, and decides whether a range is new. A *span*
says where a range lies in the log. A span is *verbatim* when its bytes are the source's own: then
the offsets of both ranges correspond one to one, be they bytes or messages, and it may be cut
anywhere.

Ranges that follow each other, verbatim, in both the source and the log are one span. So a partition
that is a plain copy of another has a single one, however long it is. Of others the older are made
coarser when there are too many: what lies in them is then found less exactly.

`hermes.storage.source_positions` keeps it in a file.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hermes.errors import InvalidSourceError, SourceGapError, SourceOverlapError
from hermes.protocol import MAX_SOURCE_BYTES, SourceFlags, SourcePosition, SourceSpan
from hermes.quoting import quoted

#: How many sources one log can have: each may have a name of half a KiB.
MAX_SOURCES: Final = 1024

#: How many spans are remembered, of 40 bytes each.
MAX_SPANS: Final = 8192

_LARGEST_OFFSET: Final = 2**63 - 1
_KNOWN_FLAGS: Final = int(SourceFlags.VERBATIM | SourceFlags.FOLLOWS)
# Of each span in the array: source begin and end, log begin and end, number and flags.
_FIELDS: Final = 5
_LOG_BEGIN: Final = 2
_LOG_END: Final = 3
_FLAG_BITS: Final = 8


class SourceRange(NamedTuple):
    """What an append stands for. `begin`, `end`: the range of its offsets."""

    source: str
    begin: int
    end: int
    flags: int


class ToldSources(NamedTuple):
    """What another copy of a log is told of sources, with what it gets from an offset on.

    Attributes:
        positions: of all that `spans` are of, those when the log ended there; -1: as it knows them.
        spans: those from there on, the first ones.
        until: where spans may begin that aren't told.
    """

    positions: Sequence[SourcePosition]
    spans: Sequence[SourceSpan]
    until: int

    def up_to(self, start: int, end: int) -> Iterator[tuple[str, SourceSpan]]:
        """What of it is about a range of the log, which begins where this was told from."""
        names = {each.number: each.source for each in self.positions}
        for number, position, name in self.positions:
            if position >= 0:
                yield name, SourceSpan(number, 0, position, position, start, start)
        for span in self.spans:
            if span.log_begin < end:
                yield names[span.number], cut_span(span, end)


def cut_span(span: SourceSpan, end: int) -> SourceSpan:
    """A span up to an offset of the log, where it can be cut."""
    if span.flags & SourceFlags.VERBATIM and span.log_end > end:
        return span._replace(source_end=span.source_end - (span.log_end - end), log_end=end)
    return span


class SourceSpans:
    """The sources of one log.

    Attributes:
        names: the sources' names, by number.
        positions: their positions, by number; -1 for one that nothing has been noted of.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.positions: list[int] = []
        self._numbers: dict[str, int] = {}
        self._spans = array("q")
        self._most = MAX_SPANS

    def copy(self) -> "SourceSpans":
        copied = SourceSpans()
        copied.names, copied.positions = self.names[:], self.positions[:]
        copied._numbers, copied._spans = dict(self._numbers), self._spans[:]
        return copied

    def __len__(self) -> int:
        return len(self._spans) // _FIELDS

    # -- sources --------------------------------------------------------------------------------

    def number(self, source: str) -> int | None:
        return self._numbers.get(source)

    def position(self, source: str) -> int:
        """Up to where the log has a source; -1 when it has nothing of it."""
        number = self._numbers.get(source)
        return -1 if number is None else self.positions[number]

    def add(self, source: str) -> int:
        number = self._numbers[source] = len(self.names)
        self.names.append(source)
        self.positions.append(-1)
        return number

    def is_done(self, wanted: SourceRange, offset_count: int) -> bool:
        """Whether the log has all of a range, for which so many of its offsets stand, already.

        Raises:
            InvalidSourceError: no mirror can mean that.
            SourceOverlapError: the log has a part of it.
            SourceGapError: it was to follow what the log has, and doesn't.
        """
        source, begin, end, flags = wanted
        self._check(wanted, offset_count)
        position = self.position(source)
        if end <= position:
            return True
        if begin < position:
            raise SourceOverlapError(f"{quoted(source)} is here up to {position}, not {begin}")
        if flags & SourceFlags.FOLLOWS and begin != position:
            raise SourceGapError(f"{quoted(source)} is here up to {position}; {begin} is beyond")
        return False

    def _check(self, wanted: SourceRange, offset_count: int) -> None:
        source, begin, end, flags = wanted
        if not 0 < len(source.encode()) <= MAX_SOURCE_BYTES:
            raise InvalidSourceError(f"a source's name has 1 to {MAX_SOURCE_BYTES} bytes")
        if flags & ~_KNOWN_FLAGS or not 0 <= begin <= end or (offset_count and begin == end):
            raise InvalidSourceError(f"{begin} to {end} of {quoted(source)}, flags {flags}")
        if flags & SourceFlags.VERBATIM and end - begin != offset_count:
            raise InvalidSourceError(
                f"{offset_count} offsets can't be {begin} to {end} of {quoted(source)} verbatim"
            )
        if source not in self._numbers and len(self.names) >= MAX_SOURCES:
            raise InvalidSourceError(f"the partition has {MAX_SOURCES} sources already")

    # -- spans ----------------------------------------------------------------------------------

    def note(self, span: SourceSpan, flushed: int = _LARGEST_OFFSET) -> None:
        """Note what was appended, in the order of the log.

        Args:
            span: the source is one that has a number; an empty range of the log moves the position
                only.
            flushed: up to where the log is flushed: only spans before it are made coarser.
        """
        number, flags, begin, end, log_begin, log_end = span
        is_verbatim = flags & SourceFlags.VERBATIM
        self.positions[number] = end
        if log_begin == log_end:
            return
        spans = self._spans
        if spans and is_verbatim:
            _, last_end, _, last_log_end, last_key = spans[-_FIELDS:]
            key = number << _FLAG_BITS | SourceFlags.VERBATIM
            if (last_end, last_log_end, last_key) == (begin, log_begin, key):
                spans[-4], spans[-2] = end, log_end
                return
        spans.extend((begin, end, log_begin, log_end, number << _FLAG_BITS | is_verbatim))
        if len(self) > self._most:
            self._make_coarser(flushed)
            # Where little can be done, it isn't tried every time.
            self._most = max(MAX_SPANS, len(self) + MAX_SPANS // 4)

    def _make_coarser(self, flushed: int) -> None:
        merged: list[list[int]] = []
        single: dict[int, list[int]] = {}
        half = len(self._spans) // 2 // _FIELDS * _FIELDS
        for at in range(0, half, _FIELDS):
            span = list(self._spans[at : at + _FIELDS])
            number = span[4] >> _FLAG_BITS
            earlier = single.pop(number, None)
            if earlier is None or span[_LOG_END] > flushed:
                merged.append(span)
                single[number] = span
            else:
                earlier[1], earlier[_LOG_END] = span[1], span[_LOG_END]
                earlier[4] = number << _FLAG_BITS  # others may lie between
        self._spans[:half] = array("q", (field for span in merged for field in span))

    def _span(self, index: int) -> SourceSpan:
        begin, end, log_begin, log_end, key = self._spans[index * _FIELDS : (index + 1) * _FIELDS]
        flags = key & ((1 << _FLAG_BITS) - 1)
        return SourceSpan(key >> _FLAG_BITS, flags, begin, end, log_begin, log_end)

    def spans(self, first: int = 0, limit: int = _LARGEST_OFFSET) -> Iterator[SourceSpan]:
        """The spans that begin at an offset of the log or later, in their order."""
        count = len(self)
        index = bisect_left(range(count), first, key=self._log_begin)
        for n in range(index, min(index + limit, count)):
            yield self._span(n)

    def _log_begin(self, index: int) -> int:
        return self._spans[index * _FIELDS + _LOG_BEGIN]

    def reaching(self, first: int, limit: int = _LARGEST_OFFSET) -> list[SourceSpan]:
        """The same, and before them the verbatim one that lies around the offset, from there on."""
        found = list(self.spans(first, limit))
        index = bisect_left(range(len(self)), first, key=self._log_begin)
        if index:
            before = self._span(index - 1)
            if before.flags & SourceFlags.VERBATIM and before.log_end > first:
                begin = before.source_begin + first - before.log_begin
                found.insert(0, before._replace(source_begin=begin, log_begin=first))
        return found

    def positions_at(self, offset: int) -> list[int]:
        """The positions when the log ended at an offset, as far as spans tell.

        What lies before a span of the same source was done by then.
        """
        positions = self.positions[:]
        for span in reversed(self.reaching(offset)):
            positions[span.number] = span.source_begin
        return positions

    def drop_before(self, offset: int) -> None:
        """Forget spans of what was deleted. The positions stay."""
        at = 0
        while at < len(self._spans) and self._spans[at + _LOG_END] <= offset:
            at += _FIELDS
        del self._spans[:at]

    # -- recovery -------------------------------------------------------------------------------

    def first_damaged(self, bad_ranges: Sequence[tuple[int, int]], proven: int) -> int | None:
        """Find the first byte of a span that is damaged, and wasn't flushed.

        Args:
            bad_ranges: (start, end) offsets of damage, ascending.
            proven: before it everything was flushed; damage there has another cause than a crash.
        """
        for start, end in bad_ranges:
            for span in self.spans():
                if max(span.log_begin, start, proven) < min(span.log_end, end):
                    return max(start, proven)
        return None

    def fit(self, end: int, floor: int) -> int:
        """Drop what a log doesn't have, once it is known where it ends.

        What is cut of a verbatim span moves its source's position back. Others are all or nothing:
        of one that is there in part, the part goes as well.

        Args:
            end: where the log ends now.
            floor: nothing before this can be taken off the log. If a part of a span is missing that
                begins before, its source begins again with that span, and the rest is there twice:
                flushed bytes were lost, and this loses no more.

        Returns:
            Where the log must end: `end`, or before.
        """
        for index in reversed(range(len(self))):
            number, flags, begin, _, log_begin, log_end = self._span(index)
            if log_end <= end:
                continue
            at = index * _FIELDS
            if flags & SourceFlags.VERBATIM and log_begin < end:
                begin += end - log_begin
                self._spans[at + 1], self._spans[at + _LOG_END] = begin, end
            elif log_begin < floor:
                del self._spans[at : at + _FIELDS]
            else:
                for after in self.spans(log_begin):
                    self.positions[after.number] = min(
                        self.positions[after.number], after.source_begin
                    )
                del self._spans[at:]
                end = min(end, log_begin)
            self.positions[number] = min(self.positions[number], begin)
        return end
