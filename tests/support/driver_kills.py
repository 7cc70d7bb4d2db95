"""Kills drivers with their JVMs under loads and streams, and counts every message in what is left.

What is counted is what the broker has, by DuckDB and pyarrow, from the files. `session_kills` kills
more in less time, the broker as well, and has sinks on S3.
"""

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

import duckdb
import pyarrow.dataset as ds
from deltalake import DeltaTable
from prompt_worker import spark_environment

from hermes import FetchRequest, Producer, ProducerConfig, SimpleConsumer
from hermes.errors import HermesError
from hermes.spark.load import clean_up

__all__ = ["Load", "check_exactly_once", "check_values", "stored_values"]

_DRIVER = Path(__file__).with_name("load_driver.py")
_SINKS = ("load-parquet", "load-delta", "stream-parquet", "stream-delta")
_PARTITIONS = 2


class Load:
    """Sends numbered messages from a thread until told to stop."""

    def __init__(self, port: int, pause_seconds: float = 0.05) -> None:
        self.values: list[bytes] = []
        self._port = port
        self._pause_seconds = pause_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        config = ProducerConfig(
            broker_list=f"0:127.0.0.1:{self._port}", acks="flushed", partitioner="round-robin"
        )
        with Producer(config) as producer:
            number = 0
            while not self._stop.is_set():
                values = [b"message %d" % n for n in range(number, number + 20)]
                number += 20
                try:
                    for start in (0, 10):
                        producer.send("clicks", values[start : start + 10])
                except HermesError:
                    continue  # the broker was killed: some of these are there, or none
                self.values += values
                self._stop.wait(self._pause_seconds)  # what it sends can be looked up in seconds

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


def check_exactly_once(port: int, folder: Path, seed: int, kills: int) -> None:
    """Kill drivers at random moments; then each message must be in each sink exactly once.

    Args:
        port: of the broker.
        folder: for whatever is written.
        seed: of the moments.
        kills: how many.
    """
    sinks = {name: folder / name for name in _SINKS}
    settings = {
        "sinks": {name: str(path) for name, path in sinks.items()},
        "checkpoints": str(folder / "checkpoints"),
        "local": str(folder / "local"),
        "servers": f"127.0.0.1:{port}",
    }
    (folder / "local").mkdir()
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    chance = random.Random(seed)
    load = Load(port)
    try:
        for _ in range(kills):
            _kill_one(_Driver(folder), chance)
    finally:
        load.stop()
    last = _Driver(folder, "drain")
    told = list(last.lines())
    assert last.process.wait(600) == 0, last.failure()
    last.process.stdout.close()
    stored = Counter(stored_values(port))
    assert load.values
    assert set(load.values) <= stored.keys()
    for name, path in sinks.items():
        check_values(path, stored, f"seed {seed}, {name}: {told}")
        if name.startswith("load"):
            clean_up(path)
            assert clean_up(path).removed_bytes == 0


def _values_in(target: Path) -> Counter[bytes]:
    """The values in the files of a target, or a Delta table: by DuckDB, and the same by pyarrow."""
    if (target / "_delta_log").exists():
        table = DeltaTable(str(target))
        files = [str(target / each) for each in table.get_add_actions().column("path").to_pylist()]
    elif (target / "_spark_metadata").exists():
        files = list(_of_sparks_sink(target))
    else:  # as a stranger's glob finds them
        files = [str(each) for each in (target / "data").rglob("*.parquet")]
    with duckdb.connect() as connection:
        rows = connection.execute("SELECT value FROM read_parquet(?)", [files]).fetchall()
    found = Counter(value for (value,) in rows)
    read = ds.dataset(files, format="parquet").to_table(columns=["value"])["value"].to_pylist()
    assert Counter(read) == found
    return found


def check_values(target: Path, expected: Counter[bytes], label: str) -> None:
    """Hold a target to having each value exactly as often as expected."""
    found = _values_in(target)
    wrong = (expected - found, found - expected)
    assert wrong == (Counter(), Counter()), label


def _of_sparks_sink(target: Path) -> Iterator[str]:
    """The files that Spark's own sink of streams has committed, from its log."""
    logs = {
        int(each.name.partition(".")[0]): each for each in target.glob("_spark_metadata/[0-9]*")
    }
    compacted = [number for number, each in logs.items() if each.suffix == ".compact"]
    for number, log in sorted(logs.items()):
        if number >= max(compacted, default=0):
            for line in log.read_text(encoding="utf-8").splitlines()[1:]:
                yield str(target / Path(json.loads(line)["path"]).name)


def stored_values(port: int) -> Iterator[bytes]:
    """The messages that the broker has."""
    with SimpleConsumer("127.0.0.1", port) as consumer:
        for partition in range(_PARTITIONS):
            request = FetchRequest("clicks", partition, 0, 1 << 20)
            while fetched := list(consumer.fetch(request)):
                yield from (bytes(message.payload) for message, _ in fetched)
                request = FetchRequest("clicks", partition, fetched[-1][1], 1 << 20)


def _kill_one(driver: _Driver, chance: random.Random) -> None:
    """Wait until a few things got done, and some more time; then kill."""
    left = chance.randint(0, 5)
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
