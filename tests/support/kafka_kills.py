"""Idempotent producers of Kafka's, against a broker that is killed again and again."""

import json
import random
import re
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hermes_testkit import BrokerProcess
from kafka_4 import TOOLS, java_command

__all__ = [
    "KafkaBroker",
    "check_java_once_and_in_order",
    "check_once_and_in_order",
    "read_all",
    "restart",
]

TOPIC = "clicks"
PARTITIONS = 3

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


class _Load:
    """Sends numbered messages from a thread until told to stop, by librdkafka."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 20,  # so that several batches are under way at once
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._known = threading.Condition()
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failed: list[str] = []
        self.sent = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self.sent - len(self.acknowledged) > 5000:
                self._producer.poll(0.01)
                continue
            number = self.sent
            size = self._random.choice((8, 8, 8, 300))
            self._producer.produce(
                TOPIC,
                b"%d %s" % (number, b"x" * size),
                partition=number % PARTITIONS,
                on_delivery=lambda error, message, number=number: self._told(
                    number, error, message
                ),
            )
            self.sent += 1
            self._producer.poll(0)
        self._producer.flush(120)

    def _told(self, number: int, error: Any, message: Any) -> None:
        with self._known:
            if error is not None:
                self.failed.append(str(error))
            else:
                self.acknowledged[number] = (message.partition(), message.offset())
            self._known.notify()

    def wait_for_more(self, count: int) -> None:
        with self._known:
            goal = len(self.acknowledged) + count
            done = self._known.wait_for(lambda: self.failed or len(self.acknowledged) >= goal, 120)
        assert done, f"{len(self.acknowledged)} acknowledged, and no more"
        assert not self.failed, self.failed[0]

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(180)
        assert not self._thread.is_alive()


def restart(broker: KafkaBroker) -> None:
    """Stop a broker well, and start it again."""
    broker.stop()
    broker.start()


def create_topic(bootstrap: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (created,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=config)]).values()
    created.result(60)


def read_all(bootstrap: str, partitions: int = PARTITIONS) -> dict[int, list[tuple[int, bytes]]]:
    """All messages of the topic by partition: (offset, value), in the log's order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    places = [TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in range(partitions)]
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


def check_once_and_in_order(
    broker: KafkaBroker, kills: int, seed: int, restart: Callable[[KafkaBroker], None] | None = None
) -> int:
    """Kill and restart a broker under an idempotent producer; then look everything up.

    Each message that was acknowledged must be there once, where it was acknowledged, and the
    messages of a partition in the order of sending. None may fail, as the producer repeats them.

    Returns:
        How many were acknowledged.
    """
    create_topic(broker.bootstrap, **{"segment.bytes": "65536"})
    load = _Load(broker.bootstrap, seed)
    try:
        for number in range(kills):
            load.wait_for_more(_BETWEEN)
            if restart is not None and number % 5 == 4:
                restart(broker)
            else:
                broker.kill()
                broker.start()
        load.wait_for_more(_BETWEEN)
    finally:
        load.stop()
    assert not load.failed, load.failed[0]
    assert len(load.acknowledged) == load.sent
    stored = read_all(broker.bootstrap)
    for partition in range(PARTITIONS):
        numbers = [int(value.split()[0]) for _, value in stored[partition]]
        wanted = [n for n in range(load.sent) if n % PARTITIONS == partition]
        assert numbers == wanted, _difference(numbers, wanted)
        for number, (offset, _) in zip(numbers, stored[partition], strict=True):
            # librdkafka says -1 of what the broker knew already.
            assert load.acknowledged[number] in ((partition, offset), (partition, -1))
    return load.sent


def _difference(found: list[int], wanted: list[int]) -> str:
    twice = sorted({each for each in found if found.count(each) > 1})[:10] if found else []
    lost = sorted(set(wanted) - set(found))[:10]
    return f"{len(found)} of {len(wanted)}; lost: {lost}; twice: {twice}"


class _JavaLoad:
    """Kafka's own producer of numbered messages in a JVM, idempotent as it is by default."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        settings = directory / "producer.properties"
        # The tool would not repeat anything unless told to.
        settings.write_text(
            "enable.idempotence=true\nretries=2147483647\nretry.backoff.ms=20\n"
            "reconnect.backoff.ms=20\nreconnect.backoff.max.ms=100\nlinger.ms=1\n"
            "batch.size=500\nmetadata.max.age.ms=1000\n",
            encoding="utf-8",
        )
        self._known = threading.Condition()
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.others: list[str] = []
        self._process = subprocess.Popen(
            java_command(
                TOOLS["kafka-verifiable-producer"],
                *("--bootstrap-server", bootstrap),
                *("--topic", TOPIC),
                *("--throughput", "2000"),
                *("--command-config", str(settings)),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line) if line.startswith("{") else {}
            with self._known:
                if told.get("name") == "producer_send_success":
                    place = told["partition"], told["offset"]
                    self.acknowledged[int(told["value"])] = place
                elif told.get("name") not in ("startup_complete", "tool_data", "shutdown_complete"):
                    self.others.append(line)
                self._known.notify()
        with self._known:
            self._known.notify()

    def wait_for_more(self, count: int) -> None:
        with self._known:
            goal = len(self.acknowledged) + count
            done = self._known.wait_for(
                lambda: len(self.acknowledged) >= goal or self._process.poll() is not None, 120
            )
        assert done, f"{len(self.acknowledged)} acknowledged, and no more"
        assert self._process.poll() is None, self.others[-5:]

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(120)
        finally:
            self._process.kill()
            self._thread.join()
            assert self._process.stdout is not None
            self._process.stdout.close()


def check_java_once_and_in_order(broker: KafkaBroker, kills: int, directory: Path) -> int:
    """The same for Java's producer.

    Returns:
        How many were acknowledged.
    """
    create_topic(broker.bootstrap, **{"segment.bytes": "65536"})
    load = _JavaLoad(broker.bootstrap, directory)
    try:
        for number in range(kills):
            load.wait_for_more(_BETWEEN)
            if number % 5 == 4:
                restart(broker)
            else:
                broker.kill()
                broker.start()
        load.wait_for_more(_BETWEEN)
    finally:
        load.stop()
    errors = [line for line in load.others if "producer_send_error" in line]
    said = [line for line in broker.lines if "#warn" in line or "#error" in line]
    assert not errors, (len(errors), errors[:2], errors[-1], said[-20:])
    stored = read_all(broker.bootstrap)
    found: dict[int, tuple[int, int]] = {}
    for partition, messages in stored.items():
        numbers = [int(value) for _, value in messages]
        assert numbers == sorted(set(numbers)), _difference(numbers, sorted(set(numbers)))
        found |= {int(value): (partition, offset) for offset, value in messages}
    lost = sorted(load.acknowledged.keys() - found.keys())
    assert not lost, lost[:10]
    for number, place in load.acknowledged.items():
        assert place in (found[number], (found[number][0], -1)), (number, place, found[number])
    return len(load.acknowledged)
