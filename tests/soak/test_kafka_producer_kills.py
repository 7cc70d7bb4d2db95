"""Fifty kills under an idempotent producer of Kafka's, without coordination and with it."""

from functools import partial
from pathlib import Path

import pytest
from kafka_kills import KafkaBroker, check_once_and_in_order
from kafka_loads import JavaLoad, LibrdkafkaLoad
from soak import report, seed, times


@pytest.mark.soak
@pytest.mark.parametrize("coordination", ["none", "embedded"])
@pytest.mark.parametrize("client", ["librdkafka", "java"])
def test_what_is_sent_is_there_once_and_in_order(
    tmp_path: Path, client: str, coordination: str
) -> None:
    settings = {"log_dir": str(tmp_path / "log"), "coordination": coordination}
    if coordination == "embedded":
        settings["coordination_listen"] = "tcp:0:interface=127.0.0.1"
    number, kills = seed(), times(50)
    loads = {
        "librdkafka": partial(LibrdkafkaLoad, seed=number),
        "java": partial(JavaLoad, directory=tmp_path),
    }
    broker = KafkaBroker(tmp_path / "broker", settings)
    try:
        sent = check_once_and_in_order(broker, loads[client], kills)
    finally:
        broker.stop()
    report(
        "kills under an idempotent producer",
        client=client,
        coordination=coordination,
        seed=number,
        kills=kills - kills // 5,
        stops=kills // 5,
        messages=sent,
        lost=0,
        twice=0,
    )
