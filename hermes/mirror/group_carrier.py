"""Carries offsets of Kafka's groups over to the target, translated, again and again.

So a group can go on in the target at any time, though its own cluster is gone. An offset is stored
where the group has none there, or a smaller one, and only while it has no members there: where it
reads by itself, it knows better. The target has to be a Hermes that keeps positions of sources.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hermes.client.mirrored import MirroredPartitions, source_name
from hermes.client.translation import SourceMap, translate
from hermes.config.mirror import MirrorConfig
from hermes.coordination.topic_filters import Whitelist
from hermes.errors import BrokerUnavailableError, HermesError, UnknownTopicError
from hermes.mirror.figures import PartitionFigures, Problems
from hermes.mirror.kafka_cluster import KafkaCluster, RefusedError, check, kafka_partition
from hermes.mirror.mirror_source import MirrorSource
from hermes.mirror.planning_queries import Target

_EVERY_SECONDS: Final = 10.0
_TIMEOUT_SECONDS: Final = 10.0
_WHAT: Final = "groups' offsets"
#: What a coordinator says of a commit for a group that has members.
_HAS_MEMBERS: Final = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH")

_Place = tuple[str, int]


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
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hermes-groups", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    # -- inside ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.wait(_EVERY_SECONDS):
            try:
                self._carry()
                self._problems.end(_WHAT)
            except Exception as error:
                known = isinstance(error, HermesError)
                self._problems.begin(_WHAT, str(error) if known else repr(error))

    def _carry(self) -> None:
        topics = {(each.source, each.topic): each.target_topic for each in self._known()}
        target = self._target.kafka
        if target is None:
            raise BrokerUnavailableError("no broker of the target serves Kafka's clients")
        maps = {each: self._maps(each) for each in set(topics.values())}
        for name, source in self._sources.items():
            if source.kafka is None:
                continue
            for group in _groups_of(source.kafka):
                if not self._chosen.allows(group):
                    continue
                found = _offsets_of(source.kafka, group)
                read = {p: at for p, at in found.items() if (name, p[0]) in topics}
                places = {
                    source_name(source.cluster_id(), topic, *kafka_partition(number)): offset
                    for (topic, number), offset in read.items()
                }
                wanted = {
                    (target_topic, each.partition): place.offset
                    for target_topic in {topics[name, topic] for topic, _ in read}
                    for each in maps[target_topic]
                    if (place := translate(each, places)) is not None and not place.unread
                }
                _store(target, group, wanted)

    def _known(self) -> list[PartitionFigures]:
        return list(self._figures.values())

    def _maps(self, topic: str) -> Sequence[SourceMap]:
        """Where the partitions of a topic of the target have their sources."""
        found: list[SourceMap] = []
        for address in self._target.addresses():
            with MirroredPartitions(
                *address,
                timeout_seconds=_TIMEOUT_SECONDS,
                security=self._target.address.security,
            ) as broker:
                try:
                    told = broker.positions(topic)
                except UnknownTopicError:
                    continue
                found += [broker.source_map(topic, each.partition) for each in told]
        return found


def _groups_of(cluster: KafkaCluster) -> set[str]:
    found = set()
    for broker_id in cluster.look(()).brokers:
        answer = cluster.ask(broker_id, "ListGroups", 4)
        check(answer.error_code, "the source's groups")
        found |= {each.group_id for each in answer.groups}
    return found


def _offsets_of(cluster: KafkaCluster, group: str) -> dict[_Place, int]:
    asked = [{"group_id": group, "topics": None}]
    answer = cluster.ask_coordinator(group, "OffsetFetch", 8, groups=asked)
    (found,) = answer.groups
    check(found.error_code, f"group {group!r}")
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in found.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def _store(target: KafkaCluster, group: str, wanted: Mapping[_Place, int]) -> None:
    if not wanted:
        return
    there = _offsets_of(target, group)
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, number), offset in wanted.items():
        if offset > there.get((topic, number), -1):
            partition = {"partition_index": number, "committed_offset": offset}
            topics.setdefault(topic, []).append(
                {**partition, "committed_leader_epoch": -1, "committed_metadata": ""}
            )
    if not topics:
        return
    answer = target.ask_coordinator(
        group,
        "OffsetCommit",
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": name, "partitions": each} for name, each in topics.items()],
    )
    for stored in answer.topics:
        for each in stored.partitions:
            try:
                check(each.error_code, f"group {group!r} of the target")
            except RefusedError as error:
                if error.name not in _HAS_MEMBERS:
                    raise
