"""What `hermes groups` does with groups of Kafka's consumers: their coordinators are asked."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from hermes.client.kafka_brokers import Address, KafkaBrokers
from hermes.client.places import PartitionPlace
from hermes.coordination.kafka_group_state import assigned_partitions
from hermes.errors import SILENT, ClientError, GroupActiveError, HermesError
from hermes.security import ClientSecurity

#: ListOffsets' words for where a partition ends and begins.
_LATEST: Final = -1
_EARLIEST: Final = -2

#: How ListGroups calls groups that share by the coordinator's assignors (KIP-848).
_MODERN: Final = "consumer"

#: Kafka's errors that need a word of ours; others are shown by their names.
_WORDS: Final = {
    "group_id_not_found": "there is no such group (hermes groups list shows all)",
    "non_empty_group": "it has members: stop them first",
    "unknown_member_id": "it has members: stop them first",
    "group_authorization_failed": "you may not do this with it",
    "coordinator_not_available": "no broker coordinates it yet: try again in a moment",
    "coordinator_load_in_progress": "its coordinator still reads it: try again in a moment",
    "not_coordinator": "it moves to another coordinator: try again in a moment",
}

_TopicPartition = tuple[str, int]


class LeaderlessError(ClientError):
    """The broker that has a partition is down, and no longer registered."""


class ElsewhereError(ClientError):
    """A group, or a partition, is another broker's than the one that was asked alone."""


class KafkaMember(NamedTuple):
    name: str
    partitions: frozenset[_TopicPartition]


