"""Tables of Spark's catalog over topics."""

from collections.abc import Callable, Iterator

import pytest
from hermes_testkit import BrokerProcess
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hermes.client import Producer, ProducerConfig

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def options(start_broker: StartBroker) -> str:
    broker = start_broker(num_partitions=2)
    with Producer(ProducerConfig(broker_list=f"0:127.0.0.1:{broker.port}")) as producer:
        producer.send("clicks", [b"one", b"two"])
    server = f"`hermes.bootstrap.servers` '127.0.0.1:{broker.port}'"
    return f"OPTIONS ({server}, subscribe 'clicks')"


@pytest.fixture
def dropped(spark: SparkSession) -> Iterator[None]:
    yield
    for name in ("clicks", "listed", "selected", "made"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.usefixtures("dropped")
def test_a_table_is_created_described_read_and_written(spark: SparkSession, options: str) -> None:
    spark.sql(f"CREATE TABLE clicks USING hermes {options} COMMENT 'of the shop'")
    described = {row.col_name: row.data_type for row in spark.sql("DESCRIBE clicks").collect()}
    assert described["offset"] == "bigint"
    assert spark.table("clicks").count() == 2
    spark.sql("INSERT INTO clicks (value) VALUES (binary('three'))")
    spark.sql("INSERT INTO clicks SELECT * FROM clicks WHERE value = binary('one')")
    found = spark.sql("SELECT string(value) AS v FROM clicks ORDER BY v").collect()
    assert [row.v for row in found] == ["one", "one", "three", "two"]
    limited = spark.sql("SELECT count(*) AS n FROM clicks WITH (`startingOffsets` = 'earliest')")
    assert limited.first().n == 4
    with pytest.raises(PySparkException, match="can't be replaced"):
        spark.sql("INSERT OVERWRITE clicks SELECT * FROM clicks")
    spark.sql(f"CREATE TEMPORARY VIEW seen USING hermes {options}")
    assert spark.table("seen").count() == 4
    spark.catalog.dropTempView("seen")


@pytest.mark.nightly
@pytest.mark.usefixtures("dropped")
def test_tables_that_keep_no_options_or_have_other_columns_are_refused(
    spark: SparkSession, options: str
) -> None:
    spark.sql(f"CREATE TABLE listed (a INT) USING hermes {options}")
    with pytest.raises(PySparkException, match="without columns, then INSERT INTO"):
        spark.table("listed").collect()
    with pytest.raises(PySparkException, match="without columns, then INSERT INTO"):
        spark.sql(f"CREATE TABLE selected USING hermes {options} AS SELECT binary('x') AS value")
    spark.sql(f"CREATE TABLE clicks USING hermes {options}")
    spark.sql("ALTER TABLE clicks ADD COLUMNS (a INT)")
    with pytest.raises(PySparkException, match="fixed, DROP TABLE and create it again: struct"):
        spark.table("clicks").collect()
    with pytest.raises(PySparkException, match="subscrib: there is no such option"):
        spark.sql(f"CREATE TABLE made USING hermes {options.replace('subscribe', 'subscrib')}")
