"""What `hermes replicas` asks brokers for: who has copies of partitions, and to change that.

Every request is one of Kafka's. Copies that don't lead are read as Kafka's own tools have read
them: by the replica id of a consumer that debugs, which any broker answers that has a copy.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hermes.client.kafka_brokers import Address, KafkaBrokers
from hermes.coordination.nodes import TreeSession
from hermes.coordination.replicas import ReplicaTree
from hermes.errors import ClientError, InvalidTopicError
from hermes.protocol import NOBODY, check_topic_name
from hermes.protocol.record_batches import BatchHeader, next_in
from hermes.security import ClientSecurity

Place = tuple[str, int]

_DEBUGGING_CONSUMER: Final = -2
_LATEST: Final = -1
_EARLIEST: Final = -2
_FETCH_BYTES: Final = 4 << 20
_PLACES_AT_ONCE: Final = 2000
_WITH_IDS: Final = 12
_BROKER: Final = 4
_TOPIC: Final = 2
_MIN_IN_SYNC: Final = "min.insync.replicas"
_SET: Final = 0
_DELETE: Final = 1
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")

#: Kafka's errors that are said in words of ours; others by the broker's, or by their names.
_WORDS: Final = {
    "unknown_topic_or_partition": "there is no such partition",
    "cluster_authorization_failed": "you may not do this: it takes `admin` of the cluster",
    "topic_authorization_failed": "you may not do this with the topic",
    "not_leader_or_follower": "it has no copy",
    "preferred_leader_not_available": "its preferred leader is not in sync, or down",
    "eligible_leaders_not_available": "no broker is there that has a copy",
    "request_timed_out": "coordination does not answer: look with `hermes replicas list` what was "
    "done, and try again",
}


class Broker(NamedTuple):
    address: Address
    rack: str


class Partition(NamedTuple):
    """Attributes: `adding`, `removing`: brokers that get and lose a copy, of a move under way."""

    place: Place
    leader: int
    epoch: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()

    @property
    def had(self) -> tuple[int, ...]:
        """The brokers that had a copy before a move began."""
        return tuple(each for each in self.replicas if each not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The brokers that have a copy once a move is done; the preferred leader first."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def is_settled(self) -> bool:
        """Whether it is led, all copies are in sync, and none moves."""
        return self.leader != NOBODY and not self.is_moving and self.in_sync >= set(self.replicas)

    @property
    def is_under_replicated(self) -> bool:
        """Whether a copy that was in sync, or should be by now, isn't."""
        return not self.in_sync >= set(self.replicas) - self.adding

    def why_not_in_sync(self, broker_id: int, registered: Container[int]) -> str:
        """Why a copy isn't in sync."""
        if broker_id not in registered:
            return "is down"
        if broker_id in self.adding:
            return "gets a copy"
        if self.leader == NOBODY:
            return "has nobody to follow"
        return "catches up"


