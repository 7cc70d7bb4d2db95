"""What the pages about groups show: members, owners, offsets, lag."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hermes.console.asking import NoSuchPageError
from hermes.console.charts import Chart, draw
from hermes.console.cluster import Cluster
from hermes.console.rates import History
from hermes.console.recent import Recent
from hermes.console.showing import amount_text, bytes_text, count_text
from hermes.console.watching import Watch
from hermes.coordination.filters import Whitelist
from hermes.coordination.group_state import GroupState, list_groups, read_group, read_members
from hermes.coordination.layout import BrokerPartition, Subscription, check_node_name
from hermes.errors import ConfigError, HermesError
from hermes.quoting import printable

PAGE_ROWS: Final = 50
_MOST_HISTORIES: Final = 64
_WATCH_EVERY_SECONDS: Final = 15.0
_WERE_LOST: Final = "were deleted before they were"

TopicPlace = tuple[str, BrokerPartition]


class Ends(NamedTuple):
    """Where a partition begins and ends; None where that isn't known.

    Attributes:
        earliest: its earliest offset.
        end: up to where it can be read.
        counts_messages: whether its offsets do, not bytes.
    """

    earliest: int | None
    end: int | None
    counts_messages: bool = False


#: Of a partition that no broker tells of.
UNKNOWN_ENDS: Final = Ends(None, None)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the list.

    Attributes:
        name: its name.
        members: how many it has.
    """

    name: str
    members: int


@dataclass(frozen=True, slots=True)
class GroupList:
    """One page of the list of groups.

    Attributes:
        rows: the groups of the page.
        found: how many match.
        total: how many there are.
        page: the page's number, from 1.
        pages: how many there are.
        search: as asked for.
    """

    rows: tuple[GroupRow, ...]
    found: int
    total: int
    page: int
    pages: int
    search: str


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member.

    Attributes:
        name: its consumer id.
        wants: what it subscribes to, for people.
        owns: how many partitions it owns.
        topics: the topics that it names.
        has_filter: whether it chooses topics by a pattern.
    """

    name: str
    wants: str
    owns: int
    topics: frozenset[str] = frozenset()
    has_filter: bool = False


@dataclass(frozen=True, slots=True)
class LagRow:
    """A partition that a group reads.

    Attributes:
        topic: the topic.
        partition: `BROKER-NUMBER`.
        offset: what the group has stored; None where it has stored none that can be understood.
        earliest: the partition's earliest offset; None where that isn't known.
        end: up to where it can be read; None where that isn't known.
        owner: the stream that owns it; empty for none.
        counts_messages: whether its offsets do, not bytes.
    """

    topic: str
    partition: str
    offset: int | None
    earliest: int | None
    end: int | None
    owner: str
    counts_messages: bool = False

    @property
    def lag(self) -> int | None:
        """How many bytes or messages the group has yet to read; None where that isn't known."""
        return None if self.offset is None or self.end is None else max(self.end - self.offset, 0)

    @property
    def problem(self) -> str:
        """What is wrong with the offset; empty when nothing is."""
        if self.offset is None or self.end is None or self.earliest is None:
            return ""
        if self.offset < self.earliest:
            lost = amount_text(self.earliest - self.offset, self.counts_messages)
            is_one = lost == "1 message"
            return f"{lost} {'was deleted before it was' if is_one else _WERE_LOST} read"
        if self.offset > self.end:
            return "the offset is beyond the end"
        return ""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group.

    Attributes:
        name: its name.
        members: its members.
        rows: the partitions that it reads, or has read.
        charts: its lag while somebody looked, in bytes and in messages, as far as it has either;
            none where that may not be shown.
        faults: what can't be understood, or found out.
    """

    name: str
    members: tuple[MemberRow, ...]
    rows: tuple[LagRow, ...]
    charts: tuple[Chart, ...]
    faults: tuple[str, ...]

    @property
    def lag(self) -> str:
        """What it has yet to read, for people."""
        return " and ".join(
            amount_text(lag, counts_messages) for counts_messages, lag in _lags(self.rows).items()
        ) or bytes_text(0)

    @property
    def largest_lags(self) -> dict[bool, int]:
        """The lag of the partition that is furthest behind, by whether it is one in messages."""
        largest = {False: 0, True: 0}
        for row in self.rows:
            largest[row.counts_messages] = max(largest[row.counts_messages], row.lag or 0)
        return largest

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of its partitions."""
        return tuple(dict.fromkeys(row.topic for row in self.rows))


@dataclass(frozen=True, slots=True)
class TopicLag:
    """What a group has yet to read of a topic.

    Attributes:
        group: the group.
        partitions: how many of the topic's partitions it reads.
        lag: in bytes, or in messages where the topic's offsets count these.
    """

    group: str
    partitions: int
    lag: int


@dataclass(frozen=True, slots=True)
class _Watched:
    """What was found when a group was last looked at."""

    concerns: tuple[str, ...]
    topics: Mapping[str, TopicLag]


