"""The lists of files in ARCHITECTURE.md are whole: what runs in a life is in them."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as KafkaProducer
from walks import called, visited, walks, way

from hermes.client import Producer, ProducerConfig, SimpleConsumer, SyncProducer
from hermes.client.groups import Consumer, ConsumerConfig
from hermes.protocol import FetchRequest, encode_message_set
from hermes.storage.files import FEW_BYTES
from hermes.testing import RunningBroker, running_broker

# What checks, holds settings or counts beside the way.
BESIDE = {
    "client/arguments.py",
    "client/failures.py",
    "client/groups/config.py",
    "client/metrics.py",
    "client/producer_config.py",
}

# In the broker, what bounds, counts, looks something up, opens it or holds settings beside the way,
# and the numbers and texts of the wire. Not where a list names it. The compiled core has the loops.
BESIDE_IN_THE_BROKER = {
    "cluster/cluster_topics.py",
    "cluster/shared.py",
    "cluster/topic_changes.py",
    "config/broker.py",
    "config/topic.py",
    "protocol/kafka_primitives.py",
    "protocol/loops.py",
    "protocol/responses.py",
    "protocol/wire.py",
    "server/fairness.py",
    "server/outcomes.py",
    "server/pages.py",
    "server/refusals.py",
    "storage/checkpoints.py",
    "storage/descriptors.py",
    "storage/directory.py",
    "storage/kafka_index.py",
    "storage/kafka_partition.py",
    "storage/time_index.py",
}

LISTS = {walk.life: set(walk.files) for walk in walks()}
ORDERED = {walk.life: walk.files for walk in walks()}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(settings={"coordination": "embedded"}) as running:
        yield running


def client_files(files: set[str]) -> set[str]:
    return {each for each in files if each.startswith("client/")} - BESIDE


def test_the_life_of_a_message_in_a_producer(broker: RunningBroker) -> None:
    config = ProducerConfig(broker_list=broker.broker_list, producer_type="async", acks="written")
    with visited() as files, Producer(config) as producer:
        producer.send("clicks", [b"first"]).result(30)  # finds the brokers, and connects
        files.clear()
        producer.send("clicks", [b"second"]).result(30)
        found = client_files(files)
    assert found == client_files(LISTS["The life of a message in a producer"])


def test_the_life_of_a_group_consumer(broker: RunningBroker) -> None:
    with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as producer:
        producer.send("clicks", b"payload")
    config = ConsumerConfig(
        group="readers", zookeeper_connect=broker.zookeeper_connect, auto_offset_reset="smallest"
    )
    with visited() as files, Consumer(config) as connector:
        (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
        next(stream)
        connector.commit_offsets()
    found = client_files(files)
    assert found == client_files(LISTS["The life of a group consumer"])


def differs(life: str, files: list[str]) -> str:
    """How the files of a life in the broker differ from its list; empty if they don't."""
    listed = [each for each in ORDERED[life] if each != "protocol/loops.py"]
    beside = BESIDE_IN_THE_BROKER - set(listed)
    found = [each for each in files if each not in beside]
    return "" if found == listed else f"found {found}"


def test_the_lives_in_a_broker_of_a_produce_and_a_fetch() -> None:
    with (
        called() as calls,
        running_broker() as broker,
        SyncProducer(broker.host, broker.port) as producer,
        SimpleConsumer(broker.host, broker.port) as consumer,
    ):
        producer.send("clicks", 0, encode_message_set([b"first"]))
        end = await_message(consumer, 0)
        large = encode_message_set([bytes(2 * FEW_BYTES)])
        producer.send("clicks", 0, large)  # which `sendfile` is for
        await_message(consumer, end)
    produce = way(calls, "BrokerConnection.dataReceived", "Tail.append")
    assert not differs("The life of a produce request", produce)
    fetch = way(calls, "BrokerConnection._take", "SendfileCarrier.send_file")
    assert not differs("The life of a fetch", fetch)


def await_message(consumer: SimpleConsumer, offset: int) -> int:
    """Fetch until there is something; the offset after it."""
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        for _, next_offset in consumer.fetch(FetchRequest("clicks", 0, offset, 3 * FEW_BYTES)):
            return next_offset
        time.sleep(0.01)
    raise AssertionError("nothing came")


def test_the_life_in_a_broker_of_a_produce_by_a_kafka_client() -> None:
    settings = {"kafka_listen": "tcp:0:interface=127.0.0.1"}
    with called() as calls, running_broker(settings=settings) as broker:
        producer = KafkaProducer(
            {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True}
        )
        for payload in (b"first", b"second"):  # the first one loads what Produce needs
            producer.produce("clicks", payload, partition=0)
            assert producer.flush(30) == 0
    produce = way(calls, "BrokerConnection.dataReceived", "Tail.append")
    assert not differs("The life of a Kafka client's request", produce)
