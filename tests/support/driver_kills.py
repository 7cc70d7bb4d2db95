"""Kills drivers under a producer, and looks up every message in what they left behind."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from prompt_worker import spark_environment

from hermes import Producer, ProducerConfig
from hermes.spark.delta import read_delta
from hermes.spark.load import clean_up, read_loaded
from hermes.testing import RunningBroker

__all__ = ["check_exactly_once"]

_DRIVER = Path(__file__).with_name("load_driver.py")


class _Load:
    """Sends numbered messages from a thread until told to stop."""

    def __init__(self, broker: RunningBroker) -> None:
        self.values: list[bytes] = []
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        config = ProducerConfig(broker_list=self._broker.broker_list, acks="flushed")
        with Producer(config) as producer:
            while not self._stop.is_set():
                start = len(self.values)
                values = [b"message %d" % n for n in range(start, start + 20)]
                producer.send("clicks", values)
                self.values += values
                self._stop.wait(0.05)  # what it sends in a minute can be looked up in seconds

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


class _Driver:
    """A driver process, and the JVM and the workers that come with it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._errors = folder / "driver.err"
        with open(self._errors, "ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(_DRIVER), str(folder / "settings.json"), *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                env={**os.environ, **spark_environment()},
            )

    def lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield line.strip()

    def failure(self) -> str:
        return self._errors.read_text(encoding="utf-8", errors="replace")[-3000:]

    def kill(self) -> None:
        """End all of it without warning."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


def check_exactly_once(spark, broker: RunningBroker, folder: Path, seed: int, kills: int) -> None:
    """Kill drivers at random moments; then each message must be in each sink exactly once."""
    names = ("parquet", "delta", "load", "load-delta", "local")
    settings = {name: str(folder / name) for name in names}
    settings["servers"] = f"{broker.host}:{broker.port}"
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    chance = random.Random(seed)
    load = _Load(broker)
    try:
        for _ in range(kills):
            _kill_one(_Driver(folder), chance)
    finally:
        load.stop()
    last = _Driver(folder, "drain")
    told = list(last.lines())
    assert last.process.wait(300) == 0, last.failure()
    last.process.stdout.close()
    sent = Counter(load.values)
    assert len(sent) == len(load.values) > 0
    for name, df in (
        ("parquet", spark.read.parquet(settings["parquet"])),
        ("delta", read_delta(spark, settings["delta"])),
        ("load", read_loaded(spark, settings["load"])),
        ("load-delta", read_loaded(spark, settings["load-delta"])),
    ):
        found = Counter(bytes(row.value) for row in df.select("value").collect())
        lost, extra = sent - found, found - sent
        assert (lost, extra) == (Counter(), Counter()), f"seed {seed}, {name}: {told}"
    for name in ("load", "load-delta"):
        clean_up(settings[name])
        assert clean_up(settings[name]).removed_bytes == 0


def _kill_one(driver: _Driver, chance: random.Random) -> None:
    """Wait until a few things got done, and some more time; then kill."""
    left = chance.randint(0, 3)
    try:
        for line in driver.lines():
            is_ready = line == "ready"
            if is_ready and not left:
                break
            left -= not is_ready
            if left < 0:
                break
        else:
            raise AssertionError(f"the driver ended by itself:\n{driver.failure()}")
        threading.Event().wait(chance.random() * 0.7)  # any moment is as good: no result is due
    finally:
        driver.kill()
