"""Streams into topics, and what breaks under a write: duplicates maybe, but never a loss."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from kills_under_a_producer import RestartableBroker

from hermes.client import LATEST, SimpleConsumer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

DEADLINE_SECONDS = 60.0
ROWS_PER_BATCH = 50
ROWS_AT_ONCE = 5
# Some of these are more than any buffer between Spark's processes holds back.
VALUE_BYTES = 100_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RestartableBroker]:
    settings = {"log_dir": str(tmp_path / "logs")}
    running = RestartableBroker(tmp_path / "broker", settings)
    yield running
    running.stop()


@pytest.fixture
def started() -> Iterator[list["StreamingQuery"]]:
    """Queries to stop at the end of a test."""
    queries: list[StreamingQuery] = []
    yield queries
    for query in queries:
        query.stop()


@pytest.fixture
def small_batches(spark: "SparkSession") -> Iterator[Callable[[int], None]]:
    """Sets how many rows go to a Python worker at once; undone at the end."""
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    yield lambda rows: spark.conf.set(setting, rows)
    spark.conf.unset(setting)


def address(port: int) -> dict[str, str]:
    return {"hermes.bootstrap.servers": f"127.0.0.1:{port}"}


def values(spark: "SparkSession", port: int, topic: str) -> Counter[bytes]:
    df = spark.read.format("hermes").options(**address(port), subscribe=topic).load()
    return Counter(bytes(row.value) for row in df.select("value").collect())


def end_of(port: int, topic: str) -> int:
    with SimpleConsumer("127.0.0.1", port) as consumer:
        return sum(consumer.get_offsets_before(topic, 0, LATEST))


def wait_until(condition: Callable[[], bool], step_seconds: float = 0.02) -> None:
    """Ask again and again, for at most the deadline."""
    pause = threading.Event()
    for _ in range(int(DEADLINE_SECONDS / step_seconds)):
        if condition():
            return
        pause.wait(step_seconds)
    raise AssertionError("it did not come about in time")


def numbers(spark: "SparkSession") -> "DataFrame":
    """A stream of 0, 1, 2, ..., so many in each of its batches; it goes on forever."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
    return stream.option("numPartitions", 2).load().selectExpr("cast(value as string) value")


def sink(df: "DataFrame", port: int, folder: Path, **options: Any) -> "DataStreamWriter":
    writer = df.writeStream.format("hermes").options(**address(port), **options)
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


# -- streams ------------------------------------------------------------------------------------


def test_a_stream_goes_from_topic_to_topic_once(
    spark: "SparkSession", broker: RestartableBroker, tmp_path: Path
) -> None:
    def copy_what_is_there() -> None:
        source = spark.readStream.format("hermes").options(**address(broker.port))
        source = source.options(subscribe="from", startingOffsets="earliest")
        rows = source.load().selectExpr("cast(offset as string) key", "value")
        query = sink(rows, broker.port, tmp_path, topic="to").queryName("copy")
        running = query.trigger(availableNow=True).start()
        assert running.awaitTermination(DEADLINE_SECONDS)

    for part in range(2):
        rows = spark.range(part * 100, part * 100 + 100).selectExpr("cast(id as string) value")
        write = rows.write.format("hermes").mode("append")
        write.options(**address(broker.port), topic="from").save()
        copy_what_is_there()
        written = Counter(b"%d" % each for each in range(part * 100 + 100))
        assert values(spark, broker.port, "to") == written


def test_a_broker_killed_under_a_stream_loses_nothing(
    spark: "SparkSession",
    broker: RestartableBroker,
    started: list["StreamingQuery"],
    tmp_path: Path,
) -> None:
    options = {"topic": "clicks", "send.numRetries": 300, "send.retryIntervalMs": 100}
    query = sink(numbers(spark), broker.port, tmp_path, **options).start()
    started.append(query)
    sent = 0
    for _ in range(2):
        wait_until(lambda before=sent: end_of(broker.port, "clicks") > before)  # type: ignore[misc]
        broker.kill_and_restart()
        sent = end_of(broker.port, "clicks")
    wait_until(lambda: end_of(broker.port, "clicks") > sent)
    batches = committed(query)
    wait_until(lambda: committed(query) > batches)
    query.stop()
    found = values(spark, broker.port, "clicks")
    missing = {b"%d" % each for each in range(committed(query) * ROWS_PER_BATCH)} - set(found)
    assert not missing


def committed(query: "StreamingQuery") -> int:
    """How many batches were finished."""
    assert query.exception() is None
    progress = query.lastProgress
    return 0 if progress is None else progress["batchId"] + 1


def test_a_stream_says_what_is_wrong_with_it(
    spark: "SparkSession", broker: RestartableBroker, tmp_path: Path
) -> None:
    query = sink(numbers(spark), broker.port, tmp_path, topic="a", idColumn="uuid").start()
    said = failure_of(query)
    assert "idColumn: there is no column 'uuid'" in said
    counts = numbers(spark).groupBy("value").count().select("value")
    complete = sink(counts, broker.port, tmp_path / "2", topic="a").outputMode("complete")
    assert "outputMode: a topic is a log" in failure_of(complete.start())
    with_path = sink(numbers(spark), broker.port, tmp_path / "3", topic="a")
    assert "path: the option topic, or a column topic" in failure_of(with_path.start("clicks"))


def failure_of(query: "StreamingQuery") -> str:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(DEADLINE_SECONDS)
    return str(caught.value)


# -- tasks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("death", ["error", "kill"])
def test_a_task_that_dies_half_way_leaves_duplicates_and_loses_nothing(
    spark: "SparkSession",
    broker: RestartableBroker,
    small_batches: Callable[[int], None],
    death: str,
) -> None:
    small_batches(ROWS_AT_ONCE)
    df = spark.range(4 * ROWS_AT_ONCE).coalesce(1)
    rows = df.mapInArrow(dies_half_way(broker.port, death), "value string")
    write = rows.write.format("hermes").mode("append")
    write.options(**address(broker.port), topic="clicks").save()
    found = Counter(each[VALUE_BYTES:] for each in values(spark, broker.port, "clicks").elements())
    del found[b"more"]
    assert set(found) == {b"%d" % each for each in range(4 * ROWS_AT_ONCE)}
    assert found.total() > 4 * ROWS_AT_ONCE


def dies_half_way(port: int, death: str) -> Callable[[Any], Any]:
    """Make a step that fails in a task's first attempt, once some of its rows were sent.

    It is an inner function, so that it travels to the workers as a whole: they can't import this.
    Nor can they import pytest's own modules, as an assert in it would want to.
    """
    padding = "x" * VALUE_BYTES

    def arrived() -> bool:
        with SimpleConsumer("127.0.0.1", port) as consumer:
            return sum(consumer.get_offsets_before("clicks", 0, LATEST)) > 0

    def die() -> Iterator[pa.RecordBatch]:
        # Spark hands on what it has only with what comes next: it must not wait for nothing.
        for _ in range(200):
            if arrived():
                break
            yield pa.RecordBatch.from_pydict({"value": [f"{padding}more"] * ROWS_AT_ONCE})
        if death == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("the task dies")

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        is_first = context is not None and context.attemptNumber() == 0
        for number, batch in enumerate(batches):
            if number == 2 and is_first:
                yield from die()
            values = [f"{padding}{each}" for each in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"value": values})

    return step
