"""One way to name a broker: `HOST:PORT` is enough for every kind of client."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hermes import (
    Consumer,
    ConsumerConfig,
    FetchRequest,
    Producer,
    ProducerConfig,
    SimpleConsumer,
    aio,
)
from hermes.client import SyncProducer
from hermes.client.retrying import RetryingConsumer
from hermes.errors import ConfigError, NoCoordinationError, RoutingError
from hermes.protocol import encode_message_set
from hermes.testing import RunningBroker, running_broker

EMBEDDED = {"coordination": "embedded"}


@contextmanager
def two_brokers(**settings: object) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    """A cluster of brokers 0 and 7, which know each other."""
    with running_broker(settings={**EMBEDDED, **settings}) as first:
        others = {"broker_id": 7, "coordination": "zookeeper", **settings}
        others["zookeeper_connect"] = first.zookeeper_connect
        with running_broker(settings=others) as second:
            deadline = time.monotonic() + 60
            for broker in (first, second):
                with SimpleConsumer(broker.address) as consumer:
                    while len(consumer.brokers()) < 2:
                        assert time.monotonic() < deadline
                        time.sleep(0.05)  # between two looks; nothing tells
            yield first, second


def test_a_producer_finds_all_brokers_by_the_address_of_one() -> None:
    with two_brokers(num_partitions=2) as brokers:
        targets = []
        for broker in brokers:
            config = ProducerConfig(
                broker_list=broker.address, acks="flushed", partitioner="round-robin"
            )
            with Producer(config) as producer:
                producer.send("clicks", [b"0", b"1"])
                router = producer._sender._router
                targets.append(router._metadata.partitions("clicks").targets)
                for _ in range(4):
                    producer.send("clicks", b"x")
        assert targets == [((0, 0), (0, 1), (7, 0), (7, 1))] * 2
        for broker in brokers:
            with SimpleConsumer(broker.address) as consumer:
                requests = [FetchRequest("clicks", number, 0, 1 << 20) for number in range(2)]
                assert all(list(each) for each in consumer.multifetch(requests))


def test_one_that_is_down_among_several_addresses_is_no_matter() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        unused_port = closed.getsockname()[1]
    with running_broker(settings={"broker_id": 3}) as broker:
        listed = f"127.0.0.1:{unused_port},{broker.address}"
        with Producer(ProducerConfig(broker_list=listed, acks="written")) as producer:
            assert producer.send("clicks", b"x", key="k").result().offset == 0


def test_two_that_say_that_they_are_the_same_broker(tmp_path) -> None:
    with running_broker() as first, running_broker() as second:
        listed = f"{first.address},{second.address}"
        with (
            Producer(ProducerConfig(broker_list=listed)) as producer,
            pytest.raises(RoutingError, match="both say that they are broker 0: name each broker"),
        ):
            producer.send("clicks", b"x")
        listed = f"0:{first.address},1:{second.address}"
        with Producer(ProducerConfig(broker_list=listed)) as producer:
            producer.send("clicks", b"x")


def test_a_broker_is_found_again_where_its_cluster_has_changed() -> None:
    with running_broker(settings=EMBEDDED) as first:
        config = ProducerConfig(broker_list=first.address, acks="written", metadata_max_age="10ms")
        with Producer(config) as producer:
            producer.send("clicks", b"x")
            metadata = producer._sender._router._metadata
            others = {"broker_id": 7, "coordination": "zookeeper"}
            others["zookeeper_connect"] = first.zookeeper_connect
            with running_broker(settings=others):
                deadline = time.monotonic() + 60
                while len(metadata.partitions("clicks").targets) < 2:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)  # between two looks


def test_every_kind_of_client_takes_it() -> None:
    with running_broker(settings=EMBEDDED) as broker:
        address = broker.address
        with SyncProducer(address) as producer:
            producer.send("clicks", 0, encode_message_set([b"one"]))
            producer.barrier()
        with Producer(ProducerConfig(broker_list=address)) as sending:
            sending.send("clicks", b"two")
        with SimpleConsumer(address) as consumer:
            assert consumer.address == address
            found = consumer.fetch(FetchRequest("clicks", 0, 0, 1 << 20))
            assert [each.payload for each, _ in found] == [b"one", b"two"]

        async def main() -> None:
            config = ProducerConfig(broker_list=address)
            async with aio.Producer(config) as producer, aio.SimpleConsumer(address) as consumer:
                await producer.send("clicks", b"three")
                found = await consumer.fetch(FetchRequest("clicks", 0, 0, 1 << 20))
                assert [each.payload for each, _ in found][2:] == [b"three"]
            async with aio.Consumer(ConsumerConfig(group="loop", brokers=address)) as connector:
                (stream,) = (await connector.create_message_streams({"clicks": 1}))["clicks"]
                assert (await anext(stream)).message == b"one"

        asyncio.run(main())
        config = ConsumerConfig(group="g", brokers=address, consumer_timeout="30s")
        for made in (Consumer(config), Consumer.create(config)):
            with made as connector:
                (each,) = connector.create_message_streams({"clicks": 1})["clicks"]
                next(each)
                connector.commit_offsets()
        with RetryingConsumer(config, ["clicks"], delays=[]) as retrying:
            seen: list[bytes] = []

            def take(message) -> None:
                seen.append(message.message)
                retrying.stop()

            retrying.run(take)
            assert seen == [b"three"]


def test_a_group_needs_coordination() -> None:
    with (
        running_broker() as broker,
        pytest.raises(NoCoordinationError, match=r"set coordination in broker\.yaml"),
    ):
        Consumer(ConsumerConfig(group="g", brokers=broker.address))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "brokers: expected exactly one: this or zookeeper_connect"),
        ({"brokers": "a:1", "zookeeper_connect": "z:2"}, "brokers: expected exactly one"),
        ({"brokers": "0:a:1"}, "brokers: '0:a:1' is not a broker's address"),
        ({"brokers": ["a:1"]}, "brokers: expected a string"),
    ],
)
def test_how_a_group_is_told(settings: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ConsumerConfig(group="g", **settings)


@pytest.mark.parametrize(
    ("host", "port", "said"),
    [
        ("a:1", 2, "port: there is one in the host as well"),
        ("a:1,b:2", None, "host: .* is not a broker's address"),
        ("a", "2", "port: expected 1 to 65535, got '2'"),
        (7, None, "host: expected a name or an address"),
    ],
)
def test_how_one_broker_is_told(host, port, said: str) -> None:
    for made in (SimpleConsumer, SyncProducer):
        with pytest.raises(ConfigError, match=said):
            made(host, port)
