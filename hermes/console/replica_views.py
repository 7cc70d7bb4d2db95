"""Copies of partitions as pages show them: who leads, who is in sync, who lags, what moves.

Who has what is read from coordination; how far each copy is, from the brokers that have it, and
only of what a page shows.
"""

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from hermes.client import SimpleConsumer
from hermes.client.kafka_replicas import (
    KafkaReplicas,
    Partition,
    Place,
    lags_of,
    progress_of,
    stored_partitions,
)
from hermes.config.addresses import BrokerAddress
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient
from hermes.console.list_page import ListPage
from hermes.console.rates import Rates
from hermes.coordination.kafka_topics import KAFKA_CHANGES
from hermes.coordination.layout import BROKER_IDS
from hermes.errors import HermesError
from hermes.protocol import NOBODY, DescribeSettingsRequest

#: What a list of partitions can be limited to.
SHOWN: Final = ("all", "problems", "offline", "under-replicated", "moving")

# How long it holds where coordination is: that changes with a broker's restart only.
_EMBEDDED_SECONDS: Final = 60.0
_MOST_NAMED: Final = 5


class CopyRow(NamedTuple):
    """One copy.

    Attributes:
        why: why it isn't in sync; empty where it is.
        lag: how many messages it lacks; None where that isn't known.
        goes: whether a move takes it away.
    """

    broker_id: int
    why: str
    lag: int | None
    goes: bool


class MoveRow(NamedTuple):
    """How far a broker that gets a copy is: `copied` of `total` messages, None where not known.

    Attributes:
        rate: messages a second.
        copied_bytes: the same in bytes.
    """

    broker_id: int
    copied: int | None
    total: int | None
    rate: float | None
    copied_bytes: tuple[int, int] | None = None

    @property
    def seconds_left(self) -> float | None:
        if self.copied is None or self.total is None or not self.rate:
            return None
        return (self.total - self.copied) / self.rate


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One partition.

    Attributes:
        partition: nobody leads it where its leader isn't registered, either.
        registered: the brokers that are.
        unclean_epoch: the last one that began with an unclean election; -1 for none.
        ends: of copies that were asked, up to where each has what is committed.
        start: where it begins; None where that wasn't asked.
        min_in_sync: how many copies acks=all needs in sync; likewise.
        rates: messages a second that copies grow by, by broker.
        sizes: bytes of the leader's copy, and of those that aren't in sync, by broker.
    """

    partition: Partition
    registered: Collection[int]
    unclean_epoch: int = -1
    ends: Mapping[int, int] = field(default_factory=dict)
    start: int | None = None
    min_in_sync: int | None = None
    rates: Mapping[int, float] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        return self.partition.place[0]

    @property
    def number(self) -> int:
        return self.partition.place[1]

    @property
    def name(self) -> str:
        """As `hermes replicas` takes it."""
        return f"{self.topic}:{self.number}"

    @property
    def is_offline(self) -> bool:
        return self.partition.leader == NOBODY

    @property
    def is_under_replicated(self) -> bool:
        return self.partition.is_under_replicated

    @property
    def is_under_min(self) -> bool:
        return self.min_in_sync is not None and len(self.partition.in_sync) < self.min_in_sync

    @property
    def preferred(self) -> int:
        return self.partition.target[0]

    @property
    def copies(self) -> list[CopyRow]:
        known, lags = self.partition, lags_of(self.partition, self.ends)
        return [
            CopyRow(
                each,
                "" if each in known.in_sync else known.why_not_in_sync(each, self.registered),
                lags.get(each),
                each in known.removing,
            )
            for each in known.replicas
        ]

    @property
    def moves(self) -> list[MoveRow]:
        return [self._move(each) for each in sorted(self.partition.adding)]

    def _move(self, broker_id: int) -> MoveRow:
        end, has = self.ends.get(self.partition.leader), self.ends.get(broker_id)
        if end is None or self.start is None:
            return MoveRow(broker_id, None, None, None)
        total = end - self.start
        copied = None if has is None else min(max(has - self.start, 0), total)
        copied_bytes = progress_of(self.partition, broker_id, self.sizes)
        return MoveRow(broker_id, copied, total, self.rates.get(broker_id), copied_bytes)

    def is_shown(self, what: str) -> bool:
        wanted = {
            "offline": self.is_offline,
            "under-replicated": self.is_under_replicated,
            "moving": self.partition.is_moving,
        }
        return wanted.get(what, what != "problems" or not self.partition.is_settled)


class BrokerCopies(NamedTuple):
    """What a broker has: copies, those that it leads, and those that aren't in sync."""

    copies: int
    led: int
    not_in_sync: int


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """All partitions that have several copies, or that move, by topic and number."""

    rows: tuple[ReplicaRow, ...]

    def count(self, what: str) -> int:
        return sum(row.is_shown(what) for row in self.rows)

    def problems(self) -> list[tuple[str, str, str]]:
        """What needs attention: how bad it is, what it is, and as what it is shown."""
        found = []
        for level, shown, text in (
            ("bad", "offline", "there is no leader of {}: {}"),
            ("warn", "under-replicated", "copies of {} are not in sync: {}"),
        ):
            rows = [row for row in self.rows if row.is_shown(shown)]
            if rows:
                count = f"{len(rows):,} partition{'s' if len(rows) != 1 else ''}"
                names = ", ".join(row.name for row in rows[:_MOST_NAMED])
                more = ", ..." if len(rows) > _MOST_NAMED else ""
                found.append((level, text.format(count, names + more), shown))
        return found

    def of_topic(self, topic: str) -> dict[int, ReplicaRow]:
        return {row.number: row for row in self.rows if row.topic == topic}

    def by_broker(self) -> dict[int, BrokerCopies]:
        copies, led, behind = Counter[int](), Counter[int](), Counter[int]()
        for row in self.rows:
            known = row.partition
            copies.update(known.replicas)
            led[known.leader] += 1
            behind.update(set(known.replicas) - known.in_sync)
        return {each: BrokerCopies(copies[each], led[each], behind[each]) for each in copies}


