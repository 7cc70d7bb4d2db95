"""Queries on brokers that ask who comes, by TLS; and what Spark shows of their passwords: nothing.

A query is planned in one process and carried out in others; each has to come in.
"""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from planted_secrets import leaks, planted
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from hermes.client import Producer, ProducerConfig
from hermes.spark.load import load
from hermes.spark.load.loaded import read_loaded
from hermes.testing import RunningBroker, running_broker

USERS = {name: planted(name) for name in ("writer", "reader", "loader")}
pytestmark = pytest.mark.usefixtures("event_log")

ACCESS = [
    {"principal": "writer", "operations": ["produce", "create"], "topic": "clicks"},
    {"principal": "reader", "operations": ["consume"], "topic": "clicks"},
    {"principal": "reader", "operations": ["group"], "group": "progress"},
    {"principal": "loader", "operations": ["consume", "produce"], "topic": "clicks"},
]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {"access": ACCESS, "coordination": "embedded"}
    with running_broker(tls=True, users=USERS, settings=settings) as running:
        writer = running.client_settings("writer")
        config = ProducerConfig(broker_list=running.broker_list, acks="flushed", **writer)
        with Producer(config) as producer:
            producer.send("clicks", [b"one", b"two", b"three"]).result()
        yield running


@pytest.fixture(scope="module")
def passwords(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("passwords")
    for name, password in USERS.items():
        (folder / name).write_text(f"{password}\n")
    return {name: str(folder / name) for name in USERS}


class Asking:
    """The options of somebody."""

    def __init__(self, broker: RunningBroker, passwords: dict[str, str]) -> None:
        self.broker = broker
        self.passwords = passwords

    def __call__(self, name: str, *, in_option: bool = False, zookeeper: bool = False) -> Any:
        where = {"hermes.bootstrap.servers": f"{self.broker.host}:{self.broker.port}"}
        if zookeeper:
            where = {"hermes.zookeeper": str(self.broker.zookeeper_connect)}
        secret = {"passwordFile": self.passwords[name]}
        if in_option:
            secret = {"password": USERS[name]}
        return {**where, "tlsCa": str(self.broker.tls_ca), "user": name, **secret}


@pytest.fixture(scope="module")
def asking(broker: RunningBroker, passwords: dict[str, str]) -> Asking:
    return Asking(broker, passwords)


@pytest.mark.parametrize("in_option", [False, True])
@pytest.mark.parametrize("zookeeper", [False, True])
def test_a_batch(spark: SparkSession, asking: Asking, in_option: bool, zookeeper: bool) -> None:
    options = asking("reader", in_option=in_option, zookeeper=zookeeper)
    rows = spark.read.format("hermes").options(**options, subscribe="clicks").load()
    found = {bytes(row.value) for row in rows.collect()}
    assert {b"one", b"two", b"three"} <= found
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        rows.explain(extended=True)
        rows.explain(mode="formatted")
    assert not leaks(shown.getvalue())
    assert not leaks(rows.schema.json())


def test_a_write_and_a_stream(spark: SparkSession, asking: Asking, tmp_path: Path) -> None:
    rows = spark.range(3).select(sf.concat(sf.lit("row "), "id").alias("value"))
    to = asking("loader", in_option=True, zookeeper=True)
    rows.write.format("hermes").mode("append").options(**to, topic="clicks").save()
    options = asking("reader", zookeeper=True)
    stream = (
        spark.readStream.format("hermes")
        .options(**options, subscribe="clicks", startingOffsets="earliest", groupId="progress")
        .load()
    )
    query = (
        stream.select(sf.col("value").cast("string").alias("text"))
        .writeStream.format("memory")
        .queryName("secured")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.sql("SELECT * FROM secured WHERE text LIKE 'row %'").count() == 3
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        query.explain(extended=True)
    spark.catalog.dropTempView("secured")
    kept = [each.read_bytes() for each in (tmp_path / "checkpoint").rglob("*") if each.is_file()]
    assert kept
    for written in (shown.getvalue(), str(query.recentProgress), *kept):
        assert not leaks(written)


def test_a_load(spark: SparkSession, asking: Asking, tmp_path: Path) -> None:
    target = tmp_path / "loaded"
    options = asking("reader", in_option=True)
    result = load(spark, target, {**options, "subscribe": "clicks"})
    assert result.messages >= 3
    assert read_loaded(spark, target).count() == result.messages
    for each in target.rglob("*"):
        assert not each.is_file() or not leaks(each.read_bytes())


@pytest.mark.nightly
def test_a_table_keeps_where_the_password_is(spark: SparkSession, asking: Asking) -> None:
    def created(options: dict[str, str]) -> str:
        listed = ", ".join(f"`{name}` '{_quoted(text)}'" for name, text in options.items())
        return f"CREATE TABLE secured_clicks USING hermes OPTIONS ({listed}, subscribe 'clicks')"

    with pytest.raises(PySparkException, match="a table's options are stored") as caught:
        spark.sql(created(asking("reader", in_option=True)))
    assert not leaks(str(caught.value))
    spark.sql(created(asking("loader")))
    try:
        assert spark.table("secured_clicks").count() >= 3
        spark.sql("INSERT INTO secured_clicks (value) VALUES (binary('four'))")
        for statement in ("DESCRIBE EXTENDED", "DESCRIBE FORMATTED", "SHOW CREATE TABLE"):
            assert not leaks(str(spark.sql(f"{statement} secured_clicks").collect()))
        assert not leaks(spark.table("secured_clicks").schema.json())
    finally:
        spark.sql("DROP TABLE secured_clicks")


def _read(spark: SparkSession, options: dict[str, str]) -> None:
    spark.read.format("hermes").options(**options, subscribe="clicks").load().collect()


def _write(spark: SparkSession, options: dict[str, str]) -> None:
    rows = spark.range(1).select(sf.lit("x").alias("value"))
    rows.write.format("hermes").mode("append").options(**options, topic="clicks").save()


@pytest.mark.parametrize(("use", "name"), [(_read, "writer"), (_write, "reader")])
def test_who_may_not_is_told_so(spark: SparkSession, asking: Asking, use: Any, name: str) -> None:
    with pytest.raises(PySparkException, match="access rules don't allow it") as caught:
        use(spark, asking(name, in_option=True))
    assert not leaks(str(caught.value))


def test_a_wrong_password_is_told_and_not_shown(
    spark: SparkSession, asking: Asking, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text(planted("wrong"))
    options = {**asking("reader"), "passwordFile": str(wrong)}
    with pytest.raises(PySparkException, match="the name or the password is wrong") as caught:
        spark.read.format("hermes").options(**options, subscribe="clicks").load().collect()
    assert not leaks(str(caught.value))


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")
