"""Flink writes numbers exactly once; its job and its brokers are killed."""

import os
import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from java_application import JavaApplication, kill_some
from kafka_4 import JAVA_SOURCES, java_command
from killed_brokers import KilledBrokers
from soak import report, seed, times

pytestmark = pytest.mark.soak

TOPIC, PARTITIONS = "numbers", 3
A_SECOND = 500


class Job(JavaApplication):
    """A cluster of Flink's with one job, in one process.

    Args:
        servers: where the brokers are.
        count: how many numbers it writes.
        directory: for its checkpoints and its class.
    """

    def __init__(self, servers: str, count: int, directory: Path) -> None:
        super().__init__(servers, TOPIC, PARTITIONS, directory / "flink.log")
        self._jars = Path(os.environ["HERMES_FLINK_JARS"])
        # Flink's own class loaders have to find what it reads again.
        self._classes = directory / "classes"
        source = str(JAVA_SOURCES / "FlinkSink.java")
        compiled = ("javac", "-cp", f"{self._jars}/*", "-d", str(self._classes), source)
        subprocess.run(compiled, check=True, stdin=subprocess.DEVNULL)
        self._checkpoints = directory / "checkpoints"
        self._given = [servers, TOPIC, str(count), str(A_SECOND), str(self._checkpoints)]

    def start(self) -> None:
        """Start it from its last checkpoint."""
        known = self._checkpoints.glob("*/chk-*/_metadata")
        last = sorted(known, key=lambda each: each.stat().st_mtime_ns)[-1:]
        opened = ("--add-opens=java.base/java.util=ALL-UNNAMED",)
        given = [*self._given, *(str(each.parent) for each in last)]
        self.launch(
            java_command(
                *("FlinkSink", *given),
                heap="512m",
                options=opened,
                jars=self._jars,
                classes=self._classes,
            )
        )


def test_numbers_are_written_exactly_once(brokers: KilledBrokers, tmp_path: Path) -> None:
    number, rounds = seed(), times(20)
    random = Random(f"{number} {brokers.copies}")
    brokers.create_topic(TOPIC, PARTITIONS)
    count = 3 * A_SECOND * rounds
    job = Job(brokers.servers, count, tmp_path)
    killed = Counter[str]()
    try:
        job.start()
        for _ in range(rounds):
            job.read_some(random.randrange(1, 2 * A_SECOND))
            killed[kill_some(random, job, brokers)] += 1
        job.read_until(lambda: len(job.messages) >= count, may_end=True)
        job.read_until(lambda: job.has_ended, may_end=True)
        written = sorted(int.from_bytes(value or b"", "big") for _, value in job.messages)
        assert written == list(range(count))
    finally:
        job.close()
    report("Flink, exactly once", seed=number, of=brokers.copies, numbers=count, **killed)