class KafkaReplicas(KafkaBrokers):
    """The copies of partitions in a cluster. All methods raise ClientError."""

    def __init__(
        self,
        places: Iterable[Address],
        timeout_seconds: float,
        security: ClientSecurity,
        elsewhere: ClientSecurity | None = None,
    ) -> None:
        super().__init__(places, timeout_seconds, security, elsewhere)
        self._topic_ids: dict[str, Any] = {}

    def brokers(self) -> dict[int, Broker]:
        """The brokers that are registered."""
        return {
            each.node_id: Broker((each.host, each.port), each.rack or "")
            for each in self.metadata(()).brokers
        }

    def racks(self) -> dict[int, str]:
        return {broker_id: each.rack for broker_id, each in self.brokers().items()}

    def partitions(self, topics: Sequence[str] = ()) -> list[Partition]:
        """All partitions, or those of some topics, sorted; ClientError if one isn't there."""
        named = [{"name": each, "topic_id": None} for each in dict.fromkeys(topics)]
        moves = self._moves()
        found = []
        for topic in self.metadata(named or None, _WITH_IDS).topics:
            _check(topic.error_code, f"topic {topic.name!r}")
            self._topic_ids[topic.name] = topic.topic_id
            for each in topic.partitions:
                place = topic.name, each.partition_index
                adding, removing = moves.get(place, (frozenset(), frozenset()))
                found.append(
                    Partition(
                        place,
                        each.leader_id,
                        each.leader_epoch,
                        tuple(each.replica_nodes),
                        frozenset(each.isr_nodes),
                        adding,
                        removing,
                    )
                )
        return sorted(found)

    def _moves(self) -> dict[Place, tuple[frozenset[int], frozenset[int]]]:
        answer = self.ask(self.first, "ListPartitionReassignments", 0, topics=None)
        _check(answer.error_code, "moves under way")
        return {
            (topic.name, each.partition_index): (
                frozenset(each.adding_replicas),
                frozenset(each.removing_replicas),
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    # -- changes ----------------------------------------------------------------------------------

    def move(self, moves: Mapping[Place, Sequence[int] | None]) -> dict[Place, str]:
        """Begin to move partitions to brokers, or undo a move (None).

        Returns why some are not moved.
        """
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), target in moves.items():
            move = {"partition_index": number, "replicas": target}
            topics.setdefault(topic, []).append(move)
        asked = [{"name": name, "partitions": each} for name, each in topics.items()]
        answer = self.ask(self.first, "AlterPartitionReassignments", 0, topics=asked)
        _check(answer.error_code, "moves")
        return {
            (topic.name, each.partition_index): _told(each.error_code, each.error_message)
            for topic in answer.responses
            for each in topic.partitions
            if each.error_code
        }

    def elect(self, places: Iterable[Place] | None, *, is_unclean: bool) -> dict[Place, str]:
        """Have the preferred replicas lead, or any at all; of all partitions, or of some.

        Returns of each that was looked at why it has the leader that it had, "" where it has
        another one.
        """
        asked = None
        if places is not None:
            topics: dict[str, list[int]] = {}
            for topic, number in places:
                topics.setdefault(topic, []).append(number)
            asked = [{"topic": name, "partitions": each} for name, each in topics.items()]
        given = {"election_type": int(is_unclean), "topic_partitions": asked}
        answer = self.ask(self.first, "ElectLeaders", 2, **given)
        _check(answer.error_code, "elections")
        return {
            (topic.topic, each.partition_id): _told(each.error_code, each.error_message)
            if each.error_code
            else ""
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }

    def throttle(self, broker_ids: Iterable[int], bytes_per_second: int | None) -> None:
        """Bound how fast brokers send and fetch for moves; None: not at all."""
        operation = _DELETE if bytes_per_second is None else _SET
        value = None if bytes_per_second is None else str(bytes_per_second)
        configs = [{"name": name, "config_operation": operation, "value": value} for name in _RATES]
        resources = [
            {"resource_type": _BROKER, "resource_name": str(each), "configs": configs}
            for each in broker_ids
        ]
        answer = self.ask(
            self.first,
            "IncrementalAlterConfigs",
            1,
            resources=resources,
            validate_only=False,
        )
        for each in answer.responses:
            _check(each.error_code, f"broker {each.resource_name}", each.error_message)

    # -- copies -----------------------------------------------------------------------------------

    def is_compacted(self, topic: str) -> bool:
        (found,) = self._described([topic], "cleanup.policy")
        _check(found.error_code, f"topic {topic!r}")
        return any("compact" in (each.value or "") for each in found.configs)

    def min_in_sync(self, topics: Iterable[str]) -> dict[str, int]:
        """How many copies acks=all needs in sync; without topics that this isn't told of."""
        return {
            found.resource_name: int(each.value)
            for found in self._described(topics, _MIN_IN_SYNC)
            for each in found.configs
            if each.value is not None
        }

    def _described(self, topics: Iterable[str], key: str) -> Any:
        asked = [
            {"resource_type": _TOPIC, "resource_name": each, "configuration_keys": (key,)}
            for each in topics
        ]
        return self.ask(self.first, "DescribeConfigs", 4, resources=asked).results

    def ends(
        self, partitions: Iterable[Partition], brokers: Mapping[int, Broker]
    ) -> dict[Place, dict[int, int]]:
        """Up to where each copy has what is committed, by broker; without those that don't tell.

        Of partitions with one copy nothing is asked.
        """
        asked: dict[int, list[Place]] = {}
        for each in partitions:
            for broker_id in each.replicas if len(each.replicas) > 1 else ():
                asked.setdefault(broker_id, []).append(each.place)
        return self._offsets(asked, brokers, _LATEST)

    def sizes(
        self, partitions: Iterable[Partition], brokers: Mapping[int, Broker]
    ) -> dict[Place, dict[int, int]]:
        """How many bytes leaders have, and copies that aren't in sync, by broker.

        Without those that don't tell. Of partitions whose copies are all in sync nothing is asked.
        """
        asked: dict[int, dict[str, list[int]]] = {}
        for each in partitions:
            behind = set(each.replicas) - each.in_sync
            for broker_id in behind | {each.leader} if behind else ():
                topic, number = each.place
                asked.setdefault(broker_id, {}).setdefault(topic, []).append(number)
        found: dict[Place, dict[int, int]] = {}
        for broker_id in asked.keys() & brokers.keys():
            topics = [
                {"topic": name, "partitions": each} for name, each in asked[broker_id].items()
            ]
            try:
                answer = self.ask(brokers[broker_id].address, "DescribeLogDirs", 1, topics=topics)
            except ClientError:  # down, or not for this user
                continue
            for directory in answer.results:
                for told in directory.topics:
                    for one in told.partitions:
                        place = told.name, one.partition_index
                        found.setdefault(place, {})[broker_id] = one.partition_size
        return found

    def starts(
        self, partitions: Iterable[Partition], brokers: Mapping[int, Broker]
    ) -> dict[Place, int]:
        """Where partitions begin, as their leaders say; without those that don't tell."""
        asked: dict[int, list[Place]] = {}
        for each in partitions:
            asked.setdefault(each.leader, []).append(each.place)
        found = self._offsets(asked, brokers, _EARLIEST)
        return {place: start for place, told in found.items() for start in told.values()}

    def _offsets(
        self, asked: Mapping[int, Sequence[Place]], brokers: Mapping[int, Broker], time: int
    ) -> dict[Place, dict[int, int]]:
        found: dict[Place, dict[int, int]] = {}
        for broker_id, places in asked.items():
            for first in range(0, len(places) if broker_id in brokers else 0, _PLACES_AT_ONCE):
                some = places[first : first + _PLACES_AT_ONCE]
                try:
                    told = self._listed(brokers[broker_id], some, time)
                except ClientError:  # down, or not for this user
                    break
                for place, each in told:
                    if not each.error_code:
                        found.setdefault(place, {})[broker_id] = int(each.offset)
        return found

    def _listed(
        self, broker: Broker, places: Iterable[Place], time: int
    ) -> list[tuple[Place, Any]]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, number in places:
            each = {"partition_index": number, "timestamp": time, "current_leader_epoch": -1}
            topics.setdefault(topic, []).append(each)
        asked = [{"name": name, "partitions": each} for name, each in topics.items()]
        given = {"replica_id": _DEBUGGING_CONSUMER, "isolation_level": 0, "topics": asked}
        answer = self.ask(broker.address, "ListOffsets", 5, **given)
        return [
            ((topic.name, each.partition_index), each)
            for topic in answer.topics
            for each in topic.partitions
        ]

    def bounds(self, broker: Broker, place: Place) -> tuple[int, int]:
        """Where a broker's copy begins, and up to where it knows that it is committed."""
        return self._offset(broker, place, _EARLIEST), self._offset(broker, place, _LATEST)

    def _offset(self, broker: Broker, place: Place, time: int) -> int:
        ((_, found),) = self._listed(broker, [place], time)
        _check(found.error_code, f"{place[0]}:{place[1]}")
        return int(found.offset)

    def batches(
        self, broker: Broker, place: Place, start: int, end: int
    ) -> Iterator[tuple[BatchHeader, bytes]]:
        """Read a broker's copy from one offset to another, in whole batches."""
        at = start
        while at < end:
            before = at
            for header, batch in self._fetched(broker, place, at):
                if at <= header.last_offset and header.base_offset < end:
                    yield header, batch
                at = max(at, header.next_offset)
            if at == before:
                raise ClientError(f"{place[0]}:{place[1]} ends at {at}, before {end}")

    def _fetched(
        self, broker: Broker, place: Place, offset: int
    ) -> Iterator[tuple[BatchHeader, bytes]]:
        topic, number = place
        if topic not in self._topic_ids:
            self.partitions([topic])
        partition = {
            "partition": number,
            "fetch_offset": offset,
            "partition_max_bytes": _FETCH_BYTES,
        }
        answer = self.ask(
            broker.address,
            "Fetch",
            16,
            replica_state={"replica_id": _DEBUGGING_CONSUMER},
            max_wait=0,
            min_bytes=0,
            max_bytes=_FETCH_BYTES,
            topics=[{"topic_id": self._topic_ids[topic], "partitions": [partition]}],
        )
        _check(answer.error_code, f"{topic}:{number}")
        (found,) = answer.responses[0].partitions
        _check(found.error_code, f"{topic}:{number}")
        data = bytes(found.records or b"")
        position = 0
        while (header := next_in(data, position)) is not None:
            yield header, data[position : position + header.size_bytes]
            position += header.size_bytes


def stored_partitions(session: TreeSession) -> Iterator[tuple[Partition, int]]:
    """Partitions that have several copies, or get some, as coordination has them, sorted.

    Each with the last epoch that began with an unclean election; -1 for none.
    """
    tree = ReplicaTree(session)
    for topic, node in sorted(tree.read(tree.topics()).items()):
        for number, state in enumerate(node.partitions):
            if state is not None and (len(state.replicas) > 1 or state.adding):
                who = state.leader, state.epoch, state.replicas, state.isr
                move = state.adding, state.removing
                yield Partition((topic, number), *who, *move), state.unclean_epoch


def parse_place(text: str) -> Place:
    """Read `TOPIC:PARTITION`. Raises ValueError, which says what is expected."""
    topic, colon, number = text.rpartition(":")
    if not colon or not (number.isascii() and number.isdecimal()):
        raise ValueError(f"{text!r} is not TOPIC:PARTITION, such as clicks:0")
    try:
        check_topic_name(topic)
    except InvalidTopicError as error:
        raise ValueError(str(error)) from None
    return topic, int(number)


def parse_brokers(text: str) -> tuple[int, ...]:
    """Read `1,2,3`. Raises ValueError, likewise."""
    ids = text.split(",")
    if not all(each.isascii() and each.isdecimal() for each in ids):
        raise ValueError(f"{text!r} are not ids of brokers, such as 1,2,3")
    return tuple(map(int, ids))


def lags_of(partition: Partition, ends: Mapping[int, int]) -> dict[int, int]:
    """How many messages each copy lacks that the leader has, of those whose ends are known."""
    end = ends.get(partition.leader)
    if end is None:
        return {}
    return {each: max(0, end - has) for each, has in ends.items() if each != partition.leader}


def progress_of(
    partition: Partition, broker_id: int, sizes: Mapping[int, int]
) -> tuple[int, int] | None:
    """How many bytes a copy that isn't in sync has, and of how many; None where that isn't known.

    Copies that were compacted differently differ, so it is as many as the leader has at most.
    """
    has, of = sizes.get(broker_id), sizes.get(partition.leader)
    if has is None or of is None or broker_id in partition.in_sync:
        return None
    return min(has, of), of


def _check(code: Any, what: str, message: str | None = None) -> None:
    if not code:
        return
    raise ClientError(f"{what}: {_told(code, message)}")


def _told(code: Any, message: str | None) -> str:
    return _WORDS.get(code.name) or message or code.name.upper()
