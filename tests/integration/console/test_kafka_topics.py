"""Topics of Kafka's format, whose offsets count messages, in the console and in `hermes top`."""

import json
import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from hermes.cli import program
from hermes.client import SimpleConsumer, SyncProducer
from hermes.client.groups import Consumer, ConsumerConfig
from hermes.client.kafka_asking import KafkaAsker
from hermes.config.addresses import BrokerAddress
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient
from hermes.console.cluster_sampler import ClusterSampler
from hermes.console.topic_views import TopicReader
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.protocol import Acks, ProduceRequest, encode_message_set
from hermes.testing import RunningKafka, running_kafka

from .test_pages import Pages, text

_PAYLOAD = b"x" * 1000


@pytest.fixture
def kafka() -> Iterator[RunningKafka]:
    settings = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    with running_kafka(topics={"orders": 1}, settings=settings) as running:
        yield running


def publish(kafka: RunningKafka, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for _ in range(count):
        producer.produce("orders", _PAYLOAD, partition=0)
    assert producer.flush(60) == 0


def store(kafka: RunningKafka, offset: int) -> None:
    session = Session(str(kafka.zookeeper_connect))
    session.start()
    try:
        store_offsets(session, "search", {("orders", BrokerPartition(0, 0)): offset})
    finally:
        session.stop()


def test_rates_are_in_bytes_also_where_offsets_count_messages(kafka: RunningKafka) -> None:
    cluster = ClusterClient(BrokerAddress(kafka.host, kafka.port))
    now = [100.0]
    try:
        sampler = ClusterSampler(cluster, ReadCache(0.0), lambda: now[0])
        topics = TopicReader(cluster, ReadCache(0.0), lambda: now[0])
        publish(kafka, 5)
        sampler.view(), topics.topic("orders")
        publish(kafka, 20)
        now[0] += 10.0
        seen = sampler.view()
        rate = seen.topics["orders"].rate
        assert rate is not None
        assert 20 * len(_PAYLOAD) / 10 < rate < 20 * (len(_PAYLOAD) + 200) / 10
        assert seen.rate == topics.topic("orders").rate == rate

        # The same name in the other format is another topic, at once.
        with SimpleConsumer(kafka.host, kafka.port) as client:
            client.delete_topic("orders")
            client.create_topic("orders", {"format": "0.7"})
            with SyncProducer(kafka.host, kafka.port) as producer:
                messages = encode_message_set([b"old"])
                producer.send_acknowledged([ProduceRequest("orders", 0, messages)], Acks.FLUSHED)
        now[0] += 10.0
        again = topics.topic("orders")
        assert (again.counts_messages, again.rate) == (False, None)
        assert sampler.view().topics["orders"].rate is None
    finally:
        cluster.close()


def test_the_lag_of_a_group_is_in_messages_where_offsets_are(kafka: RunningKafka) -> None:
    publish(kafka, 1500)
    store(kafka, 100)
    pages = Pages(kafka)
    try:
        group = text(pages("groups", "search"))
        assert "Lag 1,400 messages" in group
        assert "orders 0 100 1,500 1,400 messages" in group
        assert "KiB" not in group
        topic = ""
        while "search" not in topic:  # groups are looked at a few at a time
            topic = text(pages("topics", "orders"))
        assert "search 1 1,400 messages" in topic
        pages.may_act = True
        preview = pages("groups", "search", "reset", topic="", to="shift", value="-1")
        assert "orders 0 100 99 -1 1,401 messages" in text(preview)
        exactly = pages("groups", "search", "reset", topic="", to="offset", value="1234")
        assert "orders 0 100 1,234 +1134 266 messages" in text(exactly)
    finally:
        pages.console.close()
    place = f"{kafka.host}:{kafka.port}"
    top = "top", "-b", place, "--once", "--interval", "0.1"
    shown = CliRunner().invoke(program, top).stdout.splitlines()[-2]
    assert shown.split() == ["search", "orders", "0", "1,400", "messages", "0", "messages/s"]
    (lag,) = json.loads(CliRunner().invoke(program, [*top, "--json"]).stdout)["groups"]
    assert (lag["lag_bytes"], lag["lag_messages"]) == (None, 1400)


def test_what_was_deleted_before_it_was_read_is_told_in_messages(kafka: RunningKafka) -> None:
    publish(kafka, 3)
    store(kafka, 0)
    host, _, port = str(kafka.bootstrap_servers).rpartition(":")
    with KafkaAsker(host, int(port)) as asker:
        partitions = [{"partition_index": 0, "offset": 2}]
        topics = [{"name": "orders", "partitions": partitions}]
        answer = asker.ask("DeleteRecords", 2, topics=topics, timeout=60_000)
        assert answer.topics[0].partitions[0].low_watermark == 2
    pages = Pages(kafka)
    try:
        assert "2 messages were deleted before they were read" in text(pages("groups", "search"))
    finally:
        pages.console.close()


def test_the_command_shows_and_moves_a_group_by_messages(kafka: RunningKafka) -> None:
    publish(kafka, 20)
    store(kafka, 12)
    place = "-Z", str(kafka.zookeeper_connect)
    described = CliRunner().invoke(program, ["groups", "describe", *place, "--json", "search"])
    (row,) = json.loads(described.stdout)["partitions"]
    assert (row["offset"], row["end"], row["lag"], row["messages"]) == (12, 20, 8, 8)
    for to, expected in (("-5", 7), ("+1", 8), ("3", 3)):
        moved = CliRunner().invoke(program, ["groups", "reset", *place, "--to", to, "search"])
        assert moved.stdout.split()[-1] == str(expected), moved.output
    config = ConsumerConfig(group="search", zookeeper_connect=str(kafka.zookeeper_connect))
    with Consumer.create(config) as consumer:
        (stream,) = consumer.create_message_streams({"orders": 1})["orders"]
        assert next(iter(stream)).offset == 3  # within a batch


def test_messages_have_keys_and_begin_where_they_are_asked_for(kafka: RunningKafka) -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "linger.ms": 500}
    )
    for number in range(300):
        headers = [("source", b"shop"), ("empty", None)] if number == 250 else []
        value = None if number == 251 else b"value %d" % number
        producer.produce("orders", value, b"<k%d>\xff" % number, 0, headers=headers)
    assert producer.flush(60) == 0
    pages = Pages(kafka)
    try:
        found = text(pages("topics", "orders", "messages", start="offset", value=250, count=20))
        assert " 0:250 " in found
        assert " 0:249 " not in found
        assert "<k250>\\xff" in found
        assert "header source: shop; header empty: null" in found
        last = text(pages("topics", "orders", "messages", partition="0-0", count=20))
        assert " 0:280 " in last
        assert " 0:279 " not in last
        assert "20 shown, 20 looked at" in last
        for query, offsets in (
            ({"key": "<k25"}, [25, *range(250, 260)]),
            ({"key": "<k25", "q": "7"}, [257]),
            ({"key": "=<k25"}, []),
            ({"header": "source"}, [250]),
            ({"header": "empty"}, [250]),
            ({"header": "empty: x"}, []),
            ({"header": "source: sh"}, [250]),
            ({"header": "source: =sh"}, []),
            ({"header": "source: =shop", "key": "k250"}, [250]),
        ):
            chosen = pages("topics", "orders", "messages", start="beginning", **query)
            found_at = re.findall(r'<span class="place">0:(\d+)<', chosen)
            assert list(map(int, found_at)) == offsets, query
            assert "300 looked at" in text(chosen)
        assert pages.answer("topics", "orders", "messages", header=": x").status == 400
        before = text(pages("topics", "orders", "messages", start="last", value=252, count=20))
        assert " 0:251 " in before
        assert " 0:252 " not in before
        one = text(pages("topics", "orders", "message", partition="0-0", offset=250))
        assert "Stored in a batch Key <k250>\\xff source shop empty null" in one
        lines = pages("topics", "orders", "download", start="offset", value=250, count=20)
        shown = [json.loads(line) for line in lines.splitlines()]
        assert shown[0]["key_hex"] == b"<k250>\xff".hex()
        assert shown[0]["headers"] == [
            {"name": "source", "value": "shop"},
            {"name": "empty", "value": None},
        ]
        assert (shown[1]["offset"], shown[1]["payload"]) == (251, None)
        assert "(no value)" in found
        gone = text(pages("topics", "orders", "message", partition="0-0", offset=251))
        assert "Size no value" in gone
        assert pages.answer("topics", "orders", "raw", partition="0-0", offset=251).body == b""
        tail = text("<main " + pages("topics", "orders", "tail", at="0-0:290"))
        assert " 0:290 " in tail
        assert " 0:289 " not in tail
    finally:
        pages.console.close()
