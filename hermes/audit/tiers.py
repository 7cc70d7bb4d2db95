"""What the events of hermes-audit add up to: of each tier its messages by topic, window, process.

Events come in any order, some twice. Counts without a range are added up once each. Ranges of a log
are joined where one ends and another starts: from the furthest end backwards, so that what several
processes counted is used once, whoever of them was killed. What no range covers is a hole.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from hermes.audit.events import Alive, CountsEvent, Event, Gap, Tallies, add_tallies

# Ranges of a log that are kept apart; older ones, whose order is settled, are added up.
_MOST_RANGES: Final = 64

# What comes so much later than its window is late; less is the way through a pipeline.
_LATE_MS: Final = 10_000

# Numbers of events that came before their predecessors; a process that has more has lost some.
_MOST_EARLY: Final = 10_000


@dataclass(slots=True)
class Process:
    """A process that reports.

    Attributes:
        covered_ms: of a producer: everything that it stamped before is in the events that came.
        since_ms: before this time some of its events are missing; 0 if none is.
        last_ms: when its last event was made.
        is_closed: whether it ended properly, with all events having come.
    """

    process: int
    tier: str
    host: str
    window_ms: int
    covered_ms: int = 0
    since_ms: int = 0
    last_ms: int = 0
    is_closed: bool = False
    topics: set[str] = field(default_factory=set)
    _first: int | None = None
    _next: int = 0
    _early: dict[int, Event] = field(default_factory=dict)

    def take(self, event: Event) -> bool:
        number = event.sequence
        if self._first is None:
            self._first = self._next = number
            self.since_ms = event.time_ms if number else 0
        if number in self._early or self._first <= number < self._next:
            return False
        if number < self._first:  # of another partition of the topic, which is read later
            self._early[number] = event
            while self._first - 1 in self._early:
                self._first -= 1
                earlier = self._early.pop(self._first)
                self.since_ms = earlier.time_ms if self._first else 0
            return True
        if len(self._early) < _MOST_EARLY:
            self._early[number] = event
        while self._next in self._early:
            self._follow(self._early.pop(self._next))
            self._next += 1
        return True

    def _follow(self, event: Event) -> None:
        self.last_ms = max(self.last_ms, event.time_ms)
        if isinstance(event.body, Alive):
            self.covered_ms = max(self.covered_ms, event.body.covered_ms)
            self.is_closed = self.is_closed or event.body.closed


@dataclass(slots=True)
class _Range:
    start: int
    end: int
    body: CountsEvent | Gap | None
    tallies: Tallies
    since_ms: int
    damaged: int = 0


@dataclass(slots=True)
class Hole:
    """A range of a log that a tier hasn't counted.

    `why`: `lost` (retention was quicker), `damaged`, or `unknown`: no event covers it.
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
        late: by start of the window how many messages came late, and by how many ms at least: the
            log had been counted to its end since the window's.
    """

    def __init__(self, topic: str, log: str, window_ms: int) -> None:
        self.topic = topic
        self.log = log
        self.late: dict[int, tuple[int, int]] = {}
        self._window_ms = window_ms
        self.reached: tuple[int, int] = (0, 0)
        self._base: _Range | None = None
        self._base_holes: list[Hole] = []
        self._ranges: dict[tuple[int, int], _Range] = {}
        self._parts: dict[tuple[int, int, int], dict[int, CountsEvent]] = {}
        self._path: list[_Range] | None = None

    def add(self, process: int, time_ms: int, body: CountsEvent | Gap) -> None:
        """Take a range that a process counted.

        `time_ms` is when that was reported: what is before the range had been appended by then.
        """
        if isinstance(body, CountsEvent) and body.part[1] > 1:
            key = (process, body.start, body.end)
            parts = self._parts.setdefault(key, {})
            parts[body.part[0]] = body
            if len(parts) < body.part[1]:
                return
            del self._parts[key]
            found: Tallies = {}
            for each in parts.values():
                add_tallies(found, each.windows)
            damaged = sum(each.damaged for each in parts.values())
            made = _Range(body.start, body.end, body, found, _since(body, time_ms), damaged)
        elif isinstance(body, CountsEvent):
            since = _since(body, time_ms)
            made = _Range(body.start, body.end, body, body.windows, since, body.damaged)
        else:
            made = _Range(body.start, body.end, body, {}, time_ms)
        if made.end <= made.start or (self._base is not None and made.end <= self._base.end):
            return
        if (made.start, made.end) not in self._ranges:
            self._note_late(made)
        self._ranges[made.start, made.end] = made
        self._path = None
        if len(self._ranges) > _MOST_RANGES:
            self._settle()

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

    def holes(self) -> list[Hole]:
        """What is not counted, of what lies between the first and the last range."""
        return [*self._base_holes, *self._holes(self._joined())]

    def _note_late(self, made: _Range) -> None:
        offset, reached_ms = self.reached
        if made.start < offset:
            return
        for (window, _), (count, _) in made.tallies.items():
            late_ms = reached_ms - window - self._window_ms
            if window and late_ms > _LATE_MS:
                held, by_ms = self.late.get(window, (0, 0))
                self.late[window] = held + count, max(by_ms, late_ms)

    def _holes(self, path: list[_Range]) -> Iterator[Hole]:
        end = self._base.end if self._base is not None else None
        for each in path:
            if end is not None and each.start > end:
                yield Hole(self.topic, self.log, end, each.start, "unknown")
            if isinstance(each.body, Gap):
                yield Hole(self.topic, self.log, each.start, each.end, each.body.why)
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
        settled = path[: len(path) // 2] or path[:1]
        if not settled:  # all lie below the base
            self._ranges.clear()
            return
        self._base_holes += self._holes(settled)
        base = self._base
        if base is None:
            first = settled[0]
            base = self._base = _Range(first.start, first.start, None, {}, first.since_ms)
        for each in settled:
            add_tallies(base.tallies, each.tallies)
            base.damaged += each.damaged
            base.end = each.end
        self._ranges = {key: each for key, each in self._ranges.items() if key[1] > base.end}
        self._path = None


@dataclass(slots=True)
class TopicTally:
    """One topic in one tier.

    Attributes:
        counts, damaged: what was counted without ranges.
        unknown: what producers sent without learning what became of it.
        logs: what was counted in ranges, by log.
        target_topic: the topic's name further on.
    """

    counts: Tallies = field(default_factory=dict)
    unknown: Tallies = field(default_factory=dict)
    logs: dict[str, LogTally] = field(default_factory=dict)
    target_topic: str = ""
    damaged: int = 0

    def tallies(self) -> Tallies:
        found = dict(self.counts)
        for log in self.logs.values():
            add_tallies(found, log.tallies())
        return found

    def since_ms(self) -> int:
        return max((log.since_ms for log in self.logs.values()), default=0)

    def late(self) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for log in self.logs.values():
            for window, (count, by_ms) in log.late.items():
                held, held_ms = found.get(window, (0, 0))
                found[window] = held + count, max(held_ms, by_ms)
        return found

    def reached_ms(self, *, in_turn: bool = False) -> int | None:
        """Up to when everything that had been appended is counted; None without ranges.

        With `in_turn`, as for loads, each log vouches for all that came since the one before.
        """
        times = [log.reached[1] if log.reached[0] <= log.end else 0 for log in self.logs.values()]
        return (max if in_turn else min)(times, default=None)


class Tiers:
    """What all events add up to.

    Args:
        since_ms: windows that end before are left out.
        window_ms: how long windows are; None for those of the first event.

    Attributes:
        topics: by tier and topic what was counted.
        processes: by tier and number who reports.
        refused: how many events have windows of another length.
    """

    def __init__(self, since_ms: int = 0, window_ms: int | None = None) -> None:
        self.topics: dict[str, dict[str, TopicTally]] = {}
        self.processes: dict[tuple[str, int], Process] = {}
        self.window_ms = window_ms
        self.refused = 0
        self._since_ms = since_ms

    def add(self, event: Event) -> None:
        """Take an event; one that came before changes nothing."""
        if self.window_ms is None:
            self.window_ms = event.window_ms
        if event.window_ms != self.window_ms:
            self.refused += 1
            return
        key = (event.tier, event.process)
        process = self.processes.get(key)
        if process is None:
            process = Process(event.process, event.tier, event.host, event.window_ms)
            self.processes[key] = process
        if not process.take(event):
            return
        body = event.body
        if isinstance(body, Alive):
            for topic, logs in body.reached.items():
                for log, place in logs.items():
                    held = self._log(event.tier, topic, log)
                    if place[1] > held.reached[1]:
                        held.reached = place
            return
        process.topics.add(body.topic)
        tally = self._topic(event.tier, body.topic)
        tally.target_topic = body.target_topic or tally.target_topic
        if isinstance(body, CountsEvent):
            body = self._recent(body)
            if not body.log:
                add_tallies(tally.counts, body.windows)
                add_tallies(tally.unknown, body.unknown)
                tally.damaged += body.damaged
                return
        held = self._log(event.tier, body.topic, body.log)
        held.add(event.process, event.time_ms, body)

    def names(self) -> list[str]:
        """The tiers, in the order of a pipeline."""
        ranks = ("producers", "cluster", "mirror", "group", "spark")

        def rank(tier: str) -> tuple[int, str]:
            kind = tier.partition(":")[0]
            return ranks.index(kind) if kind in ranks else len(ranks), tier

        return sorted(self.topics, key=rank)

    def _recent(self, body: CountsEvent) -> CountsEvent:
        if not self._since_ms or self.window_ms is None:
            return body
        least = self._since_ms - self.window_ms

        def kept(tallies: Tallies) -> Tallies:
            return {key: each for key, each in tallies.items() if not key[1] or key[0] > least}

        return CountsEvent(
            body.topic,
            body.target_topic,
            body.log,
            body.start,
            body.end,
            body.since_ms,
            kept(body.windows),
            kept(body.unknown),
            body.damaged,
            body.part,
        )

    def _topic(self, tier: str, topic: str) -> TopicTally:
        return self.topics.setdefault(tier, {}).setdefault(topic, TopicTally())

    def _log(self, tier: str, topic: str, log: str) -> LogTally:
        logs = self._topic(tier, topic).logs
        if log not in logs:
            logs[log] = LogTally(topic, log, self.window_ms or 1)
        return logs[log]


def _since(body: CountsEvent, time_ms: int) -> int:
    return time_ms if body.since_ms is None else body.since_ms
