"""Kills under an idempotent producer of Kafka's: each message once, in order."""

from functools import partial
from pathlib import Path

from kafka_kills import KafkaBroker, check_once_and_in_order
from kafka_loads import LibrdkafkaLoad


def test_what_librdkafka_sends_is_there_once_and_in_order(tmp_path: Path) -> None:
    settings = {
        "log_dir": str(tmp_path / "log"),
        "coordination": "embedded",
        "coordination_listen": "tcp:0:interface=127.0.0.1",
    }
    broker = KafkaBroker(tmp_path / "broker", settings)
    try:
        check_once_and_in_order(broker, partial(LibrdkafkaLoad, seed=7), kills=10)
    finally:
        broker.stop()
