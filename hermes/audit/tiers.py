"""What the events of hermes-audit add up to: of each tier its messages by topic, window, process.

Events come in any order, some twice. Counts without a range are added up once each, those of ranges
by log (`log_tally`). A group that doesn't count itself has what it has committed (`commits`).
"""

from dataclasses import dataclass, field, replace
from typing import Final

from hermes.audit.commits import GroupCommits
from hermes.audit.events import (
    UNSTAMPED,
    Alive,
    Committed,
    CountsEvent,
    Event,
    Tallies,
    add_tallies,
)
from hermes.audit.log_tally import Hole, LogTally

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
class TopicTally:
    """One topic in one tier.

    Attributes:
        counts, damaged: what was counted without ranges.
        unknown: what producers sent without learning what became of it.
        logs: what was counted in ranges, by log.
        target_topic: the topic's name further on.
        commits: what a group has committed; used if it doesn't count itself.
        counted: of a group that is judged by that, the tally of the tier that counts the logs.
        awaited: the windows of which it has not yet committed everything.
        unsure: those of which something was deleted before it had.
    """

    counts: Tallies = field(default_factory=dict)
    unknown: Tallies = field(default_factory=dict)
    logs: dict[str, LogTally] = field(default_factory=dict)
    target_topic: str = ""
    damaged: int = 0
    commits: GroupCommits = field(default_factory=GroupCommits)
    counted: "TopicTally | None" = None
    awaited: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)

    def holes(self) -> list[Hole]:
        of_logs = [hole for log in self.logs.values() for hole in log.holes()]
        return [*of_logs, *self.commits.holes]

    def removed(self) -> int:
        return sum(log.removed() for log in self.logs.values())

    def by_commits(self, counted: "TopicTally | None") -> "TopicTally | None":
        """What a group has, by what another tier has counted; None if that can't be told."""
        if self.counts or self.logs or not self.commits.logs:
            return self
        if counted is None or not any(log.spans for log in counted.logs.values()):
            return None
        found, awaited, unsure = self.commits.passed(counted.logs)
        return replace(self, counts=found, counted=counted, awaited=awaited, unsure=unsure)

    def tallies(self) -> Tallies:
        found = dict(self.counts)
        for log in self.logs.values():
            add_tallies(found, log.tallies())
        return found

    def by_source(self) -> "dict[str, TopicTally]":
        """What a mirror has counted in ranges, by the source in the names of its logs."""
        found: dict[str, dict[str, LogTally]] = {}
        for name, log in self.logs.items():
            found.setdefault(name.partition("/")[0], {})[name] = log
        if len(found) == 1:
            return dict.fromkeys(found, self)
        return {source: replace(self, logs=logs) for source, logs in found.items()}

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
        if isinstance(body, Committed):
            tally.commits.add(event.time_ms, body)
            return
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
        """The tiers, in the order of a pipeline; clusters that are mirrored before others."""
        ranks = ("producers", "cluster", "mirror", "group", "spark")
        sources = {
            f"cluster:{source}"
            for tier, topics in self.topics.items()
            if tier.startswith("mirror:")
            for tally in topics.values()
            for source in tally.by_source()
        }

        def rank(tier: str) -> tuple[int, bool, str]:
            kind = tier.partition(":")[0]
            place = ranks.index(kind) if kind in ranks else len(ranks)
            return place, kind == "cluster" and tier not in sources, tier

        return sorted(self.topics, key=rank)

    def _recent(self, body: CountsEvent) -> CountsEvent:
        if not self._since_ms or self.window_ms is None:
            return body
        least = self._since_ms - self.window_ms

        def kept(tallies: Tallies) -> Tallies:
            return {
                key: each for key, each in tallies.items() if key == UNSTAMPED or key[0] > least
            }

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
            body.removed,
            body.missing,
            {window: span for window, span in body.spans.items() if window > least},
        )

    def _topic(self, tier: str, topic: str) -> TopicTally:
        return self.topics.setdefault(tier, {}).setdefault(topic, TopicTally())

    def _log(self, tier: str, topic: str, log: str) -> LogTally:
        logs = self._topic(tier, topic).logs
        if log not in logs:
            logs[log] = LogTally(topic, log, self.window_ms or 1)
        return logs[log]
