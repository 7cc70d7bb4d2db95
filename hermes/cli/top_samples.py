"""Samples what brokers and groups report, and computes how fast that changes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hermes.cli.options import BrokerOption, CommandConnection
from hermes.cli.parallel_requests import ParallelRequests
from hermes.cli.registered_cluster import start_session
from hermes.client import SimpleConsumer
from hermes.coordination.cluster_view import read_brokers
from hermes.coordination.group_state import lag_between, list_groups, read_group
from hermes.coordination.layout import BrokerNode, BrokerPartition
from hermes.coordination.sessions import Session
from hermes.errors import (
    SILENT,
    BrokerTimeoutError,
    ClientError,
    CoordinationError,
    CoordinationUnavailableError,
    HermesError,
)
from hermes.protocol import BrokerMetadata

_Place = tuple[str, BrokerPartition]

_COORDINATION: Final = "coordination"


@dataclass(slots=True)
class Sample:
    """What was reported at one moment.

    Attributes:
        seconds: when, on a monotonic clock.
        ends: the high watermark of each partition, by topic and name.
        sizes: the bytes of each partition, likewise.
        offsets: by group and partition.
        counting: the topics whose offsets count messages, not bytes.
        answered, unanswered: the ids of the brokers that were asked.
    """

    seconds: float
    ends: dict[_Place, int] = field(default_factory=dict)
    sizes: dict[_Place, int] = field(default_factory=dict)
    partition_counts: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, dict[_Place, int]] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    counting: set[str] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    unanswered: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


class TopicSample(NamedTuple):
    """A topic, its size and its growth (None if that isn't known yet)."""

    topic: str
    partitions: int
    size_bytes: int
    bytes_per_second: float | None


class LagSample(NamedTuple):
    """A group's lag in a topic, and how fast it changes.

    In bytes, or messages where the topic's offsets count these; the lag in the other unit is None.
    """

    group: str
    topic: str
    members: int
    lag_bytes: int | None
    lag_messages: int | None
    change_per_second: float | None


class _Coordinated(NamedTuple):
    """What coordination has: groups as in `Sample`, and the registered brokers."""

    members: dict[str, int]
    offsets: dict[str, dict[_Place, int]]
    nodes: dict[int, BrokerNode]
    faults: list[str]


class TopSampler:
    """Asks brokers, and coordination about groups; the constructor asks nobody.

    Args:
        broker: the one to look at; None for all that are registered in ZooKeeper.
        zookeeper: where they are registered; None to ask the broker.
        patience_seconds: how long a sample waits for late brokers. They are left out of it, and
            of the next ones until they answer.
    """

    def __init__(
        self,
        broker: BrokerOption | None,
        zookeeper: str | None,
        connection: CommandConnection,
        groups: Sequence[str] = (),
        patience_seconds: float = 2.0,
    ) -> None:
        self._broker = broker
        self._zookeeper = zookeeper
        self._connection = connection
        self._groups = groups
        self._requests = ParallelRequests(patience_seconds)
        self._consumers: dict[BrokerOption, SimpleConsumer] = {}
        self._session: Session | None = None
        self._nodes: dict[int, BrokerNode] = {}
        self._no_groups = ""  # why there are none

    def close(self) -> None:
        """Disconnect, except from those still being asked: closing would wait for them."""
        for address, consumer in self._consumers.items():
            if not self._requests.is_open(address):
                consumer.close()
        if self._session is not None and not self._requests.is_open(_COORDINATION):
            self._session.stop()

    def take(self, seconds: float, *, needs_one: bool = True) -> Sample:
        """Ask all; of several brokers, one that doesn't answer is among the faults.

        `needs_one`: whether to wait as long as a request may take if nobody answers. Raises
        HermesError: no broker, or ZooKeeper, can be reached.
        """
        sample = Sample(seconds)
        if self._broker is not None and self._session is None:
            # Its failure is not its coordination's.
            self._ask_one(self._broker, Sample(seconds), needs_one=needs_one)
        # Before the ends, so that no offset is beyond one only because it is newer.
        self._ask_coordination(sample)
        if self._broker is not None:
            self._ask_one(self._broker, sample, needs_one=needs_one)
        else:
            self._ask_all(self._nodes, sample, needs_one=needs_one)
        sample.faults += _beyond(sample)
        return sample

    def _ask_one(self, address: BrokerOption, sample: Sample, *, needs_one: bool) -> None:
        asked = self._requests.ask({address: self._question(address)}, needs_one=needs_one)
        if address not in asked:
            raise BrokerTimeoutError(f"{address} has not answered yet")
        _add_broker(sample, asked[address].result())

    def _ask_all(self, nodes: Mapping[int, BrokerNode], sample: Sample, *, needs_one: bool) -> None:
        places = {number: BrokerOption(node.host, node.port) for number, node in nodes.items()}
        questions = {address: self._question(address) for address in places.values()}
        asked = self._requests.ask(questions, needs_one=needs_one)
        failure: HermesError = BrokerTimeoutError("no broker has answered yet")
        for broker_id, address in places.items():
            try:
                answer = asked.get(address)
                # In the same words while it is waited for, and when that has taken too long.
                if answer is None or isinstance(answer.exception(), BrokerTimeoutError):
                    raise BrokerTimeoutError(f"nothing comes from {address}")
                _add_broker(sample, answer.result())
            except SILENT as error:
                sample.faults.append(f"broker {broker_id} does not answer: {error}")
                sample.unanswered.add(broker_id)
                failure = error
        if not sample.answered:
            raise failure

    def _question(self, address: BrokerOption) -> Callable[[], BrokerMetadata]:
        if address not in self._consumers:
            self._consumers[address] = address.consumer(self._connection)
        return self._consumers[address].metadata

    def _opened(self) -> Session:
        if self._session is None:
            connect = self._zookeeper
            if connect is None:
                assert self._broker is not None
                connect = self._consumers[self._broker].coordination()
            self._session = start_session(connect, self._connection)
        return self._session

    def _ask_coordination(self, sample: Sample) -> None:
        """Add the groups; remember the brokers for while coordination is silent."""
        if self._no_groups:
            sample.faults.append(self._no_groups)
            return
        asked = self._requests.ask(
            {_COORDINATION: self._read_coordination}, needs_one=self._session is None
        )
        if _COORDINATION not in asked:
            sample.faults.append("no groups: their coordination is silent")
            return
        try:
            found: _Coordinated = asked[_COORDINATION].result()
        except ClientError as error:
            if self._groups:
                raise
            self._no_groups = f"no groups: {error}"  # it won't have any later, either
            sample.faults.append(self._no_groups)
            return
        if self._broker is None and not found.nodes:
            raise CoordinationError(f"{self._zookeeper} has no broker: is one running?")
        self._nodes = found.nodes
        sample.members, sample.offsets = found.members, found.offsets
        sample.faults += found.faults

    def _read_coordination(self) -> _Coordinated:
        session = self._opened()
        found = _Coordinated({}, {}, {}, [])
        for group in self._groups or list_groups(session):
            try:
                state = read_group(session, group)
            except CoordinationError as error:
                if self._groups or isinstance(error, CoordinationUnavailableError):
                    raise
                continue  # it was deleted meanwhile
            found.members[group] = len(state.members)
            found.offsets[group] = {
                place: offset for place, offset in state.offsets.items() if isinstance(offset, int)
            }
        if self._broker is None:
            nodes = read_brokers(session, lambda fault: found.faults.append(str(fault)))
            found.nodes.update(nodes)
        return found


def _add_broker(sample: Sample, answer: BrokerMetadata) -> None:
    sample.answered.add(answer.broker_id)
    for topic in answer.topics:
        homes = topic.homes
        count = sample.partition_counts.get(topic.topic, 0)
        sample.partition_counts[topic.topic] = count + len(topic.numbers)
        if topic.holds_records:
            sample.counting.add(topic.topic)
        for each in topic.partitions:
            home = homes.get(each.partition, answer.broker_id)
            place = topic.topic, BrokerPartition(home, each.partition)
            sample.ends[place] = each.high_watermark
            sample.sizes[place] = each.size_bytes


def topic_rows(now: Sample, before: Sample | None) -> list[TopicSample]:
    rows = []
    for topic, count in now.partition_counts.items():
        places = [place for place in now.ends if place[0] == topic]
        size = sum(now.sizes[place] for place in places)
        rate = None
        if before is not None:
            grown = sum(_written(now, before, place) for place in places)
            rate = grown / (now.seconds - before.seconds)
        rows.append(TopicSample(topic, count, size, rate))
    return sorted(rows, key=lambda row: (-(row.bytes_per_second or 0), -row.size_bytes, row.topic))


def lag_rows(now: Sample, before: Sample | None) -> list[LagSample]:
    lags = _lags(now)
    earlier = {} if before is None else _lags(before)
    rows = []
    for (group, topic), lag in lags.items():
        change = None
        is_known = (group, topic) in earlier
        if before is not None and is_known and _is_comparable(now, before, topic):
            change = (lag - earlier[group, topic]) / (now.seconds - before.seconds)
        in_bytes, in_messages = (None, lag) if topic in now.counting else (lag, None)
        rows.append(LagSample(group, topic, now.members[group], in_bytes, in_messages, change))
    rows.sort(key=lambda row: (row.group, row.topic))
    return sorted(rows, key=lambda row: row.lag_bytes or row.lag_messages or 0, reverse=True)


def _is_comparable(now: Sample, before: Sample, topic: str) -> bool:
    """Whether a lag that differs has changed: in one unit, with the same brokers' partitions."""
    has_same_unit = (topic in now.counting) == (topic in before.counting)
    return has_same_unit and now.answered == before.answered


def _written(now: Sample, before: Sample, place: _Place) -> int:
    """How many bytes were appended to a partition; by its size where offsets count messages."""
    if place not in before.ends and place[1].broker_id not in before.answered:
        return 0  # it had some already, but nobody knows how many
    if place[0] not in now.counting:
        return _grown(now.ends[place], before.ends.get(place, 0))
    # What is deleted makes it smaller, and hides what is new.
    return max(now.sizes[place] - before.sizes.get(place, 0), 0)


def _grown(now: int, before: int) -> int:
    """How far an end has moved; one that went back is another log's, and all of it is new."""
    return now - before if now >= before else now


def _lags(sample: Sample) -> dict[tuple[str, str], int]:
    """By group and topic; without partitions in which it isn't known."""
    lags: dict[tuple[str, str], int] = {}
    for group, offsets in sample.offsets.items():
        for place, offset in offsets.items():
            lag = lag_between(offset, sample.ends.get(place))
            if lag is not None:
                key = group, place[0]
                lags[key] = lags.get(key, 0) + lag
    return lags


def _beyond(sample: Sample) -> Iterator[str]:
    for group, offsets in sample.offsets.items():
        topics = {
            place[0]
            for place, offset in offsets.items()
            if place in sample.ends and offset > sample.ends[place]
        }
        for topic in sorted(topics):
            yield (
                f"group {group!r} has offsets of {topic} beyond its end, which are left out: was "
                "the topic created again? (hermes groups describe shows them)"
            )