class GroupReader:
    """Reads groups. Every method may block, and may be called in any thread.

    Args:
        cluster: has the coordination and the brokers.
        recent: remembers what was read.
        clock: monotonic, in seconds.
    """

    def __init__(
        self, cluster: Cluster, recent: Recent, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._recent = recent
        self._clock = clock
        self._lock = threading.Lock()
        self._histories: OrderedDict[tuple[str, bool], History] = OrderedDict()
        self._watched = Watch(self._look, _WATCH_EVERY_SECONDS)

    # -- the list -------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """All groups. Raises HermesError without coordination."""
        return self._recent.get("groups", lambda: list_groups(self._cluster.session()))

    def page(
        self, search: str, page: int, sees: Callable[[str], bool] = lambda name: True
    ) -> GroupList:
        """A page of the list.

        Args:
            search: part of a name, in any case; empty for all.
            page: which page; the last one if there are fewer.
            sees: whether a group is shown.
        """
        names = [name for name in self.names() if sees(name)]
        wanted = search.lower()
        found = [name for name in names if wanted in name.lower()]
        pages = max(1, -(-len(found) // PAGE_ROWS))
        page = min(max(page, 1), pages)
        shown = found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
        rows = self._recent.get(("groups", *shown), lambda: self._rows(shown))
        return GroupList(rows, len(found), len(names), page, pages, search)

    def _rows(self, names: list[str]) -> tuple[GroupRow, ...]:
        session = self._cluster.session()
        return tuple(GroupRow(name, len(read_members(session, name))) for name in names)

    # -- one group ------------------------------------------------------------------------------

    def group(self, name: str) -> GroupView:
        """Read a group.

        Raises:
            NoSuchPageError: there is none.
            HermesError: coordination doesn't answer.
        """
        return self._recent.get(("group", name), lambda: self._read(name))

    def _read(self, name: str) -> GroupView:
        state = self.state(name)
        faults = [str(each) for each in state.unreadable()]
        rows = self._lag_rows(state, faults)
        owners = list(state.owners.values())
        members = tuple(
            _member(member, subscription, sum(owner.startswith(f"{member}-") for owner in owners))
            for member, subscription in state.members.items()
        )
        return GroupView(name, members, rows, self._charts(name, rows), tuple(faults))

    def _charts(self, name: str, rows: Sequence[LagRow]) -> tuple[Chart, ...]:
        at = self._clock()
        charts = []
        with self._lock:
            for counts_messages, lag in _lags(rows).items():
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
        """What coordination has about a group, at this moment; raises as `group` does."""
        try:
            check_node_name("group", name)
        except ConfigError as error:
            raise NoSuchPageError(str(error)) from error
        if name not in self.names():
            raise NoSuchPageError(f"There is no group {printable(name, 200)}.")
        return read_group(self._cluster.session(), name)

    def _lag_rows(self, state: GroupState, faults: list[str]) -> tuple[LagRow, ...]:
        places: list[TopicPlace] = sorted({*state.owners, *state.offsets})
        ends, errors = self.ends(sorted({topic for topic, _ in places}))
        faults += errors
        rows = []
        for topic, partition in places:
            earliest, end, counts_messages = ends.get((topic, partition), UNKNOWN_ENDS)
            offset = stored_number(state.offsets.get((topic, partition)))
            owner = state.owners.get((topic, partition), "")
            rows.append(
                LagRow(topic, str(partition), offset, earliest, end, owner, counts_messages)
            )
        return tuple(rows)

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
        return sorted(found, key=lambda each: each.lag, reverse=True)

    def _watch(self) -> list[tuple[str, _Watched]]:
        return self._watched.look(self.names())

    def _look(self, name: str) -> _Watched:
        try:
            state = read_group(self._cluster.session(), name)
        except HermesError:  # deleted meanwhile, or its own page says more
            return _Watched((), {})
        rows = self._lag_rows(state, [])
        topics: dict[str, TopicLag] = {}
        for row in rows:
            before = topics.get(row.topic, TopicLag(name, 0, 0))
            topics[row.topic] = TopicLag(name, before.partitions + 1, before.lag + (row.lag or 0))
        return _Watched(tuple(_trouble(state, rows)), topics)


def _lags(rows: Iterable[LagRow]) -> dict[bool, int]:
    """What is yet to be read, by whether offsets count messages; without what isn't known."""
    lags: dict[bool, int] = {}
    for row in sorted(rows, key=lambda row: row.counts_messages):
        if row.lag is not None:
            lags[row.counts_messages] = lags.get(row.counts_messages, 0) + row.lag
    return lags


def _trouble(state: GroupState, rows: Sequence[LagRow]) -> Iterator[str]:
    lost = [row for row in rows if row.problem]
    if lost:
        more = f" (and {len(lost) - 1} more partitions)" if len(lost) > 1 else ""
        yield f"{lost[0].topic} {lost[0].partition}: {lost[0].problem}{more}"
    unowned = sum(not row.owner for row in rows if row.end is not None)
    if state.members and unowned:
        yield f"it has members, but {unowned} of its partitions have no owner"


def stored_number(value: object) -> int | None:
    """A stored offset; None for what can't be understood as one."""
    return value if isinstance(value, int) else None


def _member(name: str, wanted: object, owns: int) -> MemberRow:
    if not isinstance(wanted, Subscription):
        return MemberRow(name, "?", owns)
    has_filter = wanted.topic_filter is not None
    return MemberRow(name, _wants(wanted), owns, frozenset(wanted.streams), has_filter)


def _wants(wanted: Subscription) -> str:
    """A subscription for people."""
    if wanted.topic_filter is not None:
        but = "" if isinstance(wanted.topic_filter, Whitelist) else "all but "
        regex = printable(wanted.topic_filter.regex, 200)
        return f"{but}{regex} ({wanted.filter_streams} streams of each)"
    return ", ".join(
        f"{topic} ({count} stream{'s' if count != 1 else ''})"
        for topic, count in wanted.streams.items()
    )
