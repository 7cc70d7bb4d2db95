"""What a replicated topic has told its users, and what its copies have on disk.

A producer was told where its messages are; watchers saw messages at offsets, some of them long
before a broker died. Nothing of it may turn out otherwise.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from hermes.offline.batch_inspection import BadBytes, BatchFile
from hermes.offline.inspection import Limits

__all__ = [
    "Findings",
    "StoredBatch",
    "Watcher",
    "differences",
    "flip_bit",
    "has_damage",
    "judge",
    "stored_batches",
]

#: Where in a batch its offset and its leader's epoch lie, which its CRC doesn't cover.
_UNCOVERED = {*range(8), *range(12, 16)}

#: Of a partition: offsets and values, in the log's order.
Read = Mapping[int, Sequence[tuple[int, bytes]]]


class Watcher:
    """A consumer that follows a topic from its beginning, and begins again when told to.

    Args:
        bootstrap: where the brokers are.
        topic: what it reads, all of it.
        partitions: how many that are.

    Attributes:
        seen: values by partition and offset.
        changed: places at which another value was seen than before.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.seen: dict[tuple[int, int], bytes] = {}
        self.changed: list[tuple[int, int]] = []
        self.errors: list[str] = []
        self._places = [TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "watcher",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # what was seen can't be out of range
                "check.crcs": True,  # what a disk has changed isn't what was sent
                "reconnect.backoff.max.ms": 500,
                # Else it asks where epochs end, and librdkafka waits for itself for ever then: the
                # main thread for what `assign` holds, which waits for the main thread.
                "api.version.request": False,
                "broker.version.fallback": "1.0.0",
                "log_level": 0,
            }
        )
        self._again = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def look_again(self) -> None:
        """Read all of it once more."""
        self._again.set()

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        self._consumer.assign(self._places)
        while not self._stopping.is_set():
            if self._again.is_set():
                self._again.clear()
                self._consumer.assign(self._places)
            for message in self._consumer.consume(500, 0.1):
                if (error := message.error()) is not None:
                    if not (error.retriable() or error.code() == KafkaError._BAD_MSG):
                        self.errors.append(str(error))
                    continue
                place = message.partition(), message.offset()
                if self.seen.setdefault(place, message.value()) != message.value():
                    self.changed.append(place)
        self._consumer.close()


@dataclass
class Findings:
    """What must not be, with the first few of each; empty when all is well.

    Attributes:
        lost: numbers of messages that were acknowledged and aren't there.
        moved: numbers of those that are elsewhere than was said, with where that is, and where.
        changed: places at which somebody saw something else.
        twice: numbers of messages that are there more than once.
        turned: numbers that follow a greater one in a partition.
    """

    lost: list[int] = field(default_factory=list)
    moved: list[tuple[int, tuple[int, int], list[tuple[int, int]]]] = field(default_factory=list)
    changed: list[tuple[int, int]] = field(default_factory=list)
    twice: list[int] = field(default_factory=list)
    turned: list[tuple[int, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())


def judge(
    acknowledged: Mapping[int, tuple[int, int | None]],
    read: Read,
    watchers: Iterable[Watcher] = (),
) -> Findings:
    """Hold what was told against what is there now.

    Args:
        acknowledged: partition and offset of messages by their numbers, with which their values
            begin; of an offset that isn't known, None or a negative one: a batch that is repeated
            may have been there already.
        read: all that is there.
        watchers: what others saw before.
    """
    there = {
        (partition, offset): value
        for partition, messages in read.items()
        for offset, value in messages
    }
    found = Findings()
    numbers: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for place, value in there.items():
        numbers[_number(value)].append(place)
    for number, (partition, offset) in acknowledged.items():
        if number not in numbers:
            found.lost.append(number)
        elif offset is not None and offset >= 0 and (partition, offset) not in numbers[number]:
            found.moved.append((number, (partition, offset), numbers[number]))
    counts = Counter({number: len(places) for number, places in numbers.items()})
    found.twice = sorted(number for number, count in counts.items() if count > 1)
    for messages in read.values():
        in_order = [_number(value) for _, value in messages]
        found.turned += [pair for pair in pairwise(in_order) if pair[0] > pair[1]]
    for each in watchers:
        found.changed += each.changed
        found.changed += [place for place, value in each.seen.items() if there.get(place) != value]
    return found


def _number(value: bytes) -> int:
    return int(value.split()[0])


class StoredBatch(NamedTuple):
    """A batch as it lies in a log: where, since when, and what."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int


def stored_batches(log_dir: Path, topic: str, number: int) -> list[StoredBatch]:
    """All batches of a copy, read from the data directory of a broker that doesn't run."""
    found: list[StoredBatch] = []
    for path in sorted((log_dir / f"{topic}-{number}").glob("*.log")):
        with BatchFile(path, Limits()) as segment:
            for each in segment.walk():
                assert not isinstance(each, BadBytes), (path, each)
                assert each.problem is None, (path, each)
                header = each.header
                found.append(
                    StoredBatch(
                        header.base_offset, header.last_offset, header.leader_epoch, header.crc
                    )
                )
    return found


def flip_bit(log_dir: Path, topic: str, number: int, random: Random) -> None:
    """Change a bit of what a copy has on its disk, of something in the first half of it."""
    found: list[tuple[Path, int, int]] = []
    for path in sorted((log_dir / f"{topic}-{number}").glob("*.log")):
        with BatchFile(path, Limits()) as segment:
            for each in segment.walk():
                if not isinstance(each, BadBytes):
                    found.append((path, each.position, each.header.size_bytes))
    path, position, size = random.choice(found[: len(found) // 2])
    at = random.choice([each for each in range(size) if each not in _UNCOVERED])
    with open(path, "r+b") as file:
        file.seek(position + at)
        (value,) = file.read(1)
        file.seek(position + at)
        file.write(bytes([value ^ (1 << random.randrange(8))]))


def has_damage(log_dir: Path, topic: str, number: int) -> bool:
    """Whether anything but the end of a copy, of a broker that may run, can't be read."""
    paths = sorted((log_dir / f"{topic}-{number}").glob("*.log"))
    try:
        for path in paths:
            with BatchFile(path, Limits()) as segment:
                for each in segment.walk():
                    is_bad = isinstance(each, BadBytes)
                    if is_bad and (each.next_offset is not None or path != paths[-1]):
                        return True
    except OSError:
        return True  # it is being made anew
    return not paths


def differences(
    log_dirs: Mapping[int, Path], topic: str, partitions: int
) -> dict[int, dict[int, StoredBatch | None]]:
    """By partition, the first batch of each broker's copy in which they differ; empty if none do.

    None where a copy ends before.
    """
    found: dict[int, dict[int, StoredBatch | None]] = {}
    for number in range(partitions):
        copies = {each: stored_batches(path, topic, number) for each, path in log_dirs.items()}
        for position in range(max(map(len, copies.values()))):
            here = {
                each: batches[position] if position < len(batches) else None
                for each, batches in copies.items()
            }
            if len(set(here.values())) > 1:
                found[number] = here
                break
    return found
