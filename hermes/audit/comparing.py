"""Compares tiers, topic by topic and window by window: complete, short, over, or uncertain.

The first tier of a topic, in the order of a pipeline, is what the others are compared with. Counts
and sums are compared per window and process that stamped, so that an uncertain producer makes
nothing else uncertain. A difference is only called one if nothing else can explain it:

    open        the window isn't over, or not for long enough
    complete    every message is there once
    short, over messages are missing, or there twice: so many in all
    changed     both: some are missing, and others there twice. Of one process's messages only the
                balance is known, so that it may be more of both
    behind      messages are missing, but the tier hasn't counted that far yet
    uncertain   it can't be known: a producer ended without its last report, doesn't know what
                became of some messages, or the counting began later

Messages without a stamp have the window of their timestamp, and no process. Producers report none
of these, so that they are compared with the cluster that they are in. Those of 0.7 have no
timestamp, either: of them only totals are compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hermes.audit.events import NOBODY, UNSTAMPED, hex_id
from hermes.audit.log_tally import Hole
from hermes.audit.tiers import Process, Tiers, TopicTally

#: The states that are differences.
DIFFERENT: Final = ("short", "over", "changed")

_MASK: Final = (1 << 64) - 1
_PRODUCERS: Final = "producers"
_CLUSTER: Final = "cluster"
_MIRROR: Final = "mirror"
_SPARK: Final = "spark"


@dataclass(slots=True)
class ProcessDifference:
    """What is different, or uncertain, of one process's messages in a window.

    Attributes:
        process: who stamped them, in hexadecimal; 0 for messages without a stamp.
        host: where that ran; empty if no event says.
        difference: how many more than expected; below 0 for fewer.
        why: what makes it uncertain; empty if nothing does.
    """

    process: str
    host: str
    difference: int
    why: str = ""

    @property
    def who(self) -> str:
        """Whose messages they are, for people; empty where that isn't known."""
        is_unstamped = self.process == hex_id(NOBODY)
        return "without a stamp" if is_unstamped else f"{self.host} {self.process}".strip()


@dataclass(slots=True)
class Window:
    """One window of one topic, in one tier.

    Attributes:
        topic: its name at the beginning of the pipeline.
        start_ms: when the window begins, in ms since 1970.
        tier, against: who counted, and the tier that it is compared with.
        state: see the module.
        expected, found: how many messages it should have, and has.
        unknown: how many more it may have: those whose producers don't know what became of them.
        short, over: how many are missing, or there once too often, for certain and at least.
        late, late_by_ms: how many came late, in this tier; by how much at least.
        parts: what explains the state.
    """

    topic: str
    start_ms: int
    tier: str
    against: str
    state: str = "complete"
    expected: int = 0
    found: int = 0
    unknown: int = 0
    short: int = 0
    over: int = 0
    late: int = 0
    late_by_ms: int = 0
    parts: list[ProcessDifference] = field(default_factory=list)


@dataclass(slots=True)
class Total:
    """How many messages without a stamp a tier has counted of a topic, ever."""

    topic: str
    tier: str
    against: str
    expected: int
    found: int
    is_equal: bool


@dataclass(slots=True)
class Loss:
    tier: str
    topic: str
    log: str
    start: int
    end: int
    why: str


@dataclass(slots=True)
class Report:
    """What a comparison found.

    Attributes:
        windows: all of them, by topic, tier and time.
        totals: of messages without a stamp.
        damaged: by tier and topic how many damaged messages were skipped.
        removed: by tier and topic how many were compacted away before they were counted.
    """

    now_ms: int
    window_ms: int
    windows: list[Window] = field(default_factory=list)
    totals: list[Total] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    damaged: dict[tuple[str, str], int] = field(default_factory=dict)
    removed: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def differences(self) -> list[Window]:
        return [each for each in self.windows if each.state in DIFFERENT]

    @property
    def uncertain(self) -> list[Window]:
        return [each for each in self.windows if each.state == "uncertain"]


