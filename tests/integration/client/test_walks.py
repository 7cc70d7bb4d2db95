"""The lists of files in ARCHITECTURE.md are whole: what runs in a client's life is in them."""

from collections.abc import Iterator

import pytest
from walks import visited, walks

from hermes.client import Producer, ProducerConfig
from hermes.client.groups import Consumer, ConsumerConfig
from hermes.testing import RunningBroker, running_broker

# What checks, holds settings or counts beside the way.
BESIDE = {
    "client/arguments.py",
    "client/failures.py",
    "client/groups/config.py",
    "client/metrics.py",
    "client/producer_config.py",
}

LISTS = {walk.life: set(walk.files) for walk in walks()}


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
