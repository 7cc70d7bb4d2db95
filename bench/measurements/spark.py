"""Reading into Spark: messages a second on two cores, and the memory of a query over gigabytes.

The clock covers a whole query: planning, fetching, decoding, Arrow, and the JVM's walk through all
columns ("noop" is Spark's sink for benchmarks). The broker runs on the same two cores.
"""

import os
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.support.load import STORED_BYTES, TOPIC, make_payloads
from bench.support.report import Row, bound_row, floor_row, interleaved, ratio_row, skipped_row
from bench.support.servers import HermesBroker
from bench.support.settings import Settings
from bench.support.usage import MEGABYTE, PeakMemory
from hermes.client import Producer, ProducerConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CORES", "fill", "frame_of", "measure", "measure_memory", "spark_session"]

_MILLION = 1e6
_GIGABYTE = 1e9
_TARGET_RATE = 1_500_000
_TARGET_RATIO = 1.5
_TARGET_MEGABYTES = 200
CORES = 2
_LIST = 5_000
_NUMBER = struct.Struct(">I")
_ROOT = Path(__file__).resolve().parents[2]


def measure(settings: Settings) -> list[Row]:
    """Read the same topic as Arrow batches and as tuples, in turns within one session."""
    name = "Spark, batch read"
    try:
        from bench.baselines.tuple_source import TupleSource
    except ImportError as error:
        return [skipped_row(name, f"{error.name} is not installed (the extra `spark`)")]
    with (
        settings.workspace() as directory,
        HermesBroker(directory / "hermes", num_partitions=CORES) as broker,
        spark_session(directory, "2g") as spark,
    ):
        count = fill(broker, settings.spark_messages)
        spark.dataSource.register(TupleSource)

        def rate(source: str) -> float:
            begun = time.perf_counter()
            frame_of(spark, source, broker).write.format("noop").mode("overwrite").save()
            return count / (time.perf_counter() - begun)

        runs = interleaved(settings.rounds, lambda: rate("hermes"), lambda: rate("hermes-tuples"))
    arrow, tuples = runs
    millions = [tuple(each / _MILLION for each in side) for side in runs]
    return [
        floor_row(
            name, "messages/s", arrow, at_least=_TARGET_RATE, note=f"best: {max(arrow):,.0f}"
        ),
        ratio_row(
            f"{name} against tuples",
            "M messages/s",
            *millions,
            beside_name="tuples",
            at_least=_TARGET_RATIO,
            note=f"tuples at best {max(tuples):,.0f} messages/s",
        ),
    ]


def measure_memory(settings: Settings) -> list[Row]:
    """Run the same query over a tenth of a log and over all of it, and watch the driver.

    The driver holds the executors as well here, and a heap of 512 MB for both.
    """
    name = f"Spark's driver, {settings.spark_gigabytes:g} GB"
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return [skipped_row(name, "pyspark is not installed (the extra `spark`)")]
    with (
        settings.workspace() as directory,
        HermesBroker(directory / "hermes", num_partitions=CORES) as broker,
        spark_session(directory, "512m") as spark,
    ):
        share = settings.spark_gigabytes * _GIGABYTE / STORED_BYTES / 10 / _MILLION
        pid = spark.sparkContext._gateway.proc.pid
        peaks: list[float] = []
        stored = 0
        for part in (share, 9 * share):
            stored += fill(broker, part)
            with PeakMemory(pid) as memory:
                _query(spark, broker, stored)
            peaks.append(memory.peak_bytes / MEGABYTE)
    return [
        bound_row(
            name,
            "MB more",
            peaks[1] - peaks[0],
            below=_TARGET_MEGABYTES,
            note=f"{peaks[0]:.0f} MB at most for a tenth, {peaks[1]:.0f} MB for all of it",
        )
    ]


def fill(broker: HermesBroker, millions: float) -> int:
    """Produce messages over all partitions, and wait until they are on disk.

    No two are equal: of equal ones Parquet would keep one, and numbers for the others.

    Returns:
        How many.
    """
    rests = [each[_NUMBER.size :] for each in make_payloads(_LIST)]
    lists = max(1, round(millions * _MILLION / _LIST))
    host, port = broker.address
    config = ProducerConfig(
        broker_list=f"0:{host}:{port}", partitioner="round-robin", acks="flushed"
    )
    with Producer(config) as producer:
        for number in range(lists):
            first = _NUMBER.pack(number)
            producer.send(TOPIC, [first + rest for rest in rests])
    return lists * _LIST


def _query(spark: "SparkSession", broker: HermesBroker, expected: int) -> None:
    """Group all messages by the last byte of their value."""
    frame = frame_of(spark, "hermes", broker)
    rows = frame.groupBy(frame.value.substr(-1, 1).alias("last")).count().collect()
    found = sum(row["count"] for row in rows)
    if found != expected:
        raise RuntimeError(f"Spark read {found} messages of {expected}")


@contextmanager
def spark_session(directory: Path, memory: str) -> Iterator["SparkSession"]:
    """A session on `CORES` cores, which keeps its files in a directory; `memory` of its heap."""
    from pyspark.sql import SparkSession

    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, PYTHONPATH=path)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": str(CORES),
    }
    builder: Any = SparkSession.builder.master(f"local[{CORES}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def frame_of(
    spark: "SparkSession", source: str, broker: HermesBroker, topic: str = TOPIC
) -> "DataFrame":
    """All of a topic."""
    host, port = broker.address
    reader = spark.read.format(source).option("hermes.bootstrap.servers", f"{host}:{port}")
    return reader.option("subscribe", topic).load()