def compare(
    tiers: Tiers,
    *,
    now_ms: int,
    grace_ms: int,
    chosen: Sequence[str] = (),
    topics: Sequence[str] = (),
    since_ms: int = 0,
) -> Report:
    """Compare tiers.

    Args:
        grace_ms: how long after its end a window stays open: what messages need to get through
            the whole pipeline, and reports to be made.
        chosen: the tiers to compare, the first one with all others; empty for all there are.
        since_ms: windows that begin before are left out.
    """
    report = Report(now_ms, tiers.window_ms or 0)
    names = [each for each in chosen or tiers.names() if each in tiers.topics]
    by_topic = _by_topic(tiers, names)
    for topic in sorted(by_topic):
        if topics and topic not in topics:
            continue
        (first, reference), *others = by_topic[topic]
        for tier, tally in [(first, reference), *others]:
            report.losses += [_loss(tier, hole) for hole in tally.holes()]
            if removed := tally.removed():
                report.removed[tier, topic] = removed
            damaged = tally.damaged + sum(log.damaged() for log in tally.logs.values())
            if damaged:
                report.damaged[tier, topic] = damaged
        known = dict(by_topic[topic])
        for tier, tally in others:
            pair = _TierComparison(tiers, topic, first, reference, tier, tally, report, grace_ms)
            own = _references_of_unstamped(tier, known, first, is_chosen=bool(chosen))
            is_first = own == {first: tally}
            report.windows += pair.windows(since_ms, unstamped=None if is_first else False)
            if (total := pair.total()) is not None:
                report.totals.append(total)
            for of, part in {} if is_first else own.items():
                pair = _TierComparison(tiers, topic, of, known[of], tier, part, report, grace_ms)
                report.windows += pair.windows(since_ms, unstamped=True)
    return report


def _references_of_unstamped(
    tier: str, known: Mapping[str, TopicTally], first: str, *, is_chosen: bool
) -> dict[str, TopicTally]:
    """What a tier's messages without a stamp are compared with: by tier those of them that are.

    Nobody says where those of a cluster come from: another cluster may have others under the same
    name. A mirror's come from the clusters that its logs are named after.
    """
    tally = known[tier]
    if is_chosen and not _is_producers(first):
        return {first: tally}
    kind = tier.partition(":")[0]
    clusters = [each for each in known if each.partition(":")[0] == _CLUSTER]
    of = ""
    if tally.counted is not None:
        of = tally.commits.of
    elif kind == _MIRROR:
        by_source = {f"{_CLUSTER}:{each}": part for each, part in tally.by_source().items()}
        return {of: part for of, part in by_source.items() if of in known}
    elif len(clusters) == 1 and kind != _CLUSTER:
        (of,) = clusters
    return {of: tally} if of in known else {}


def _is_producers(tier: str) -> bool:
    return tier.partition(":")[0] == _PRODUCERS


def _by_topic(tiers: Tiers, names: Sequence[str]) -> dict[str, list[tuple[str, TopicTally]]]:
    """The tiers of each topic, under the name that it has at the beginning."""
    sources: dict[str, set[str]] = {}
    for name in names:
        for topic, tally in tiers.topics[name].items():
            if tally.target_topic:
                sources.setdefault(tally.target_topic, set()).add(topic)
    found: dict[str, list[tuple[str, TopicTally]]] = {}
    for name in names:
        for topic, own in tiers.topics[name].items():
            counted = tiers.topics.get(own.commits.of, {}).get(topic)
            known = own.by_commits(counted)
            of = sources.get(topic, set())
            (first,) = of if len(of) == 1 and not own.target_topic else (topic,)
            if known is not None:
                found.setdefault(first, []).append((name, known))
    return found


def _loss(tier: str, hole: Hole) -> Loss:
    return Loss(tier, hole.topic, hole.log, hole.start, hole.end, hole.why)


