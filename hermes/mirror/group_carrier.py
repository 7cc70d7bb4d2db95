"""Carries offsets of groups over to the target, translated, again and again.

So a group can go on in the target at any time, though its own cluster is gone. An offset is stored
where the group has none there, or a smaller one, and only while it has no members there: where it
reads by itself, it knows better. The target has to be a Hermes that keeps positions of sources.

Groups of Kafka's clients are asked of a source's brokers, those of Hermes' own are read in its
coordination, and each is stored where its clients look in the target.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from hermes.client.mirrored import MirroredPartitions, source_name
from hermes.client.translation import SourceMap, translate
from hermes.config.mirror import MirrorConfig
from hermes.coordination.cluster_view import record_names
from hermes.coordination.group_state import advance_offsets, list_groups, read_group
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.coordination.topic_filters import Whitelist
from hermes.errors import (
    BrokerError,
    BrokerUnavailableError,
    HermesError,
    InvalidNodeError,
    UnknownTopicError,
)
from hermes.mirror.figures import PartitionFigures, Problems
from hermes.mirror.kafka_cluster import KafkaCluster, Place, check, kafka_partition
from hermes.mirror.mirror_source import MirrorSource
from hermes.mirror.planning_queries import Target

_EVERY_SECONDS: Final = 10.0
_TIMEOUT_SECONDS: Final = 10.0
_OWN_GROUPS: Final = "hermes-"
#: What a coordinator says of a commit for a group that has members.
_HAS_MEMBERS: Final = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH")

_Named = tuple[str, BrokerPartition]


class GroupCarrier:
    """Works in a thread of its own; `figures` says what is mirrored."""

    def __init__(
        self,
        config: MirrorConfig,
        sources: Mapping[str, MirrorSource],
        target: Target,
        figures: Mapping[Any, PartitionFigures],
        problems: Problems,
    ) -> None:
        assert config.groups is not None
        self._chosen = Whitelist(config.groups)
        self._sources = sources
        self._target = target
        self._figures = figures
        self._problems = problems
        # With the coordination of sources whose topics are read by Kafka's protocol.
        self._opened: dict[str, Session] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hermes-groups", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def carry(self, source: MirrorSource) -> None:
        """Carry over what groups of a source have read.

        Of a topic's partitions, it is asked where they have their sources if a group reads them.

        Raises HermesError: somebody doesn't answer; or, once all others are carried over, a group
        is refused.
        """
        refusals: list[HermesError] = []
        figures = [each for each in list(self._figures.values()) if each.source == source.name]
        topics = {each.topic: each.target_topic for each in figures}
        maps = cache(self._maps)

        def translated(offsets: Mapping[_Named, int]) -> dict[_Named, int]:
            """Of the target, by its names of partitions; offsets by those that the mirror has."""
            read = {place: at for place, at in offsets.items() if place[0] in topics}
            cluster_id = source.cluster_id()
            places = {source_name(cluster_id, t, *name): at for (t, name), at in read.items()}
            return {
                (target_topic, name): place.offset
                for target_topic in {topics[topic] for topic, _ in read}
                for name, each in maps(target_topic)
                if (place := translate(each, places)) is not None and not place.unread
            }

        if source.kafka is not None:
            target = self._target.kafka
            if target is None:
                raise BrokerUnavailableError("no broker of the target serves Kafka's clients")
            for group in filter(self._is_carried, _groups_of(source.kafka)):
                with _noted(refusals):
                    wanted = translated(_kafkas_offsets_of(source.kafka, group))
                    _store(target, group, {(t, n.partition): at for (t, n), at in wanted.items()})
        session = self._session(source)
        for group in filter(self._is_carried, () if session is None else list_groups(session)):
            assert session is not None
            with _noted(refusals):
                wanted = translated(_own_offsets_of(session, group))
                if wanted and self._target.session is None:
                    raise BrokerUnavailableError("the target has no coordination to store them in")
                if wanted:
                    assert self._target.session is not None
                    advance_offsets(self._target.session, group, wanted)
        if refusals:
            raise refusals[0]

    # -- inside ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.wait(_EVERY_SECONDS):
            for source in self._sources.values():
                what = f"source {source.name}: groups' offsets"
                try:
                    self.carry(source)
                    self._problems.end(what)
                except Exception as error:
                    known = isinstance(error, HermesError)
                    self._problems.begin(what, str(error) if known else repr(error))
        for session in self._opened.values():
            session.stop()

    def _is_carried(self, group: str) -> bool:
        """Mirrors and audits are groups as well, each of its own cluster."""
        return self._chosen.allows(group) and not group.startswith(_OWN_GROUPS)

    def _session(self, source: MirrorSource) -> Session | None:
        """With a source's coordination, where groups of Hermes' own clients have their offsets."""
        connect = source.address.zookeeper
        if source.kafka is None or not connect:
            return source.session
        if source.name not in self._opened:
            session = Session(connect, security=source.address.security)
            session.start()
            self._opened[source.name] = session
        return self._opened[source.name]

    def _maps(self, topic: str) -> list[tuple[BrokerPartition, SourceMap]]:
        """Where the partitions of a topic of the target, by their names, have their sources."""
        found: list[tuple[BrokerPartition, SourceMap]] = []
        session = self._target.session
        names = () if session is None else record_names(session, topic)
        for broker_id, address in self._target.addresses().items():
            with MirroredPartitions(
                *address,
                timeout_seconds=_TIMEOUT_SECONDS,
                security=self._target.address.security,
            ) as broker:
                try:
                    told = broker.positions(topic)
                except UnknownTopicError:
                    continue
                for each in told:
                    number = each.partition
                    name = names[number] if number < len(names) else (broker_id, number)
                    there = broker.source_map(topic, number)
                    found.append((BrokerPartition(*name), there))
        return found


def mirrored_names(session: Session, topic: str) -> dict[BrokerPartition, BrokerPartition]:
    """What mirrors call the partitions of a topic of Kafka's format; empty for one of 0.7's."""
    names = record_names(session, topic)
    return {name: kafka_partition(number) for number, name in enumerate(names)}


@contextmanager
def _noted(refusals: list[HermesError]) -> Iterator[None]:
    """What is refused of one group holds up no other."""
    try:
        yield
    except (BrokerError, InvalidNodeError) as error:
        refusals.append(error)


def _kafkas_offsets_of(cluster: KafkaCluster, group: str) -> dict[_Named, int]:
    offsets = cluster.committed(group)
    return {(topic, kafka_partition(number)): at for (topic, number), at in offsets.items()}


def _own_offsets_of(session: Session, group: str) -> dict[_Named, int]:
    """What a group of Hermes' own clients has stored, by what mirrors call the partitions."""
    read = read_group(session, group).offsets
    names = {topic: mirrored_names(session, topic) for topic, _ in read}
    return {
        (topic, names[topic].get(name, name)): offset
        for (topic, name), offset in read.items()
        if isinstance(offset, int)
    }


def _groups_of(cluster: KafkaCluster) -> set[str]:
    found = set()
    for broker_id in cluster.look(()).brokers:
        answer = cluster.ask(broker_id, "ListGroups", 4)
        check(answer.error_code, "the source's groups")
        found |= {each.group_id for each in answer.groups}
    return found


def _store(target: KafkaCluster, group: str, wanted: Mapping[Place, int]) -> None:
    if not wanted:
        return
    there = target.committed(group)
    further = {place: at for place, at in wanted.items() if at > there.get(place, -1)}
    for code in target.commit(group, further).values():
        if code.name.upper() not in _HAS_MEMBERS:
            check(code, f"group {group!r} of the target")
