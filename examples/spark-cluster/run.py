#!/usr/bin/env python3
"""Runs a small Spark cluster on this machine and shows that both of its workers read a topic.

    python examples/spark-cluster/run.py

It starts a broker with a topic, a master and two workers of Spark's standalone cluster, and a job
whose tasks say on which worker they ran. Everything listens on the loopback interface, on free
ports, keeps its files in a temporary directory, and is stopped at the end, whatever happens: when
this script is killed, a guard ends what it has started.

Needs Java 17 and the extra `spark` (docs/install.md), nothing else.
"""

# ruff: noqa: T201 - a script that tells what it sees
import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hermes.extras import install_command

try:
    import pyarrow as pa
    import pyspark
    from pyspark import TaskContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as sf
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}; this needs Spark: {install_command('spark')}")

from hermes.client import Producer, ProducerConfig
from hermes.testing import RunningBroker, running_broker

TOPIC = "clicks"
PARTITIONS = 4
START_SECONDS = 600.0  # generous: a machine may have much else to do
STOP_SECONDS = 60.0

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
HOST = "127.0.0.1"


# This Python by its name: Spark doesn't find formats with one whose path has spaces.
PYTHON = {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    "PYSPARK_PYTHON": Path(sys.executable).name,
}

# The end of its stdin is the end of whoever holds the other end, for whatever reason.
GUARD = "import os, signal, sys; sys.stdin.read(); os.killpg(0, signal.SIGKILL)"


@contextmanager
def process_group() -> Iterator[int]:
    """A group of processes that is killed at the end of the context, or of this process.

    Yields:
        Its id, for `subprocess.Popen`. What its members start belongs to it as well.
    """
    with subprocess.Popen(
        [sys.executable, "-c", GUARD], stdin=subprocess.PIPE, process_group=0
    ) as guard:
        yield guard.pid


class SparkProcess:
    """A master or a worker.

    Args:
        arguments: the class to run, and its arguments.
        environment: beside the ordinary one.
        log: where its output goes.
        group: the process group to start it in.
    """

    def __init__(
        self, arguments: list[str], environment: Mapping[str, str], log: Path, group: int
    ) -> None:
        home = Path(pyspark.__file__).parent
        self._log = log
        self._said = threading.Condition()
        self._lines: list[str] = []
        self._ended = False
        # spark-class replaces itself by the JVM, so that signals reach it.
        self.process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            env={**os.environ, "SPARK_HOME": str(home), **environment},
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=group,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for(self, pattern: str) -> str:
        """Wait until it says something.

        Args:
            pattern: a regular expression with one group.

        Returns:
            What the group matched.

        Raises:
            RuntimeError: it ended, or did not say it in time.
        """
        with self._said:
            self._said.wait_for(lambda: self._ended or self._find(pattern), START_SECONDS)
            found = self._find(pattern)
        if found is None:
            raise RuntimeError(f"{self._log.name} does not start:\n{''.join(self._lines[-40:])}")
        return found.group(1)

    def wait_for_executors(self) -> None:
        """Wait until the executors that a worker has started are gone, or don't go."""
        started, ended = "Asked to launch executor", r"Executor \S+ finished with state"
        with self._said:
            self._said.wait_for(
                lambda: self._ended or self._count(started) <= self._count(ended), STOP_SECONDS
            )

    def stop(self) -> None:
        """Stop it, and wait until it has."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()

    def _find(self, pattern: str) -> re.Match[str] | None:
        return next(filter(None, (re.search(pattern, line) for line in self._lines)), None)

    def _count(self, pattern: str) -> int:
        return sum(re.search(pattern, line) is not None for line in self._lines)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout, self._log.open("w", encoding="utf-8") as log:
            for line in self.process.stdout:
                log.write(line)
                with self._said:
                    self._lines.append(line)
                    self._said.notify_all()
        with self._said:
            self._ended = True
            self._said.notify_all()


@contextmanager
def running_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Run a standalone cluster for as long as the context lasts.

    Args:
        folder: an existing directory for its files and logs.
        workers: how many, each with one core and 512 MiB.

    Yields:
        The address of the master, for `SparkSession.builder.master`.
    """
    environment = {
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        # What the executors run; they import hermes, and with it the format, from there.
        **PYTHON,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }
    ports = ["--host", HOST, "--port", "0", "--webui-port", "0"]
    with ExitStack() as stack:
        group = stack.enter_context(process_group())

        def start(name: str, *arguments: str) -> SparkProcess:
            process = SparkProcess([*arguments], environment, folder / f"{name}.log", group)
            stack.callback(process.stop)
            return process

        # The master's port 0 means any, but then workers are told 0: it needs one that is free.
        port = free_port()
        master = start("master", MASTER, *ports[:2], "--port", str(port), *ports[4:])
        address = master.wait_for(r"Starting Spark master at (spark://\S+)")
        limits = ["--cores", "1", "--memory", "512m"]
        started = [
            start(
                f"worker-{number}",
                WORKER,
                *ports,
                *limits,
                "--work-dir",
                str(folder / f"work-{number}"),
                address,
            )
            for number in range(workers)
        ]
        for worker in started:
            worker.wait_for(r"(Successfully registered with master)")
            stack.callback(worker.wait_for_executors)  # a worker would not wait for them
        yield address


