"""Loads and streams to a real HDFS, and what loads rely on there."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import soak
from hdfs import Hdfs
from prompt_worker import spark_environment
from store_checks import CHECKS
from upkeep_driver import FIRST_KEPT
from upkeep_kills import check_upkeep

from hermes import Producer, ProducerConfig
from hermes.errors import LoadConflictError, LoadError
from hermes.spark.delta import write_stream_to_delta
from hermes.spark.load import clean_up, job, load, read_loaded
from hermes.spark.stores import open_store
from hermes.testing import running_broker

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def spark(tmp_path_factory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    folder = tmp_path_factory.mktemp("spark")
    session = builder.config("spark.sql.warehouse.dir", str(folder)).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory) -> Iterator[Hdfs]:
    running = Hdfs(tmp_path_factory.mktemp("hdfs") / "cluster")
    yield running
    running.stop()


@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__)
def test_what_loads_rely_on(spark, hdfs, check) -> None:
    check(open_store(f"{hdfs.address}/some dir/{check.__name__}", spark))


def test_loads_are_exact_also_when_three_race(spark, hdfs, monkeypatch) -> None:
    target = f"{hdfs.address}/loads of/clicks"
    with running_broker(settings={"num_partitions": 2}) as broker:
        options = {
            "hermes.bootstrap.servers": f"{broker.host}:{broker.port}",
            "subscribe": "clicks",
        }

        def send(start: int, end: int) -> None:
            with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as to:
                for number in range(start, end):
                    to.send("clicks", [b"%d" % number])

        send(0, 50)
        first = load(spark, target, options)
        assert (first.messages, first.directory) == (50, f"{target}/data")
        send(50, 80)
        all_wrote, write, outcomes = threading.Barrier(3), job.write_parquet, []

        def write_and_meet(*arguments) -> int:
            written = write(*arguments)
            all_wrote.wait(300)
            return written

        def race() -> None:
            try:
                outcomes.append(load(spark, target, options).messages)
            except LoadConflictError:
                outcomes.append(0)

        monkeypatch.setattr(job, "write_parquet", write_and_meet)
        threads = [threading.Thread(target=race) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert sorted(outcomes) == [0, 0, 30]
    found = Counter(bytes(row.value) for row in read_loaded(spark, target).collect())
    assert found == Counter(b"%d" % number for number in range(80))
    # Spark's own reader, as others have it, sees the same.
    assert spark.read.parquet(f"{target}/data").count() == 80
    assert clean_up(target, spark=spark).kept == ()


def test_upkeep_under_kills(spark, hdfs, tmp_path) -> None:
    """Programs that load, compact, let expire and clean up at once, each with a JVM of its own."""
    target, kills, seed = f"{hdfs.address}/upkeep of/clicks", soak.times(20), soak.seed()
    store = open_store(target, spark)

    def copied() -> Path:
        for each in store.walk("data"):
            path = tmp_path / "copied" / each.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.read(each.name) or b"")
        return tmp_path / "copied"

    messages = check_upkeep(
        target,
        tmp_path,
        "parquet",
        kills,
        seed,
        directory=copied,
        environment=spark_environment(),
        spark=spark,
    )
    folders = store.names("data/topic=clicks")
    assert folders[0] == f"day={FIRST_KEPT}", "what has expired has left its folder"
    soak.report("upkeep on HDFS", kills=kills, seed=seed, messages=messages)


def test_delta_tables_on_hdfs_are_refused_by_name(spark, hdfs, tmp_path) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(LoadError, match="Delta tables are kept in directories or on S3"):
        write_stream_to_delta(stream, f"{hdfs.address}/table", tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()