@dataclass(frozen=True, slots=True)
class ReplicaList(ListPage[ReplicaRow]):
    """`shown`: one of `SHOWN`. `broker_id`: only partitions with a copy there; None for all.

    `error`: why it isn't known how far copies are; empty where it is.
    """

    shown: str = "all"
    broker_id: int | None = None
    error: str = ""


def replica_list(
    view: ReplicaView, search: str, shown: str, broker_id: int | None, page: int
) -> ReplicaList:
    """One page of the partitions that are wanted; `search` is a part of the topic's name."""
    shown, wanted = shown if shown in SHOWN else "all", search.lower()
    rows = [
        row
        for row in view.rows
        if wanted in row.topic.lower()
        and row.is_shown(shown)
        and (broker_id is None or broker_id in row.partition.replicas)
    ]
    more = {"shown": shown, "broker_id": broker_id}
    return ReplicaList.cut(rows, len(view.rows), page, search, **more)


class ReplicaReader:
    """Reads who has copies. Methods may block, and may be called in any thread."""

    def __init__(self, cluster: ClusterClient, cache: ReadCache) -> None:
        self._cluster = cluster
        self._cache = cache
        self._lock = threading.Lock()
        self._known: tuple[int, tuple[ReplicaRow, ...]] = (-1, ())
        self._rates = Rates()
        self._embedded = (float("-inf"), False)

    def view(self) -> ReplicaView:
        """All that there are, as far as coordination knows. Raises HermesError."""
        return self._cache.get("replicas", self._read)

    def _read(self) -> ReplicaView:
        session = self._cluster.session()
        registered = {int(each) for each in session.children(BROKER_IDS) if each.isdecimal()}
        changes = session.get(KAFKA_CHANGES)
        version = -1 if changes is None else changes.version
        known, rows = self._known
        if version == -1 or version != known:  # it counts every change of copies
            rows = tuple(ReplicaRow(each, (), epoch) for each, epoch in stored_partitions(session))
            self._known = version, rows
        return ReplicaView(tuple(_among(row, registered) for row in rows))

    def measured(self, page: ReplicaList) -> ReplicaList:
        """A page with how far the copies on it are, as their brokers say."""
        places = tuple(row.partition.place for row in page.rows)
        if not places:
            return page
        try:
            rows = self._cache.get(("replicas", places), lambda: self._measure(page.rows))
        except HermesError as error:
            return replace(page, error=str(error))
        return replace(page, rows=rows)

    def _measure(self, rows: Sequence[ReplicaRow]) -> tuple[ReplicaRow, ...]:
        return self._cluster.with_kafka_replicas(lambda replicas: self._asked(replicas, rows))

    def _asked(self, replicas: KafkaReplicas, rows: Sequence[ReplicaRow]) -> tuple[ReplicaRow, ...]:
        brokers = replicas.brokers()
        partitions = [row.partition for row in rows]
        ends = replicas.ends(partitions, brokers)
        moving = [each for each in partitions if each.is_moving]
        starts, sizes = replicas.starts(moving, brokers), replicas.sizes(moving, brokers)
        least = replicas.min_in_sync(dict.fromkeys(row.topic for row in rows))
        rates = self._grown(rows, ends)
        return tuple(
            replace(
                row,
                ends=ends.get(row.partition.place, {}),
                start=starts.get(row.partition.place),
                min_in_sync=least.get(row.topic),
                rates=rates.get(row.partition.place, {}),
                sizes=sizes.get(row.partition.place, {}),
            )
            for row in rows
        )

    def _grown(
        self, rows: Iterable[ReplicaRow], ends: Mapping[Place, Mapping[int, int]]
    ) -> dict[Place, dict[int, float]]:
        """How fast copies that are being made grow."""
        copied: dict[Any, int] = {
            (row.partition.place, each): ends[row.partition.place][each]
            for row in rows
            for each in row.partition.adding
            if each in ends.get(row.partition.place, {})
        }
        rates: dict[Place, dict[int, float]] = {}
        with self._lock:
            grown: dict[Any, float] = self._rates.add(time.monotonic(), copied)
            for (place, broker_id), rate in grown.items():
                rates.setdefault(place, {})[broker_id] = rate
        return rates

    def is_embedded(self) -> bool:
        """Whether coordination is one process, in one of the brokers, as far as they tell."""
        at, known = self._embedded
        if time.monotonic() - at < _EMBEDDED_SECONDS:
            return known
        found = any(
            each.supports(DescribeSettingsRequest.TYPE) and self._embeds(each.address)
            for each in self._cluster.read(())
        )
        self._embedded = time.monotonic(), found
        return found

    def _embeds(self, address: BrokerAddress) -> bool:
        try:
            settings = self._cluster.ask(address, SimpleConsumer.describe_settings)
        except HermesError:  # it doesn't answer, or not this user
            return False
        return any((each.name, each.value) == ("coordination", "embedded") for each in settings)


def _among(row: ReplicaRow, registered: Collection[int]) -> ReplicaRow:
    partition = row.partition
    if partition.leader not in registered:
        partition = partition._replace(leader=NOBODY)
    return replace(row, partition=partition, registered=registered)
