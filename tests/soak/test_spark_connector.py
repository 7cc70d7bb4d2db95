"""Spark's own connector for Kafka, on Hermes: reads, writes, and streams as source and sink."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_clients import CODECS, Confluent, Sent
from prompt_worker import spark_environment

from hermes.spark.auditing import tally_values
from hermes.spark.connector import from_connector
from hermes.spark.decoding import decode_json, split_dead_letters
from hermes.spark.load import load, read_loaded
from hermes.testing import running_kafka

pytestmark = pytest.mark.soak

COUNT = 200
SENT = [
    Sent(b"value %d" % number, b"key %d" % number, 1_700_000_000_000 + number, (("h", b"1"),))
    for number in range(COUNT)
]


def jars() -> str:
    """The connector's, as `spark.jars` has them."""
    folder = os.environ.get("HERMES_SPARK_CONNECTOR_JARS")
    if folder is None:
        raise RuntimeError("scripts/soak fetches Spark's connector for Kafka, and names it")
    return ",".join(map(str, sorted(Path(folder).glob("*.jar"))))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars())
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.local.dir", str(tmp_path_factory.mktemp("local")))
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    gateway = session.sparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


def test_spark_reads_writes_and_streams(spark: Any, tmp_path: Path) -> None:
    with running_kafka(topics={"read": 2, "written": 2}) as kafka:
        for codec in CODECS:
            Confluent().produce(kafka.bootstrap_servers, "read", SENT, compression_type=codec)
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        source = spark.read.format("kafka").options(
            subscribe="read", includeHeaders="true", **servers
        )
        read = source.load().selectExpr(
            "key", "value", "headers", "unix_millis(timestamp) AS timestamp"
        )
        rows = read.collect()
        expected = sorted((each.key, each.value, each.timestamp_ms) for each in SENT * len(CODECS))
        assert sorted((row.key, row.value, row.timestamp) for row in rows) == expected
        assert {tuple(map(tuple, row.headers)) for row in rows} == {(("h", b"1"),)}

        read.select("key", "value", "headers").write.format("kafka").options(
            topic="written", includeHeaders="true", **servers
        ).save()
        got = Confluent().read(kafka.bootstrap_servers, ["written"], len(rows))
        assert sorted((each.key, each.value) for each in got) == [each[:2] for each in expected]
        assert {each.headers for each in got} == {(("h", b"1"),)}

        stream = spark.readStream.format("kafka").options(
            subscribe="written", startingOffsets="earliest", **servers
        )
        writer = stream.load().writeStream.format("memory").queryName("copied")
        checkpoint = str(tmp_path / "checkpoint")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        copied = spark.table("copied").collect()
        assert sorted((row.key, row.value) for row in copied) == [each[:2] for each in expected]


def test_spark_streams_from_topic_to_topic(spark: Any, tmp_path: Path) -> None:
    """A query that is stopped and started again goes on where it was, in micro-batches."""
    with running_kafka(topics={"from": 2, "to": 3}) as kafka:
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}

        def stream() -> None:
            source = spark.readStream.format("kafka").options(
                subscribe="from",
                startingOffsets="earliest",
                maxOffsetsPerTrigger=COUNT,
                includeHeaders="true",
                **servers,
            )
            columns = source.load().select("key", "value", "headers")
            writer = columns.writeStream.format("kafka").options(topic="to", **servers)
            writer = writer.option("includeHeaders", "true")
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            assert writer.trigger(availableNow=True).start().awaitTermination(300)

        for number in (1, 2):
            for codec in CODECS:
                Confluent().produce(kafka.bootstrap_servers, "from", SENT, compression_type=codec)
            stream()
            got = Confluent().read(
                kafka.bootstrap_servers, ["to"], number * len(SENT) * len(CODECS)
            )
            expected = sorted((each.key, each.value) for each in SENT * len(CODECS) * number)
            assert sorted((each.key, each.value) for each in got) == expected
            assert {each.headers for each in got} == {(("h", b"1"),)}


@pytest.mark.parametrize("partition_by", ["day", "hour"])
@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_loads_are_the_same_whoever_reads(
    spark: Any, tmp_path: Path, partition_by: Any, sink: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """By the connector and by the source in Python: rows, offsets, and what readers see."""
    with running_kafka(topics={"loaded": 2, "also": 1}) as kafka:
        servers = kafka.broker_list.partition(":")[2]
        own = {"hermes.bootstrap.servers": servers, "subscribe": "loaded,also"}
        if sink == "delta":
            own |= {"includeKey": "true", "includeHeaders": "true"}
        ways = {
            "own": own,
            "connector": {**own, "kafka.bootstrap.servers": kafka.bootstrap_servers},
        }
        for number in range(3):
            for codec in CODECS:
                Confluent().produce(kafka.bootstrap_servers, "loaded", SENT, compression_type=codec)
            Confluent().produce(kafka.bootstrap_servers, "also", SENT)
            caplog.clear()
            made = {
                way: load(spark, tmp_path / way, given, partition_by=partition_by, sink=sink)
                for way, given in ways.items()
            }
            assert "doesn't read this load" not in caplog.text
            assert made["own"].messages == made["connector"].messages > len(SENT)
            assert made["own"].ranges == made["connector"].ranges
            rows = {
                way: sorted(map(str, read_loaded(spark, tmp_path / way).collect())) for way in ways
            }
            assert rows["own"] == rows["connector"]
            assert len(rows["own"]) == (number + 1) * len(SENT) * (len(CODECS) + 1)
        schemas = [read_loaded(spark, tmp_path / way).schema for way in ways]
        assert schemas[0] == schemas[1]


def test_what_is_for_hermes_rows_takes_those_of_a_stream(spark: Any, tmp_path: Path) -> None:
    with running_kafka(topics={"read": 2}) as kafka:
        clicks = [each._replace(value=b'{"page": "/%d"}' % n) for n, each in enumerate(SENT)]
        torn = SENT[0]._replace(value=b'{"page": ')
        Confluent().produce(kafka.bootstrap_servers, "read", [*clicks, torn])
        stream = spark.readStream.format("kafka").options(
            subscribe="read",
            startingOffsets="earliest",
            includeHeaders="true",
            **{"kafka.bootstrap.servers": kafka.bootstrap_servers},
        )
        rows = from_connector(stream.load())
        good, dead = split_dead_letters(decode_json(rows, "page string not null"))
        found: dict[str, list[Any]] = {}

        def keep(batch: Any, _: int) -> None:
            counted = tally_values(batch)
            found["counted"] = [n for each in counted.values() for n, _ in each.values()]

        for name, each in {"good": good, "dead": dead}.items():
            writer = each.writeStream.format("memory").queryName(name).trigger(availableNow=True)
            assert writer.start().awaitTermination(300)
            found[name] = spark.table(name).collect()
        assert (
            rows.writeStream.foreachBatch(keep)
            .trigger(availableNow=True)
            .start()
            .awaitTermination(300)
        )
        assert sorted(row.decoded.page for row in found["good"]) == sorted(
            f"/{n}" for n in range(COUNT)
        )
        assert [row.value for row in found["dead"]] == [torn.value]
        assert sum(found["counted"]) == COUNT + 1
