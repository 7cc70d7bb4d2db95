"""`df.write.format("hermes")`: what was written is there, once; and what can't be is refused."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from server_process import free_port

from hermes.client import LATEST, SimpleConsumer
from hermes.plugins.partitioners.java_hash import java_hash
from hermes.testing import RunningBroker, running_broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

PARTITIONS = 3
ENVELOPE = bytes.fromhex("c1 4865726d6573 01")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """One for all tests, each of which has topics of its own."""
    with running_broker(settings={"num_partitions": PARTITIONS}) as running:
        yield running


def address(broker: RunningBroker) -> dict[str, str]:
    return {"hermes.bootstrap.servers": f"{broker.host}:{broker.port}"}


def writer(df: "DataFrame", broker: RunningBroker, **options: Any) -> "DataFrameWriter":
    return df.write.format("hermes").mode("append").options(**address(broker), **options)


def read(spark: "SparkSession", broker: RunningBroker, topic: str) -> "DataFrame":
    reader = spark.read.format("hermes").options(**address(broker))
    return reader.option("subscribe", topic).load()


def values(df: "DataFrame") -> Counter[bytes]:
    return Counter(bytes(row.value) for row in df.select("value").collect())


def numbered(spark: "SparkSession", count: int) -> "DataFrame":
    return spark.range(count).selectExpr("cast(id as string) value")


def end_of(broker: RunningBroker, topic: str) -> int:
    with SimpleConsumer(broker.host, broker.port) as consumer:
        found = (consumer.get_offsets_before(topic, each, LATEST) for each in range(PARTITIONS))
        return sum(end for ends in found for end in ends)


# -- what is written ----------------------------------------------------------------------------


def test_every_row_is_a_message_spread_over_the_partitions(
    spark: "SparkSession", broker: RunningBroker
) -> None:
    writer(numbered(spark, 25_000), broker, topic="many").save()
    messages = read(spark, broker, "many")
    assert values(messages) == Counter(b"%d" % each for each in range(25_000))
    assert messages.select("partition").distinct().count() == PARTITIONS


def test_binary_values_are_sent_as_they_are(spark: "SparkSession", broker: RunningBroker) -> None:
    rows = [(bytearray(b""),), (bytearray(b"\xff\x00"),)]
    df = spark.createDataFrame(rows, "value binary")
    writer(df, broker, topic="binary", compression="gzip", acks="written").save()
    expected = Counter([b"", b"\xff\x00"])
    for _ in range(100):  # what is written becomes visible once it is flushed
        found = values(read(spark, broker, "binary"))
        if found == expected:
            break
    assert found == expected


def test_no_rows_are_no_error(spark: "SparkSession", broker: RunningBroker) -> None:
    writer(numbered(spark, 0), broker, topic="nothing").save()
    writer(numbered(spark, 5).where("value = 'none'"), broker, topic="nothing").save()
    assert end_of(broker, "nothing") == 0


def test_a_column_gives_each_row_its_topic(spark: "SparkSession", broker: RunningBroker) -> None:
    df = spark.range(100).selectExpr("concat('rows-', id % 2) topic", "cast(id as string) value")
    writer(df, broker).save()
    for remainder in range(2):
        found = values(read(spark, broker, f"rows-{remainder}"))
        assert found == Counter(b"%d" % each for each in range(remainder, 100, 2))


def test_the_option_is_the_topic_of_all_rows(spark: "SparkSession", broker: RunningBroker) -> None:
    df = spark.createDataFrame([("elsewhere", "1"), (None, "2")], "topic string, value string")
    writer(df, broker, topic="here").save()
    assert values(read(spark, broker, "here")) == Counter([b"1", b"2"])
    assert end_of(broker, "elsewhere") == 0


def test_keys_choose_the_partition(spark: "SparkSession", broker: RunningBroker) -> None:
    df = spark.range(1000).selectExpr(
        "concat('user-', id % 50) key", "concat('user-', id % 50, ' ', lpad(id, 4, '0')) value"
    )
    writer(df.coalesce(1), broker, topic="keyed").save()
    seen: dict[str, list[str]] = {}
    for row in read(spark, broker, "keyed").orderBy("partition", "offset").collect():
        key, _, number = bytes(row.value).decode().partition(" ")
        assert row.partition == abs(java_hash(key)) % PARTITIONS
        seen.setdefault(key, []).append(number)
    assert sum(map(len, seen.values())) == 1000
    assert all(numbers == sorted(numbers) for numbers in seen.values()), "keys keep their order"


@pytest.mark.parametrize(
    ("kind", "key"), [("int", -7), ("bigint", 2**40), ("binary", bytearray(b"key"))]
)
def test_keys_of_every_type_choose_as_the_client_does(
    spark: "SparkSession", broker: RunningBroker, kind: str, key: Any
) -> None:
    df = spark.createDataFrame([(key, "1"), (key, "2")], f"key {kind}, value string")
    writer(df, broker, topic=f"keys-{kind}").save()
    rows = read(spark, broker, f"keys-{kind}").select("partition").collect()
    hashed = java_hash(bytes(key) if kind == "binary" else key)
    assert [row.partition for row in rows] == [abs(hashed) % PARTITIONS] * 2


def test_zookeeper_is_an_address_too(spark: "SparkSession") -> None:
    port = free_port()
    settings = {
        "coordination": "embedded",
        "coordination_listen": f"tcp:{port}:interface=127.0.0.1",
    }
    with running_broker(settings=settings) as broker:
        write = numbered(spark, 10).write.format("hermes").mode("append").option("topic", "clicks")
        write.option("hermes.zookeeper", f"127.0.0.1:{port}").save()
        assert values(read(spark, broker, "clicks")) == Counter(b"%d" % i for i in range(10))


# -- ids ----------------------------------------------------------------------------------------


def test_ids_travel_and_are_taken_out_again(spark: "SparkSession", broker: RunningBroker) -> None:
    from hermes.spark import split_id

    df = spark.range(100).selectExpr("concat('id-', id) uuid", "cast(id as string) value")
    for _ in range(2):  # as a repeated task would
        writer(df, broker, topic="ids", idColumn="uuid").save()
    found = split_id(read(spark, broker, "ids"))
    assert found.columns[-2:] == ["value", "id"]
    assert found.count() == 200
    once = {row.id: bytes(row.value) for row in found.dropDuplicates(["id"]).collect()}
    assert once == {f"id-{each}": b"%d" % each for each in range(100)}


def test_binary_ids_keep_their_bytes(spark: "SparkSession", broker: RunningBroker) -> None:
    from hermes.spark import split_id

    ids = [bytes([first, 0xFE]) for first in range(256)]
    df = spark.createDataFrame([(bytearray(each), "v") for each in ids], "id binary, value string")
    writer(df, broker, topic="binary-ids", idColumn="id").save()
    found = split_id(read(spark, broker, "binary-ids")).dropDuplicates(["id"])
    rows = found.selectExpr("cast(id as binary) id", "value").collect()
    assert sorted(bytes(row.id) for row in rows) == sorted(ids)
    assert {bytes(row.value) for row in rows} == {b"v"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, (None, None)),
        (b"", (None, b"")),
        (b"no envelope at all", (None, b"no envelope at all")),
        (ENVELOPE, (None, ENVELOPE)),
        (ENVELOPE + b"\0\0\0", (None, ENVELOPE + b"\0\0\0")),
        (ENVELOPE + b"\0\0\0\3id", (None, ENVELOPE + b"\0\0\0\3id")),
        (ENVELOPE + b"\xff\xff\xff\xffid", (None, ENVELOPE + b"\xff\xff\xff\xffid")),
        (ENVELOPE + b"\x80\0\0\0id", (None, ENVELOPE + b"\x80\0\0\0id")),
        (ENVELOPE + b"\0\0\0\0", ("", b"")),
        (ENVELOPE + b"\0\0\0\2id", ("id", b"")),
        (ENVELOPE + b"\0\0\0\2idvalue", ("id", b"value")),
        (
            ENVELOPE + b"\0\0\0\1o" + ENVELOPE + b"\0\0\0\1iv",
            ("o", ENVELOPE + b"\0\0\0\1iv"),
        ),
        (b"x" + ENVELOPE + b"\0\0\0\1iv", (None, b"x" + ENVELOPE + b"\0\0\0\1iv")),
    ],
)
def test_an_envelope_is_known_by_its_bytes(
    spark: "SparkSession", value: bytes | None, expected: tuple[str | None, bytes | None]
) -> None:
    from hermes.spark import split_id

    df = spark.createDataFrame([(1, value and bytearray(value))], "n int, value binary")
    (row,) = split_id(df).collect()
    found = None if row.value is None else bytes(row.value)
    assert (row.n, row.id, found) == (1, *expected)


def test_splitting_needs_a_binary_value_and_a_free_name(spark: "SparkSession") -> None:
    from hermes.errors import ConfigError
    from hermes.spark import split_id

    with pytest.raises(ConfigError, match="value: "):
        split_id(spark.sql("select 'text' value"))
    with pytest.raises(ConfigError, match="id: "):
        split_id(spark.sql("select binary('x') value, 1 Id"))


# -- what is refused ----------------------------------------------------------------------------


def refusal(write: "DataFrameWriter") -> str:
    with pytest.raises(Exception) as caught:
        write.save()
    assert type(caught.value).__module__.startswith("pyspark.errors")
    return str(caught.value)


@pytest.mark.parametrize(
    ("expression", "options", "said"),
    [
        ("id", {}, "column 'id': has no meaning here"),
        ("id value", {}, "column 'value': expected string or binary, got bigint"),
        ("'v' value", {"topic": ""}, "topic: "),
        ("'v' value", {"topics": "wrong"}, "topics: there is no such option"),
        ("'v' value", {"idColumn": "uuid"}, "idColumn: there is no column 'uuid'"),
        ("'v' value", {"acks": "none"}, "acks: expected flushed or written"),
    ],
)
def test_what_is_wrong_with_a_write_is_said_before_anything_is_sent(
    spark: "SparkSession",
    broker: RunningBroker,
    expression: str,
    options: dict[str, str],
    said: str,
) -> None:
    df = spark.range(5).selectExpr(expression)
    assert said in refusal(writer(df, broker, **{"topic": "refused", **options}))
    assert end_of(broker, "refused") == 0


def test_there_must_be_a_topic(spark: "SparkSession", broker: RunningBroker) -> None:
    assert "topic: no topic to write to" in refusal(writer(numbered(spark, 1), broker))


def test_a_log_is_not_overwritten(spark: "SparkSession", broker: RunningBroker) -> None:
    write = writer(numbered(spark, 1), broker, topic="over")
    assert "mode: a topic is a log" in refusal(write.mode("overwrite"))
    # These Spark refuses by itself; what must not happen is that they write.
    for mode in ("ignore", "errorifexists"):
        assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in refusal(write.mode(mode))
    assert end_of(broker, "over") == 0


def test_a_broker_that_is_not_there_is_named(spark: "SparkSession") -> None:
    port = free_port()
    write = numbered(spark, 1).write.format("hermes").mode("append").option("topic", "clicks")
    write.option("hermes.bootstrap.servers", f"127.0.0.1:{port}")
    said = refusal(write.options(**{"send.numRetries": 1, "send.retryIntervalMs": 1}))
    assert "BrokerNotReachedError" in said
    assert f"127.0.0.1:{port}" in said


@pytest.mark.parametrize(
    ("expression", "options", "said"),
    [
        ("nullif(id, 3)", {}, "column 'value' is null in 1 of "),
        ("repeat('x', id)", {"maxMessageBytes": 8}, "maxMessageBytes: a message has 9 bytes"),
        ("repeat('x', 1000001)", {"maxMessageBytes": "2MB"}, "larger than the broker's max"),
    ],
)
def test_rows_that_can_not_be_sent_fail_the_write(
    spark: "SparkSession",
    broker: RunningBroker,
    expression: str,
    options: dict[str, Any],
    said: str,
) -> None:
    df = spark.range(10).coalesce(1).selectExpr(f"cast({expression} as string) value")
    assert said in refusal(writer(df, broker, topic="unfit", **options))
    assert end_of(broker, "unfit") == 0


def test_a_topic_that_is_not_there_and_not_made_is_named(spark: "SparkSession") -> None:
    with running_broker(settings={"auto_create_topics": False}) as broker:
        said = refusal(writer(numbered(spark, 1), broker, topic="missing"))
    assert "1 messages for topic 'missing' were not acknowledged: " in said
    assert "the topic does not exist" in said
