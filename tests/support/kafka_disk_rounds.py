"""One data directory and one port under Kafka 4 and Hermes in turn, each killed at its work.

Clients don't notice who serves: an idempotent producer goes on from one to the other. Kafka's own
tool looks through the files that each kill of Hermes leaves, indexes and snapshots included.
"""

import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_4 import KafkaProcess, run_tool
from kafka_kills import KafkaBroker, read_all
from kafka_loads import PARTITIONS, TOPIC, LibrdkafkaLoad

__all__ = ["Account", "SharedDirectory", "Table", "check_everything", "dump"]

TABLE = "table"
_PATIENCE_SECONDS = 300
_KAFKA = {
    "log.cleaner.backoff.ms": 100,
    "log.retention.check.interval.ms": 1000,
    "log.segment.delete.delay.ms": 0,
}
_HERMES = {"segment_bytes": "64KiB", "retention_check_interval": "1s", "broker_id": 1}
#: So that their names fit into an argument.
_DUMPED_AT_ONCE = 1000
_FAULTS = re.compile(
    "ismatch|out of order|isvalid: false|not found|rror|xception|Found (?!\\d+ invalid bytes)"
)


class SharedDirectory:
    """Kafka 4 and Hermes, of which at most one runs.

    Args:
        directory: for all of their files.

    Attributes:
        data: the data directory.
        half_exchanged: how often Kafka was killed while it exchanged compacted segments, so that it
            had to be started once more, as docs/log-format.md says.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.kafka = KafkaProcess(directory / "kafka", _KAFKA)
        self.data = directory / "kafka" / "data"
        self.hermes: KafkaBroker | None = None
        self.half_exchanged = 0

    @property
    def address(self) -> str:
        """Where clients find whoever runs."""
        return self.kafka.address

    def start_kafka(self) -> None:
        """Start Kafka, and wait until it serves."""
        self.kafka.start()

    def start_hermes(self) -> None:
        """Start Hermes, and wait until it serves."""
        if self.hermes is not None:
            self.hermes.start()
            return
        settings: dict[str, Any] = {
            **_HERMES,
            "log_dir": str(self.data),
            "kafka_listen": f"tcp:{self.kafka.port}:interface=127.0.0.1",
            "topics": {TABLE: {"format": "kafka", "cleanup_policy": "compact"}},
        }
        self.hermes = KafkaBroker(self._directory / "hermes", settings)

    def wait_for_compaction(self) -> None:
        """Wait until Hermes has compacted the table, since it was started."""
        assert self.hermes is not None
        self.hermes.wait_for_line(f"of {TABLE}-0, up to offset")

    def end_kafka(self, *, is_killed: bool) -> None:
        """Kill it or stop it."""
        self.kafka.kill() if is_killed else self.kafka.stop()
        while list(self.data.glob("*/*.swap")):
            self.half_exchanged += 1
            self.kafka.start()
            self.kafka.stop()

    def end_hermes(self, *, is_killed: bool) -> None:
        """Kill it or stop it; none of its partitions may have been out of service."""
        assert self.hermes is not None
        self.hermes.kill() if is_killed else self.hermes.stop()
        bad = [line for line in self.hermes.lines if "#error" in line or "#critical" in line]
        assert not bad, bad[:3]

    def end(self) -> None:
        """Kill whoever runs."""
        self.kafka.kill()
        if self.hermes is not None:
            self.hermes.kill()

    def check_logs(self) -> None:
        """Look whether Kafka complained of a partition's files."""
        text = (self.kafka.directory / "output").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            is_ours = any(f"{topic}-" in line for topic in (TOPIC, TABLE))
            assert not (is_ours and ("ERROR" in line or "stray" in line)), line


