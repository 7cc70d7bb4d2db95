"""Reads groups for the pages: lists of them, one with its lag, and what needs attention."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hermes.console.asking import NoSuchPageError
from hermes.console.charts import Chart, draw
from hermes.console.cluster import Cluster
from hermes.console.group_sources import GroupContent, GroupSource, OwnGroups
from hermes.console.group_views import (
    UNKNOWN_ENDS,
    Ends,
    GroupList,
    GroupRow,
    GroupView,
    LagRow,
    TopicLag,
    TopicPlace,
    lags_by_unit,
)
from hermes.console.rates import History
from hermes.console.recent import Recent
from hermes.console.showing import bytes_text, count_text
from hermes.console.watching import Watch
from hermes.coordination.group_state import GroupState, read_group
from hermes.coordination.layout import BrokerPartition
from hermes.errors import HermesError
from hermes.quoting import printable

PAGE_ROWS: Final = 50
_MOST_HISTORIES: Final = 64
_WATCH_EVERY_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class _Watched:
    """What was found when a group was last looked at."""

    concerns: tuple[str, ...]
    topics: Mapping[str, TopicLag]


class GroupReader:
    """Reads groups of one kind. Every method may block, and may be called in any thread.

    Args:
        cluster: has the coordination and the brokers.
        recent: remembers what was read.
        source: reads what coordination has about them.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        recent: Recent,
        source: GroupSource | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._source = source or OwnGroups()
        self._recent = recent
        self._clock = clock
        self._lock = threading.Lock()
        self._histories: OrderedDict[tuple[str, bool], History] = OrderedDict()
        self._watched = Watch(self._look, _WATCH_EVERY_SECONDS)

    @property
    def kind(self) -> str:
        """Whose clients the groups are of."""
        return self._source.kind

    def names(self) -> list[str]:
        """All groups. Raises HermesError without coordination."""
        return self._recent.get(
            ("groups", self.kind), lambda: self._source.names(self._cluster.session())
        )

    def row(self, name: str) -> GroupRow:
        """A group's row in a list."""
        count = self._source.count_members(self._cluster.session(), name)
        return GroupRow(name, count, self.kind)

    def group(self, name: str) -> GroupView:
        """Read a group.

        Raises:
            NoSuchPageError: there is none.
            HermesError: coordination doesn't answer.
        """
        return self._recent.get(("group", self.kind, name), lambda: self._read(name))

    def _read(self, name: str) -> GroupView:
        self._check_exists(name)
        content = self._source.read(self._cluster.session(), name)
        rows, errors = self._lag_rows(content)
        charts = self._charts(name, rows)
        faults = (*content.faults, *errors)
        return GroupView(name, content.members, rows, charts, faults, self.kind, content.protocol)

    def _charts(self, name: str, rows: Sequence[LagRow]) -> tuple[Chart, ...]:
        at = self._clock()
        charts = []
        with self._lock:
            for counts_messages, lag in lags_by_unit(rows).items():
                history = self._histories.setdefault((name, counts_messages), History())
                self._histories.move_to_end((name, counts_messages))
                if len(self._histories) > _MOST_HISTORIES:
                    self._histories.popitem(last=False)
                history.add(at, lag)
                if counts_messages:
                    chart = draw("lag-messages", "Lag in messages", history, at, count_text)
                else:
                    chart = draw("lag", "Lag", history, at, bytes_text)
                charts.append(chart)
        return tuple(charts)

    def state(self, name: str) -> GroupState:
        """What coordination has about a group of Hermes' own clients, at this moment.

        Raises:
            NoSuchPageError: there is none.
            HermesError: coordination doesn't answer.
        """
        self._check_exists(name)
        return read_group(self._cluster.session(), name)

    def _check_exists(self, name: str) -> None:
        self._source.check_name(name)
        if name not in self.names():
            raise NoSuchPageError(f"There is no group {printable(name, 200)}.")

    def _lag_rows(self, content: GroupContent) -> tuple[tuple[LagRow, ...], list[str]]:
        ends, errors = self.ends(sorted({each.topic for each in content.partitions}))
        rows = []
        for each in content.partitions:
            known = UNKNOWN_ENDS
            if each.place is not None:
                known = ends.get((each.topic, each.place), UNKNOWN_ENDS)
            places = each.offset, known.earliest, known.end
            owner = each.owner, each.member
            rows.append(LagRow(each.topic, each.name, *places, *owner, known.counts_messages))
        return tuple(rows), errors

    def ends(self, topics: list[str]) -> tuple[dict[TopicPlace, Ends], list[str]]:
        """Where all partitions of topics begin and end; and what failed."""
        ends: dict[TopicPlace, Ends] = {}
        states = self._cluster.read(topics) if topics else []
        for state in states:
            for topic in state.metadata.topics if state.metadata else ():
                for each in topic.numbers:
                    place = topic.topic, BrokerPartition(state.broker_id, each)
                    ends[place] = Ends(0, 0, topic.holds_records)
                for row in topic.partitions:
                    place = topic.topic, BrokerPartition(state.broker_id, row.partition)
                    ends[place] = Ends(row.earliest, row.high_watermark, topic.holds_records)
        return ends, [f"{each.address}: {each.error}" for each in states if each.error]

    # -- all groups, a few at a time ------------------------------------------------------------

    def concerns(self) -> list[tuple[str, str, Iterable[str]]]:
        """Groups in trouble, each with what it is and its topics; as far as is known by now."""
        return [
            (name, text, each.topics.keys())
            for name, each in self._watch()
            for text in each.concerns
        ]

    def of_topic(self, topic: str) -> list[TopicLag]:
        """The groups that read a topic, the one furthest behind first; as far as is known."""
        found = [each.topics[topic] for _, each in self._watch() if topic in each.topics]
        return sorted(found, key=lambda each: each.lag or 0, reverse=True)

    def _watch(self) -> list[tuple[str, _Watched]]:
        return self._watched.look(self.names())

    def _look(self, name: str) -> _Watched:
        try:
            content = self._source.read(self._cluster.session(), name)
        except HermesError:  # deleted meanwhile, or its own page says more
            return _Watched((), {})
        rows, _ = self._lag_rows(content)
        topics: dict[str, TopicLag] = {}
        for row in rows:
            before = topics.get(row.topic, TopicLag(name, 0, None, self.kind))
            lag = before.lag if row.lag is None else (before.lag or 0) + row.lag
            topics[row.topic] = replace(before, partitions=before.partitions + 1, lag=lag)
        return _Watched(tuple(_trouble(content, rows)), topics)


