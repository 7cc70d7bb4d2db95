"""What is asked of the clusters to plan claims, and how the target's positions are read."""

from collections.abc import Mapping
from functools import cache

from hermes.coordination.layout import BrokerPartition
from hermes.mirror.mirror_source import MirrorSource
from hermes.mirror.source_claim import SourceClaim
from hermes.mirror.target_cluster import TargetCluster
from hermes.protocol import MirroredSet, SourceFlags


class ClusterQueries:
    """What the clusters answer in one round of planning, each asked once."""

    def __init__(self, target: TargetCluster, sources: Mapping[str, MirrorSource]) -> None:
        self.partitions = cache(target.partitions)
        self.positions = cache(target.positions)
        self._holds_records = cache(
            lambda source, topic, broker_id: sources[source].holds_records(topic, broker_id)
        )
        self._places = cache(lambda source, topic: sources[source].partitions(topic))

    def holds_records(self, claim: SourceClaim) -> bool:
        return self._holds_records(claim.source, claim.topic, claim.partition.broker_id)

    def index(self, claim: SourceClaim) -> int:
        known = {*self._places(claim.source, claim.topic), claim.partition}
        return sorted(known).index(claim.partition)


def empty_set(
    topic: str, target: BrokerPartition, source: str, begin: int, end: int
) -> MirroredSet:
    """Tells a partition how far it is in a source, without a message."""
    return MirroredSet(topic, target.partition, source, begin, end, SourceFlags.NONE, b"")


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
