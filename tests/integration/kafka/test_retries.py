"""Records that `RetryingConsumer` puts aside keep all they have, in topics of either format."""

import json

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer

from hermes import (
    ConsumerConfig,
    ConsumerTimeoutError,
    RecordRetries,
    RetryingConsumer,
    RetryMessage,
)
from hermes.cli import program
from hermes.client import SimpleConsumer
from hermes.testing import RunningKafka, running_kafka

SETTINGS = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}


def run(kafka: RunningKafka, command: str, *arguments: str) -> list[str]:
    line = [command, "-b", f"{kafka.host}:{kafka.port}", "-q", *arguments]
    result = CliRunner().invoke(program, line)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def shown(kafka: RunningKafka, topic: str) -> list[dict[str, object]]:
    lines = run(kafka, "consume", "-t", topic, "-o", "beginning", "-e", "-J")
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("letters_format", ["0.7", "kafka"])
def test_a_record_keeps_key_headers_and_time_until_it_is_replayed(letters_format: str) -> None:
    seen: list[RetryMessage] = []

    def fail(message: RetryMessage) -> None:
        seen.append(message)
        raise ValueError("not yet")

    with running_kafka(topics={"orders": 1}, settings=SETTINGS) as kafka:
        with SimpleConsumer(kafka.host, kafka.port) as client:
            for name in ("orders.billing.retry.1", "orders.billing.dead"):
                client.create_topic(name, {"format": letters_format})
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        headers = [("from", b"shop"), ("from", None)]
        producer.produce("orders", b"2 books", b"k1", headers=headers, timestamp=1_000_000_000_000)
        producer.produce("orders", None, b"k2", timestamp=1_000_000_000_001)
        assert producer.flush(60) == 0
        config = ConsumerConfig(
            group="billing", zookeeper_connect=str(kafka.zookeeper_connect), consumer_timeout="3s"
        )
        with RetryingConsumer(config, ["orders"], delays=["10ms"]) as consumer:
            while consumer.metrics().dead < 2:
                with pytest.raises(ConsumerTimeoutError):
                    consumer.run(fail)
        first = [each for each in seen if each.key == b"k1"]
        assert [each.attempt for each in first] == [1, 2]
        for each in first:
            assert (each.headers, each.timestamp_ms) == (tuple(headers), 1_000_000_000_000)
        letters = shown(kafka, "orders.billing.dead")
        if letters_format == "kafka":
            assert [each["key"] for each in letters] == ["k1", "k2"]
            assert [each["payload"] for each in letters] == ["2 books", None]
        run(kafka, "replay", "-t", "orders.billing.dead", "--dead-letters")
        before, again = shown(kafka, "orders")[:2], shown(kafka, "orders")[2:]
        places = "offset", "next_offset"
        for each in (*before, *again):
            assert [each.pop(name) for name in places]
        counted = {"name": "hermes-attempts-before", "value": "2"}
        for each in again:
            given = each["headers"]
            assert isinstance(given, list)
            assert given.pop() == counted
            if not given:
                del each["headers"]
        assert again == before
        times = run(kafka, "consume", "-t", "orders", "-o", "beginning", "-e", "-f", r"%T\n")
        assert times[2:] == times[:2] == ["1000000000000", "1000000000001"]


def test_both_kinds_of_clients_take_each_others_letters() -> None:
    """Up the ladder: a first failure by Kafka's client, a second by Hermes', a third by Kafka's."""
    topics = dict.fromkeys(["orders", "orders.g.retry.1", "orders.g.retry.2", "orders.g.dead"], 2)
    retries = RecordRetries("g", ["orders"], delays=["10ms", "10ms"])
    seen: list[RetryMessage] = []
    with running_kafka(topics=topics, settings=SETTINGS) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})

        def take(topic: str) -> None:
            """Read a topic's only record, as a consumer of Kafka's, and let it fail."""
            settings = {"group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
            consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
            consumer.subscribe([topic])
            while (record := consumer.poll(1)) is None or record.error():
                pass
            consumer.close()
            given = record.value(), record.key(), record.headers(), record.timestamp()[1]
            taken = retries.take(record.topic(), record.partition(), record.offset(), *given)
            seen.append(taken.message)
            failed = taken.failed(KeyError("Kafka's"))
            producer.produce(*failed[:3], headers=failed.headers)
            assert producer.flush(60) == 0

        def fail(message: RetryMessage) -> None:
            seen.append(message)
            consumer.stop()
            raise ValueError("Hermes'")

        headers = [("from", b"shop"), ("from", None), ("hermes-attempts", b"\xff" * 1000)]
        producer.produce("orders", b"books", b"k", 1, headers=headers, timestamp=1_000_000_000_000)
        assert producer.flush(60) == 0
        take("orders")
        config = ConsumerConfig(
            group="g",
            zookeeper_connect=str(kafka.zookeeper_connect),
            auto_offset_reset="largest",  # of "orders" nothing
        )
        with RetryingConsumer(config, ["orders"], delays=["10ms", "10ms"]) as consumer:
            consumer.run(fail)
        take("orders.g.retry.2")
        assert [each.attempt for each in seen] == [1, 2, 3]
        assert [each.reason for each in seen[1:]] == ['KeyError: "Kafka\'s"', "ValueError: Hermes'"]
        for each in seen:
            assert (each.topic, each.partition, each.offset) == ("orders", 1, 0)
            assert (each.message, each.key, each.headers[:2]) == (
                b"books",
                b"k",
                tuple(headers[:2]),
            )
            assert each.timestamp_ms == 1_000_000_000_000
        run(kafka, "replay", "-t", "orders.g.dead", "--dead-letters")
        replayed = shown(kafka, "orders")[1]
        assert (replayed["key"], replayed["payload"]) == ("k", "books")
        names = [each["name"] for each in replayed["headers"]]  # type: ignore[attr-defined]
        assert names == ["from", "from", "hermes-attempts-before"]
        run(kafka, "replay", "-t", "orders.g.dead", "--dead-letters", "--to-group")
        again = shown(kafka, "orders.g.retry.1")[1]
        dead = shown(kafka, "orders.g.dead")[0]
        assert again["headers"] == dead["headers"], "attempts are counted on"
