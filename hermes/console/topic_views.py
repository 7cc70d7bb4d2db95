"""Topics as pages show them: the list, and one topic with its partitions."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hermes.client.topic_metadata import add_leaders
from hermes.config.addresses import BrokerAddress
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import BrokerState, ClusterClient
from hermes.console.cluster_sampler import ClusterView, TopicRow
from hermes.console.list_page import ListPage, list_order
from hermes.console.rates import FIRST_LOOK_SECONDS, Rates, Written
from hermes.console.rolling_refresh import RollingRefresh
from hermes.errors import BrokerUnavailableError, HermesError
from hermes.protocol import (
    NOBODY,
    DescribePartitionsRequest,
    ErrorCode,
    PartitionLeader,
    PartitionMetadata,
    SettingDescription,
    error_for,
)

SORTS: Final = ("name", "partitions", "size", "rate")
_MOST_RATES: Final = 64
_WATCH_EVERY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class TopicList(ListPage[TopicRow]):
    """`largest_bytes`: the size of the largest topic of all, which the bars are relative to.

    `silent_brokers`: how many brokers don't answer, and aren't counted here.
    """

    largest_bytes: int = 0
    silent_brokers: int = 0


def topic_list(
    view: ClusterView, search: str = "", sort: str = "name", order: str = "", page: int = 1
) -> TopicList:
    """Filter, sort and paginate the topics.

    Args:
        search: part of a name, in any case; empty for all.
        sort: one of `SORTS`; anything else means the name.
        order: `desc`, `asc`, or empty for the default: names ascending, numbers descending.
        page: from 1; clamped.
    """
    sort, is_descending = list_order(sort, order, SORTS)
    wanted = search.strip().lower()
    rows = [row for row in view.topics.values() if wanted in row.name.lower()]
    keys = {
        "name": lambda row: row.name,
        "partitions": lambda row: row.partitions,
        "size": lambda row: row.size_bytes,
        "rate": lambda row: row.rate or 0.0,
    }
    rows.sort(key=keys[sort], reverse=is_descending)
    return TopicList.cut(
        rows,
        len(view.topics),
        page,
        search,
        sort=sort,
        is_descending=is_descending,
        largest_bytes=max((row.size_bytes for row in view.topics.values()), default=0),
        silent_brokers=sum(each.metadata is None for each in view.brokers),
    )


def is_numbered(holds_records: bool, brokers: int) -> bool:
    """Whether a partition's number identifies it, with so many brokers, silent ones included.

    Kafka's format numbers a topic's partitions across brokers. In 0.7's each broker numbers its
    own, so several may be number 0: they are told apart as by 0.7's clients, `BROKER-NUMBER`.
    """
    return holds_records or brokers == 1


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition.

    Attributes:
        broker_id: the broker in its name.
        number: on its broker.
        earliest, high_watermark: None if nothing was ever written, or nobody leads it.
        rate: bytes written per second; None while it isn't known.
        segments: how many; None where the broker can't say.
        first_ms, last_ms: append times in ms since 1970; None where they aren't known.
        offline: why it is out of service; empty if it is not.
        damage: its known damaged messages; empty for none.
        counts_messages: whether offsets do, not bytes.
        leader: of one with several copies who leads it; `NOBODY` for none.
    """

    broker_id: int
    number: int
    earliest: int | None
    high_watermark: int | None
    size_bytes: int
    rate: float | None = None
    segments: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    offline: str = ""
    damage: str = ""
    counts_messages: bool = False
    is_numbered: bool = False
    leader: int | None = None

    @property
    def holder(self) -> int:
        """The broker to ask for it."""
        return self.broker_id if self.leader is None else self.leader

    @property
    def name(self) -> str:
        """`BROKER-NUMBER`, for links and forms."""
        return f"{self.broker_id}-{self.number}"

    @property
    def label(self) -> str:
        return str(self.number) if self.is_numbered else self.name


