"""Groups of Hermes' own on topics of Kafka's format."""

import pytest

from hermes import Consumer, ConsumerConfig, Producer, ProducerConfig, RecordData, SimpleConsumer
from hermes.client.groups import Whitelist
from hermes.client.groups.streams import MessageStream, StreamRecord
from hermes.testing import RunningBroker, running_broker

# Brokers with a port for Kafka's clients number partitions through; others tell of their own.
KINDS = [
    {"coordination": "embedded"},
    {"coordination": "embedded", "kafka_listen": "tcp:0:interface=127.0.0.1"},
]


def member(broker: RunningBroker, **settings: object) -> Consumer:
    config = ConsumerConfig(
        zookeeper_connect=broker.zookeeper_connect or "",
        group="readers",
        auto_offset_reset="smallest",
        consumer_timeout="60s",
        **settings,
    )
    return Consumer.create(config)


def taken(stream: MessageStream, count: int) -> list[StreamRecord]:
    found = []
    for message in stream:
        assert isinstance(message, StreamRecord)
        found.append(message)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("settings", KINDS, ids=["own numbers", "numbered through"])
def test_a_group_reads_records_and_goes_on_where_it_stopped(settings: dict[str, str]) -> None:
    with running_broker(settings=settings) as broker:
        with SimpleConsumer(broker.host, broker.port) as admin:
            admin.create_topic("orders", {"format": "kafka", "partitions": 2})
        config = ProducerConfig(broker_list=broker.broker_list, acks="flushed", encoder="json")
        with Producer(config) as producer:
            for number in range(8):
                value = RecordData({"n": number}, (("h", b"1"),), 1000 + number)
                producer.send("orders", value, key=f"k{number}")
            producer.send("orders", RecordData(None), key="gone")
        with member(broker, decoder="json") as connector:
            (stream,) = connector.create_message_streams({"orders": 1})["orders"]
            first = taken(stream, 5)
            connector.commit_offsets()
        with member(broker, decoder="json") as connector:
            (stream,) = connector.create_message_streams_by_filter(Whitelist("ord.*"))
            found = [*first, *taken(stream, 4)]
            with SimpleConsumer(broker.host, broker.port) as admin:
                admin.create_topic("ordinary", {"format": "kafka"})
            with Producer(config) as producer:
                producer.send("ordinary", RecordData({"n": 0}), key="later")
            (later,) = taken(stream, 1)

    assert (later.topic, later.key, later.offset) == ("ordinary", b"later", 0)
    by_key = {each.key: each for each in found}
    assert len(by_key) == 9
    for number in range(8):
        each = by_key[b"k%d" % number]
        assert (each.message, each.headers) == ({"n": number}, (("h", b"1"),))
        assert (each.timestamp_ms, each.next_offset) == (1000 + number, each.offset + 1)
    assert by_key[b"gone"].message is None
    assert {each.partition for each in found} == {0, 1}
