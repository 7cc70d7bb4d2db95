"""Which format a topic gets: by who names it first, and by the broker's setting `format`."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient
from hermes_testkit import BrokerProcess

from hermes import Producer, ProducerConfig, SimpleConsumer
from hermes.client import SyncProducer
from hermes.config.topic import AUDIT_TOPIC
from hermes.errors import (
    BrokerUnavailableError,
    SettingRefusedError,
    TopicExistsError,
    UnknownTopicError,
    WrongFormatError,
)
from hermes.protocol import LATEST, ProduceRequest, encode_message_set
from hermes.testing import RunningBroker, running_broker

KAFKA = {"kafka_listen": "tcp:0:interface=127.0.0.1", "format": "kafka"}
HELLO = encode_message_set([b"hello"])


def formats(broker: RunningBroker) -> dict[str, str]:
    with SimpleConsumer(broker.address) as consumer:
        told = consumer.metadata(None).topics
        settings = {each.topic: consumer.describe_settings(each.topic) for each in told}
    found = {each.topic: "kafka" if each.holds_records else "0.7" for each in told}
    # What describes a topic says the same as what lists it.
    for topic, described in settings.items():
        assert [each.value for each in described if each.name == "format"] == [found[topic]]
    return found


def send(broker: RunningBroker, topic: str, *values: bytes, **details: Any) -> None:
    with Producer(ProducerConfig(broker_list=broker.address, acks="flushed")) as producer:
        for each in values:
            producer.send(topic, each, **details).result(60)


def send_as_0_7(broker: RunningBroker, topic: str) -> None:
    """As a client of Kafka 0.7, which hears of nothing."""
    with SyncProducer(broker.host, broker.port) as producer:
        producer.send(topic, 0, HELLO)
        wait_for(lambda: topic in formats(broker))


def send_as_kafka(broker: RunningBroker, topic: str) -> None:
    producer = KafkaProducer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"hello", b"key")
    assert producer.flush(60) == 0


def test_who_names_a_topic_first(tmp_path: Path) -> None:
    settings = {**KAFKA, "topics": {"declared": {}, "old": {"format": "0.7"}}}
    with running_broker(tmp_path, settings) as broker:
        send(broker, "sent", b"hello", key="k")
        send(broker, "with-headers", b"hello", headers={"a": b"b"})
        send(broker, AUDIT_TOPIC, b"{}")
        send_as_0_7(broker, "of-0.7")
        send_as_kafka(broker, "of-kafka")
        with SimpleConsumer(broker.address) as consumer:
            consumer.create_topic("created", {"partitions": 3})
            consumer.create_topic("created-old", {"format": "0.7"})
        expected = {
            "declared": "kafka",
            "old": "0.7",
            "sent": "kafka",
            "with-headers": "kafka",
            AUDIT_TOPIC: "0.7",
            "of-0.7": "0.7",
            "of-kafka": "kafka",
            "created": "kafka",
            "created-old": "0.7",
        }
        assert formats(broker) == expected
    # Whatever new ones would get by now.
    with running_broker(tmp_path, {**KAFKA, "format": "0.7"}) as broker:
        send(broker, "later", b"hello")
        assert formats(broker) == {**expected, "later": "0.7"}


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ("kafka", "sync"),
        ("0.7", "async"),
        pytest.param("kafka", "async", marks=pytest.mark.nightly),
        pytest.param("0.7", "sync", marks=pytest.mark.nightly),
    ],
)
def test_without_acknowledgements_a_topic_is_what_the_setting_says_too(
    tmp_path: Path, kind: Any, wanted: str
) -> None:
    with running_broker(tmp_path, {**KAFKA, "format": wanted}) as broker:
        unanswered = {"producer_type": kind, "acks": "none"}
        with Producer(ProducerConfig(broker_list=broker.address, **unanswered)) as producer:
            for number in range(3):
                producer.send("sent", b"%d" % number, key="k")
        hermes = str(Path(sys.executable).with_name("hermes"))
        piped = [hermes, "produce", "-b", broker.address, "-t", "piped", "-K", ":"]
        subprocess.run([*piped, "--acks", "none"], input=b"k:0\nk:1\nk:2\n", check=True)
        assert formats(broker) == {"sent": wanted, "piped": wanted}
        for topic in ("sent", "piped"):
            found = read(broker, topic, 3)
            assert [value for *_, value in found] == [b"0", b"1", b"2"]
            assert {key for _, key, _ in found} == {b"k" if wanted == "kafka" else None}


def test_a_producer_that_hears_nothing_and_a_topic_that_is_made_anew(tmp_path: Path) -> None:
    def made_anew() -> bool:
        try:
            consumer.create_topic("events", {"format": "kafka"})
        except TopicExistsError:  # it is still being deleted
            return False
        return True

    def is_told() -> bool:
        producer.send("events", b"lost")
        try:
            producer.flush()
        except BrokerUnavailableError:
            return True
        # The broker has yet to close the connection; or had before, and this was sent once more.
        return consumer.get_offsets_before("events", 0, LATEST) != [0]

    with running_broker(tmp_path, KAFKA) as broker, SimpleConsumer(broker.address) as consumer:
        consumer.create_topic("events", {"format": "0.7"})
        with Producer(ProducerConfig(broker_list=broker.address, acks="none")) as producer:
            producer.send("events", b"a")
            producer.send("events", b"b")
            producer.flush()
            consumer.delete_topic("events")
            producer.send("events", b"c")  # as those of Kafka 0.7 do: nobody tells it
            producer.flush()
            assert formats(broker) == {"events": "0.7"}
            consumer.delete_topic("events")
            wait_for(made_anew)
            wait_for(is_told)
            producer.send("events", b"d")  # it asks again, once it has failed
            assert formats(broker) == {"events": "kafka"}
        found = b"lost"
        while found == b"lost":
            ((*_, found),) = read(broker, "events", 1)
        assert found == b"d"


def test_what_exists_keeps_its_format_and_can_still_be_altered(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, SimpleConsumer(broker.address) as consumer:
        consumer.create_topic("empty", {"retention_time": "3d"})
        send(broker, "sent", b"hello")
    with running_broker(tmp_path, KAFKA) as broker, SimpleConsumer(broker.address) as consumer:
        assert formats(broker) == {"empty": "0.7", "sent": "0.7"}
        consumer.alter_topic("sent", {"retention_time": "1h"})
        consumer.alter_topic("empty", {"partitions": 4})
        for topic in ("empty", "sent"):
            with pytest.raises(SettingRefusedError, match="cleanup_policy"):
                consumer.alter_topic(topic, {"cleanup_policy": "compact"})
            with pytest.raises(SettingRefusedError, match="keeps its format"):
                consumer.alter_topic(topic, {"format": "kafka"})
            send(broker, topic, b"again")
        assert formats(broker) == {"empty": "0.7", "sent": "0.7"}


def test_what_would_be_refused_makes_no_topic(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        with pytest.raises(WrongFormatError, match=r"0\.7's format"):
            send(broker, "with-headers", b"hello", headers={"a": b"b"})
        assert formats(broker) == {}
    with running_broker(tmp_path, {**KAFKA, "auto_create_topics": False}) as broker:
        with pytest.raises(UnknownTopicError):
            send(broker, "sent", b"hello")
        with SyncProducer(broker.host, broker.port) as producer:
            (told,) = producer.send_acknowledged([ProduceRequest("sent", 0, HELLO)])
        assert isinstance(told, UnknownTopicError)
        assert formats(broker) == {}


# -- in a cluster -------------------------------------------------------------------------------


@contextmanager
def three(tmp_path: Path, **settings: Any) -> Iterator[list[RunningBroker]]:
    """Brokers 0 to 2 of one cluster; each knows the others."""
    with ExitStack() as stack:
        brokers: list[RunningBroker] = []
        for number in range(3):
            own: Mapping[str, Any] = {"coordination": "embedded"}
            if brokers:
                place = brokers[0].zookeeper_connect
                own = {"coordination": "zookeeper", "zookeeper_connect": place}
            given = {"broker_id": number, **KAFKA, "num_partitions": 4, **own, **settings}
            brokers.append(stack.enter_context(running_broker(tmp_path / str(number), given)))
        for broker in brokers:
            with SimpleConsumer(broker.address) as consumer:
                wait_for(lambda consumer=consumer: len(consumer.brokers()) == 3)
        yield brokers


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # between two looks; nothing tells


def read(broker: RunningBroker, topic: str, count: int) -> list[tuple[int, bytes, bytes]]:
    """Of each message its partition, key and value, as a client of Kafka's gets it."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
    }
    found: list[tuple[int, bytes, bytes]] = []
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is None:
                found.append((message.partition(), message.key(), message.value()))
    return found


