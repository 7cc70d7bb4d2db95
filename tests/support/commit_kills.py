"""Kills programs in the midst of commits: loads and streams without Spark, many in little time.

Everything is Hermes' own but what Spark does: which messages there are is a number in a file, and
pyarrow writes them. Each kind of sink is driven by one to three processes at once, all of which are
killed at a random moment, again and again; then each message must be there once, by the files.
"""

import io
import itertools
import multiprocessing
import random
import shutil
import threading
from collections import Counter
from concurrent.futures import Future
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from driver_kills import check_values
from pyspark.sql.types import BinaryType, StructType
from s3_server import S3Server

from hermes.errors import LoadConflictError
from hermes.spark.delta import writer as streams
from hermes.spark.load.attempts import run_load
from hermes.spark.load.commits import open_commits
from hermes.spark.load.load_target import LoadTarget, TargetSettings
from hermes.spark.load.plans import LoadCheckpoint, Piece, Plan
from hermes.spark.offsets import TopicPartition
from hermes.spark.stores import FileStore, LocalStore, open_store

__all__ = ["KINDS", "check_commits"]

#: Loads to both kinds of target, and a stream's micro-batches to a Delta table.
KINDS: Final = ("load-parquet", "load-delta", "stream-delta")

_CLICKS: Final = TopicPartition("clicks", 0, 0)
_GROWTH: Final = 25
_DEADLINE_SECONDS: Final = 120


class _Rows:
    """What a micro-batch is to `write_stream_to_delta`."""

    schema = StructType().add("value", BinaryType())
    sparkSession = None

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


def _write(store: FileStore, directory: str, start: int, end: int) -> int:
    """As Spark's tasks: two files, as far as there is something for both."""
    middle = (start + end) // 2
    for index, (first, last) in enumerate(((start, middle), (middle, end))):
        if first == last:
            continue
        content = io.BytesIO()
        pq.write_table(pa.table({"value": [b"%d" % n for n in range(first, last)]}), content)
        store.make_directory(directory)
        store.create(f"{directory}/part-{index}.parquet", content.getvalue())
    return end - start


def _load(store: FileStore, sink: Any, topic: Path) -> bool:
    target = LoadTarget.find(store) or LoadTarget(store, TargetSettings(sink))

    def plan(last: LoadCheckpoint) -> Plan | None:
        start, count = last.offsets.get(_CLICKS, 0), topic.stat().st_size  # in this order
        if start == count:
            return None
        piece = Piece(_CLICKS, start, count, "2026-11-22")
        return Plan(last.number + 1, 0, "day", (piece,), {_CLICKS: count})

    def write(plan: Plan, directory: str) -> int:
        start, end = plan.ranges[_CLICKS]
        return _write(store, f"{directory}/topic=clicks/day=2026-11-22", start, end) and end - start

    return run_load(target, open_commits(target), plan, write).number is not None


def _run_batches(store: FileStore, checkpoint: Path, topic: Path) -> bool:
    """As Spark runs a query: what a batch has is written down, then written, then committed."""
    commits = checkpoint / "commits"
    for each in (commits, checkpoint / "offsets"):
        each.mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text('{"id":"one"}')
    number = len([each for each in commits.iterdir() if each.name.isdecimal()])
    offsets = LocalStore(checkpoint / "offsets")
    before = offsets.read(f"{number - 1}") if number else b"0"
    assert before is not None
    offsets.create(f"{number}", b"%d" % topic.stat().st_size)  # or it is there, from before a kill
    end = int(offsets.read(f"{number}") or b"")
    started: Future[str] = Future()
    started.set_result("one")

    def write_parquet(rows: Any, url: str, *_: Any) -> int:
        return _write(store, url.removeprefix(f"{store.url()}/"), rows.start, rows.end)

    write = streams._batch_writer(store, LocalStore(checkpoint), (), started, merge_schema=False)
    if end > int(before):
        with patch.object(streams, "write_parquet", write_parquet):
            write(_Rows(int(before), end), number)  # type: ignore[arg-type]
    LocalStore(commits).create(f"{number}", b"{}")
    return end > int(before)


