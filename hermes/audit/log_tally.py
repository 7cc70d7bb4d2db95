"""What a tier has counted of one log: ranges, joined where one ends and another starts.

From the furthest end backwards, so that what several processes counted is used once, whoever of
them was killed. What no range covers is a hole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hermes.audit.events import CountsEvent, Gap, Spans, Tallies, add_spans, add_tallies

# Ranges of a log that are kept apart; older ones, whose order is settled, are added up.
_MOST_RANGES: Final = 64
# The same while some are missing, as a broker that has reports of them may be away for a while.
_MOST_AWAITING: Final = 1024

# What comes so much later than its window is late; less is the way through a pipeline.
_LATE_MS: Final = 10_000


@dataclass(slots=True)
class _Range:
    start: int
    end: int
    body: CountsEvent | Gap | None
    tallies: Tallies
    since_ms: int
    damaged: int = 0
    removed: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Hole:
    """A range of a log that a tier hasn't counted.

    `why`: `lost` (retention was quicker), `damaged`, `missing` (some offsets have no message), or
    `unknown`: no event covers it. `cut`: it was counted, and is gone. Of a group `set back`, too:
    it has these twice.
    """

    topic: str
    log: str
    start: int
    end: int
    why: str


class LogTally:
    """One log in one tier.

    Attributes:
        reached: an offset up to which the log was counted, and when it ended there, in ms.
        spans: between which offsets the messages of each window are, at most.
        late: by start of the window how many messages came late, and by how many ms at least: the
            log had been counted to its end since the window's.
    """

    def __init__(self, topic: str, log: str, window_ms: int) -> None:
        self.topic = topic
        self.log = log
        self.late: dict[int, tuple[int, int]] = {}
        self.spans: Spans = {}
        self._window_ms = window_ms
        self.reached: tuple[int, int] = (0, 0)
        self._base: _Range | None = None
        self._base_holes: list[Hole] = []
        self._ranges: dict[tuple[int, int], _Range] = {}
        self._settle_beyond = _MOST_RANGES
        self._cuts: set[Hole] = set()
        self._parts: dict[tuple[int, int, int], dict[int, CountsEvent]] = {}
        self._path: list[_Range] | None = None

    def add(self, process: int, time_ms: int, body: CountsEvent | Gap) -> None:
        """Take a range that a process counted.

        `time_ms` is when that was reported: what is before the range had been appended by then.
        """
        if isinstance(body, CountsEvent):
            add_spans(self.spans, body.spans)
        elif body.why == "cut":  # what was counted of it stays
            self._cuts.add(Hole(self.topic, self.log, body.start, body.end, body.why))
            return
        if isinstance(body, CountsEvent) and body.part[1] > 1:
            key = (process, body.start, body.end)
            parts = self._parts.setdefault(key, {})
            parts[body.part[0]] = body
            if len(parts) < body.part[1]:
                return
            del self._parts[key]
            made = _whole([parts[number] for number in sorted(parts)], time_ms)
        elif isinstance(body, CountsEvent):
            made = _whole([body], time_ms)
        else:
            made = _Range(body.start, body.end, body, {}, time_ms)
        if made.end <= made.start or (self._base is not None and made.end <= self._base.end):
            return
        if (made.start, made.end) not in self._ranges:
            self._note_late(made)
        self._ranges[made.start, made.end] = made
        self._path = None
        if len(self._ranges) > self._settle_beyond:
            self._settle()
            self._settle_beyond = max(_MOST_RANGES, min(2 * len(self._ranges), _MOST_AWAITING))

    @property
    def end(self) -> int:
        path = self._joined()
        return path[-1].end if path else self._base.end if self._base else 0

    @property
    def since_ms(self) -> int:
        """Since when everything that was appended is counted, in ms."""
        path = self._joined()
        first = self._base or (path[0] if path else None)
        return first.since_ms if first is not None and first.start else 0

    def tallies(self) -> Tallies:
        """What is in it, each offset counted once."""
        found = dict(self._base.tallies) if self._base is not None else {}
        for each in self._joined():
            add_tallies(found, each.tallies)
        return found

    def damaged(self) -> int:
        base = self._base.damaged if self._base is not None else 0
        return base + sum(each.damaged for each in self._joined())

    def removed(self) -> int:
        base = self._base.removed if self._base is not None else 0
        return base + sum(each.removed for each in self._joined())

    def holes(self) -> list[Hole]:
        """What is not counted, of what lies between the first and the last range, or is gone."""
        cuts = sorted(self._cuts, key=lambda each: (each.start, each.end))
        return [*self._base_holes, *self._holes(self._joined()), *cuts]

    def _note_late(self, made: _Range) -> None:
        offset, reached_ms = self.reached
        if made.start < offset:
            return
        for (window, _), (count, _) in made.tallies.items():
            late_ms = reached_ms - window - self._window_ms
            if window and late_ms > _LATE_MS:
                held, by_ms = self.late.get(window, (0, 0))
                self.late[window] = held + count, max(by_ms, late_ms)

    def _before_a_hole(self, path: list[_Range]) -> Iterator[_Range]:
        end = self._base.end if self._base is not None else path[0].start
        for each in path:
            if each.start > end:
                return
            yield each
            end = each.end

    def _holes(self, path: list[_Range]) -> Iterator[Hole]:
        end = self._base.end if self._base is not None else None
        for each in path:
            if end is not None and each.start > end:
                yield Hole(self.topic, self.log, end, each.start, "unknown")
            if isinstance(each.body, Gap):
                yield Hole(self.topic, self.log, each.start, each.end, each.body.why)
            if each.missing:
                yield Hole(self.topic, self.log, each.start, each.end, "missing")
            end = each.end

    def _joined(self) -> list[_Range]:
        if self._path is not None:
            return self._path
        floor = self._base.end if self._base is not None else 0
        by_end: dict[int, _Range] = {}
        for each in sorted(self._ranges.values(), key=lambda each: (each.end, -each.start)):
            if each.start >= floor:
                by_end[each.end] = each  # of several the longest
        path: list[_Range] = []
        ends = sorted(by_end)
        at = ends[-1] if ends else None
        while at is not None:
            path.append(by_end[at])
            start = path[-1].start
            while ends and ends[-1] > start:
                ends.pop()
            at = ends[-1] if ends else None
        self._path = path[::-1]
        return self._path

    def _settle(self) -> None:
        path = self._joined()
        if not path:  # all lie below the base
            self._ranges.clear()
            return
        settled = path[: len(path) // 2] or path[:1]
        if len(self._ranges) < _MOST_AWAITING:
            settled = list(self._before_a_hole(settled))
        self._base_holes += self._holes(settled)
        base = self._base
        if base is None:
            first = path[0]
            base = self._base = _Range(first.start, first.start, None, {}, first.since_ms)
        for each in settled:
            add_tallies(base.tallies, each.tallies)
            base.damaged += each.damaged
            base.removed += each.removed
            base.end = each.end
        self._ranges = {key: each for key, each in self._ranges.items() if key[1] > base.end}
        self._path = None


def _whole(parts: Sequence[CountsEvent], time_ms: int) -> _Range:
    first = parts[0]
    found: Tallies = {}
    for each in parts:
        add_tallies(found, each.windows)
    damaged = sum(each.damaged for each in parts)
    removed = sum(each.removed for each in parts)
    missing = sum(each.missing for each in parts)
    since_ms = _since(first, time_ms)
    return _Range(first.start, first.end, first, found, since_ms, damaged, removed, missing)


def _since(body: CountsEvent, time_ms: int) -> int:
    return time_ms if body.since_ms is None else body.since_ms
