"""Reads groups for the pages: lists, single groups with their lag, and problems."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hermes.console.cache import ReadCache
from hermes.console.charts import Chart, draw
from hermes.console.cluster_client import ClusterClient
from hermes.console.formatting import bytes_text, count_text
from hermes.console.group_sources import GroupContent, GroupSource, OwnGroupSource
from hermes.console.group_views import (
    GROUP_SORTS,
    KAFKA,
    UNKNOWN_ENDS,
    Ends,
    GroupList,
    GroupRow,
    GroupView,
    Lag,
    LagRow,
    TopicLag,
    TopicPlace,
    lags_by_unit,
)
from hermes.console.list_page import ListPage, list_order
from hermes.console.page_request import NoSuchPageError
from hermes.console.rates import History
from hermes.console.rolling_refresh import RollingRefresh
from hermes.console.topic_views import is_numbered, leaders_of
from hermes.console.viewer import Viewer
from hermes.coordination.group_state import GroupState, read_group
from hermes.coordination.layout import BrokerPartition
from hermes.errors import HermesError
from hermes.protocol import ErrorCode
from hermes.quoting import printable

_MOST_HISTORIES: Final = 64
_WATCH_EVERY_SECONDS: Final = 15.0
# How long a page with lags of many groups looks at those of each kind that aren't known yet.
_PAGE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class _GroupSample:
    concerns: tuple[str, ...] = ()
    lags: Mapping[str, Lag] = field(default_factory=dict)
    members: int = 0

    def lag(self, sees: Callable[[str], bool]) -> Lag:
        return sum((lag for topic, lag in self.lags.items() if sees(topic)), Lag({}))


class GroupReader:
    """Reads groups of one kind. Methods may block, and may be called in any thread."""

    def __init__(
        self, cluster: ClusterClient, cache: ReadCache, source: GroupSource | None = None
    ) -> None:
        self._cluster = cluster
        self._source = source or OwnGroupSource()
        self._cache = cache
        self._lock = threading.Lock()
        self._histories: OrderedDict[tuple[str, bool], History] = OrderedDict()
        self._watched = RollingRefresh(self._look, _WATCH_EVERY_SECONDS)

    @property
    def kind(self) -> str:
        return self._source.kind

    def names(self) -> list[str]:
        return self._cache.get(
            ("groups", self.kind), lambda: self._source.names(self._cluster.session())
        )

    def row(self, name: str) -> GroupRow:
        count = self._source.count_members(self._cluster.session(), name)
        return GroupRow(name, count, self.kind)

    def group(self, name: str) -> GroupView:
        """Read a group; NoSuchPageError if there is none, HermesError without coordination."""
        return self._cache.get(("group", self.kind, name), lambda: self._read(name))

    def _read(self, name: str) -> GroupView:
        self._check_exists(name)
        content = self._source.read(self._cluster.session(), name)
        rows, errors = self._lag_rows(content)
        charts = self._charts(name, rows)
        faults = (*content.faults, *errors)
        return GroupView(name, content.members, rows, charts, faults, self.kind, content.protocol)

    def _charts(self, name: str, rows: Sequence[LagRow]) -> tuple[Chart, ...]:
        at = time.monotonic()
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
        """A group of Hermes' own clients as coordination has it now; NoSuchPageError for none."""
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
            unit, label = known.counts_messages, each.label(known.is_numbered)
            rows.append(LagRow(each.topic, each.name, *places, *owner, unit, label))
        return tuple(rows), errors

    def ends(self, topics: list[str]) -> tuple[dict[TopicPlace, Ends], list[str]]:
        """Where all partitions of topics begin and end; and what failed."""
        ends: dict[TopicPlace, Ends] = {}
        states = self._cluster.read(topics) if topics else []
        led = leaders_of(states)
        for name, partitions in led.items():
            for number, each in partitions.items():
                ends[name, BrokerPartition(each.home, number)] = Ends(None, None, True, True)
        for state in states:
            for topic in state.topics:
                if topic.error != ErrorCode.NONE:  # what it tells is of one that it would create
                    continue
                how = topic.holds_records, is_numbered(topic.holds_records, len(states))
                copied = led[topic.topic]
                for number in topic.numbers:
                    if number not in copied:
                        place = topic.topic, BrokerPartition(state.broker_id, number)
                        ends[place] = Ends(0, 0, *how)
                for row in topic.partitions:
                    leader, home = state.broker_id, state.broker_id
                    if row.partition in copied:
                        _, home, leader, _ = copied[row.partition]
                    if leader == state.broker_id:  # else it led it until a moment ago
                        place = topic.topic, BrokerPartition(home, row.partition)
                        ends[place] = Ends(row.earliest, row.high_watermark, *how)
        return ends, [f"{each.address}: {each.error}" for each in states if each.error]

    # -- all groups, a few at a time ------------------------------------------------------------

    def concerns(self) -> list[tuple[str, str, Iterable[str]]]:
        """Groups with a problem: name, problem and topics; as far as is known."""
        return [
            (name, text, each.lags.keys()) for name, each in self._watch() for text in each.concerns
        ]

    def of_topic(self, topic: str) -> list[TopicLag]:
        """The groups that read a topic, the furthest behind first; as far as is known."""
        found = [
            TopicLag(name, each.lags[topic], self.kind)
            for name, each in self._watch()
            if topic in each.lags
        ]
        return sorted(found, key=lambda each: each.lag.order, reverse=True)

    def known(self, first: Sequence[str]) -> dict[str, _GroupSample]:
        """What is known of groups; those in `first` are read now, if the time for it allows."""
        return dict(self._watched.refresh(self.names(), first, _PAGE_SECONDS))

    def _watch(self) -> list[tuple[str, _GroupSample]]:
        return self._watched.refresh(self.names())

    def _look(self, name: str) -> _GroupSample:
        try:
            content = self._source.read(self._cluster.session(), name)
        except HermesError:  # deleted meanwhile, or its own page says more
            return _GroupSample()
        rows, _ = self._lag_rows(content)
        of_topics: dict[str, list[LagRow]] = {}
        for row in rows:
            of_topics.setdefault(row.topic, []).append(row)
        lags = {topic: Lag.of(some) for topic, some in of_topics.items()}
        return _GroupSample(tuple(_problems(content, rows)), lags, len(content.members))


