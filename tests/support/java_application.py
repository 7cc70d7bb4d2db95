"""A program of Java that writes a topic, what it has committed to that, and its deaths."""

import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, TopicPartition
from killed_brokers import KilledBrokers
from server_process import DEADLINE_SECONDS

__all__ = ["JavaApplication", "kill_some"]


class JavaApplication(ABC):
    """One process after the other.

    Args:
        servers: where the brokers are.
        topic: what it writes, which is read on whatever befalls it and them.
        partitions: how many that has.
        log: for what it says.

    Attributes:
        messages: key and value of each committed one, in each partition's order.
    """

    def __init__(self, servers: str, topic: str, partitions: int, log: Path) -> None:
        self.messages: list[tuple[bytes | None, bytes | None]] = []
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        settings = {"bootstrap.servers": servers, "group.id": "-", "log_level": 0}
        self._reader = Consumer({**settings, "isolation.level": "read_committed"})
        self._reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    @abstractmethod
    def start(self) -> None:
        """Start it, or start it again with what it has kept."""

    def launch(self, command: Sequence[str]) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def end(self, *, kill: bool) -> None:
        assert self._process is not None
        (self._process.kill if kill else self._process.terminate)()
        self._process.wait(DEADLINE_SECONDS)

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def said(self) -> str:
        """The last of what it said."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-20_000:]

    def read_until(self, is_enough: Callable[[], bool], *, may_end: bool = False) -> None:
        """Read until what was read is enough.

        Raises:
            AssertionError: it doesn't come to that.
        """
        end = time.monotonic() + DEADLINE_SECONDS
        while not is_enough():
            assert time.monotonic() < end, f"{len(self.messages)} messages only:\n{self.said()}"
            assert may_end or not self.has_ended, f"it ended by itself:\n{self.said()}"
            for each in self._reader.consume(500, 0.2):
                if each.error() is None:
                    self.messages.append((each.key(), each.value()))

    def read_some(self, more: int) -> None:
        """Read so many more messages."""
        wanted = len(self.messages) + more
        self.read_until(lambda: len(self.messages) >= wanted)

    def close(self) -> None:
        self._reader.close()
        if not self.has_ended:
            self.end(kill=True)


def kill_some(random: Random, application: JavaApplication, brokers: KilledBrokers) -> str:
    """Kill an application, its brokers or both in the middle of their work, and start them again.

    Returns who was killed.
    """
    kills, killed = random.choice(((True, False), (False, True), (True, True))), []
    if kills[0]:
        application.end(kill=True)
        killed.append("application")
    if kills[1]:
        killed.append(brokers.befall(random))
    if kills[0]:
        application.start()
    return " and ".join(killed)
