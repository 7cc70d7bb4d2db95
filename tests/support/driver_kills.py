"""Kills drivers and brokers under loads and streams, and counts every message in what is left.

What is counted is what the broker has, by DuckDB and pyarrow, from the files: on this disk, or as
an S3 server keeps its objects.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
from deltalake import DeltaTable
from prompt_worker import spark_environment
from s3_server import S3Server, s3a_class_path

from hermes import FetchRequest, Producer, ProducerConfig, SimpleConsumer
from hermes.errors import HermesError
from hermes.spark.load import clean_up

__all__ = ["check_exactly_once", "values_in"]

_DRIVER = Path(__file__).with_name("load_driver.py")
_SINKS = ("load-parquet", "load-delta", "stream-parquet", "stream-delta")
_PARTITIONS = 2


class _Load:
    """Sends numbered messages from a thread until told to stop."""

    def __init__(self, port: int) -> None:
        self.values: list[bytes] = []
        self._port = port
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
                self._stop.wait(0.05)  # what it sends in a minute can be looked up in seconds

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


class _Driver:
    """A driver process, and the JVM and the workers that come with it."""

    def __init__(self, folder: Path, environment: dict[str, str], *arguments: str) -> None:
        self._errors = folder / "driver.err"
        with open(self._errors, "ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(_DRIVER), str(folder / "settings.json"), *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                env={**os.environ, **spark_environment(), **environment},
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


def check_exactly_once(
    port: int,
    folder: Path,
    seed: int,
    kills: int,
    s3: S3Server | None = None,
    kill_broker: Callable[[], None] | None = None,
    racing: int = 1,
) -> dict[str, int]:
    """Kill drivers at random moments; then each message must be in each sink exactly once.

    Args:
        port: of the broker, which keeps it.
        folder: for whatever is written.
        seed: of the moments.
        kills: how many.
        s3: a server for further sinks.
        kill_broker: kills the broker and starts it again; called between kills of drivers.
        racing: how many loads into one target run at once, at most.

    Returns:
        What was counted, for a report.
    """
    sinks = {name: str(folder / name) for name in _SINKS}
    if s3 is not None:
        sinks |= {f"{name}-s3": s3.address_of(f"{folder.name}/{name}") for name in _SINKS}
    settings = {
        "sinks": sinks,
        "checkpoints": str(folder / "checkpoints"),
        "local": str(folder / "local"),
        "servers": f"127.0.0.1:{port}",
        "class_path": "" if s3 is None else s3a_class_path(),
        "racing": racing,
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    environment = {} if s3 is None else s3.environment
    chance = random.Random(seed)
    load = _Load(port)
    try:
        for _ in range(kills):
            _kill_one(_Driver(folder, environment), chance, kill_broker)
    finally:
        load.stop()
    last = _Driver(folder, environment, "drain")
    told = list(last.lines())
    assert last.process.wait(600) == 0, last.failure()
    last.process.stdout.close()
    stored = Counter(_stored(port))
    assert load.values
    assert set(load.values) <= stored.keys()
    for name, address in sinks.items():
        there = Path(address)
        if s3 is not None and name.endswith("-s3"):
            there = s3.copy_out(f"{folder.name}/{name.removesuffix('-s3')}", folder / "copies")
        found = values_in(there)
        lost, extra = stored - found, found - stored
        assert (lost, extra) == (Counter(), Counter()), f"seed {seed}, {name}: {told}"
    storage = None if s3 is None else s3.storage
    for name, address in sinks.items():
        if name.startswith("load"):
            given = storage if name.endswith("-s3") else None
            clean_up(address, storage=given)
            assert clean_up(address, storage=given).removed_bytes == 0
    return {"kills": kills, "messages": stored.total(), "sinks": len(sinks)}


def values_in(target: Path) -> Counter[bytes]:
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


def _stored(port: int) -> Iterator[bytes]:
    """The messages that the broker has."""
    with SimpleConsumer("127.0.0.1", port) as consumer:
        for partition in range(_PARTITIONS):
            request = FetchRequest("clicks", partition, 0, 1 << 20)
            while fetched := list(consumer.fetch(request)):
                yield from (bytes(message.payload) for message, _ in fetched)
                request = FetchRequest("clicks", partition, fetched[-1][1], 1 << 20)


def _kill_one(
    driver: _Driver, chance: random.Random, kill_broker: Callable[[], None] | None
) -> None:
    """Wait until a few things got done, and some more time; then kill."""
    left = chance.randint(0, 5)
    with_broker = kill_broker is not None and chance.random() < 0.5
    try:
        for line in driver.lines():
            is_ready = line == "ready"
            if is_ready and with_broker:
                assert kill_broker is not None
                kill_broker()
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
