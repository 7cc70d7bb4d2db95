"""Mirrors into topics with copies: what a leader knows of sources, its followers know as well."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from coordination_servers import ServerProcess
from kafka_mirror_kills import KafkaMirrorKills
from kafka_mirrors import Copied
from mirror_clusters import Clusters
from replicated_cluster import ReplicatedCluster

from hermes.client.mirrored import MirroredPartitions, SourceMap
from hermes.coordination.cluster_view import leaders_of, read_brokers
from hermes.coordination.sessions import Session

TOPIC = "numbers"
_numbers = itertools.count()


@pytest.fixture
def copies(
    tmp_path: Path, coordination_server: Callable[[str], ServerProcess]
) -> Iterator[ReplicatedCluster]:
    tree = f"{coordination_server('zookeeper').address}/mirrored-{next(_numbers)}"
    cluster = ReplicatedCluster(tmp_path / "the copies", tree, default_replication_factor=3)
    try:
        yield cluster
    finally:
        cluster.close()


def numbered(count: int, first: int = 0) -> list[Copied]:
    return [
        Copied(b"%d" % (n % 7), b"%d" % n, (), 1_700_000_000_000 + n)
        for n in range(first, first + count)
    ]


def source_map(cluster: ReplicatedCluster, number: int) -> SourceMap:
    """What whoever leads a partition has of its sources."""
    session = Session(cluster.coordination)
    session.start()
    try:
        led = {each.partition: who for each, who in leaders_of(session, TOPIC, print).items()}
        broker = read_brokers(session, print)[led[number]]
        with MirroredPartitions(broker.host, broker.port) as partitions:
            return partitions.source_map(TOPIC, number)
    finally:
        session.stop()


def test_everything_arrives_once_through_kills_of_leaders(
    clusters: Clusters, copies: ReplicatedCluster
) -> None:
    run = KafkaMirrorKills(clusters, "hermes", "copies", 40_000, 8, seed=1, copies=copies)
    run.run()
    assert len(run.deeds) == 4