def _store(address: str, storage: dict[str, str]) -> FileStore:
    store = open_store(address, storage=storage if address.startswith("s3") else None)
    store.spark_settings = lambda spark: {}  # type: ignore[method-assign]
    return store


def _drive(
    kind: str, address: str, storage: dict[str, str], folder: Path, told: Connection
) -> None:
    """Load, or run micro-batches, until killed; a byte for each that got done."""
    while True:
        try:
            if _once(kind, address, storage, folder):
                told.send_bytes(b"done")
        except LoadConflictError:
            told.send_bytes(b"lost")


def _once(kind: str, address: str, storage: dict[str, str], folder: Path) -> bool:
    topic = folder / "count"
    store = _store(address, storage)
    if kind == "stream-delta":
        return _run_batches(store, folder / f"checkpoint {address.partition(':')[0]}", topic)
    return _load(store, kind.removeprefix("load-"), topic)


class _Topic:
    """Grows a file, whose size is how many messages there are."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        path.touch()
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            with open(self._path, "ab") as file:
                file.write(bytes(_GROWTH))

    def stop(self) -> int:
        """End it; how many there are."""
        self._stop.set()
        self._thread.join(60)
        return self._path.stat().st_size


def check_commits(folder: Path, s3: S3Server, seed: int, kills: int) -> dict[str, int]:
    """Kill programs; then each message must be in each sink once.

    Args:
        folder: for whatever is written.
        s3: a server for the sinks that aren't on this disk.
        seed: of the moments.
        kills: how many, by turns of all kinds of sink, here and on S3.

    Returns:
        What was counted, for a report.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["commit_kills"])
    chance = random.Random(seed)
    prefix = f"commits-{seed}"
    sinks = [(kind, str(folder / kind)) for kind in KINDS]
    sinks += [(kind, s3.address_of(f"{prefix}/{kind}")) for kind in KINDS]
    topic = _Topic(folder / "count")
    lost = most = 0
    try:
        for _, (kind, address) in zip(range(kills), itertools.cycle(sinks), strict=False):
            # Spark runs one query of a checkpoint at a time; loads may race.
            racing = 1 if kind == "stream-delta" else chance.choice((1, 2, 3))
            most = max(most, racing)
            lost += _kill_one(context, chance, racing, (kind, address, s3.storage, folder))
    finally:
        count = topic.stop()
        # Both would live as long as this process.
        forkserver._forkserver._stop()  # type: ignore[attr-defined]
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
    expected = Counter(b"%d" % number for number in range(count))
    for kind, address in sinks:
        while _once(kind, address, s3.storage, folder):
            pass
        there = Path(address)
        if address.startswith("s3"):
            there = s3.copy_out(f"{prefix}/{kind}", folder / "copies")
        check_values(there, expected, f"seed {seed}, {address}")
        shutil.rmtree(folder / "copies", ignore_errors=True)
    return {"kills": kills, "messages": count, "sinks": len(sinks), "lost_races": lost}


def _kill_one(context: Any, chance: random.Random, racing: int, arguments: tuple[Any, ...]) -> int:
    """Kill programs at some moment after some things got done; how many races were lost."""
    pipes, processes = [], []
    for _ in range(racing):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_drive, args=(*arguments, there), daemon=True)
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    left, lost = chance.randint(0, 4), 0
    try:
        while left > 0:
            ready = wait(pipes, _DEADLINE_SECONDS)
            assert ready, "nothing gets done"
            for pipe in ready:
                lost += pipe.recv_bytes() == b"lost"  # EOFError: it ended by itself
                left -= 1
        threading.Event().wait(chance.random() * 0.3)  # any moment is as good: no result is due
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join(60)
        for pipe in pipes:
            pipe.close()
    return lost
