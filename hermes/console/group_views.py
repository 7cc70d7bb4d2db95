"""Groups as pages show them: lists, members, partitions, lag."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote

from hermes.console.charts import Chart
from hermes.console.formatting import amount_text, bytes_text
from hermes.console.list_page import ListPage
from hermes.coordination.group_state import lag_between
from hermes.coordination.layout import BrokerPartition

_WERE_LOST: Final = "were deleted before they were"

#: Groups of Hermes' own clients and of Kafka 0.7's, and those of Kafka's current ones.
OWN, KAFKA = KINDS = ("", "kafka")

#: How addresses call the kinds: a name may be that of a group of each.
KIND_WORDS: Final = {OWN: "hermes", KAFKA: "kafka"}

TopicPlace = tuple[str, BrokerPartition]


def group_path(name: str, kind: str) -> str:
    return f"/groups/{quote(name, safe='')}?kind={KIND_WORDS[kind]}"


class Ends(NamedTuple):
    """Where a partition begins and ends; None where that isn't known.

    Attributes:
        end: up to where it can be read.
        counts_messages: whether offsets do, not bytes.
        is_numbered: whether its number identifies it; see `is_numbered`.
    """

    earliest: int | None
    end: int | None
    counts_messages: bool = False
    is_numbered: bool = False


#: Of a partition that no broker tells of.
UNKNOWN_ENDS: Final = Ends(None, None)


#: What the list can be sorted by.
GROUP_SORTS: Final = ("name", "state", "members", "lag")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the list. `kind`: one of `KINDS`. `lag`: None before it was first read."""

    name: str
    members: int
    kind: str = ""
    lag: "Lag | None" = None

    @property
    def path(self) -> str:
        return group_path(self.name, self.kind)


@dataclass(frozen=True, slots=True)
class GroupList(ListPage[GroupRow]):
    """One page of the list of groups.

    Attributes:
        unknown: of how many matching groups the lag isn't known yet, if the order or the page
            depends on it.
        has_kafka: whether any group is of Kafka's clients.
    """

    unknown: int = 0
    has_kafka: bool = False


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member. `name`: its consumer id. `has_filter`: whether it subscribes by a pattern."""

    name: str
    wants: str
    owns: int
    topics: frozenset[str] = frozenset()
    has_filter: bool = False


@dataclass(frozen=True, slots=True)
class LagRow:
    """A partition that a group reads.

    Attributes:
        partition: `BROKER-NUMBER`, for links.
        offset: what is stored; None if nothing is, or nothing that can be parsed.
        earliest, end: None where they aren't known.
        owner: the stream, or the member, that owns it; empty for none.
        counts_messages: whether offsets do, not bytes.
        label: the partition for people.
    """

    topic: str
    partition: str
    offset: int | None
    earliest: int | None
    end: int | None
    owner: str
    member: str = ""
    counts_messages: bool = False
    label: str = ""

    @property
    def lag(self) -> int | None:
        """In bytes or messages; None where it isn't known."""
        return lag_between(self.offset, self.end)

    @property
    def problem(self) -> str:
        if self.offset is None or self.end is None or self.earliest is None:
            return ""
        if self.offset < self.earliest:
            lost = amount_text(self.earliest - self.offset, self.counts_messages)
            is_one = lost == "1 message"
            return f"{lost} {'was deleted before it was' if is_one else _WERE_LOST} read"
        if self.offset > self.end:
            return "the offset is beyond the end: was the topic created again?"
        return ""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group.

    Attributes:
        charts: its lag while somebody watched, in bytes and in messages; empty where it may not be
            shown.
        faults: what can't be parsed or found out.
        protocol: of Kafka's groups, `classic` or `consumer`.
    """

    name: str
    members: tuple[MemberRow, ...]
    rows: tuple[LagRow, ...]
    charts: tuple[Chart, ...]
    faults: tuple[str, ...]
    kind: str = ""
    protocol: str = ""

    @property
    def lag(self) -> "Lag":
        return Lag.of(self.rows)

    @property
    def largest_lags(self) -> dict[bool, int]:
        largest = {False: 0, True: 0}
        for row in self.rows:
            largest[row.counts_messages] = max(largest[row.counts_messages], row.lag or 0)
        return largest

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.topic for row in self.rows))


@dataclass(frozen=True, slots=True)
class Lag:
    """`by_unit`: the known lags, by whether they count messages.

    `uncommitted`: how many have no committed offset; `unknown`: how many others have no known lag.
    """

    by_unit: Mapping[bool, int]
    partitions: int = 0
    uncommitted: int = 0
    unknown: int = 0

    @staticmethod
    def of(rows: "Sequence[LagRow]") -> "Lag":
        uncommitted = sum(row.offset is None for row in rows)
        unknown = sum(row.lag is None for row in rows) - uncommitted
        return Lag(lags_by_unit(rows), len(rows), uncommitted, unknown)

    def __add__(self, other: "Lag") -> "Lag":
        units = sorted({*self.by_unit, *other.by_unit})
        return Lag(
            {each: self.by_unit.get(each, 0) + other.by_unit.get(each, 0) for each in units},
            self.partitions + other.partitions,
            self.uncommitted + other.uncommitted,
            self.unknown + other.unknown,
        )

    @property
    def text(self) -> str:
        known = " and ".join(amount_text(lag, unit) for unit, lag in self.by_unit.items())
        return known or bytes_text(None if self.partitions else 0)

    @property
    def note(self) -> str:
        """Of how many partitions the lag isn't known, and why; empty if of none."""
        parts = []
        for count, what in ((self.uncommitted, "nothing committed"), (self.unknown, "unknown")):
            if count == self.partitions > 0:
                return what
            if count:
                parts.append(f"{what} in {count} of {self.partitions} partitions")
        return ", ".join(parts)

    @property
    def order(self) -> tuple[int, int]:
        """The sort key: lags in messages rank above those in bytes."""
        return self.by_unit.get(True, 0), self.by_unit.get(False, 0)


@dataclass(frozen=True, slots=True)
class TopicLag:
    """A group's lag in one topic. `kind`: one of `KINDS`."""

    group: str
    lag: Lag
    kind: str = ""

    @property
    def path(self) -> str:
        return group_path(self.group, self.kind)


def lags_by_unit(rows: Iterable[LagRow]) -> dict[bool, int]:
    lags: dict[bool, int] = {}
    for row in sorted(rows, key=lambda row: row.counts_messages):
        if row.lag is not None:
            lags[row.counts_messages] = lags.get(row.counts_messages, 0) + row.lag
    return lags
