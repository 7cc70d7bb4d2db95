"""Mirrors into topics with copies: what a leader knows of sources, its followers know as well."""

import itertools
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from coordination_servers import ServerProcess
from kafka_mirror_kills import KafkaMirrorKills
from kafka_mirrors import Copied, arrived, create, kafka_mirror, produce
from mirror_clusters import HERMES, Clusters
from mirrored_pair import eventually
from replicated_cluster import ReplicatedCluster
from server_process import free_port

from hermes.cli import program
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


def source_map(cluster: ReplicatedCluster) -> SourceMap:
    """What whoever leads the partition has of its sources."""
    session = Session(cluster.coordination)
    session.start()
    try:
        ((_, leader),) = leaders_of(session, TOPIC, print).items()
        broker = read_brokers(session, print)[leader]
        with MirroredPartitions(broker.host, broker.port) as partitions:
            return partitions.source_map(TOPIC, 0)
    finally:
        session.stop()


def translated(source: str, cluster: ReplicatedCluster) -> str:
    """How the partition is called that a group of the source would go on in."""
    reader = Consumer({"bootstrap.servers": source, "group.id": "readers"})
    reader.commit(offsets=[TopicPartition(TOPIC, 0, 50)], asynchronous=False)
    reader.close()
    places = ["--from-kafka", source, "-Z", cluster.coordination, "-g", "readers", "--json"]
    shown = CliRunner().invoke(program, ["mirror", "translate", *places])
    assert shown.exit_code == 0, shown.stderr
    name: str = json.loads(shown.stdout)["partition"]
    return name


def known(found: SourceMap) -> object:
    return found.positions, {each: found.spans(each) for each in found.positions}


@pytest.mark.nightly
def test_everything_arrives_once_through_kills_of_leaders(
    clusters: Clusters, copies: ReplicatedCluster
) -> None:
    run = KafkaMirrorKills(clusters, "hermes", "copies", 40_000, 8, seed=1, copies=copies)
    run.run()
    assert len(run.deeds) == 4


def test_copies_that_are_made_later_know_the_sources(
    clusters: Clusters, copies: ReplicatedCluster
) -> None:
    port = free_port()
    source = f"127.0.0.1:{port}"
    clusters.cluster("source", kafka_listen=f"tcp:{port}:interface=127.0.0.1")
    create(source, TOPIC, 1)
    copies.create_topic(TOPIC, copies=1)
    sent = [Copied(None, b"%d" % n, (), 1_700_000_000_000 + n) for n in range(300)]
    target = {"zookeeper": copies.coordination}

    def mirrored(some: list[Copied]) -> None:
        with ExitStack() as stack:
            produce(source, TOPIC, [(0, each) for each in some])
            kafka_mirror(stack, source, target, whitelist=TOPIC)
            eventually(arrived(copies.bootstrap, TOPIC, [sent[: sent.index(some[-1]) + 1]]))

    mirrored(sent[:100])
    before = known(source_map(copies))
    name = translated(source, copies)
    first = copies.leader(TOPIC)
    move = ("replicas", "move", "--topics", TOPIC, "--replicas", "3")
    ran = subprocess.run([HERMES, *move, "-k", copies.bootstrap.split(",")[0]], timeout=60)
    assert ran.returncode == 0
    copies.wait_until_in_sync(TOPIC)
    copies.kill(first)
    copies.leader(TOPIC, but=first)
    copies.wait_until(lambda: known(source_map(copies)) == before, "it knows something else")
    assert translated(source, copies) == name
    mirrored(sent[100:200])

    copies.start(first)
    copies.wait_until_in_sync(TOPIC)
    second = copies.leader(TOPIC)
    before = known(source_map(copies))
    copies.kill(second)
    copies.leader(TOPIC, but=second)
    copies.wait_until(lambda: known(source_map(copies)) == before, "it knows something else")
    mirrored(sent[200:])
