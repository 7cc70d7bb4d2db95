"""The source within Spark: batches, streams, and errors as a user of Spark sees them."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hermes_testkit import BrokerProcess
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from hermes.client import Producer, ProducerConfig
from hermes.spark import SCHEMA

StartBroker = Callable[..., BrokerProcess]

PAYLOADS = [b"message %04d" % number for number in range(1000)]


def send(broker: BrokerProcess, topic: str, payloads: list[bytes], **settings: Any) -> None:
    config = ProducerConfig(
        broker_list=f"0:127.0.0.1:{broker.port}",
        acks="flushed",
        **{"partitioner": "round-robin", **settings},
    )
    with Producer(config) as producer:
        for first in range(0, len(payloads), 10):
            producer.send(topic, payloads[first : first + 10])


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(num_partitions=2)


def read(spark: SparkSession, broker: BrokerProcess, **options: object) -> DataFrame:
    reader = spark.read.format("hermes")
    reader = reader.option("hermes.bootstrap.servers", f"127.0.0.1:{broker.port}")
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def stream(spark: SparkSession, broker: BrokerProcess, **options: object) -> DataFrame:
    reader = spark.readStream.format("hermes")
    reader = reader.option("hermes.bootstrap.servers", f"127.0.0.1:{broker.port}")
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def test_a_batch_has_every_message_once(spark: SparkSession, broker: BrokerProcess) -> None:
    send(broker, "clicks", PAYLOADS)
    send(broker, "clicks", PAYLOADS, compression="snappy")
    frame = read(spark, broker, subscribe="clicks", minPartitions=4)
    assert frame.schema == SCHEMA
    rows = frame.collect()
    assert sorted(bytes(row.value) for row in rows) == sorted(PAYLOADS * 2)
    places = {(row.topic, row.broker, row.partition, row.offset, row.index) for row in rows}
    assert len(places) == len(rows)


def test_a_limit_that_ends_tasks_early_fails_none(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    """Of what Spark doesn't read any more, its workers print a BrokenPipeError: see the docs."""
    large = [b"%07d" % number * 1000 for number in range(1000)]
    send(broker, "large", large)
    frame = read(spark, broker, subscribe="large", includeTimestamp="true")
    spark.sparkContext.setJobGroup("limits", "")
    try:
        assert {bytes(row.value) for row in frame.limit(5).collect()} <= {*large}
        assert len(frame.take(3)) == 3
        assert not frame.isEmpty()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    told = spark.sparkContext.statusTracker()
    jobs = [told.getJobInfo(each) for each in told.getJobIdsForGroup("limits")]
    stages = [told.getStageInfo(each) for job in jobs if job for each in job.stageIds]
    failed = [each.numFailedTasks for each in stages if each]
    assert failed
    assert not any(failed)
    assert values(frame) == sorted(large)


def test_sql_on_a_batch_with_timestamps(spark: SparkSession, broker: BrokerProcess) -> None:
    send(broker, "clicks", PAYLOADS)
    frame = read(spark, broker, subscribe="clicks", includeTimestamp="true")
    frame.createOrReplaceTempView("clicks_with_time")
    (row,) = spark.sql(
        "SELECT count(*) AS messages, count(timestamp) AS times, "
        "max(timestamp) <= current_timestamp() AS past, count(DISTINCT partition) AS partitions, "
        "min(CAST(value AS STRING)) AS first FROM clicks_with_time"
    ).collect()
    assert row.asDict() == {
        "messages": 1000,
        "times": 1000,
        "past": True,
        "partitions": 2,
        "first": "message 0000",
    }


def test_an_empty_topic_has_no_rows(spark: SparkSession, broker: BrokerProcess) -> None:
    send(broker, "clicks", PAYLOADS[:10])
    frame = read(spark, broker, subscribe="clicks", startingTimestamp=1 << 50)
    assert frame.count() == 0


