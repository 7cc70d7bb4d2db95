"""`hermes replay` of topics of Kafka's format: records are copied whole, or not at all."""

import json
from pathlib import Path

from click.testing import CliRunner
from confluent_kafka import Producer

from hermes.cli import program
from hermes.client import SimpleConsumer
from hermes.testing import running_broker, running_kafka


def run(*arguments: str) -> list[str]:
    result = CliRunner().invoke(program, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_keys_headers_times_and_tombstones_are_copied() -> None:
    with running_kafka(topics={"orders": 1, "again": 1}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        headers = [("a", b"1"), ("a", None)]
        producer.produce("orders", b"paid", b"k1", headers=headers, timestamp=1_000_000_000_000)
        producer.produce("orders", None, b"k1", timestamp=1_000_000_000_001)
        producer.produce("orders", b"alone", timestamp=1_000_000_000_002)
        assert producer.flush(60) == 0
        place = "-b", f"{kafka.host}:{kafka.port}"
        (said,) = run("replay", *place, "-t", "orders", "--to", "again", "-q")
        assert said.startswith("3 messages")
        read = "consume", *place, "-o", "beginning", "-e", "-q"
        shown = [json.loads(line) for line in run(*read, "-t", "again", "-J")]
        expected = [json.loads(line) for line in run(*read, "-t", "orders", "-J")]
        assert [each | {"topic": "again"} for each in expected] == shown
        assert (shown[0]["key"], len(shown[0]["headers"]), shown[1]["payload"]) == ("k1", 2, None)
        assert run(*read, "-t", "again", "-f", "%T ", "-p", "0") == [
            "1000000000000 1000000000001 1000000000002 "
        ]


def test_speed_is_measured_also_over_messages_without_a_value() -> None:
    with running_kafka(topics={"orders": 1}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        producer.produce("orders", None, b"k1")
        producer.produce("orders", b"12345")
        assert producer.flush(60) == 0
        place = "-b", f"{kafka.host}:{kafka.port}"
        measured = json.loads(run("perf", "consume", *place, "-t", "orders", "--json")[0])
        assert (measured["messages"], measured["size_bytes"]) == (2, 5)


def test_what_the_other_format_would_lose_is_not_copied() -> None:
    with running_kafka(topics={"orders": 1}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        producer.produce("orders", b"first")
        producer.flush(60)
        place = "-b", f"{kafka.host}:{kafka.port}"
        with SimpleConsumer(kafka.host, kafka.port) as client:
            client.create_topic("old", {"format": "0.7"})
        run("replay", *place, "-t", "orders", "--to", "old", "-q")
        producer.produce("orders", b"second", b"key")
        assert producer.flush(60) == 0
        line = ["replay", *place, "-t", "orders", "--to", "old", "-p", "0", "-o", "1", "-q"]
        refused = CliRunner().invoke(program, line)
        assert refused.exit_code == 1
        assert "topic 'old' has 0.7's format, which keeps payloads alone" in refused.stderr
        assert run("consume", *place, "-t", "old", "-o", "beginning", "-e", "-q") == ["first"]


def test_a_topic_that_is_not_there_becomes_like_the_one_that_is_read() -> None:
    """What is sent first would create it: with one partition, and for payloads alone."""
    with running_kafka(topics={"orders": 3}) as kafka:
        place = "-b", f"{kafka.host}:{kafka.port}"
        with SimpleConsumer(kafka.host, kafka.port) as client:
            client.alter_topic("orders", {"retention_time": "30d", "cleanup_policy": "compact"})
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
            for number in range(3):
                producer.produce("orders", b"paid", b"key", partition=number)
            assert producer.flush(60) == 0
            line = ["replay", *place, "-t", "orders", "--to", "again", "-q"]
            run(*line)
            (described,) = client.metadata(["again"]).topics
            assert (described.holds_records, described.partition_count) == (True, 3)
            assert [each.high_watermark for each in described.partitions] == [1, 1, 1]
            assert own_settings(client, "again") == own_settings(client, "orders")
            run(*line)


def own_settings(client: SimpleConsumer, topic: str) -> dict[str, str]:
    own = ("altered", "broker.yaml, topics")
    found = client.describe_settings(topic)
    return {each.name: each.value for each in found if each.origin in own}


def test_a_refused_replay_creates_nothing() -> None:
    with running_kafka(topics={"orders": 2}) as kafka:
        line = ["replay", "-b", f"{kafka.host}:{kafka.port}", "--to", "again", "-q"]
        assert CliRunner().invoke(program, [*line, "-t", "missing"]).exit_code == 1
        assert CliRunner().invoke(program, [*line, "-t", "orders", "-o", "7"]).exit_code == 2
        with SimpleConsumer(kafka.host, kafka.port) as client:
            assert [each.topic for each in client.metadata().topics] == ["orders"]


def test_what_files_hold_is_replayed_into_a_topic_like_theirs(tmp_path: Path) -> None:
    line = ["-t", "old", "--to", "new", "-q", "--log-dir", str(tmp_path)]
    settings = {"retention_time": "30d", "partitions": "2"}
    with running_broker(tmp_path) as broker, SimpleConsumer(broker.host, broker.port) as client:
        client.create_topic("old", settings)
        run("produce", "-b", f"{broker.host}:{broker.port}", "-t", "old", "-p", "1", __file__)
    with running_broker() as broker, SimpleConsumer(broker.host, broker.port) as client:
        run("replay", "-b", f"{broker.host}:{broker.port}", *line)
        assert own_settings(client, "new") == {**settings, "format": "0.7"}
