"""Filters within Spark: the same rows whether sessions push them down or not."""

from collections.abc import Callable

import pytest
from hermes_testkit import BrokerProcess
from pyspark.sql import DataFrame, SparkSession

from hermes.client import Producer, ProducerConfig

QUERIES = (
    "topic = 'clicks'",
    "topic IN ('clicks', 'nothing') AND partition = 1",
    "topic LIKE 'v%' AND `offset` BETWEEN 100 AND 700",
    "`offset` > 300 AND value IS NOT NULL",
    "timestamp > timestamp'2020-01-01 00:00:00' AND partition <> 0",
    "timestamp < timestamp'2020-01-01 00:00:00'",
    "topic = 'clicks' OR partition = 0",
)


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """Two topics with messages in both of their partitions."""
    started = start_broker(num_partitions=2)
    config = ProducerConfig(broker_list=f"0:127.0.0.1:{started.port}", partitioner="round-robin")
    with Producer(config) as producer:
        for topic in ("clicks", "views"):
            for first in range(0, 200, 10):
                producer.send(topic, [b"%05d" % (first + number) for number in range(10)])
    return started


def load(spark: SparkSession, broker: BrokerProcess, **options: str) -> DataFrame:
    reader = spark.read.format("hermes").option("includeTimestamp", "true")
    reader = reader.option("hermes.bootstrap.servers", f"127.0.0.1:{broker.port}")
    return reader.option("subscribe", "clicks,views").options(**options).load()


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_a_query_has_the_rows_that_its_filters_leave(
    spark: SparkSession, broker: BrokerProcess, pushed: str
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    kept = load(session, broker).toPandas()
    for query in QUERIES:
        frame = load(session, broker, pushFilters="true").where(query)
        expected = session.createDataFrame(kept, frame.schema).where(query)
        assert rows(frame) == rows(expected), query
    # Nothing is left of this, for which Spark makes one task, if it says what is filtered.
    nothing = load(session, broker, pushFilters="true", minPartitions="4")
    tasks = nothing.where("topic = 'nothing'").rdd.getNumPartitions()
    assert tasks == (1 if pushed == "true" else 4)


def test_without_the_option_a_frame_may_be_used_by_any_number_of_queries(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    frame = load(session, broker)
    kept = session.createDataFrame(frame.toPandas(), frame.schema)
    for query in QUERIES:
        assert rows(frame.where(query)) == rows(kept.where(query)), query
    first, second = frame.where("topic = 'clicks'"), frame.where("topic = 'views'")
    assert first.unionAll(second).count() == 400


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.select("topic", "partition", "offset").collect())
