"""Streams that start at the same moment, and a format that needs no registering."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hermes_testkit import BrokerProcess
from py4j.java_gateway import get_method
from pyspark.sql import DataFrame, SparkSession

from hermes.client import Producer, ProducerConfig
from hermes.spark import HermesDataSource, prepare_streams, split_id
from hermes.spark.decoding import decode_text
from hermes.spark.progress import ProgressListener
from hermes.spark.streams import deduplicate, join_table, top_n


@pytest.mark.nightly
def test_no_start_adds_a_name_to_what_streams_share(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """A name that is added by two at once is what damages the map; a value that changes is not."""
    broker = start_broker()
    with Producer(ProducerConfig(broker_list=f"0:127.0.0.1:{broker.port}")) as producer:
        producer.send("clicks", [b"one", b"two"])
    session = spark.newSession()
    session.dataSource.register(HermesDataSource)  # with a map that no other test has filled
    before = set(environment_of(session))
    prepare_streams(session)
    prepared = set(environment_of(session))
    assert prepared > before
    stream = session.readStream.format("hermes").option("subscribe", "clicks")
    stream = stream.option("hermes.bootstrap.servers", f"127.0.0.1:{broker.port}")
    rows = stream.option("startingOffsets", "earliest").load()
    queries = [
        rows.writeStream.format("memory")
        .queryName(f"started_{number}")
        .option("checkpointLocation", str(tmp_path / str(number)))
        .trigger(availableNow=True)
        .start()
        for number in range(3)
    ]
    for number, query in enumerate(queries):
        query.awaitTermination()
        assert session.table(f"started_{number}").count() == 2
    assert set(environment_of(session)) == prepared


def environment_of(session: SparkSession) -> Any:
    """The map that all streams of a driver share, as Spark itself finds the source."""
    manager: Any = session._jsparkSession.sessionState().dataSourceManager()
    return manager.lookupDataSource("hermes").dataSourceCls().envVars()


def once(rows: DataFrame) -> DataFrame:
    return deduplicate(rows, "value", time="timestamp", watermark="1m")


def with_names(rows: DataFrame) -> DataFrame:
    names = rows.sparkSession.createDataFrame([(b"x", "a name")], "value binary, name string")
    return join_table(rows, names, on="value")


def latest(rows: DataFrame) -> DataFrame:
    return top_n(rows, 1, by="timestamp")


@pytest.mark.parametrize("use", [decode_text, split_id, once, with_names, latest])
def test_what_gets_a_stream_prepares_for_its_start(
    spark: SparkSession, use: Callable[[DataFrame], DataFrame]
) -> None:
    session = spark.newSession()
    session.dataSource.register(HermesDataSource)
    rows = session.readStream.format("rate").load()
    batch = session.createDataFrame(
        [(b"x", datetime.now(UTC))], "value binary, timestamp timestamp"
    )
    before = set(environment_of(session))
    use(batch)
    assert set(environment_of(session)) == before
    use(rows.selectExpr("CAST(CAST(value AS STRING) AS BINARY) AS value", "timestamp"))
    assert set(environment_of(session)) > before


def test_a_listener_for_progress_prepares_each_start(spark: SparkSession) -> None:
    """Spark tells it of a start, and waits for it, before the stream makes its sources."""
    prepare_streams(spark)
    before = dict(environment_of(spark))
    get_method(environment_of(spark), "remove")("SPARK_BUFFER_SIZE")
    assert dict(environment_of(spark)) != before
    listener = ProgressListener()
    spark.streams.addListener(listener)
    try:
        spark.readStream.format("rate").load().writeStream.format("noop").start().stop()
    finally:
        spark.streams.removeListener(listener)
    assert dict(environment_of(spark)) == before


@pytest.mark.parametrize("name", ["contentSize", "size"], ids=["Scala's map", "Java's map"])
def test_a_map_that_is_damaged_is_made_good(spark: SparkSession, name: str) -> None:
    """As two streams leave it that put a name into it at once: it counts wrong."""
    session = spark
    if name == "size":  # as for a source that was registered by hand
        session = spark.newSession()
        session.dataSource.register(HermesDataSource)
    environment = environment_of(session)
    prepare_streams(session)
    before = dict(environment)
    inner = environment.underlying() if name == "contentSize" else environment
    field = inner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    field.set(inner, len(before) + 1)
    assert environment.size() != len(before)
    prepare_streams(session)
    assert (environment.size(), dict(environment)) == (len(before), before)


def test_a_session_finds_the_format_without_registering(spark: SparkSession) -> None:
    # Looking up a format is all of the session's own: nothing in the tests registers it.
    reader = spark.newSession().read.format("hermes").option("subscribe", "clicks")
    df = reader.option("hermes.bootstrap.servers", "127.0.0.1:1").load()
    assert df.columns[0] == "topic"
    assert df.columns[-1] == "value"
