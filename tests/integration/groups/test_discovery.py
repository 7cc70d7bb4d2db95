"""Producers that learn of brokers from both servers."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from server_process import ServerProcess

from hermes.client import (
    EARLIEST,
    FetchRequest,
    MessageSet,
    Producer,
    ProducerConfig,
    SimpleConsumer,
    SyncProducer,
)
from hermes.errors import (
    BrokerUnavailableError,
    ConfigError,
    CoordinationUnavailableError,
    UnknownTopicError,
)
from hermes.testing import RunningBroker, running_broker


def settings(connect: str, broker_id: int) -> dict[str, Any]:
    return {
        "broker_id": broker_id,
        "num_partitions": 2,
        "coordination": "zookeeper",
        "zookeeper_connect": connect,
        "flush_interval": "5ms",
    }


def payloads(broker: RunningBroker, topic: str, partition: int) -> list[bytes]:
    with SimpleConsumer(broker.host, broker.port) as consumer:
        (start,) = consumer.get_offsets_before(topic, partition, EARLIEST)
        try:
            found = consumer.fetch(FetchRequest(topic, partition, start, 1 << 20))
        except UnknownTopicError:  # nothing was sent there
            return []
        return [message.payload for message, _ in found]


def test_partitions_of_all_brokers_are_used(connect: str, eventually: Any) -> None:
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(running_broker(None, settings(connect, number)))
            for number in range(2)
        ]
        producer = stack.enter_context(
            Producer(
                ProducerConfig(zookeeper_connect=connect, partitioner="round-robin", acks="flushed")
            )
        )
        producer.send("clicks", b"any")  # creates it on one broker
        places = set()

        def all_used() -> bool:
            result = producer.send("clicks", b"x").result()
            places.add((result.partition,))
            return sum(bool(payloads(b, "clicks", p)) for b in brokers for p in (0, 1)) >= 2

        eventually(all_used)


def test_a_broker_that_goes_and_one_that_comes_change_the_route(
    connect: str, tmp_path: Path, eventually: Any
) -> None:
    config = ProducerConfig(
        zookeeper_connect=connect, acks="flushed", num_retries=20, retry_backoff="50ms"
    )
    with running_broker(tmp_path / "0", settings(connect, 0)) as first:
        producer = Producer(config)
        assert producer.send("clicks", b"1", key="k").result().topic == "clicks"
        port = first.port
    with running_broker(tmp_path / "1", settings(connect, 1)) as second:
        assert second.port != port
        producer.send("clicks", b"2", key="k")
        assert b"2" in payloads(second, "clicks", 0) + payloads(second, "clicks", 1)
    with running_broker(tmp_path / "0", settings(connect, 0)) as again:
        producer.send("clicks", b"3")
        assert b"3" in payloads(again, "clicks", 0) + payloads(again, "clicks", 1)
        producer.close()


def test_a_key_whose_partition_went_with_its_broker_goes_elsewhere(
    connect: str, eventually: Any
) -> None:
    config = ProducerConfig(
        zookeeper_connect=connect, acks="flushed", num_retries=20, retry_backoff="50ms"
    )
    with running_broker(None, settings(connect, 1)) as staying, Producer(config) as producer:
        producer.send("clicks", b"0")
        with running_broker(None, settings(connect, 0)) as going:
            with SyncProducer(going.host, going.port) as creator:
                creator.send("clicks", 0, MessageSet.of([b"x"]).data)
            eventually(lambda: len(producer._metadata.partitions("clicks").targets) == 4)
            keys = ["a", "b", "c", "d"]
            for key in keys:
                producer.send("clicks", key.encode(), key=key)
            assert len(payloads(going, "clicks", 0) + payloads(going, "clicks", 1)) > 1
            # What the producer knows is what it knew when the broker went.
            before = producer._metadata.partitions("clicks")
        producer._metadata._known["clicks"] = before  # type: ignore[union-attr]
        for key in keys:
            producer.send("clicks", b"late " + key.encode(), key=key)
        found = payloads(staying, "clicks", 0) + payloads(staying, "clicks", 1)
        assert {b"late " + key.encode() for key in keys} <= set(found)


def test_without_zookeeper_the_known_brokers_stay_in_use(
    own_server: ServerProcess, eventually: Callable[..., Any]
) -> None:
    connect = own_server.address
    with (
        running_broker(None, settings(connect, 0)),
        Producer(ProducerConfig(zookeeper_connect=connect, acks="flushed")) as producer,
    ):
        producer.send("clicks", b"before")
        session = producer._metadata._session  # type: ignore[union-attr]
        own_server.kill()
        eventually(lambda: session.session_id is None)
        producer.send("clicks", b"meanwhile")
        own_server.start()
        eventually(lambda: session.session_id is not None)
        producer.send("clicks", b"after")


def test_no_broker_and_no_zookeeper_are_clear_errors(connect: str) -> None:
    with (
        Producer(ProducerConfig(zookeeper_connect=connect, delivery_timeout="200ms")) as producer,
        pytest.raises(BrokerUnavailableError, match="no broker is registered"),
    ):
        producer.send("clicks", b"x")
    with pytest.raises(CoordinationUnavailableError):
        Producer(
            ProducerConfig(zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout="200ms")
        )


@pytest.mark.parametrize("given", [{}, {"broker_list": "0:a:1", "zookeeper_connect": "a:1"}])
def test_brokers_come_from_one_place(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="exactly one"):
        ProducerConfig(**given)  # type: ignore[arg-type]