@contextmanager
def session(master: str, folder: Path) -> Iterator[SparkSession]:
    """Run a driver in this process for as long as the context lasts."""
    os.environ.update(SPARK_LOCAL_IP=HOST, **PYTHON)
    builder = SparkSession.builder.master(master).appName("both workers read")
    settings = {
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": HOST,
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(folder / "driver"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Don't begin before both are there, or one might do all the work.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
        "spark.cores.max": "2",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    gateway = spark.sparkContext._gateway
    try:
        yield spark
    finally:
        spark.stop()
        # The driver's JVM ends with this process; waiting for it here leaves nothing behind.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(STOP_SECONDS)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on just now."""
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def with_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say of every batch where it was read; runs in the workers.

    The working directory of an executor is one of its worker's.
    """
    context = TaskContext.get()
    assert context is not None
    worker = Path.cwd().parents[1].name
    for batch in batches:
        columns = {
            "worker": pa.repeat(worker, batch.num_rows),
            "task": pa.repeat(pa.scalar(context.partitionId(), pa.int32()), batch.num_rows),
            "value": batch.column(0),
        }
        yield pa.RecordBatch.from_pydict(columns)


def read_by_workers(spark: SparkSession, broker: RunningBroker) -> DataFrame:
    """Count the messages that each worker reads, and how many of them are different."""
    messages = (
        spark.read.format("hermes")  # found by itself, see pyspark_hermes
        .option("hermes.bootstrap.servers", f"{broker.host}:{broker.port}")
        .option("subscribe", TOPIC)
        .option("minPartitions", 2)  # else partitions as small as these share a task
        .load()
    )
    seen = messages.select("value").mapInArrow(with_worker, "worker string, task int, value binary")
    return seen.groupBy("worker").agg(
        sf.count("*").alias("messages"), sf.collect_set("task").alias("tasks")
    )


def publish(broker: RunningBroker, count: int) -> None:
    """Fill the topic, all of its partitions alike."""
    config = ProducerConfig(
        broker_list=broker.broker_list, acks="flushed", partitioner="round-robin"
    )
    with Producer(config) as producer:
        step = max(count // (PARTITIONS * 10), 1)
        for start in range(0, count, step):
            end = min(start + step, count)
            producer.send(TOPIC, [b"click %d" % number for number in range(start, end)])


def main() -> None:
    """Start everything, run the job, check what it found, stop everything."""
    parser = argparse.ArgumentParser(description="Shows that both workers of a cluster read.")
    parser.add_argument("--messages", type=int, default=100_000)
    count = parser.parse_args().messages
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # tidy up first
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-cluster-")))
        broker = stack.enter_context(running_broker(settings={"num_partitions": PARTITIONS}))
        publish(broker, count)
        master = stack.enter_context(running_cluster(folder))
        print(f"master   {master}", flush=True)
        spark = stack.enter_context(session(master, folder))
        found: Counter[str] = Counter()
        for row in sorted(read_by_workers(spark, broker).collect()):
            print(f"{row.worker}   {row.messages} messages in tasks {sorted(row.tasks)}")
            found[row.worker] = row.messages
    if found.total() != count or len(found) != 2:
        sys.exit(f"expected {count} messages, read by two workers; found {dict(found)}")
    print(f"{count} of {count} messages, read by both workers")


if __name__ == "__main__":
    main()