def group_list(
    readers: Sequence[GroupReader],
    recent: Recent,
    search: str,
    page: int,
    sees: Callable[[str], bool] = lambda name: True,
) -> GroupList:
    """A page of the list of all groups.

    Args:
        readers: each of one kind of groups.
        recent: remembers what was read.
        search: part of a name, in any case; empty for all.
        page: which page; the last one if there are fewer.
        sees: whether a group is shown.

    Raises:
        HermesError: coordination doesn't answer, or there is none.
    """
    names = sorted(
        (name, number)
        for number, reader in enumerate(readers)
        for name in reader.names()
        if sees(name)
    )
    wanted = search.lower()
    found = [each for each in names if wanted in each[0].lower()]
    pages = max(1, -(-len(found) // PAGE_ROWS))
    page = min(max(page, 1), pages)
    shown = found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    rows = recent.get(
        ("groups", *shown), lambda: tuple(readers[number].row(name) for name, number in shown)
    )
    return GroupList(rows, len(found), len(names), page, pages, search)


def _trouble(content: GroupContent, rows: Sequence[LagRow]) -> Iterator[str]:
    lost = [row for row in rows if row.problem]
    if lost:
        more = f" (and {len(lost) - 1} more partitions)" if len(lost) > 1 else ""
        yield f"{lost[0].topic} {lost[0].partition}: {lost[0].problem}{more}"
    unowned = sum(
        not row.owner
        for row in rows
        if row.end is not None and (content.topics is None or row.topic in content.topics)
    )
    if content.members and unowned:
        yield f"it has members, but {unowned} of its partitions have no owner"