@dataclass
class Account:
    """What was asked for besides messages, and answered.

    Attributes:
        starts: of each partition, where it was told to begin.
        cuts: how often one was told to.
        dumped: how many files Kafka's tool has looked through.
    """

    starts: dict[int, int] = field(default_factory=dict)
    cuts: int = 0
    dumped: int = 0

    def delete_records(self, address: str, load: LibrdkafkaLoad, chance: random.Random) -> None:
        """Let a partition begin at a later offset, somewhere in its first third."""
        partition = chance.randrange(PARTITIONS)
        start = self.starts.get(partition, 0)
        places = list(load.acknowledged.values())
        end = max((offset for number, offset in places if number == partition), default=0)
        wanted = TopicPartition(TOPIC, partition, start + max(0, end - start) // 3)
        admin = _admin(address)
        (answer,) = admin.delete_records([wanted], request_timeout=60).values()
        assert answer.result(120).low_watermark == wanted.offset
        self.starts[partition] = wanted.offset
        self.cuts += 1


class Table:
    """Keyed messages to a compacted topic, each acknowledged.

    Attributes:
        latest: of each key the number of its last message.
    """

    def __init__(self, address: str, seed: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "message.timeout.ms": _PATIENCE_SECONDS * 1000,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._chance = random.Random(seed)
        self._failed: list[str] = []
        self.latest: dict[bytes, int] = {}
        self.sent = 0

    def write(self, count: int) -> None:
        """Write so many messages, and wait for the answers."""
        for _ in range(count):
            key = b"%d" % self._chance.randrange(50)
            self.sent += 1
            self.latest[key] = self.sent
            value = b"%d %s" % (self.sent, self._chance.randbytes(1000))
            self._producer.produce(TABLE, value, key, partition=0, on_delivery=self._told)
        assert self._producer.flush(_PATIENCE_SECONDS) == 0
        assert not self._failed, self._failed[:3]

    def _told(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(str(error))


@contextmanager
def loads(address: str, seed: int) -> Iterator[tuple[LibrdkafkaLoad, Table]]:
    """Make the topics, and send to them until the end."""
    # Whoever asks stays until it is answered: its end would be an answer, too.
    options = {"segment.bytes": "1048576"}
    compacted = {**options, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    wanted = [
        NewTopic(TOPIC, PARTITIONS, 1, config=options),
        NewTopic(TABLE, 1, 1, config=compacted),
    ]
    admin = _admin(address)
    for each in admin.create_topics(wanted, request_timeout=60).values():
        each.result(120)
    load = LibrdkafkaLoad(address, seed, _PATIENCE_SECONDS)
    try:
        yield load, Table(address, seed)
    except BaseException:
        load.give_up()
        raise
    finally:
        load.stop()


def _admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0})


def dump(data: Path) -> int:
    """Have Kafka's DumpLogSegments look through all files of the two topics.

    Returns:
        How many files it has looked through.

    Raises:
        AssertionError: it found a fault. Bytes at a file's end that are no whole batch are none: a
            kill may cut a write short.
    """
    files = [
        path
        for topic in (TOPIC, TABLE)
        for kind in ("log", "index", "timeindex", "snapshot")
        for path in sorted(data.glob(f"{topic}-*/*.{kind}"))
        if kind == "log" or path.stat().st_size
    ]
    for first in range(0, len(files), _DUMPED_AT_ONCE):
        some = files[first : first + _DUMPED_AT_ONCE]
        names = ",".join(os.path.relpath(each, data) for each in some)
        text = run_tool("kafka-dump-log", "--deep-iteration", "--files", names, cwd=data)
        for line in text.splitlines():
            assert not _FAULTS.search(line), line
    return len(files)


def check_everything(address: str, load: LibrdkafkaLoad, table: Table, account: Account) -> None:
    """Hold what whoever runs serves against what was acknowledged.

    Each message that was acknowledged is there once, at its offset and in the order of sending,
    unless it lies before a start that was asked for; of each key of the table the last message is.
    """
    for partition, messages in read_all(address).items():
        start = account.starts.get(partition, 0)
        assert messages[0][0] == start, (partition, messages[0], start)
        offsets = [offset for offset, _ in messages]
        assert offsets == list(range(start, start + len(messages)))
        numbers = [int(value.split()[0]) for _, value in messages]
        assert numbers == sorted(set(numbers)), f"partition {partition}: twice or turned round"
        found = dict(zip(numbers, offsets, strict=True))
        for number, (where, offset) in load.acknowledged.items():
            if where == partition and number >= numbers[0]:
                # A producer says -1 of what the broker knew already.
                assert number in found, f"lost: {number}, acknowledged at {offset}"
                assert offset in (found[number], -1), (number, offset, found[number])
            elif where == partition:
                assert offset < start, f"lost: {number}, acknowledged at {offset}"
    (messages,) = read_all(address, 1, TABLE).values()
    offsets = [offset for offset, _ in messages]
    assert offsets == sorted(set(offsets))
    kept = {int(value.split()[0]) for _, value in messages}
    assert len(kept) == len(messages), "a message of the table is there twice"
    assert set(table.latest.values()) <= kept, "the last message of a key is lost"
