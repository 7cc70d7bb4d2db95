"""The audit of loads and streams: each message once, however often a load is counted."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from hermes.audit.checking import Audit, ClusterAddress
from hermes.audit.clients import AuditedProducer
from hermes.client import Producer, ProducerConfig, RecordData, SimpleConsumer
from hermes.protocol.stamps import Stamper, without_stamp
from hermes.spark.auditing import audit_loads, audited_batches, tally_values, without_stamps
from hermes.spark.load import load
from hermes.testing import running_broker

WINDOW_MS = 500


@pytest.fixture(scope="module")
def broker():
    with running_broker(settings={"coordination": "embedded", "num_partitions": 2}) as running:
        yield running


def send(broker, topic, count):
    config = ProducerConfig(
        broker_list=broker.broker_list,
        producer_type="async",
        callback_handler="audit",
        callback_handler_options={"window": WINDOW_MS / 1000},
    )
    with Producer(config) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)


def options(broker, topic):
    return {"hermes.bootstrap.servers": f"{broker.host}:{broker.port}", "subscribe": topic}


def windows(broker, topic, tier):
    """The windows of a tier, once they are over."""
    deadline = time.monotonic() + 60
    address = ClusterAddress("main", broker.zookeeper_connect)
    with Audit([address], grace_seconds=0, window_ms=WINDOW_MS) as auditing:
        while True:
            found = auditing.look(["producers", tier], [topic]).windows
            if found and all(each.state != "open" for each in found):
                return found
            assert time.monotonic() < deadline, found


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_loads_are_counted_once(spark, broker, tmp_path, sink):
    topic, target = f"loaded-{sink}", tmp_path / "target"
    to = ProducerConfig(broker_list=broker.broker_list)
    audit = {"audit_to": to, "window_ms": WINDOW_MS}
    send(broker, topic, 3000)
    first = load(spark, target, options(broker, topic), sink=sink)
    assert audit_loads(spark, target, topic, loads=first.number, **audit) == 3000
    send(broker, topic, 1000)
    load(spark, target, options(broker, topic), sink=sink)
    assert audit_loads(spark, target, topic, **audit) == 4000  # the first one as well
    found = windows(broker, topic, f"spark:{topic}")
    assert {each.state for each in found} == {"complete"}
    assert sum(each.found for each in found) == 4000


def test_micro_batches_are_counted_and_values_come_without_stamps(spark, broker, tmp_path):
    send(broker, "streamed", 2000)
    to = ProducerConfig(broker_list=broker.broker_list)
    seen = []

    def handle(batch, number):
        seen.extend(int(row.value) for row in without_stamps(batch).select("value").collect())

    rows = (
        spark.readStream.format("hermes")
        .options(**options(broker, "streamed"), startingOffsets="earliest")
        .load()
    )
    audited = audited_batches(handle, "stream", to, window_ms=WINDOW_MS)
    query = (
        rows.writeStream.foreachBatch(audited)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(seen) == list(range(2000))
    found = windows(broker, "streamed", "spark:stream")
    assert {each.state for each in found} == {"complete"}
    assert sum(each.found for each in found) == 2000


def test_values_without_stamps_are_counted_as_such(spark):
    rows = spark.createDataFrame([("clicks", b"a"), ("clicks", None)], "topic string, value binary")
    ((place, tallies),) = tally_values(rows).items()
    assert (place, [count for count, _ in tallies.values()]) == (("clicks", 0), [1])


def test_only_stamps_are_taken_off(spark):
    (stamped,) = Stamper(7, "wéb").stamped([b"payload"], 1)
    values = [b"", b"payload", stamped, stamped[:20], stamped[:5] + b"\xff" + stamped[6:]]
    values += [stamped[:6] + b"\1" + stamped[7:], stamped[:14] + bytes(8) + stamped[22:], None]
    rows = spark.createDataFrame([(each,) for each in values], "value binary")
    found = [row.value and bytes(row.value) for row in without_stamps(rows).collect()]
    assert found == [each and without_stamp(each) for each in values]
    assert found[2] == b"payload"


@pytest.mark.nightly
def test_the_example_proves_its_pipeline(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "pipeline.py"
    ran = subprocess.run(
        [sys.executable, str(example), "5000"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("proved: all is there, and once\n")


def test_records_of_kafkas_format_are_counted_with_keys_headers_and_times(spark, broker, tmp_path):
    topic, to = "records", ProducerConfig(zookeeper_connect=broker.zookeeper_connect)
    with SimpleConsumer(broker.host, broker.port) as admin:
        admin.create_topic(topic, {"format": "kafka", "partitions": 2})
    audited = AuditedProducer(to, window_ms=WINDOW_MS)
    with Producer(ProducerConfig(broker_list=broker.broker_list)) as producer:
        for number in range(300):
            value, key = b"%d" % number, b"user-%d" % (number % 3)
            stamped = audited.stamp(topic, value, key)
            producer.send(topic, RecordData(value, headers=[stamped.header]), key=key)
            stamped.settle(True)
            producer.send(topic, RecordData(b"plain", timestamp_ms=1_700_000_000_000 + number))
        producer.send(topic, RecordData(None), key=b"user-1")  # a tombstone
    audited.close()
    rows = spark.readStream.format("hermes").options(
        **options(broker, topic), startingOffsets="earliest", includeTimestamp="true"
    )
    with pytest.raises(Exception, match="includeKey"):
        tally_values(spark.read.format("hermes").options(**options(broker, topic)).load()).values()
    stream = (
        rows.options(includeKey="true", includeHeaders="true")
        .load()
        .writeStream.foreachBatch(audited_batches(lambda *_: None, topic, to, window_ms=WINDOW_MS))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    deadline = time.monotonic() + 60
    address = ClusterAddress("main", broker.zookeeper_connect)
    with Audit([address], grace_seconds=0, window_ms=WINDOW_MS) as auditing:
        while True:
            assert auditing.count() == []
            report = auditing.look(topics=[topic])
            of_spark = [each for each in report.windows if each.tier == f"spark:{topic}"]
            if of_spark and {each.state for each in of_spark} == {"complete"}:
                break
            assert time.monotonic() < deadline, of_spark
    counts = {"producers": 0, "cluster:main": 0}
    for each in of_spark:
        counts[each.against] += each.found
    assert counts == {"producers": 300, "cluster:main": 301}