def group_list(
    readers: Sequence[GroupReader],
    cache: ReadCache,
    viewer: Viewer,
    search: str = "",
    sort: str = "name",
    order: str = "",
    page: int = 1,
) -> GroupList:
    """One page of the list of all groups.

    Lags are some seconds old. A page refreshes for a moment those that it needs: the ones on the
    page, or all when not sorted by name. Very many groups take several pages until all are known.

    Args:
        viewer: only visible groups and topics are listed and counted.
        search: part of a name, in any case; empty for all.
        sort: one of `GROUP_SORTS`; anything else means the name.
        order: `desc`, `asc`, or empty for the default: names ascending, others descending.
        page: from 1; clamped.
    """
    names = sorted(
        (name, number)
        for number, reader in enumerate(readers)
        for name in reader.names()
        if viewer.sees_group(name)
    )
    wanted = search.lower()
    found = [each for each in names if wanted in each[0].lower()]
    sort, is_descending = list_order(sort, order, GROUP_SORTS)
    known: dict[tuple[str, int], _GroupSample] = {}
    if sort == "name":
        found.sort(reverse=is_descending)
    else:
        known = _known(readers, found)
        found = _sorted(found, known, sort, is_descending, viewer)
    cut = ListPage.cut(found, len(names), page, search, sort=sort, is_descending=is_descending)
    shown = cut.rows
    needed: Sequence[tuple[str, int]] = found
    if sort == "name":
        known, needed = _known(readers, shown), shown
    rows = cache.get(
        ("groups", *shown), lambda: tuple(readers[number].row(name) for name, number in shown)
    )
    return GroupList(
        tuple(
            replace(row, lag=known[each].lag(viewer.sees_topic) if each in known else None)
            for row, each in zip(rows, shown, strict=True)
        ),
        cut.found,
        cut.total,
        cut.page,
        cut.pages,
        search,
        sort,
        is_descending,
        sum(each not in known for each in needed),
        any(readers[number].kind == KAFKA for _, number in names),
    )


def _known(
    readers: Sequence[GroupReader], wanted: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], _GroupSample]:
    return {
        (name, number): watched
        for number, reader in enumerate(readers)
        for name, watched in reader.known([each for each, its in wanted if its == number]).items()
    }


def _sorted(
    groups: list[tuple[str, int]],
    known: Mapping[tuple[str, int], _GroupSample],
    sort: str,
    is_descending: bool,
    viewer: Viewer,
) -> list[tuple[str, int]]:
    keys: dict[str, Callable[[_GroupSample], tuple[int, ...]]] = {
        "state": lambda each: (min(each.members, 1),),
        "members": lambda each: (each.members,),
        "lag": lambda each: each.lag(viewer.sees_topic).order,
    }
    key = keys[sort]
    looked_at = [each for each in groups if each in known]
    looked_at.sort(key=lambda each: key(known[each]), reverse=is_descending)
    return looked_at + [each for each in groups if each not in known]


def _problems(content: GroupContent, rows: Sequence[LagRow]) -> Iterator[str]:
    lost = [row for row in rows if row.problem]
    if lost:
        more = f" (and {len(lost) - 1} more partitions)" if len(lost) > 1 else ""
        yield f"{lost[0].topic} partition {lost[0].label}: {lost[0].problem}{more}"
    unowned = sum(
        not row.owner
        for row in rows
        if row.end is not None and (content.topics is None or row.topic in content.topics)
    )
    if content.members and unowned:
        yield f"it has members, but {unowned} of its partitions have no owner"
