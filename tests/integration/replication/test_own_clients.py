"""Hermes' own clients go by who leads: a killed leader costs nothing that was acknowledged."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from replicated_cluster import ReplicatedCluster

from hermes.client import Producer, ProducerConfig
from hermes.client.groups import Consumer, ConsumerConfig
from hermes.coordination.cluster_view import leaders_of, read_brokers
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.offsets import TopicPartition
from hermes.spark.options import ConnectionOptions, RetryOptions

TOPIC = "copied"
PARTITIONS = 3
ROUND = 30


@contextmanager
def running(session: Session) -> Iterator[Session]:
    session.start()
    try:
        yield session
    finally:
        session.stop()


def addresses(cluster: ReplicatedCluster) -> str:
    with running(Session(cluster.coordination)) as session:
        return ",".join(f"{b.host}:{b.port}" for b in read_brokers(session, print).values())


@pytest.mark.parametrize("finds", ["zookeeper_connect", "broker_list"])
def test_a_producer_and_a_group_go_on_when_leaders_are_killed(
    start_cluster: Callable[..., ReplicatedCluster], finds: str
) -> None:
    cluster = start_cluster()
    cluster.create_topic(TOPIC, PARTITIONS)
    tree = cluster.coordination
    way = {finds: tree if finds == "zookeeper_connect" else addresses(cluster)}
    sent: list[bytes] = []
    got: set[bytes] = set()
    with (
        Producer(ProducerConfig(**way, acks="flushed", delivery_timeout="60s")) as producer,
        running(Session(tree)) as session,
    ):
        names = set(leaders_of(session, TOPIC, print))
        with Consumer(
            ConsumerConfig(
                zookeeper_connect=tree,
                group="readers",
                auto_offset_reset="smallest",
                consumer_timeout="60s",
            )
        ) as consumer:
            (stream,) = consumer.create_message_streams({TOPIC: 1})[TOPIC]
            messages = iter(stream)
            for number in range(2):
                for each in range(ROUND):
                    payload = b"%d-%d" % (number, each)
                    producer.send(TOPIC, payload, key=f"{each}")
                    sent.append(payload)
                while not got.issuperset(sent):
                    got.add(next(messages).message)
                leader = cluster.leader(TOPIC, number)
                cluster.kill(leader)
                cluster.leader(TOPIC, number, but=leader)
                producer.send(TOPIC, b"after", key="k")
                cluster.start(leader)
                cluster.wait_until_in_sync(TOPIC, PARTITIONS)
            consumer.commit_offsets()
        stored = session.children(f"/consumers/readers/offsets/{TOPIC}")
        assert set(leaders_of(session, TOPIC, print)) == names
        assert {BrokerPartition(*map(int, each.split("-"))) for each in stored} <= names


def test_spark_reads_from_who_leads(start_cluster: Callable[..., ReplicatedCluster]) -> None:
    cluster = start_cluster()
    cluster.create_topic(TOPIC, PARTITIONS)
    config = ProducerConfig(zookeeper_connect=cluster.coordination, acks="flushed")
    with Producer(config) as producer:
        for number in range(PARTITIONS):
            producer.send(TOPIC, [b"kept"] * (number + 1), partition=number)
    address = ConnectionOptions(zookeeper=cluster.coordination)
    with ClusterReader(address, RetryOptions(60, 0.1)) as reader:
        partitions = reader.partitions([TOPIC])[TOPIC]
        assert [each.partition for each in sorted(partitions, key=lambda p: p.partition)] == [
            0,
            1,
            2,
        ]
        leader = cluster.leader(TOPIC, 1)
        cluster.kill(leader)
        held = reader.bounds(partitions)
        ends = {each.partition: bounds.latest for each, bounds in held.items() if bounds}
        assert ends == {0: 1, 1: 2, 2: 3}
        assert reader.partitions([TOPIC])[TOPIC] == partitions
        assert all(isinstance(each, TopicPartition) for each in partitions)
        assert {reader.leader(each) for each in partitions}.isdisjoint({leader})