@pytest.mark.parametrize("copies", [1, 3])
def test_a_topic_that_is_produced_to_first_is_the_clusters(tmp_path: Path, copies: int) -> None:
    keys = [f"key {number}" for number in range(12)]

    def produce(broker: RunningBroker, value: bytes) -> None:
        with Producer(ProducerConfig(broker_list=broker.address, acks="flushed")) as producer:
            sent = [producer.send("events", value, key=key) for key in keys]
            for each in sent:
                each.result(60)

    with three(tmp_path, default_replication_factor=copies) as brokers:
        with ThreadPoolExecutor(3) as pool:  # each of them is the first, as it knows
            values = [b"from %d" % number for number in range(3)]
            list(pool.map(produce, brokers, values))
        found = read(brokers[1], "events", 36)
        assert sorted((key.decode(), value) for _, key, value in found) == sorted(
            (key, value) for key in keys for value in values
        )
        assert {number for number, _, _ in found} <= set(range(4))
        # Who came first may have sent before it knew the partitions: all came to where they are.
        produce(brokers[2], b"later")
        listed = [formats(each) for each in brokers]
        assert all(each.get("events", "kafka") == "kafka" for each in listed)
        assert any("events" in each for each in listed)


def test_what_is_produced_waits_until_there_are_brokers_for_the_copies(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    settings = {**KAFKA, "default_replication_factor": 2}
    listen = "tcp:0:interface=127.0.0.1"
    first = start_broker(coordination="embedded", coordination_listen=listen, **settings)
    where = first.wait_for_line("coordination is embedded").partition(" at ")[2].split()[0]
    with (
        Producer(ProducerConfig(zookeeper_connect=where, acks="flushed")) as producer,
        ThreadPoolExecutor(1) as pool,
    ):
        sent = pool.submit(producer.send, "events", b"hello")
        assert "only 1 broker(s)" in first.wait_for_line("events can't be created now for")
        others = {"broker_id": 1, "coordination": "zookeeper", "zookeeper_connect": where}
        start_broker(log_dir=str(tmp_path / "others"), **settings, **others)
        assert sent.result().result().topic == "events"


def test_clients_of_0_7_get_topics_of_their_own_on_each_broker(tmp_path: Path) -> None:
    with three(tmp_path) as brokers:
        send_as_0_7(brokers[0], "of-0.7")
        admin = AdminClient({"bootstrap.servers": brokers[0].bootstrap_servers})
        wait_for(lambda: "of-0.7" in admin.list_topics().topics)
        # Another broker has none of it, and need not have heard of it yet.
        with SyncProducer(brokers[1].host, brokers[1].port) as producer:
            (told,) = producer.send_acknowledged([ProduceRequest("of-0.7", 0, HELLO)])
        assert not isinstance(told, Exception)
        send(brokers[0], "of-0.7", b"to any of them")
        assert formats(brokers[1]) == {"of-0.7": "0.7"}
