"""Topics of Kafka's format in Spark: keys, headers and times, both ways."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes.client import Producer, ProducerConfig, RecordData, SimpleConsumer
from hermes.errors import LoadError
from hermes.spark.load import load, read_loaded, verify
from hermes.testing import RunningBroker, running_broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL = {"includeKey": "true", "includeHeaders": "true", "includeTimestamp": "true"}
SCHEMA = (
    "key string, value binary, headers array<struct<name: string, data: binary>>, "
    "timestamp timestamp"
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as running:
        with SimpleConsumer(running.host, running.port) as admin:
            for topic in ("read", "written", "streamed", "loaded", "readable"):
                admin.create_topic(topic, {"format": "kafka", "partitions": 2})
        yield running


def read(spark: "SparkSession", broker: RunningBroker, topics: str, **options: str) -> "DataFrame":
    reader = spark.read.format("hermes").options(**options)
    reader = reader.option("hermes.bootstrap.servers", f"{broker.host}:{broker.port}")
    return reader.option("subscribe", topics).load()


def columns(frame: "DataFrame", *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*names).collect())


def test_records_are_read_with_all_that_they_have(
    spark: "SparkSession", broker: RunningBroker
) -> None:
    config = ProducerConfig(broker_list=broker.broker_list, acks="flushed", compression="gzip")
    with Producer(config) as producer:
        for number in range(1000):
            record = RecordData(b"v%d" % number, (("h", b"%d" % number),), number * 1000)
            producer.send("read", record, key=f"k{number}")
        producer.send("read", RecordData(None), key="gone")
        producer.send("messages", b"plain", key="k")

    frame = read(spark, broker, "read", **ALL)
    assert frame.where("key = 'gone' and value is null and headers is null").count() == 1
    rows = frame.where("value is not null").collect()
    assert len(rows) == 1000
    for row in rows:
        number = int(bytes(row.key)[1:])
        assert bytes(row.value) == b"v%d" % number
        assert [(each.key, bytes(each.value)) for each in row.headers] == [("h", b"%d" % number)]
        assert row.timestamp.timestamp() == number
        assert (row["next_offset"], row["index"]) == (row["offset"] + 1, 0)
    assert len({(row.partition, row.offset) for row in rows}) == 1000

    both = read(spark, broker, "read,messages", includeKey="true")
    assert both.where("key is null").select("value").collect()[0].value == b"plain"
    assert both.count() == 1002
    assert read(spark, broker, "read").count() == 1001
    last = read(spark, broker, "read", startingTimestamp="0", minPartitions="4", **ALL)
    assert last.select("partition", "offset").distinct().count() == 1001


def test_records_are_written_with_all_that_rows_have(
    spark: "SparkSession", broker: RunningBroker
) -> None:
    when = datetime.datetime(2026, 5, 17, 10, 0, 0, 123_456, tzinfo=datetime.UTC)
    rows = [
        ("a", b"1", [("h", b"x"), ("h", None)], when),
        (None, b"2", None, None),
        ("a", b"3", [], when),
        ("gone", None, None, when),
    ]
    frame = spark.createDataFrame(rows, SCHEMA)
    writer = frame.write.format("hermes").mode("append").option("topic", "written")
    writer.option("hermes.bootstrap.servers", f"{broker.host}:{broker.port}").save()

    frame.where("key = 'gone'").select("key", "value").write.format("hermes").mode(
        "append"
    ).options(
        topic="written", **{"hermes.bootstrap.servers": f"{broker.host}:{broker.port}"}
    ).save()

    everything = read(spark, broker, "written", **ALL)
    assert everything.where("value is null").select("key").collect() == [(b"gone",)] * 2
    found = sorted(everything.where("value is not null").collect(), key=lambda row: row.value)
    assert [row.key for row in found] == [b"a", None, b"a"]
    assert [(each.key, each.value) for each in found[0].headers] == [("h", b"x"), ("h", None)]
    assert (found[1].headers, found[2].headers) == (None, None)
    assert found[0].timestamp.timestamp() == int(when.timestamp() * 1000) / 1000
    assert found[1].timestamp.timestamp() > when.timestamp()


def test_a_topic_of_messages_refuses_headers(spark: "SparkSession", broker: RunningBroker) -> None:
    frame = spark.createDataFrame([("a", b"1", [("h", b"x")], None)], SCHEMA)
    writer = frame.write.format("hermes").mode("append").option("topic", "messages-only")
    with pytest.raises(Exception, match="format: kafka"):
        writer.option("hermes.bootstrap.servers", f"{broker.host}:{broker.port}").save()


def test_a_stream_reads_each_record_once(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Any
) -> None:
    source = spark.readStream.format("hermes").option("subscribe", "streamed").options(**ALL)
    source = source.option("startingOffsets", "earliest")
    frame = source.option("hermes.bootstrap.servers", f"{broker.host}:{broker.port}").load()
    target, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    for first in (0, 50):
        with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as producer:
            for number in range(first, first + 50):
                producer.send("streamed", b"%d" % number, key=f"k{number}")
        query = (
            frame.select("key", "value")
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(target)
        )
        query.awaitTermination()
    found = columns(spark.read.parquet(target), "key", "value")
    assert found == sorted((b"k%d" % number, b"%d" % number) for number in range(100))


def test_loads_take_keys_and_headers_into_delta_tables(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    options = {"hermes.bootstrap.servers": f"{broker.host}:{broker.port}", "subscribe": "loaded"}

    def send(number: int) -> None:
        with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as producer:
            headers = (("h", b"%d" % number),)
            producer.send("loaded", RecordData(b"v%d" % number, headers), key=f"k{number}")

    send(0)
    load(spark, tmp_path, options, sink="delta")
    send(1)
    more = {**options, "includeKey": "true", "includeHeaders": "true"}
    with pytest.raises(LoadError, match=r"other columns, see headers, key: .* \(merge_schema\)"):
        load(spark, tmp_path, more)
    assert load(spark, tmp_path, more, merge_schema=True).messages == 1
    send(2)
    assert load(spark, tmp_path, options, merge_schema=True).messages == 1
    rows = read_loaded(spark, tmp_path)
    assert columns(rows, "value", "key") == [(b"v0", None), (b"v1", b"k1"), (b"v2", None)]
    (row,) = rows.where("headers IS NOT NULL").collect()
    assert [(each.key, bytes(each.value)) for each in row.headers] == [("h", b"1")]
    assert verify(tmp_path).problems == []


def test_a_load_that_the_connector_can_not_read_says_why(
    spark: "SparkSession",
    broker: RunningBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is read in Python: nothing listens at the address that the connector would have."""
    caplog.set_level("INFO", "hermes.spark.load")
    options = {
        "hermes.bootstrap.servers": f"{broker.host}:{broker.port}",
        "kafka.bootstrap.servers": "127.0.0.1:1",
    }
    with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as producer:
        producer.send("connected", b"of 0.7")
        producer.send("readable", b"a record")
    for topics, more, why in (
        ("readable", {}, "its jar isn't there"),
        ("connected,readable", {}, "topic 'connected' is of 0.7's format"),
        ("readable", {"failOnDataLoss": "false"}, "it can't skip what is damaged"),
    ):
        given = {**options, "subscribe": topics, **more}
        assert load(spark, tmp_path / why, given, sink="parquet").messages > 0
        assert why in caplog.text
