"""How far streams are behind, by what Spark reports."""

import threading
from collections.abc import Callable
from pathlib import Path

import prometheus_client
import pytest
from hermes_testkit import BrokerProcess
from pyspark.sql import SparkSession

from hermes.client import Producer, ProducerConfig
from hermes.spark.progress import Behind, ProgressListener, behind_latest

PAYLOADS = [b"%0100d" % number for number in range(100)]
SET_BYTES = 110 * 100


def test_the_listener_has_what_a_stream_has_yet_to_read(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(num_partitions=2)
    with Producer(ProducerConfig(broker_list=f"0:127.0.0.1:{broker.port}")) as producer:
        for key in (b"a", b"b", b"c", b"d"):
            producer.send("clicks", PAYLOADS, key=key)
    listener, seen, ended = ProgressListener(), [], threading.Event()

    class Watching(ProgressListener):
        """Registered after the first, and so told of everything after it."""

        def onQueryProgress(self, event: object) -> None:
            seen.append((listener.behind(), prometheus_client.generate_latest(registry).decode()))

        def onQueryTerminated(self, event: object) -> None:
            ended.set()

    registry = prometheus_client.CollectorRegistry()
    registry.register(listener)
    watching = Watching()
    for each in (listener, watching):
        spark.streams.addListener(each)
    try:
        query = (
            spark.readStream.format("hermes")
            .option("hermes.bootstrap.servers", f"127.0.0.1:{broker.port}")
            .option("subscribe", "clicks")
            .option("startingOffsets", "earliest")
            .option("maxBytesPerTrigger", str(SET_BYTES))
            .load()
            .writeStream.format("noop")
            .queryName("reading")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert ended.wait(60)
    finally:
        for each in (listener, watching):
            spark.streams.removeListener(each)
    told = [behind["reading", 0] for behind, _ in seen if behind]
    assert told[0].total > told[-1].total == 0
    assert sorted((each.total for each in told), reverse=True) == [each.total for each in told]
    assert all(each.partitions == 2 for each in told)
    last = seen[-1][1]
    assert 'hermes_spark_behind_bytes{query="reading",source="0"} 0.0' in last
    assert 'hermes_spark_input_rows_total{query="reading",source="0"} 400.0' in last
    assert listener.behind() == {}


@pytest.mark.parametrize(
    ("end", "latest", "expected"),
    [
        ('{"a": {"0-0": 5}}', '{"a": {"0-0": 25}}', Behind(1, 20, 20.0, 20, 20)),
        ('{"a": {"0-0": 5, "1-0": 7}}', '{"a": {"0-0": 6, "1-0": 7}}', Behind(2, 1, 0.5, 1, 0)),
        ('{"a": {"0-0": 50}}', '{"a": {"0-0": 25}}', Behind(1, 0, 0.0, 0, 0)),
        ('{"a": {"0-0": 5}}', "null", None),
        ("null", '{"a": {"0-0": 5}}', None),
        ('{"a": {"0-0": 5}}', '{"b": {"0-0": 5}}', None),
        ('{"logOffset": 3}', '{"logOffset": 4}', None),
        ('{"t": {"0": 3}}', '{"t": {"0": 4}}', None),
        ("7", "8", None),
        ("not JSON", "", None),
    ],
)
def test_figures_are_of_partitions_that_both_offsets_have(
    end: str, latest: str, expected: Behind | None
) -> None:
    assert behind_latest({"endOffset": end, "latestOffset": latest}) == expected


def test_the_figures_have_the_names_of_kafkas_source() -> None:
    assert Behind(2, 6, 3.0, 4, 2).metrics() == {
        "avgOffsetsBehindLatest": 3.0,
        "maxOffsetsBehindLatest": 4,
        "minOffsetsBehindLatest": 2,
    }
