"""The options of a write: what is right, what is wrong, and what the error says."""

import pytest

from hermes.errors import ConfigError
from hermes.spark.options import IDENTITY_OPTIONS, ConnectionOptions
from hermes.spark.sink_options import SINK_OPTIONS, SinkOptions, refuse_overwriting

BROKER = {"hermes.bootstrap.servers": "broker:9092"}


def refused(given: dict[str, str], *, stream: bool = False) -> str:
    with pytest.raises(ConfigError) as caught:
        SinkOptions.parse(given, stream=stream)
    return str(caught.value)


def test_defaults() -> None:
    assert SinkOptions.parse(BROKER, stream=False) == SinkOptions(
        address=ConnectionOptions(bootstrap=(("broker", 9092),)),
        topic=None,
        id_column=None,
        partitioner="java-hash",
        acks="flushed",
        compression="none",
        max_message_bytes=1_000_000,
        batch_size=200,
        retries=3,
        retry_ms=1000,
    )


def test_every_option_reaches_its_attribute() -> None:
    given = {
        "HERMES.ZooKeeper": "zk:2181/hermes",
        "topic": "clicks",
        "idcolumn": "Id",
        "partitioner": "consistent",
        "acks": "Written",
        "compression": "gzip",
        "maxMessageBytes": "2MiB",
        "batchSize": "7",
        "send.numRetries": "0",
        "send.retryIntervalMs": "20",
    }
    assert SinkOptions.parse(given, stream=False) == SinkOptions(
        address=ConnectionOptions(zookeeper="zk:2181/hermes"),
        topic="clicks",
        id_column="Id",
        partitioner="consistent",
        acks="written",
        compression="gzip",
        max_message_bytes=2 * 1024 * 1024,
        batch_size=7,
        retries=0,
        retry_ms=20,
    )
    less = len(IDENTITY_OPTIONS) + 1
    assert len(given) == len(SINK_OPTIONS) - less, "one of the two addresses is enough"


def test_what_spark_tells_the_commits_of_a_stream_is_passed_over() -> None:
    from_spark = {"checkpointlocation": "/tmp/checkpoint", "queryname": "clicks"}
    stream = SinkOptions.parse(BROKER | from_spark, stream=True)
    assert stream == SinkOptions.parse(BROKER, stream=False)


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("topics", "clicks", "topics: there is no such option; there are hermes.bootstrap.servers"),
        ("kafka.bootstrap.servers", "b:1", "here it is hermes.bootstrap.servers"),
        ("path", "clicks", "path: the option topic, or a column topic, says where rows go"),
        ("checkpointLocation", "/tmp/x", "only streams have checkpoints"),
        ("topic", "a/b", "topic: "),
        ("topic", "", "topic: "),
        ("idColumn", "", "idColumn: expected the name of a column"),
        ("acks", "none", "acks: expected flushed or written, got 'none': without"),
        ("acks", "all", "acks: expected flushed or written, got 'all'"),
        ("compression", "lz4", "compression: expected none or gzip or snappy, got 'lz4'"),
        ("partitioner", "java-hush", "did you mean 'java-hash'?"),
        ("maxMessageBytes", "0", "maxMessageBytes: expected more than 0 bytes"),
        ("maxMessageBytes", "2GiB", "less than 2 GiB"),
        ("batchSize", "0", "batchSize: expected a whole number >= 1"),
        ("send.numRetries", "-1", "send.numRetries: expected a whole number >= 0"),
    ],
)
def test_what_is_wrong_is_named(option: str, text: str, said: str) -> None:
    assert said in refused(BROKER | {option: text})


def test_options_of_a_read_mean_nothing_to_a_write() -> None:
    assert "failOnDataLoss: there is no such option" in refused(
        BROKER | {"failOnDataLoss": "true"}, stream=True
    )


def test_the_brokers_are_given_in_one_way() -> None:
    assert "expected exactly one" in refused({"topic": "clicks"})
    assert "expected exactly one" in refused(BROKER | {"hermes.zookeeper": "zk:2181"})


def test_overwriting_is_refused_in_the_words_of_each_kind_of_write() -> None:
    with pytest.raises(ConfigError, match=r"mode\('append'\)"):
        refuse_overwriting(stream=False)
    with pytest.raises(ConfigError, match=r"outputMode\('append'\)"):
        refuse_overwriting(stream=True)