@dataclass(frozen=True, slots=True)
class TopicView:
    """`partitions`: by broker and number. `addresses`: of the brokers that have it, by id.

    `errors`: what could not be found out, for people.
    """

    name: str
    partitions: tuple[PartitionRow, ...]
    addresses: dict[int, BrokerAddress]
    errors: tuple[str, ...] = ()
    counts_messages: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(row.size_bytes for row in self.partitions)

    @property
    def rate(self) -> float | None:
        """Bytes written per second; None while it isn't known."""
        known = [row.rate for row in self.partitions if row.rate is not None]
        return sum(known) if known else None

    @property
    def largest_bytes(self) -> int:
        return max((row.size_bytes for row in self.partitions), default=0)

    def partition(self, name: str) -> PartitionRow | None:
        return next((row for row in self.partitions if name in (row.name, row.label)), None)

    def address_of(self, row: PartitionRow) -> BrokerAddress:
        """Where a partition is read and written; BrokerUnavailableError where that is nowhere."""
        address = self.addresses.get(row.holder)
        if address is None:
            raise BrokerUnavailableError(
                f"nobody leads partition {row.label}: start the brokers that have copies of it"
                if row.leader == NOBODY
                else f"broker {row.holder}, which leads partition {row.label}, does not answer"
            )
        return address


