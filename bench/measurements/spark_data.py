"""What a data team does with Spark, beside the same with Parquet: reads, writes, loads.

Everything runs in one session on two cores, the broker on the same two, and each ratio's two sides
in turns. Rates are messages per second of a whole action; "noop" is Spark's sink for benchmarks.
"""

import shutil
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.measurements.spark import CORES, fill, frame_of, spark_session
from bench.measurements.spark_batches import micro_batches
from bench.support.load import TOPIC
from bench.support.report import Row, bound_row, interleaved, ratio_row, skipped_row
from bench.support.servers import HermesBroker
from bench.support.settings import Settings
from hermes.client import Producer, ProducerConfig
from hermes.errors import HermesError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["measure"]

_MILLION = 1e6
_LARGE_BYTES = 900_000
_SMALL_BYTES = 200
_LARGE_COUNT = 60 * CORES
_MANY = 1_000
_WRITTEN_SHARE = 5  # of the messages that are read: writing takes longer


def measure(settings: Settings) -> list[Row]:
    """Take all of them."""
    name = "Spark, batch read against Parquet"
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return [skipped_row(name, "pyspark is not installed (the extra `spark`)")]
    with (
        settings.workspace() as directory,
        HermesBroker(directory / "hermes", num_partitions=CORES) as broker,
        spark_session(directory, "2g") as spark,
    ):
        data = _Data(spark, broker, directory, settings)
        rows = [data.read(), *data.written(), data.loaded(), data.large(), data.delta()]
        rows.append(micro_batches(spark, directory, settings.rounds))
    with settings.workspace() as directory, HermesBroker(directory, num_partitions=_MANY) as broker:
        return [*rows, _planned(broker, settings.rounds)]


class _Data:
    def __init__(
        self, spark: "SparkSession", broker: HermesBroker, directory: Path, settings: Settings
    ) -> None:
        self._spark = spark
        self._broker = broker
        self._directory = directory
        self._rounds = settings.rounds
        self._count = fill(broker, settings.spark_messages)
        self._numbers = count()

    def read(self) -> Row:
        """All columns of the same rows."""
        parquet = self._new("parquet")
        self._topic().write.parquet(parquet)
        rates = self._rates(
            self._count,
            lambda: _walk(self._topic()),
            lambda: _walk(self._spark.read.parquet(parquet)),
        )
        return _row("Spark, batch read against Parquet", rates, "Parquet", 0.7)

    def written(self) -> list[Row]:
        """Rows with a key each, all of them different, against rows without, and those to files."""
        number = self._count // _WRITTEN_SHARE
        rows = self._spark.range(0, number, numPartitions=CORES).selectExpr(
            f"lpad(id, {_SMALL_BYTES}, 'x') AS value", "concat('user-', id) AS key"
        )
        keyed, plain, files = self._rates(
            number,
            lambda: self._write(rows),
            lambda: self._write(rows.drop("key")),
            lambda: self._into_new(rows.drop("key").write.parquet),
        )
        name = "Spark, write"
        return [
            _row(f"{name} with keys against without", [keyed, plain], "without", 1 / 1.5),
            _row(f"{name} against Parquet", [plain, files], "Parquet", None),
        ]

    def loaded(self) -> Row:
        """A load into an empty target against a read and a write."""
        from hermes.spark.load import load

        host, port = self._broker.address
        options = {"hermes.bootstrap.servers": f"{host}:{port}", "subscribe": TOPIC}

        def load_it(target: str) -> None:
            load(self._spark, target, options, sink="parquet")

        rates = self._rates(
            self._count,
            lambda: self._into_new(load_it),
            lambda: self._into_new(self._topic().write.parquet),
        )
        return _row("load against read and write", rates, "read, write", 1 / 1.1)

    def large(self) -> Row:
        """Messages of 900 KB against small ones, in bytes."""
        host, port = self._broker.address
        config = ProducerConfig(
            broker_list=f"0:{host}:{port}", partitioner="round-robin", acks="flushed"
        )
        small = _LARGE_COUNT * _LARGE_BYTES // _SMALL_BYTES // CORES
        with Producer(config) as producer:
            for _ in range(_LARGE_COUNT):
                producer.send("large", b"x" * _LARGE_BYTES)
            for _ in range(CORES):
                producer.send("small", [b"x" * _SMALL_BYTES] * small)
        rates = self._rates(
            _LARGE_COUNT * _LARGE_BYTES,
            lambda: _walk(self._topic("large")),
            lambda: _walk(self._topic("small")),
        )
        return _row("Spark, 900 KB messages against small", rates, "small", 1.0, "MB/s")

    def delta(self) -> Row:
        """A Delta table, by topic and day, against its files, of whose folders Spark takes both."""
        name = "read_delta against its files"
        try:
            from hermes.spark.delta import read_delta
        except HermesError:
            return skipped_row(name, "deltalake is not installed (the extra `delta`)")
        from hermes.spark.load import load

        host, port = self._broker.address
        table = self._new("delta")
        options = {"hermes.bootstrap.servers": f"{host}:{port}", "subscribe": TOPIC}
        load(self._spark, table, options, sink="delta")
        files = read_delta(self._spark, table).inputFiles()
        rates = self._rates(
            self._count,
            lambda: _walk(read_delta(self._spark, table)),
            lambda: _walk(self._spark.read.option("basePath", table).parquet(*files)),
        )
        return _row(name, rates, "Parquet", 1 / 1.2)

    # -- parts ------------------------------------------------------------------------------------

    def _rates(self, number: int, *acts: Callable[[], object]) -> list[tuple[float, ...]]:
        def rate(act: Callable[[], object]) -> float:
            begun = time.perf_counter()
            act()
            return number / (time.perf_counter() - begun) / _MILLION

        return interleaved(self._rounds, *(partial(rate, act) for act in acts))

    def _topic(self, topic: str = TOPIC) -> "DataFrame":
        return frame_of(self._spark, "hermes", self._broker, topic)

    def _write(self, rows: "DataFrame") -> None:
        host, port = self._broker.address
        writer = rows.write.format("hermes").option("hermes.bootstrap.servers", f"{host}:{port}")
        writer.option("topic", "written").mode("append").save()

    def _into_new(self, write: Callable[[str], object]) -> None:
        target = self._new("target")
        write(target)
        shutil.rmtree(target)

    def _new(self, name: str) -> str:
        return str(self._directory / f"{name}-{next(self._numbers)}")


def _planned(broker: HermesBroker, rounds: int) -> Row:
    """What planning takes over many partitions with a message each."""
    from hermes.spark.options import SourceOptions
    from hermes.spark.source import HermesBatchReader

    host, port = broker.address
    config = ProducerConfig(
        broker_list=f"0:{host}:{port}", partitioner="round-robin", acks="flushed"
    )
    with Producer(config) as producer:
        for _ in range(_MANY):
            producer.send(TOPIC, b"x" * _SMALL_BYTES)
    given = {"hermes.bootstrap.servers": f"{host}:{port}", "subscribe": TOPIC}
    reader = HermesBatchReader(SourceOptions.parse(given, "batch"))
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        tasks = reader.partitions()
        seconds.append(time.perf_counter() - begun)
    return bound_row(
        f"Spark, plan of {_MANY:,} partitions",
        "s",
        median(seconds),
        below=1.0,
        note=f"{len(tasks)} task(s)",
    )


def _walk(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def _row(
    name: str,
    rates: list[tuple[float, ...]],
    beside: str,
    at_least: float | None,
    unit: str = "M messages/s",
) -> Row:
    return ratio_row(name, unit, *rates, beside_name=beside, at_least=at_least)
