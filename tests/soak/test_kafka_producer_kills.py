"""Fifty kills under an idempotent producer of Kafka's, without coordination and with it."""

from pathlib import Path

import pytest
from kafka_kills import (
    KafkaBroker,
    check_java_once_and_in_order,
    check_once_and_in_order,
    restart,
)
from soak import report, seed, times


@pytest.mark.soak
@pytest.mark.parametrize("coordination", ["none", "embedded"])
def test_what_librdkafka_sends_is_there_once_and_in_order(
    tmp_path: Path, coordination: str
) -> None:
    settings = {"log_dir": str(tmp_path / "log"), "coordination": coordination}
    if coordination == "embedded":
        settings["coordination_listen"] = "tcp:0:interface=127.0.0.1"
    number = seed()
    broker = KafkaBroker(tmp_path / "broker", settings)
    try:
        kills = times(50)
        sent = check_once_and_in_order(broker, kills, number, restart)
        report(
            "kills under an idempotent producer",
            coordination=coordination,
            seed=number,
            kills=kills - kills // 5,
            stops=kills // 5,
            messages=sent,
            lost=0,
            twice=0,
        )
    finally:
        broker.stop()


@pytest.mark.soak
def test_what_java_sends_is_there_once_and_in_order(tmp_path: Path) -> None:
    settings = {"log_dir": str(tmp_path / "log"), "coordination": "none"}
    broker = KafkaBroker(tmp_path / "broker", settings)
    try:
        kills = times(50)
        sent = check_java_once_and_in_order(broker, kills, tmp_path)
        report(
            "kills under Java's producer",
            kills=kills - kills // 5,
            stops=kills // 5,
            messages=sent,
            lost=0,
            twice=0,
        )
    finally:
        broker.stop()