class TopicReader:
    """Reads single topics, each at most once a second."""

    def __init__(
        self, cluster: ClusterClient, cache: ReadCache, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._cluster = cluster
        self._cache = cache
        self._lock = threading.Lock()
        self._rates: OrderedDict[tuple[str, bool], _TopicRates] = OrderedDict()
        self._brokers: list[BrokerState] = []
        self._numbered: set[str] = set()
        self._problems = RollingRefresh(self._look, _WATCH_EVERY_SECONDS)

    def topic(self, name: str) -> TopicView:
        """Read a topic; UnknownTopicError where no broker has it. Blocks."""
        return self._cache.get(("topic", name), lambda: self._read(name))

    def measured(self, name: str) -> TopicView:
        """Read a topic with its rates, even if nobody has looked lately. Blocks a little longer."""
        return self._cache.get(("measured", name), lambda: self._measure(name))

    def _measure(self, name: str) -> TopicView:
        view = self._read(name)
        if view.rate is None:
            time.sleep(FIRST_LOOK_SECONDS)
            view = self._read(name)
        return view

    def _read(self, name: str) -> TopicView:
        view = self._read_rows(name)
        with self._lock:
            rates = self._rates_of(name, view.counts_messages).add(self._clock(), view)
        with_rates = tuple(replace(row, rate=rates.get(row.name)) for row in view.partitions)
        return replace(view, partitions=with_rates)

    def _read_rows(self, name: str) -> TopicView:
        states = self._cluster.read([name])
        rows: list[PartitionRow] = []
        addresses: dict[int, BrokerAddress] = {}
        led = leaders_of(states).get(name, {})
        for state in states:
            found = self._rows(state, name, len(states), led)
            if found:
                rows += self._described(state, name, found)
            if found or any(each.leader == state.broker_id for each in led.values()):
                addresses[state.broker_id] = state.address
        rows = _with_copies(rows, led)
        errors = tuple(f"{each.address}: {each.error}" for each in states if each.error)
        if not rows:
            if errors and len(errors) == len(states):
                raise BrokerUnavailableError(errors[0])
            raise error_for(ErrorCode.UNKNOWN_TOPIC, f"topic {name!r}")
        counts_messages = any(topic.holds_records for state in states for topic in state.topics)
        return TopicView(name, tuple(rows), addresses, errors, counts_messages)

    def _rows(
        self, state: BrokerState, name: str, brokers: int, led: Mapping[int, PartitionLeader]
    ) -> list[PartitionRow]:
        if state.metadata is None:
            return []
        (topic,) = state.metadata.topics
        if topic.error == ErrorCode.UNKNOWN_TOPIC:
            return []
        if topic.error != ErrorCode.NONE:
            raise error_for(topic.error, f"topic {name!r}")
        known: dict[int, PartitionMetadata] = {each.partition: each for each in topic.partitions}
        rows = []
        for number in topic.numbers:
            if number in led and led[number].leader != state.broker_id:
                continue  # it led that until a moment ago
            each = known.get(number)
            if each is None:
                row = PartitionRow(state.broker_id, number, None, None, 0)
            else:
                row = PartitionRow(
                    state.broker_id, number, each.earliest, each.high_watermark, each.size_bytes
                )
            numbered = is_numbered(topic.holds_records, brokers)
            rows.append(replace(row, counts_messages=topic.holds_records, is_numbered=numbered))
        return rows

    def _described(
        self, state: BrokerState, name: str, rows: list[PartitionRow]
    ) -> list[PartitionRow]:
        if not state.supports(DescribePartitionsRequest.TYPE):
            return rows
        try:
            found = self._cluster.ask(
                state.address, lambda consumer: consumer.describe_partitions(name)
            )
        except HermesError:  # deleted meanwhile; what is known is shown
            return rows
        known = {each.partition: each for each in found}
        return [
            row
            if row.number not in known
            else replace(
                row,
                segments=known[row.number].segment_count,
                first_ms=known[row.number].first_append_ms,
                last_ms=known[row.number].last_append_ms,
                offline=known[row.number].offline_reason,
                damage=known[row.number].damage,
            )
            for row in rows
        ]

    def settings(self, topic: TopicView) -> list[SettingDescription]:
        """A topic's settings on the first broker that reports them; empty if none does."""
        return self._cache.get(("settings", topic.name), lambda: self._read_settings(topic))

    def _read_settings(self, topic: TopicView) -> list[SettingDescription]:
        for address in topic.addresses.values():
            try:
                return self._cluster.ask(
                    address, lambda consumer: consumer.describe_settings(topic.name)
                )
            except HermesError:  # it can't say them, or not now
                continue
        return []

    def problems(
        self, brokers: Sequence[BrokerState], names: Sequence[str]
    ) -> list[tuple[str, str]]:
        """Partitions that are out of service or damaged, with what is wrong; as far as is known."""
        self._brokers = [each for each in brokers if each.supports(DescribePartitionsRequest.TYPE)]
        self._numbered = {
            topic.topic
            for broker in brokers
            for topic in broker.topics
            if is_numbered(topic.holds_records, len(brokers))
        }
        return [each for _, found in self._problems.refresh(names) for each in found]

    def _look(self, name: str) -> list[tuple[str, str]]:
        found = []
        for broker in self._brokers:
            try:
                rows = self._cluster.ask(
                    broker.address, lambda consumer: consumer.describe_partitions(name)
                )
            except HermesError:  # it doesn't have the topic, or its own entry says why
                continue
            found += [
                (name, f"{self._label(name, broker, row.partition)}: {problem}")
                for row in rows
                for problem in (row.offline_reason, row.damage)
                if problem
            ]
        return found

    def _label(self, topic: str, broker: BrokerState, number: int) -> str:
        numbered = topic in self._numbered
        row = PartitionRow(broker.broker_id, number, None, None, 0, is_numbered=numbered)
        return f"partition {row.label}"

    def _rates_of(self, name: str, counts_messages: bool) -> "_TopicRates":
        key = name, counts_messages  # one that comes back in the other format is another one
        rates = self._rates.setdefault(key, _TopicRates())
        self._rates.move_to_end(key)
        if len(self._rates) > _MOST_RATES:
            self._rates.popitem(last=False)
        return rates


def leaders_of(states: Iterable[BrokerState]) -> dict[str, dict[int, PartitionLeader]]:
    """Who leads partitions that have copies, by topic and number, as brokers know best."""
    known: dict[str, dict[int, PartitionLeader]] = {}
    for state in states:
        for each in state.topics:
            add_leaders(known.setdefault(each.topic, {}), each.leaders)
    return known


def _with_copies(
    rows: Sequence[PartitionRow], led: Mapping[int, PartitionLeader]
) -> list[PartitionRow]:
    """By what is known of leaders: the partitions' names, and those that nobody answers for."""
    if not led:
        return list(rows)
    found = [
        replace(row, broker_id=led[row.number].home, leader=led[row.number].leader)
        if row.number in led
        else row
        for row in rows
    ]
    told = {row.number for row in rows}
    found += [
        PartitionRow(
            *(each.home, number, None, None, 0),
            counts_messages=True,
            is_numbered=True,
            leader=each.leader,
        )
        for number, each in led.items()
        if number not in told
    ]
    return sorted(found, key=lambda row: row.number)


class _TopicRates:
    """Bytes per second of a topic's partitions. Not thread-safe."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._written: Written[Hashable] = Written()

    def add(self, at: float, view: TopicView) -> dict[Hashable, float]:
        counters: dict[Hashable, int]
        if view.counts_messages:
            counters = {row.name: row.size_bytes for row in view.partitions}
            counters = self._written.add(counters)
        else:
            counters = {row.name: row.high_watermark or 0 for row in view.partitions}
        return self._rates.add(at, counters)
