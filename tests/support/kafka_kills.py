"""Idempotent producers of Kafka's, against a broker that is killed again and again."""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hermes_testkit import BrokerProcess
from kafka_loads import PARTITIONS, TOPIC, Load

__all__ = ["KafkaBroker", "check_once_and_in_order", "read_all"]

#: How many messages more must be acknowledged before the next kill: each hits a busy broker.
_BETWEEN = 500


class KafkaBroker(BrokerProcess):
    """A broker that Kafka's clients find at the same port after every start."""

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        self.kafka_port = 0
        kafka = {"kafka_listen": "tcp:0:interface=127.0.0.1"}
        super().__init__(directory, {**kafka, **settings})

    def start(self, wait: bool = True) -> None:
        """See `BrokerProcess`."""
        if self.kafka_port:
            settings = yaml.safe_load(self.config_file.read_text(encoding="utf-8"))
            settings["kafka_listen"] = f"tcp:{self.kafka_port}:interface=127.0.0.1"
            self.config_file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        super().start(wait)
        if not self.kafka_port:
            line = self.wait_for_line("is ready: Hermes")
            found = re.search(r"Kafka on 127\.0\.0\.1:([0-9]+)", line)
            assert found is not None, line
            self.kafka_port = int(found[1])

    @property
    def bootstrap(self) -> str:
        """Where Kafka's clients find it."""
        return f"127.0.0.1:{self.kafka_port}"


def read_all(
    bootstrap: str, partitions: int = PARTITIONS, topic: str = TOPIC
) -> dict[int, list[tuple[int, bytes]]]:
    """All messages of the topic by partition: (offset, value), in the log's order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    places = [TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)]
    ends = {each.partition: consumer.get_watermark_offsets(each, 60)[1] for each in places}
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    consumer.assign(places)
    deadline = time.monotonic() + 120
    left = {number for number, end in ends.items() if end}
    while left:
        assert time.monotonic() < deadline, (left, ends)
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None, message.error()
            number = message.partition()
            found[number].append((message.offset(), message.value()))
            if message.offset() + 1 >= ends[number]:
                left.discard(number)
    consumer.close()
    return found


def check_once_and_in_order(broker: KafkaBroker, start: Callable[[str], Load], kills: int) -> int:
    """Kill and restart a broker under an idempotent producer; then look everything up.

    Each message that was acknowledged must be there once, where it was acknowledged, and the
    messages of a partition in the order of sending. None may fail, as the producer repeats them.
    Each fifth kill is a stop in good order.

    Args:
        broker: with an empty data directory.
        start: starts the producer, by the address of the broker.
        kills: how many times.

    Returns:
        How many were acknowledged.
    """
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"segment.bytes": "65536"})
    admin.create_topics([topic])[TOPIC].result(60)
    load = start(broker.bootstrap)
    try:
        for number in range(kills):
            load.wait_for_more(_BETWEEN)
            if number % 5 == 4:
                broker.stop()
            else:
                broker.kill()
            broker.start()
        load.wait_for_more(_BETWEEN)
    finally:
        load.stop()
    said = [line for line in broker.lines if "#warn" in line or "#error" in line]
    assert not load.failed, (len(load.failed), load.failed[:2], load.failed[-1], said[-20:])
    found: dict[int, tuple[int, int]] = {}
    for partition, messages in read_all(broker.bootstrap).items():
        numbers = [int(value.split()[0]) for _, value in messages]
        assert numbers == sorted(set(numbers)), _difference(numbers)
        places = {int(value.split()[0]): (partition, offset) for offset, value in messages}
        assert not places.keys() & found.keys()
        found |= places
    lost = sorted(load.acknowledged.keys() - found.keys())
    assert not lost, f"lost: {lost[:10]}, {len(lost)} in all"
    for number, place in load.acknowledged.items():
        # A producer says -1 of what the broker knew already.
        assert place in (found[number], (found[number][0], -1)), (number, place, found[number])
    return len(load.acknowledged)


def _difference(numbers: list[int]) -> str:
    twice = sorted(each for each, count in Counter(numbers).items() if count > 1)[:10]
    turned = [pair for pair in pairwise(numbers) if pair[0] > pair[1]][:10]
    return f"{len(numbers)} in a partition; twice: {twice}; turned round: {turned}"
