"""What is asked of the clusters to plan claims, and how the target's positions are read."""

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from hermes.coordination.layout import BrokerPartition
from hermes.errors import BrokerUnavailableError
from hermes.mirror.in_step import TopicsInStep
from hermes.mirror.kafka_target import KafkaTarget
from hermes.mirror.mirror_source import MirrorSource
from hermes.mirror.source_claim import SourceClaim
from hermes.mirror.target_cluster import TargetCluster
from hermes.protocol import MirroredSet, SourceFlags

Target: TypeAlias = TargetCluster | KafkaTarget


class ClusterQueries:
    """What the clusters answer in one round of planning, each asked once."""

    def __init__(
        self, target: Target, sources: Mapping[str, MirrorSource], in_step: TopicsInStep
    ) -> None:
        self._targets = cache(target.partitions)
        self._record_targets = cache(self._look_at_records)
        self._target, self._sources, self._in_step = target, sources, in_step
        self.positions = cache(target.positions)
        self._holds_records = cache(
            lambda source, topic, broker_id: sources[source].holds_records(topic, broker_id)
        )
        self._places = cache(lambda source, topic: sources[source].partitions(topic))

    def holds_records(self, claim: SourceClaim) -> bool:
        """Whether it is, and the source is read in a way that doesn't bring its batches."""
        if claim.holds_records:
            return False
        return self._holds_records(claim.source, claim.topic, claim.partition.broker_id)

    def targets(self, claim: SourceClaim) -> tuple[BrokerPartition, ...]:
        """The target's partitions of a claim's topic, which is made where it has to be."""
        topic = claim.figures.target_topic
        if not claim.holds_records:
            return self._targets(topic)
        return self._record_targets(claim.source, claim.topic, topic)

    def _look_at_records(
        self, source: str, topic: str, target_topic: str
    ) -> tuple[BrokerPartition, ...]:
        wanted = len(self._places(source, topic))
        found = self._target.partitions(target_topic, wanted)
        if self._in_step.has_grown(target_topic, wanted, len(found)):
            found = self._target.partitions(target_topic, wanted)
            if len(found) < wanted:
                raise BrokerUnavailableError(f"topic {target_topic!r} is getting partitions")
        kafka = self._sources[source].kafka
        if kafka is not None:
            self._in_step.follow_settings(kafka, topic, target_topic)
        return found

    def index(self, claim: SourceClaim) -> int:
        if claim.holds_records:
            return claim.partition.partition
        known = {*self._places(claim.source, claim.topic), claim.partition}
        return sorted(known).index(claim.partition)


def empty_set(
    topic: str,
    target: BrokerPartition,
    source: str,
    begin: int,
    end: int,
    flags: SourceFlags = SourceFlags.NONE,
) -> MirroredSet:
    """Tells a partition how far it is in a source, without a message."""
    return MirroredSet(topic, target.partition, source, begin, end, flags, b"")


def latest_generation(
    name: str, known: Mapping[BrokerPartition, Mapping[str, int]]
) -> tuple[int, dict[BrokerPartition, int]]:
    """The highest generation of a source that the target has, with its positions; 0 for none."""
    found: dict[int, dict[BrokerPartition, int]] = {}
    for target, positions in known.items():
        for source, position in positions.items():
            plain, _, generation = source.partition("#")
            if plain == name and (not generation or generation.isdecimal()):
                found.setdefault(int(generation or 1), {})[target] = position
    highest = max(found, default=0)
    return highest, found.get(highest, {})
