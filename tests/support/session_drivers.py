"""Drivers of loads and streams as processes of Python that share a JVM, which starts slowly.

One process starts the JVM with its session and keeps it; the others are forked, with everything
imported, use that session, and go on until they are killed. The JVM outlives them, and goes on with
what it was told, as a cluster does.
"""

import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable
from load_driver import killed_session
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from s3_server import s3a_class_path

from hermes.errors import HermesError, LoadConflictError
from hermes.spark.delta import write_stream_to_delta, writer
from hermes.spark.load import job, load
from hermes.spark.stores import LocalStore
from hermes.spark.stores.s3 import S3Store

__all__ = ["Run", "drain", "drive", "hold_session"]

_CALLS: Final = ("create", "move", "delete", "flush", "flush_tree")


@dataclass(frozen=True)
class Run:
    """What all processes know: where everything is, and how S3 is reached."""

    folder: Path
    servers: str
    sinks: Mapping[str, str]
    storage: Mapping[str, str]
    environment: Mapping[str, str]

    def options(self) -> dict[str, str]:
        return {"hermes.bootstrap.servers": self.servers, "subscribe": "clicks"}

    def checkpoint(self, name: str) -> str:
        return str(self.folder / "checkpoints" / name)

    def storage_of(self, name: str) -> Mapping[str, str] | None:
        return self.storage if name.endswith("-s3") else None


def hold_session(run: Run, told: Connection) -> None:
    """Start a JVM with its session, say how it is reached, and keep it until killed."""
    os.setsid()
    with open(run.folder / "session.err", "ab") as errors:
        os.dup2(errors.fileno(), 2)
    os.environ.update(run.environment)
    local = run.folder / "local"
    local.mkdir(exist_ok=True)
    builder = killed_session(str(local))
    for key, value in {
        "spark.driver.extraClassPath": s3a_class_path(),
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        # To compile takes longer than so few rows.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }.items():
        builder = builder.config(key, value)
    gateway = builder.getOrCreate().sparkContext._gateway
    parameters = gateway.gateway_parameters
    told.send((parameters.port, parameters.auth_token))
    with suppress(EOFError):
        told.recv()
    os.killpg(os.getpid(), signal.SIGKILL)  # the test is gone


def drive(
    run: Run, reached: tuple[int, str], names: tuple[str, ...], last_call: int, told: Connection
) -> None:
    """Load, or run micro-batches, until killed; a word for each that got done."""
    with open(run.folder / "driver.err", "ab") as errors:
        os.dup2(errors.fileno(), 2)
    spark = _attached(run, reached)
    if last_call:
        _end_at_call(last_call, told)
    if names[0].startswith("load"):
        while True:
            told.send(_load(spark, run, names[0]))
    batches: dict[str, Any] = {}
    queries: dict[str, Any] = {}
    while True:
        for name in names:
            if name not in queries or not queries[name].isActive:
                if name in queries:
                    told.send("failed")
                queries[name] = _started(spark, run, name)
            progress = queries[name].lastProgress
            if progress and progress["batchId"] != batches.get(name):
                batches[name] = progress["batchId"]
                told.send("done")
        threading.Event().wait(0.02)


def drain(run: Run, reached: tuple[int, str], told: Connection) -> None:
    """Bring each sink to the end of the topic."""
    spark = _attached(run, reached)
    for name in run.sinks:
        if name.startswith("load"):
            while _load(spark, run, name, is_last=True) != "none":
                pass
        else:
            _started(spark, run, name, is_last=True).awaitTermination()
        told.send(name)
    threading.Event().wait()


def _attached(run: Run, reached: tuple[int, str]) -> SparkSession:
    """The session of a JVM that another process has started."""
    os.environ.update(run.environment)
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = map(str, reached)
    gateway = launch_gateway()
    jvm: Any = gateway.jvm
    context = jvm.JavaSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = SparkConf(_jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf))


def _load(spark: SparkSession, run: Run, name: str, *, is_last: bool = False) -> str:
    sink: Any = name.removesuffix("-s3").removeprefix("load-")
    storage = run.storage_of(name)
    try:
        result = load(spark, run.sinks[name], run.options(), sink=sink, storage=storage)
    except LoadConflictError:
        return "lost"
    except HermesError:
        if is_last:
            raise
        return "failed"
    return "none" if result.number is None else "done"


def _started(spark: SparkSession, run: Run, name: str, *, is_last: bool = False) -> Any:
    limit = {} if is_last else {"maxBytesPerTrigger": "20kB"}
    trigger: Any = {"availableNow": True} if is_last else {"processingTime": "0 seconds"}
    source = spark.readStream.format("hermes").options(**run.options(), **limit)
    rows = source.option("startingOffsets", "earliest").load()
    if name.startswith("stream-parquet"):
        url = run.sinks[name].replace("s3://", "s3a://")
        into = rows.writeStream.format("parquet").trigger(**trigger)
        return into.start(url, checkpointLocation=run.checkpoint(name))
    return write_stream_to_delta(
        rows,
        run.sinks[name],
        run.checkpoint(name),
        trigger=trigger,
        storage=run.storage_of(name),
    )


def _end_at_call(number: int, told: Connection) -> None:
    """End this process at the call of that number, before it or after; odd numbers are before."""
    left = (number + 1) // 2

    def end(name: str) -> None:
        told.send(f"{'before' if number % 2 else 'after'} {name}")
        os.kill(os.getpid(), signal.SIGKILL)

    def watch(owner: Any, name: str) -> None:
        inner = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            is_last = left == 0
            if is_last and number % 2:
                end(name)
            result = inner(*arguments, **named)
            if is_last:
                end(name)
            return result

        setattr(owner, name, call)

    for owner in (LocalStore, S3Store):
        for name in _CALLS:
            watch(owner, name)
    for module in (job, writer):
        watch(module, "write_parquet")
    watch(DeltaTable, "create_write_transaction")
