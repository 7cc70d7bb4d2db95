"""Reads groups from coordination: of Hermes' own and Kafka 0.7's clients, and of Kafka's."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from hermes.console.group_views import KAFKA, OWN, MemberRow
from hermes.console.page_request import NoSuchPageError
from hermes.coordination.group_state import GroupState, list_groups, read_group, read_members
from hermes.coordination.kafka_group_state import (
    KafkaGroupMember,
    KafkaGroupState,
    count_members,
    list_kafka_groups,
    read_kafka_group,
)
from hermes.coordination.kafka_topics import NOBODY
from hermes.coordination.layout import BrokerPartition, Subscription, check_node_name
from hermes.coordination.sessions import Session
from hermes.coordination.topic_filters import Whitelist
from hermes.errors import ConfigError
from hermes.quoting import printable


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that a group reads, or has read.

    Attributes:
        place: None where it isn't known.
        name: `BROKER-NUMBER`, or Kafka's number where the place isn't known.
        offset: what is stored; None if nothing is, or nothing that can be parsed.
        owner: the stream, or the member, that owns it; empty for none.
        number: Kafka's number, of groups of Kafka's clients.
    """

    topic: str
    place: BrokerPartition | None
    name: str
    offset: int | None
    owner: str
    member: str
    number: int | None = None

    def label(self, is_numbered: bool) -> str:
        if is_numbered and self.place is not None:
            return str(self.place.partition)
        if self.number is None or self.place is None:
            return self.name
        return f"{self.number} ({self.place})"


@dataclass(frozen=True, slots=True)
class GroupContent:
    """A group.

    Attributes:
        faults: what can't be parsed.
        protocol: of Kafka's groups, `classic` or `consumer`.
        topics: those that should have an owner; None for all of which it has offsets.
    """

    members: tuple[MemberRow, ...]
    partitions: tuple[GroupPartition, ...]
    faults: tuple[str, ...]
    protocol: str = ""
    topics: frozenset[str] | None = None


class GroupSource(Protocol):
    """Reads groups of one kind. Methods may block, and raise HermesError."""

    kind: str

    def names(self, session: Session) -> list[str]: ...

    def count_members(self, session: Session, name: str) -> int: ...

    def check_name(self, name: str) -> None:
        """Raise NoSuchPageError for what can't be a group's name."""

    def read(self, session: Session, name: str) -> GroupContent: ...


class OwnGroupSource:
    kind = OWN

    def names(self, session: Session) -> list[str]:
        return list_groups(session)

    def count_members(self, session: Session, name: str) -> int:
        return len(read_members(session, name))

    def check_name(self, name: str) -> None:
        try:
            check_node_name("group", name)
        except ConfigError as error:
            raise NoSuchPageError(str(error)) from error

    def read(self, session: Session, name: str) -> GroupContent:
        state = read_group(session, name)
        partitions = tuple(_own_partitions(state))
        members = tuple(
            _member(each, wanted, sum(row.member == each for row in partitions))
            for each, wanted in state.members.items()
        )
        return GroupContent(members, partitions, tuple(map(str, state.unreadable())))


def _own_partitions(state: GroupState) -> Iterator[GroupPartition]:
    for topic, place in sorted({*state.owners, *state.offsets}):
        offset = stored_number(state.offsets.get((topic, place)))
        owner = state.owners.get((topic, place), "")
        yield GroupPartition(topic, place, str(place), offset, owner, owner.rpartition("-")[0])


def stored_number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _member(name: str, wanted: object, owns: int) -> MemberRow:
    if not isinstance(wanted, Subscription):
        return MemberRow(name, "?", owns)
    has_filter = wanted.topic_filter is not None
    return MemberRow(name, _wants(wanted), owns, frozenset(wanted.streams), has_filter)


def _wants(wanted: Subscription) -> str:
    if wanted.topic_filter is not None:
        but = "" if isinstance(wanted.topic_filter, Whitelist) else "all but "
        regex = printable(wanted.topic_filter.regex, 200)
        return f"{but}{regex} ({wanted.filter_streams} streams of each)"
    return ", ".join(
        f"{topic} ({count} stream{'s' if count != 1 else ''})"
        for topic, count in wanted.streams.items()
    )


class KafkaGroupSource:
    """Groups of Kafka's current clients, as their coordinators store them."""

    kind = KAFKA

    def names(self, session: Session) -> list[str]:
        return list_kafka_groups(session)

    def count_members(self, session: Session, name: str) -> int:
        return count_members(session, name)

    def check_name(self, name: str) -> None:
        """Any name is allowed."""

    def read(self, session: Session, name: str) -> GroupContent:
        state = read_kafka_group(session, name)
        topics = {topic for each in state.members for topic in each.topics}
        topics |= {topic for each in state.members for topic, _ in each.partitions}
        return GroupContent(
            tuple(map(_kafka_member, state.members)),
            tuple(_kafka_partitions(state)),
            tuple(map(str, state.faults)),
            state.kind,
            frozenset(topics),
        )


def _kafka_partitions(state: KafkaGroupState) -> Iterator[GroupPartition]:
    owners = {place: each.name for each in state.members for place in each.partitions}
    for topic, number in sorted({*owners, *state.offsets}):
        node = state.topics[topic]
        places = () if node is None else node.partitions
        place = places[number] if 0 <= number < len(places) else NOBODY
        known = None if place == NOBODY else place
        owner = owners.get((topic, number), "")
        offset = state.offsets.get((topic, number))
        yield GroupPartition(topic, known, str(known or number), offset, owner, owner, number)


def _kafka_member(member: KafkaGroupMember) -> MemberRow:
    wants = ", ".join(filter(None, [*member.topics, member.regex]))
    return MemberRow(
        member.name,
        f"{printable(wants, 200)} ({printable(member.client.strip(), 100)})",
        len(member.partitions),
        frozenset(member.topics) | {topic for topic, _ in member.partitions},
        bool(member.regex),
    )
