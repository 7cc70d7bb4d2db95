"""A mirror of a topic of Kafka's format, beside a confluent-kafka consumer and producer.

Two brokers of Hermes, each a cluster of its own, and `hermes mirror` between them, which reads by
Kafka's protocol and writes once: three processes with their defaults. The source's topic is there
already, and the mirror's rate counts from the first message that the target has. Beside that, in
turns, one confluent-kafka consumer that reads the same topic, and one producer (`acks=all`) that
writes as much into the target, two processes at the same time; their rate is that of the slower.
"""

import multiprocessing
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from bench.measurements.kafka import consume, produce
from bench.support.load import make_payloads
from bench.support.processes import Program
from bench.support.report import Row, ratio_row
from bench.support.servers import HermesBroker
from bench.support.settings import Settings

__all__ = ["measure"]

_TARGET_SHARE = 0.6
_TOPIC, _BESIDE = "bench", "beside"
_DISTINCT_PAYLOADS = 1_000
_THOUSAND, _MILLION = 1e3, 1e6
_MOST_ROUNDS = 3
_SETTINGS = {
    "coordination": "embedded",
    "coordination_listen": "tcp:0:interface=127.0.0.1",
    "kafka_listen": "tcp:0:interface=127.0.0.1",
}


def measure(settings: Settings) -> list[Row]:
    """Measure both rates, of messages of 200 bytes."""
    count = int(settings.messages * _MILLION)
    mirrored: list[float] = []
    beside: list[float] = []
    for _ in range(min(settings.rounds, _MOST_ROUNDS)):
        with (
            settings.workspace() as directory,
            HermesBroker(directory / "source", **_SETTINGS) as source,
            HermesBroker(directory / "target", **_SETTINGS) as target,
        ):
            produce(_address(source), _TOPIC, make_payloads(_DISTINCT_PAYLOADS), count)
            beside.append(_consumer_and_producer(_address(source), _address(target), count))
            with _mirror(directory, source, target):
                mirrored.append(_rate_of_arrival(_address(target)))
    return [
        ratio_row(
            "mirror, topic of Kafka's format, 200-byte messages",
            "k messages/s",
            mirrored,
            beside,
            beside_name="a confluent-kafka consumer and producer",
            at_least=_TARGET_SHARE,
        )
    ]


def _address(broker: HermesBroker) -> str:
    assert broker.kafka_address is not None
    return "{}:{}".format(*broker.kafka_address)


def _mirror(directory: Path, source: HermesBroker, target: HermesBroker) -> Program:
    values: dict[str, Any] = {
        "name": "bench",
        "sources": [{"name": "source", "kafka": _address(source)}],
        "target": {"brokers": "{}:{}".format(*target.address)},
        "whitelist": _TOPIC,
    }
    path = directory / "mirror.yaml"
    path.write_text(yaml.safe_dump(values))
    hermes = shutil.which("hermes", path=str(Path(sys.executable).parent)) or "hermes"
    return Program("mirror", [hermes, "mirror", "--config", str(path)], directory=directory)


def _rate_of_arrival(target: str) -> float:
    """Thousands of messages per second, from the first that is there until the mirror rests."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": target, "group.id": "bench"})

    def end() -> int:
        try:
            place = TopicPartition(_TOPIC, 0)
            reached: int = consumer.get_watermark_offsets(place, timeout=1)[1]
        except KafkaException:  # it isn't there yet
            return 0
        return reached

    try:
        while (first := end()) == 0:
            time.sleep(0.001)
        began = last_news = time.perf_counter()
        reached = first
        while time.perf_counter() - last_news < 2:
            if (now := end()) > reached:
                reached, last_news = now, time.perf_counter()
            time.sleep(0.001)
    finally:
        consumer.close()
    return (reached - first) / (last_news - began) / _THOUSAND


def _consumer_and_producer(source: str, target: str, count: int) -> float:
    """Thousands of messages per second of the slower one, while both work."""
    spawning = multiprocessing.get_context("spawn")
    results: Any = spawning.Queue()
    together = spawning.Barrier(2)
    works = [
        spawning.Process(target=work, args=(address, count, together, results))
        for work, address in ((_consume, source), (_produce, target))
    ]
    for each in works:
        each.start()
    rates = [results.get() for _ in works]
    for each in works:
        each.join()
    return float(min(rates)) / _THOUSAND


def _consume(address: str, _count: int, together: Any, results: Any) -> None:
    together.wait()
    results.put(consume(address, _TOPIC))


def _produce(address: str, count: int, together: Any, results: Any) -> None:
    payloads = make_payloads(_DISTINCT_PAYLOADS)
    together.wait()
    results.put(produce(address, _BESIDE, payloads, count))