class _TierComparison:
    def __init__(
        self,
        tiers: Tiers,
        topic: str,
        against: str,
        expected: TopicTally,
        tier: str,
        found: TopicTally,
        report: Report,
        grace_ms: int,
    ) -> None:
        self._tiers = tiers
        self._topic = topic
        self._against = against
        self._expected = expected
        self._expected_tallies = expected.tallies()
        self._tier = tier
        self._found = found
        self._found_tallies = found.tallies()
        self._report = report
        self._grace_ms = grace_ms
        self._window_ms = report.window_ms
        self._is_from_producers = _is_producers(against)
        self._late = found.late()
        self._has_holes = any(hole.why == "unknown" for hole in expected.holes() + found.holes())
        self._since_ms = max(expected.since_ms(), found.since_ms())
        self._counted_ms = min(self._counted_to(against, expected), self._counted_to(tier, found))
        self._known = {process for _, process in [*self._expected_tallies, *expected.unknown]}
        self._reporters = {
            process.process: process
            for (name, _), process in tiers.processes.items()
            if name == against
        }

    def windows(self, since_ms: int, *, unstamped: bool | None) -> list[Window]:
        """Compare the windows of all messages, or only of those without, or with, a stamp."""
        by_window: dict[int, set[int]] = {}
        for tallies in (self._expected_tallies, self._found_tallies, self._expected.unknown):
            for key in tallies:
                if key == UNSTAMPED or key[0] < since_ms:
                    continue
                if unstamped in (None, key[1] == NOBODY):
                    by_window.setdefault(key[0], set()).add(key[1])
        return [self._window(start, by_window[start]) for start in sorted(by_window)]

    def total(self) -> Total | None:
        expected = self._expected_tallies.get(UNSTAMPED, (0, 0))
        found = self._found_tallies.get(UNSTAMPED, (0, 0))
        if self._is_from_producers or not (expected[0] or found[0]):
            return None
        return Total(
            self._topic, self._tier, self._against, expected[0], found[0], expected == found
        )

    def _window(self, start: int, processes: set[int]) -> Window:
        window = Window(self._topic, start, self._tier, self._against)
        window.late, window.late_by_ms = self._late.get(start, (0, 0))
        for process in sorted(processes):
            key = (start, process)
            expected = self._expected_tallies.get(key, (0, 0))
            unknown = self._expected.unknown.get(key, (0, 0))
            found = self._found_tallies.get(key, (0, 0))
            if process not in self._known and not self._is_from_producers:
                continue  # written into this cluster by somebody else
            window.expected += expected[0]
            window.unknown += unknown[0]
            window.found += found[0]
            part = self._part(start, process, expected, unknown, found)
            if part is None:
                continue
            window.parts.append(part)
            if not part.why:
                window.short += max(-part.difference, not part.difference)
                window.over += max(part.difference, not part.difference)
        window.parts += self._silent(start, processes)
        window.state = self._state(window)
        return window

    def _part(
        self,
        start: int,
        process: int,
        expected: tuple[int, int],
        unknown: tuple[int, int],
        found: tuple[int, int],
    ) -> ProcessDifference | None:
        reporter = self._reporters.get(process)
        host = "" if reporter is None else reporter.host
        part = ProcessDifference(hex_id(process), host, found[0] - expected[0])
        if found == expected or found == (
            expected[0] + unknown[0],
            expected[1] + unknown[1] & _MASK,
        ):
            why = self._uncovered(start, reporter)
            return ProcessDifference(part.process, host, 0, why) if why else None
        if 0 <= part.difference <= unknown[0] and unknown[0]:
            part.why = f"it doesn't know what became of {unknown[0]} messages"
        elif self._is_from_producers:
            part.why = self._uncovered(start, reporter)
        return part

    def _uncovered(self, start: int, reporter: Process | None) -> str:
        """Why a producer's counts of a window may not be all; empty if they are."""
        if not self._is_from_producers:
            return ""
        if reporter is None:
            return "it has not reported"
        if start < reporter.since_ms:
            return "its first reports are gone"
        if reporter.is_closed or reporter.covered_ms >= start + self._window_ms:
            return ""
        return "it ended, or was cut off, without reporting the rest"

    def _silent(self, start: int, processes: set[int]) -> list[ProcessDifference]:
        """Producers that may have sent something in a window of which nobody knows."""
        if not self._is_from_producers:
            return []
        return [
            ProcessDifference(hex_id(each.process), each.host, 0, self._uncovered(start, each))
            for each in self._reporters.values()
            if each.process not in processes
            and self._topic in each.topics
            and not each.is_closed
            and each.covered_ms - self._window_ms < start < each.covered_ms + self._window_ms
            and self._uncovered(start, each)
        ]

    def _state(self, window: Window) -> str:
        end = window.start_ms + self._window_ms
        if end + self._grace_ms > self._report.now_ms:
            return "open"
        if window.start_ms in self._found.unsure:
            why = "messages were deleted that it hadn't committed"
            window.parts.append(ProcessDifference("", "", 0, why))
            return "uncertain"
        if window.short or window.over:
            if window.start_ms in self._found.awaited:
                return "behind"
            if why := self._compacted(window):
                window.parts.append(ProcessDifference("", "", 0, why))
                return "uncertain"
            if window.start_ms < self._since_ms or self._has_holes:
                window.parts.append(ProcessDifference("", "", 0, self._why_uncounted(window)))
                return "uncertain"
            if self._counted_ms < end + self._grace_ms:
                return "behind"
            return (
                "changed" if window.short and window.over else "short" if window.short else "over"
            )
        if window.parts:
            return "uncertain"
        return "complete"

    def _compacted(self, window: Window) -> str:
        taken, as_well = self._found.removed(), self._expected.removed()
        if window.short <= taken and window.over <= as_well:
            return f"compaction took {max(taken, as_well)} messages before they were counted"
        return ""

    def _why_uncounted(self, window: Window) -> str:
        if window.start_ms < self._since_ms:
            return "the counting began later"
        return "reports on a part of the log are missing"

    def _counted_to(self, tier: str, tally: TopicTally) -> int:
        reached = (tally.counted or tally).reached_ms(in_turn=tier.partition(":")[0] == _SPARK)
        if reached is not None:
            return reached
        times = [each.last_ms for each in self._tiers.processes.values() if each.tier == tier]
        if tier.partition(":")[0] == _PRODUCERS:
            return self._report.now_ms
        return max(times, default=0)