def test_a_worker_killed_within_its_task_changes_nothing(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """The reading worker ends without a word on its first attempt; Spark runs the task again."""
    send(broker, "clicks", PAYLOADS)
    marker = str(tmp_path / "killed")

    def end_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    frame = read(spark, broker, subscribe="clicks", minPartitions=3)
    assert values(frame.mapInArrow(end_once, frame.schema)) == sorted(PAYLOADS)
    assert Path(marker).exists()


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    send(broker, "clicks", PAYLOADS[:500])

    def run() -> int:
        frame = stream(
            spark, broker, subscribe="clicks", startingOffsets="earliest", maxBytesPerTrigger=4000
        )
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(tmp_path / "table"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return len(query.recentProgress)

    batches = run()
    assert batches >= 500 * 22 // 4000
    assert values(spark.read.parquet(str(tmp_path / "table"))) == PAYLOADS[:500]
    send(broker, "clicks", PAYLOADS[500:])
    run()
    assert values(spark.read.parquet(str(tmp_path / "table"))) == PAYLOADS


@pytest.mark.nightly
def test_a_stream_goes_on_whose_first_batch_only_the_sink_has(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """A driver was killed after Spark's sink had committed, and before the checkpoint had."""
    send(broker, "clicks", PAYLOADS[:1])
    frame, checkpoint = stream(spark, broker, subscribe="clicks"), tmp_path / "checkpoint"
    query = frame.writeStream.format("parquet").trigger(availableNow=True)

    def run() -> None:
        query.start(str(tmp_path / "table"), checkpointLocation=str(checkpoint)).awaitTermination()

    run()
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    send(broker, "clicks", PAYLOADS[1:])
    run()
    assert values(spark.read.parquet(str(tmp_path / "table"))) == PAYLOADS[1:]


def test_a_stream_survives_its_broker_starting_again(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(num_partitions=2)
    broker.config_file.write_text(
        broker.config_file.read_text().replace("tcp:0:", f"tcp:{broker.port}:")
    )
    send(broker, "clicks", PAYLOADS[:500])
    frame = stream(
        spark,
        broker,
        subscribe="clicks",
        startingOffsets="earliest",
        **{"fetchOffset.numRetries": 100, "fetchOffset.retryIntervalMs": 100},
    )
    query = frame.writeStream.format("memory").queryName("restarted").start()
    try:
        query.processAllAvailable()
        broker.kill()
        broker.start()
        send(broker, "clicks", PAYLOADS[500:])
        query.processAllAvailable()
        assert values(spark.table("restarted")) == PAYLOADS
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "clicks", "maxRows": 5}, "maxrows: there is no such option"),
        ({"subscribe": "clicks", "kafka.bootstrap.servers": "x:1"}, "hermes.bootstrap.servers"),
        ({"subscribe": "clicks", "assign": "{}"}, "expected at least one partition"),
        ({"subscribe": "nothing"}, "there is no topic 'nothing' on the brokers; there are: clicks"),
        ({"subscribe": "clicks", "startingOffsets": '{"clicks": {"0-0": 999999, "0-1": -2}}'},
         "topic 'clicks' partition 0-0: offset 999999 was wanted, 0 to "),
    ],
)  # fmt: skip
def test_errors_reach_the_user_of_spark(
    options: dict[str, object], text: str, spark: SparkSession, broker: BrokerProcess
) -> None:
    send(broker, "clicks", PAYLOADS[:10])
    with pytest.raises(PySparkException) as caught:
        read(spark, broker, **options).count()
    assert text in str(caught.value)


def test_no_broker_is_an_error_of_spark(spark: SparkSession, start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.stop()
    with pytest.raises(PySparkException) as caught:
        read(spark, broker, subscribe="clicks", **{"fetchOffset.retryIntervalMs": 1}).count()
    assert f"127.0.0.1:{broker.port}" in str(caught.value)


def test_damage_is_an_error_of_spark_unless_it_may_be_lost(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    send(broker, "clicks", PAYLOADS)
    broker.stop()
    log = broker.segment("clicks")
    data = bytearray(log.read_bytes())
    data[data.index(b"message 05") + 8] ^= 1
    log.write_bytes(data)
    broker.start()
    with pytest.raises(PySparkException) as caught:
        read(spark, broker, subscribe="clicks").count()
    assert "damaged message at offset" in str(caught.value)
    assert read(spark, broker, subscribe="clicks", failOnDataLoss="false").count() == 999


def test_an_error_says_first_what_is_wrong(spark: SparkSession) -> None:
    reader = spark.read.format("hermes").option("hermes.bootstrap.servers", "127.0.0.1:1")
    reader = reader.option("subscribe", "clicks").option("fetchOffset.numRetries", "0")
    with pytest.raises(PySparkException) as caught:
        reader.load().count()
    first, *rest = str(caught.value).splitlines()
    assert "no connection to 127.0.0.1:1" in first
    assert len(rest) < 4
