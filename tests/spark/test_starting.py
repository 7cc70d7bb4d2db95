"""Streams that start at the same moment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_testkit import BrokerProcess
from pyspark.sql import SparkSession

from hermes.client import Producer, ProducerConfig
from hermes.spark import HermesDataSource, prepare_streams


def test_no_start_adds_a_name_to_what_streams_share(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """A name that is added by two at once is what damages the map; a value that changes is not."""
    broker = start_broker()
    with Producer(ProducerConfig(broker_list=f"0:127.0.0.1:{broker.port}")) as producer:
        producer.send("clicks", [b"one", b"two"])
    session = spark.newSession()
    session.dataSource.register(HermesDataSource)  # with a map that no other test has filled
    manager: Any = session._jsparkSession.sessionState().dataSourceManager()

    def names() -> set[str]:
        return set(manager.lookupDataSource("hermes").dataSourceCls().envVars())

    before = names()
    prepare_streams(session)
    prepared = names()
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
    assert names() == prepared
