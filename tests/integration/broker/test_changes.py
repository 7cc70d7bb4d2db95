"""Topics created and altered, and broker.yaml read again, while a broker runs."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hermes_testkit import BrokerProcess
from kazoo.client import KazooClient

from hermes import SimpleConsumer
from hermes.client.simple_consumer import SimpleConsumer as Consumer
from hermes.config.loading import load_broker_config
from hermes.errors import (
    InvalidTopicBrokerError,
    SettingRefusedError,
    StorageError,
    TooManyTopicsError,
    TopicExistsError,
    UnknownTopicError,
)
from hermes.testing import RunningBroker, running_broker

StartBroker = Callable[..., BrokerProcess]
SETTINGS = {
    "num_partitions": 2,
    "max_topics": 4,
    "topics": {"listed": {"partitions": 4, "retention_time": "3d"}},
}


def connected(broker: RunningBroker | BrokerProcess) -> SimpleConsumer:
    return SimpleConsumer("127.0.0.1", broker.port)


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[Consumer]:
    with running_broker(tmp_path / "log", SETTINGS) as broker, connected(broker) as made:
        yield made


def settings_of(consumer: Consumer, topic: str) -> dict[str, tuple[str, str]]:
    return {each.name: (each.value, each.origin) for each in consumer.describe_settings(topic)}


def partition_count(consumer: Consumer, topic: str) -> int:
    return consumer.metadata([topic]).topics[0].partition_count


def test_what_was_set_is_in_force_at_once_and_after_a_restart(tmp_path: Path) -> None:
    with running_broker(tmp_path, SETTINGS) as broker, connected(broker) as consumer:
        consumer.create_topic("clicks", {"partitions": 8, "retention_time": "30d"})
        consumer.create_topic("plain")
        consumer.alter_topic("listed", {"retention_time": "unlimited", "partitions": 6})
        consumer.alter_topic("listed", {"flush_messages": 5})
        expected = {
            "partitions": ("6", "altered"),
            "retention_time": ("unlimited", "altered"),
            "flush_messages": ("5", "altered"),
            "segment_bytes": ("1GiB", "default"),
        }
        assert expected.items() <= settings_of(consumer, "listed").items()
        assert partition_count(consumer, "clicks") == 8
        assert partition_count(consumer, "plain") == 2
        assert partition_count(consumer, "listed") == 6
    with running_broker(tmp_path, SETTINGS) as broker, connected(broker) as consumer:
        assert expected.items() <= settings_of(consumer, "listed").items()
        assert settings_of(consumer, "clicks")["retention_time"] == ("30d", "altered")
        assert partition_count(consumer, "clicks") == 8
        assert partition_count(consumer, "listed") == 6
        consumer.alter_topic("listed", reset=["flush_messages"])
        assert settings_of(consumer, "listed")["flush_messages"] == ("1", "default")
        consumer.alter_topic("listed", reset=None)
        now = settings_of(consumer, "listed")
        assert now["retention_time"] == ("3d", "broker.yaml, topics")
        assert now["partitions"] == ("6", "altered")  # a topic never loses partitions
        consumer.delete_topic("clicks")
        assert partition_count(consumer, "clicks") == 2
    with running_broker(tmp_path, SETTINGS) as broker, connected(broker) as consumer:
        assert [each.topic for each in consumer.metadata().topics] == ["listed", "plain"]
        assert partition_count(consumer, "listed") == 6


def test_consumers_learn_of_more_partitions(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"coordination": "embedded"}) as broker:
        coordination = KazooClient(hosts=broker.zookeeper_connect)
        coordination.start()
        try:
            with connected(broker) as consumer:
                consumer.create_topic("clicks", {"partitions": 2})
                until(lambda: coordination.exists("/brokers/topics/clicks/0") is not None)
                assert coordination.get("/brokers/topics/clicks/0")[0] == b"2"
                consumer.alter_topic("clicks", {"partitions": 5})
                until(lambda: coordination.get("/brokers/topics/clicks/0")[0] == b"5")
        finally:
            coordination.stop()
            coordination.close()


@pytest.mark.parametrize(
    ("topic", "settings", "error", "text"),
    [
        ("listed", {}, TopicExistsError, "topic 'listed' exists already"),
        ("a/b", {}, InvalidTopicBrokerError, "a/b"),
        ("new", {"partitions": 0}, SettingRefusedError, "partitions: expected a whole number"),
        ("new", {"retention_tiem": "1d"}, SettingRefusedError, "did you mean retention_time"),
        ("new", {"retention_policy": "never"}, SettingRefusedError, "retention_policy: "),
        ("hermes-schemas", {"retention_bytes": 1}, SettingRefusedError, "is never trimmed"),
        ("bad topic!", {}, InvalidTopicBrokerError, "other than ASCII alphanumerics"),
        ("x" * 250, {}, InvalidTopicBrokerError, "longer than the max allowed length 249"),
    ],
)
def test_a_topic_that_can_not_be_created_is_refused_with_the_reason(
    consumer: Consumer, topic: str, settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        consumer.create_topic(topic, settings)
    assert [each.topic for each in consumer.metadata().topics] == ["listed"]


def test_what_can_not_be_altered_is_refused_with_the_reason(consumer: Consumer) -> None:
    before = settings_of(consumer, "listed")
    for settings, reset, text in (
        ({"partitions": 3}, (), "partitions: topic 'listed' has 4, and never loses one"),
        ({"partitions": 10_001}, (), "partitions: expected"),
        ({"max_topics": 1}, (), "max_topics: unknown setting"),
        ({}, ("max_topics",), "there is no such setting of a topic"),
        ({"retention_policy": "never"}, (), "retention_policy: "),
    ):
        with pytest.raises(SettingRefusedError, match=text):
            consumer.alter_topic("listed", settings, reset)
    with pytest.raises(UnknownTopicError, match="there is no topic 'new'"):
        consumer.alter_topic("new", {"flush_messages": 1})
    with pytest.raises(SettingRefusedError, match="was not started with"):
        consumer.reload_config()
    consumer.alter_topic("listed", {"partitions": 5})
    with pytest.raises(SettingRefusedError, match="never loses one"):
        consumer.alter_topic("listed", reset=["partitions"])
    assert {**before, "partitions": ("5", "altered")} == settings_of(consumer, "listed")
    for number in range(3):
        consumer.create_topic(f"t{number}")
    with pytest.raises(TooManyTopicsError, match="max_topics=4"):
        consumer.create_topic("t3")


def test_a_damaged_file_keeps_a_broker_from_starting(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, connected(broker) as consumer:
        consumer.create_topic("clicks", {"retention_time": "30d"})
    path = tmp_path / ".hermes_topics"
    content = path.read_text()
    path.write_text(content.replace("30d", "31d"))
    damaged = pytest.raises(StorageError, match=r"hermes_topics is damaged .* move it away")
    with damaged, running_broker(tmp_path):
        pass
    path.write_text(content)
    with running_broker(tmp_path) as broker, connected(broker) as consumer:
        assert settings_of(consumer, "clicks")["retention_time"] == ("30d", "altered")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # between two looks; nothing tells


def test_a_broker_reads_its_file_again_and_keeps_what_was_altered(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(
        max_connections=50, topics={"a": {"retention_time": "1d"}, "b": {"flush_messages": 10**6}}
    )
    config = yaml.safe_load(broker.config_file.read_text())

    def write(**settings: Any) -> None:
        broker.config_file.write_text(yaml.safe_dump({**config, **settings}))

    with connected(broker) as consumer:
        consumer.alter_topic("a", {"retention_time": "30d"})
        entries = {"a": {"retention_time": "2d", "flush_messages": 3}, "new": {"partitions": 3}}
        write(max_connections=60, broker_id=9, topics=entries)
        told = consumer.reload_config()
        assert {(each.name, each.after) for each in told.changed} == {
            ("max_connections", "60"),
            ("topics.a.flush_messages", "3"),
            ("topics.b", "not listed"),
            ("topics.b.flush_messages", "1"),
            ("topics.new", "listed"),
            ("topics.new.partitions", "3"),
        }
        assert {(each.name, each.after) for each in told.left} == {
            ("broker_id", "9"),
            ("topics.a.retention_time", "2d"),
        }
        assert settings_of(consumer, "")["max_connections"] == ("60", "broker.yaml")
        assert settings_of(consumer, "a")["retention_time"] == ("30d", "altered")
        assert partition_count(consumer, "new") == 3
        write(max_connections=0)
        for _ in range(6):  # more than are logged; the next one that succeeds is all the same
            with pytest.raises(SettingRefusedError, match=r"max_connections: expected .* got 0"):
                consumer.reload_config()
        assert settings_of(consumer, "")["max_connections"] == ("60", "broker.yaml")
        write(max_connections=70, log_level="debug")
        os.kill(broker.process.pid, signal.SIGHUP)
        until(lambda: settings_of(consumer, "")["max_connections"][0] == "70")
        lines = [each.message for each in consumer.recent_log_lines(max_lines=1000).lines]
    assert any(each.startswith("broker.yaml was read again for 127.0.0.1:") for each in lines)
    assert any(each.startswith("broker.yaml was read again for SIGHUP;") for each in lines)
    assert any("nothing has changed" in each and "got 0" in each for each in lines)
    assert any(each.startswith("left as it was: broker_id: 9 (it needs") for each in lines)
    assert load_broker_config(broker.config_file).max_connections == 70


def test_a_topic_of_kafkas_format_shows_the_partitions_that_it_gets(
    consumer: SimpleConsumer,
) -> None:
    consumer.create_topic("records", {"format": "kafka", "partitions": 2})
    consumer.alter_topic("records", {"partitions": 4})
    (topic,) = consumer.metadata(["records"]).topics
    assert list(topic.numbers) == [0, 1, 2, 3]
