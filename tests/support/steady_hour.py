"""What is looked at while a broker has the same load for an hour."""

import statistics
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from process_memory import InThread

from bench.support.usage import resident_bytes

__all__ = ["Sample", "Samples", "TailReader"]

_SECONDS = 0.5
_PATIENCE_SECONDS = 120.0
_AT_ONCE = 5_000


class Sample(NamedTuple):
    """What a broker has at one moment; of several, the medians."""

    resident_bytes: int
    descriptors: int
    log_bytes: int


class Samples(InThread):
    """Looks at a process, and its data directory, twice a second while its block runs.

    Args:
        pid: the broker's.
        log_dir: its data directory.
        warm_up_seconds: how long what is seen doesn't count.

    Attributes:
        seen: what counts, in order.
    """

    def __init__(self, pid: int, log_dir: Path, warm_up_seconds: float) -> None:
        super().__init__()
        self.seen: list[Sample] = []
        self._pid = pid
        self._log_dir = log_dir
        self._begin = time.monotonic() + warm_up_seconds

    def tenth(self, number: int) -> Sample:
        """The medians of a tenth of the time, from 0 to 9."""
        count = len(self.seen)
        part = self.seen[number * count // 10 : (number + 1) * count // 10]
        return Sample(*(round(statistics.median(values)) for values in zip(*part, strict=True)))

    def _run(self) -> None:
        while not self._ended.wait(_SECONDS):
            sample = self._sample()
            if time.monotonic() > self._begin:
                self.seen.append(sample)

    def _sample(self) -> Sample:
        size = 0
        for file in self._log_dir.rglob("*"):
            try:
                size += file.stat().st_blocks * 512
            except FileNotFoundError:  # retention has just deleted it
                continue
        descriptors = len(list(Path(f"/proc/{self._pid}/fd").iterdir()))
        return Sample(resident_bytes(self._pid), descriptors, size)


class TailReader(InThread):
    """Reads a topic as it grows, with librdkafka, and holds its offsets to be without gaps.

    Args:
        address: the broker's, for Kafka's clients.
        topic: the topic's name.
        partitions: how many it has.

    Attributes:
        received: how many messages so far.
        wrong: what was not as it should be.
    """

    def __init__(self, address: tuple[str, int], topic: str, partitions: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        super().__init__()
        host, port = address
        self._consumer = Consumer(
            {
                "bootstrap.servers": f"{host}:{port}",
                "group.id": "tail",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.received = 0
        self.wrong: list[Any] = []
        self._next = [0] * partitions

    def wait_for(self, count: int) -> None:
        """Wait until so many have come, as long as more do."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.received < count and not self.wrong:
            assert time.monotonic() < deadline, f"{self.received} of {count} messages came"
            self._ended.wait(0.05)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._consumer.close()

    def _run(self) -> None:
        while not self._ended.is_set() and not self.wrong:
            for message in self._consumer.consume(_AT_ONCE, 0.2):
                if message.error() is not None:
                    self.wrong.append(str(message.error()))
                    continue
                number, offset = message.partition(), message.offset()
                if offset != self._next[number]:
                    self.wrong.append((number, self._next[number], offset))
                self._next[number] = offset + 1
                self.received += 1
