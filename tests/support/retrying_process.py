"""A consumer that retries, as a process: a line for each message that it handles, until killed.

    python retrying_process.py CONNECT TOPIC COMMIT_INTERVAL OUTPUT

A message is a JSON list `[number, failures]`: the first tries of it fail, `failures` of them.
A line of the output is `<number> <attempt> ok` or `<number> <attempt> failed`, written before the
function returns or raises.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Self

from hermes.client import FetchRequest, SimpleConsumer
from hermes.client.groups import ConsumerConfig
from hermes.client.retrying import Letter, RetryingConsumer, RetryMessage, letter_of
from hermes.errors import BrokerError

__all__ = ["DELAYS", "Attempt", "RetryingProcess", "attempts_in", "letters_in"]

GROUP = "g"
DELAYS = ("50ms", "100ms")


class Attempt(NamedTuple):
    """A line of the output."""

    number: int
    attempt: int
    succeeded: bool


class RetryingProcess:
    """Such a process."""

    def __init__(self, connect: str, topic: str, commit_interval: str, output: Path) -> None:
        self._output = output
        self._process = subprocess.Popen(
            [sys.executable, __file__, connect, topic, commit_interval, str(output)],
            stdin=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            self.kill()

    def attempts(self) -> list[Attempt]:
        """What this process and others with the same output did."""
        return attempts_in(self._output)

    def kill(self) -> None:
        """End it without any warning."""
        self._process.kill()
        assert self._process.wait(60) == -signal.SIGKILL

    def stop(self) -> None:
        """Have it leave in good order."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(60) == 0


def attempts_in(output: Path) -> list[Attempt]:
    """What is written in a file."""
    if not output.exists():
        return []
    lines = [line.split() for line in output.read_text().splitlines(keepends=True)]
    return [Attempt(int(line[0]), int(line[1]), line[2] == "ok") for line in lines]


def letters_in(host: str, port: int, topic: str) -> list[Letter]:
    """The letters in all partitions of a topic."""
    found = []
    with SimpleConsumer(host, port) as consumer:
        for partition in range(4):
            offset = 0
            while True:
                try:
                    fetched = list(consumer.fetch(FetchRequest(topic, partition, offset, 1 << 20)))
                except BrokerError:  # there is no such topic, or no such partition
                    break
                if not fetched:
                    break
                found += [letter_of(message) for message, _ in fetched]
                offset = fetched[-1][1]
    letters = [each for each in found if each is not None]
    assert len(letters) == len(found)
    return letters


def _main(connect: str, topic: str, commit_interval: str, output: str) -> None:
    config = ConsumerConfig(
        group=GROUP,
        zookeeper_connect=connect,
        decoder="json",
        auto_commit_interval=commit_interval,
        zookeeper_session_timeout="2s",
        fetch_wait="20ms",
    )
    file = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(message: RetryMessage) -> None:
        number, failures = message.message
        succeeded = message.attempt > failures
        word = "ok" if succeeded else "failed"
        os.write(file, f"{number} {message.attempt} {word}\n".encode())
        if not succeeded:
            raise ValueError(f"attempt {message.attempt} of {number}")

    with RetryingConsumer(config, [topic], delays=DELAYS) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        consumer.run(handle)


if __name__ == "__main__":
    _main(*sys.argv[1:])