class KafkaGroups(KafkaBrokers):
    """The groups of a cluster, by Kafka's protocol.

    Args:
        is_alone: whether the broker that is reached is asked for everything, without a question
            where things are; what is another one's raises ElsewhereError.
    """

    def __init__(
        self,
        places: Iterable[Address],
        timeout_seconds: float,
        security: ClientSecurity,
        *,
        is_alone: bool = False,
    ) -> None:
        super().__init__(places, timeout_seconds, security)
        self._is_alone = is_alone
        self._leaders: dict[str, dict[int, Address | None]] = {}

    # -- asking ---------------------------------------------------------------------------------

    def groups(self) -> list[tuple[str, int]]:
        """List the groups with how many members each has, sorted; see `faults`."""
        found: dict[str, int] = {}
        for broker in self.metadata(()).brokers:
            try:
                found |= self._groups_of((broker.host, broker.port), broker.node_id)
            except SILENT:
                continue
        return sorted(found.items())

    def _groups_of(self, place: Address, broker_id: int) -> dict[str, int]:
        answer = self.ask(place, "ListGroups", 5)
        _check(answer.error_code, f"the groups of broker {broker_id}")
        modern = {e.group_id for e in answer.groups if e.group_type == _MODERN}
        names = [e.group_id for e in answer.groups if e.group_id not in modern]
        described = [*self.ask(place, "DescribeGroups", 5, groups=names).groups] if names else []
        if modern:
            given = {"group_ids": sorted(modern), "include_authorized_operations": False}
            described += self.ask(place, "ConsumerGroupDescribe", 0, **given).groups
        return {each.group_id: len(each.members) for each in described}

    def members(self, group: str) -> list[KafkaMember]:
        """The members of a group, with what they have; ClientError if there is no such group."""
        given = {"group_ids": [group], "include_authorized_operations": False}
        home = self._home(group)
        (modern,) = self.ask(home, "ConsumerGroupDescribe", 0, **given).groups
        if not modern.error_code:
            return [_consumer(each) for each in modern.members]
        (found,) = self.ask(home, "DescribeGroups", 6, groups=[group]).groups
        _check(found.error_code, f"group {group!r}")
        return [
            KafkaMember(
                each.group_instance_id or f"{each.member_id} {each.client_host}",
                frozenset(assigned_partitions(bytes(each.member_assignment))),
            )
            for each in found.members
        ]

    def offsets(self, group: str) -> dict[_TopicPartition, int]:
        asked = [{"group_id": group, "topics": None}]
        (found,) = self.ask(self._home(group), "OffsetFetch", 8, groups=asked).groups
        _check(found.error_code, f"group {group!r}")
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in found.topics
            for each in topic.partitions
        }

    def offset_at(self, place: _TopicPartition, time_ms: int = _LATEST) -> int:
        """The first offset of a time or later; without one, where the partition ends.

        The time is in ms since 1970, or one of ListOffsets' own words. Raises ClientError if the
        partition isn't there, or its broker can't be reached.
        """
        topic, number = place
        partition = {
            "partition_index": number,
            "timestamp": time_ms,
            "current_leader_epoch": -1,
        }
        topics = [{"name": topic, "partitions": [partition]}]
        given = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        answer = self.ask(self._leader(place), "ListOffsets", 5, **given)
        (found,) = answer.topics[0].partitions
        _check(found.error_code, f"{topic} {number}")
        if found.offset < 0:  # nothing is as late
            return self.offset_at(place)
        return int(found.offset)

    def reset(self, place: _TopicPartition, stored: int, where: PartitionPlace) -> int:
        """Find the offset that a place stands for.

        Raises HermesError, which names the partition.
        """
        try:
            return self._placed(place, stored, where)
        except SILENT as error:  # which names the broker
            raise ClientError(f"{place[0]} {place[1]}: {error}") from error

    def _placed(self, place: _TopicPartition, stored: int, where: PartitionPlace) -> int:
        earliest, latest = self.offset_at(place, _EARLIEST), self.offset_at(place)
        if where.kind == "time":
            found = {_EARLIEST: earliest, _LATEST: latest}.get(where.value)
            return self.offset_at(place, where.value) if found is None else found
        wanted = where.value + (stored if where.kind == "shift" else 0)
        inside = min(max(wanted, earliest), latest)
        if where.kind == "offset" and inside != wanted:
            raise HermesError(
                f"{place[0]} {place[1]}: offset {wanted} is outside the log: it holds "
                f"[{earliest}, {latest}]"
            )
        return inside

    # -- changing -------------------------------------------------------------------------------

    def store(self, group: str, offsets: Mapping[_TopicPartition, int]) -> None:
        """Commit offsets of a group without members; GroupActiveError if it has some."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), offset in offsets.items():
            topics.setdefault(topic, []).append(
                {"partition_index": number, "committed_offset": offset, "committed_metadata": ""}
            )
        answer = self.ask(
            self._home(group),
            "OffsetCommit",
            8,
            group_id=group,
            member_id="",
            generation_id_or_member_epoch=-1,
            topics=[{"name": name, "partitions": each} for name, each in topics.items()],
        )
        for topic in answer.topics:
            for each in topic.partitions:
                _check(each.error_code, f"group {group!r}, {topic.name} {each.partition_index}")

    def delete(self, group: str) -> None:
        """Delete a group without members, with its offsets; GroupActiveError if it has some."""
        answer = self.ask(self._home(group), "DeleteGroups", 2, groups_names=[group])
        _check(answer.results[0].error_code, f"group {group!r}")

    # -- where things are -----------------------------------------------------------------------

    def _home(self, group: str) -> Address:
        if self._is_alone:
            return self.first
        answer = self.ask(self.first, "FindCoordinator", 4, coordinator_keys=[group])
        (found,) = answer.coordinators
        _check(found.error_code, f"group {group!r}")
        self.ids[found.host, found.port] = found.node_id
        return found.host, found.port

    def _leader(self, place: _TopicPartition) -> Address:
        if self._is_alone:
            return self.first
        topic, number = place
        if topic not in self._leaders:
            answer = self.metadata([{"name": topic}])
            brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
            self._leaders[topic] = {
                each.partition_index: brokers.get(each.leader_id)
                for each in answer.topics[0].partitions
            }
        try:
            leader = self._leaders[topic][number]
        except KeyError:
            raise ClientError(f"{topic} {number}: there is no such partition now") from None
        if leader is None:
            raise LeaderlessError(f"{topic} {number}: the broker that has it is down")
        return leader


def _consumer(member: Any) -> KafkaMember:
    return KafkaMember(
        member.instance_id or f"{member.member_id} {member.client_host}",
        frozenset(
            (topic.topic_name, number)
            for topic in member.assignment.topic_partitions
            for number in topic.partitions
        ),
    )


def _check(code: Any, what: str) -> None:
    if not code:
        return
    kind: type[HermesError] = ClientError
    if code.name in ("non_empty_group", "unknown_member_id"):
        kind = GroupActiveError
    elif code.name in ("not_coordinator", "not_leader_or_follower"):
        kind = ElsewhereError
    raise kind(f"{what}: {_WORDS.get(code.name, code.name.upper())}")
