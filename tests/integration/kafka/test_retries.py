"""Records that `RetryingConsumer` puts aside keep all they have, in topics of either format."""

import json

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from hermes import ConsumerConfig, ConsumerTimeoutError, RetryingConsumer, RetryMessage
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
        run(kafka, "replay", "-t", "orders.billing.dead", "--dead-letters")
        before, again = shown(kafka, "orders")[:2], shown(kafka, "orders")[2:]
        places = "offset", "next_offset"
        for each in (*before, *again):
            assert [each.pop(name) for name in places]
        assert again == before
        times = run(kafka, "consume", "-t", "orders", "-o", "beginning", "-e", "-f", r"%T\n")
        assert times[2:] == times[:2] == ["1000000000000", "1000000000001"]
