"""Clients' metrics, and what an application's registry shows of them."""

import asyncio

import pytest
from hermes_testkit import message
from prometheus_client import CollectorRegistry

from hermes import (
    Consumer,
    ConsumerConfig,
    FetchRequest,
    MetricsCollector,
    Producer,
    ProducerConfig,
    SimpleConsumer,
    aio,
)
from hermes.errors import BrokerError
from hermes.testing import running_broker


def test_they_agree_with_what_was_done() -> None:
    with running_broker(settings={"coordination": "embedded"}) as broker:
        config = ProducerConfig(broker_list=broker.broker_list, acks="flushed")
        group = ConsumerConfig(
            group="g", zookeeper_connect=str(broker.zookeeper_connect), auto_commit=False
        )
        with (
            Producer(config) as producer,
            SimpleConsumer(broker.host, broker.port) as consumer,
            Consumer.create(group) as connector,
        ):
            registry = CollectorRegistry()
            registry.register(MetricsCollector(p=producer, c=consumer, g=connector))
            for number in range(4):
                producer.send("t", b"%d" % number)
            size = len(message(b"0"))
            consumer.fetch(FetchRequest("t", 0, 0, 1000))
            consumer.multifetch([FetchRequest("t", 0, size, 1000), FetchRequest("t", 0, 9999, 1)])
            with pytest.raises(BrokerError):
                consumer.fetch(FetchRequest("t", 7, 0, 1000))
            (stream,) = connector.create_message_streams({"t": 1})["t"]
            for _ in range(3):
                next(stream)
            connector.commit_offsets()

            sample = registry.get_sample_value
            assert sample("hermes_producer_sent_messages_total", {"client": "p"}) == 4
            for name, expected in {
                "fetches": 3,
                "failed_fetches": 2,
                "fetched_bytes": 7 * size,
                "skipped": 0,
            }.items():
                assert sample(f"hermes_consumer_{name}_total", {"client": "c"}) == expected
            assert sample("hermes_consumer_fetched_bytes_total", {"client": "g"}) == 4 * size
            assert sample("hermes_group_taken_partitions_total", {"client": "g"}) == 1
            # Where the group starts is stored first.
            assert sample("hermes_group_commits_total", {"client": "g"}) == 1
            place = {"client": "g", "topic": "t", "broker": "0", "partition": "0"}
            assert sample("hermes_group_position_offset", place) == 3 * size
            assert sample("hermes_group_committed_offset", place) == 3 * size
        assert sample("hermes_group_position_offset", place) is None  # it is shut down
        assert sample("hermes_producer_sent_messages_total", {"client": "p"}) == 4

        async def fetched() -> int:
            async with aio.SimpleConsumer(broker.host, broker.port) as reader:
                await reader.fetch(FetchRequest("t", 0, 0, 1000))
                return reader.metrics().fetched_bytes

        assert asyncio.run(fetched()) == 4 * size
