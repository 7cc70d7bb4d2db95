"""Mistakes of applications: what they are told, by every client in the same words."""

import asyncio

import pytest

from hermes.aio import Producer as AsyncProducer
from hermes.aio import SimpleConsumer as AsyncConsumer
from hermes.client import FetchRequest, Producer, ProducerConfig, SimpleConsumer, SyncProducer
from hermes.client.groups import Connector, Consumer, ConsumerConfig
from hermes.errors import ArgumentError, ConfigError, EncodingError, HermesError
from hermes.protocol import ProduceRequest

ONE = FetchRequest("clicks", 0, 0, 100)

CONSUMER_MISTAKES = [
    ("fetch", ([ONE],), "request: expected one FetchRequest, .*; use multifetch for several"),
    ("fetch", ("clicks",), "request: expected a FetchRequest, got 'clicks'"),
    ("fetch", (FetchRequest(b"clicks", 0, 0, 100),), "topic: .*; did you mean 'clicks'"),
    ("fetch", (FetchRequest("clicks", "0", 0, 100),), "partition: expected a whole number"),
    ("fetch", (FetchRequest("clicks", 0, None, 100),), "offset: expected a whole number"),
    ("fetch", (FetchRequest("clicks", 0, 0, 1e6),), "max_size: expected a whole number"),
    ("multifetch", (ONE,), r"requests: .*; did you mean \[request\]"),
    ("multifetch", (["clicks"],), "request: expected a FetchRequest"),
    ("fetch_waiting", (ONE, 100), r"requests: .*; did you mean \[request\]"),
    ("fetch_waiting", ([ONE], "1s"), "max_wait_ms: expected a whole number, got '1s'"),
    ("fetch_waiting", ([ONE], 100, None), "min_bytes: expected a whole number"),
    ("get_offsets_before", ("clicks", 0, "earliest"), "time: .*; did you mean hermes.EARLIEST"),
    ("get_offsets_before", ("clicks", 0, "Latest"), "time: .*; did you mean hermes.LATEST"),
    ("get_offsets_before", ("clicks", 0, 1.5), r"time: .*, got 1.5 \(float\)"),
    ("get_offsets_before", (b"clicks", 0, -1), "topic: .*; did you mean 'clicks'"),
    ("get_offsets_before", ("clicks", 0, -1, "1"), "max_offsets: expected a whole number"),
    ("metadata", ("clicks",), r"topics: .*; did you mean \['clicks'\]"),
    ("metadata", ([b"clicks"],), "topic: .*; did you mean 'clicks'"),
    ("metadata", (7,), "topics: expected a list of names"),
    ("boundary_before", ("clicks", None, 0), "partition: expected a whole number"),
    ("boundary_before", ("clicks", 0, "0"), "offset: expected a whole number"),
    ("append_times", ("clicks", 0, 0, "end"), "end: expected a whole number"),
]


@pytest.mark.parametrize(("method", "arguments", "said"), CONSUMER_MISTAKES)
def test_mistakes_of_consumers(unused_port, method: str, arguments: tuple, said: str) -> None:
    with (
        SimpleConsumer("127.0.0.1", unused_port, supports_hermes_requests=True) as consumer,
        pytest.raises(ArgumentError, match=f"^{said}") as raised,
    ):
        getattr(consumer, method)(*arguments)
    assert isinstance(raised.value, TypeError)

    async def main() -> None:
        twin = AsyncConsumer("127.0.0.1", unused_port, supports_hermes_requests=True)
        with pytest.raises(ArgumentError, match=f"^{said}"):
            await getattr(twin, method)(*arguments)

    asyncio.run(main())


def test_a_topic_to_delete_is_a_text(unused_port) -> None:
    with (
        SimpleConsumer("127.0.0.1", unused_port, supports_hermes_requests=True) as consumer,
        pytest.raises(ArgumentError, match=r"^topic: expected a str"),
    ):
        consumer.delete_topic(b"clicks")


PRODUCER_MISTAKES = [
    ((b"clicks", b"x"), ArgumentError, "topic: .*; did you mean 'clicks'"),
    ((["clicks"], b"x"), ArgumentError, "topic: expected a str"),
    ((None, b"x"), ArgumentError, "topic: expected a str, got None"),
    ((("clicks", b"x"),), ArgumentError, "topic: expected a str"),
    (("clicks", []), ArgumentError, "messages: expected one at least"),
    (("clicks",), EncodingError, "NoneType"),
]


@pytest.mark.parametrize("producer_type", ["sync", "async"])
@pytest.mark.parametrize(("arguments", "error", "said"), PRODUCER_MISTAKES)
def test_mistakes_of_producers(unused_port, producer_type, arguments, error, said) -> None:
    config = ProducerConfig(broker_list=f"0:127.0.0.1:{unused_port}", producer_type=producer_type)
    with Producer(config) as producer, pytest.raises(error, match=said):
        producer.send(*arguments)

    async def main() -> None:
        async with AsyncProducer(config) as twin:
            topic, messages = (*arguments, None)[:2]
            with pytest.raises(error, match=said):
                await twin.enqueue(topic, messages)

    if len(arguments) == 2:
        asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "arguments", "said"),
    [
        ("send", (b"clicks", 0, b""), "topic: .*; did you mean 'clicks'"),
        ("send", ("clicks", "0", b""), "partition: expected a whole number"),
        ("send", ("clicks", 0, "text"), "message_set: .*; see encode_message_set"),
        ("multi_send", (ProduceRequest("clicks", 0, b""),), "produces: .*; give a list"),
        ("send_acknowledged", (["clicks"],), "produces: expected a ProduceRequest"),
    ],
)
def test_mistakes_of_the_producer_of_one_broker(unused_port, method, arguments, said) -> None:
    with (
        SyncProducer("127.0.0.1", unused_port, supports_hermes_requests=True) as producer,
        pytest.raises(ArgumentError, match=f"^{said}"),
    ):
        getattr(producer, method)(*arguments)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("acks", "all", "did you mean 'flushed'"),
        ("acks", 1, "did you mean 'written'"),
        ("acks", "flush", "did you mean 'flushed'"),
        ("acks", ["all"], "expected one of"),
        ("compression", "GZIP", "did you mean 'gzip'"),
        ("producer_type", "asynch", "did you mean 'async'"),
        ("timeout_seconds", "30s", "expected a number of seconds above 0, got '30s'"),
        ("connect_timeout_seconds", 0, "above 0"),
        ("timeout_seconds", float("inf"), "expected 31 years at most, got inf"),
        ("broker_list", ["0:a:1"], "expected a string"),
    ],
)
def test_settings_of_producers(setting: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{setting}: .*{said}"):
        ProducerConfig(**{"broker_list": "0:localhost:9092", setting: value})


@pytest.mark.parametrize(("value", "meant"), [("earliest", "smallest"), ("latest", "largest")])
def test_where_a_group_starts(value: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"auto_offset_reset: .*did you mean '{meant}'"):
        ConsumerConfig(group="g", zookeeper_connect="zk:2181", auto_offset_reset=value)


@pytest.mark.parametrize("made", [Producer, Consumer.create, Connector])
def test_a_configuration_that_is_none(made) -> None:
    with pytest.raises(ArgumentError, match=r"config: expected a (Producer|Consumer)Config"):
        made("localhost:9092")


def test_what_streams_are_asked_for_is_checked_first() -> None:
    connector = Connector.__new__(Connector)  # they are looked at before anything is asked
    with pytest.raises(ArgumentError, match=r"as {'clicks': 1}; got \['clicks'\]"):
        connector.create_message_streams(["clicks"])
    with pytest.raises(ArgumentError, match=r"topic: .*did you mean 'clicks'"):
        connector.create_message_streams({b"clicks": 1})
    with pytest.raises(ArgumentError, match="use a Whitelist or a Blacklist"):
        connector.create_message_streams_by_filter("clicks")


@pytest.mark.parametrize("kind", [SimpleConsumer, SyncProducer, AsyncConsumer])
@pytest.mark.parametrize(
    ("given", "setting"),
    [
        (("localhost", "9092"), "port"),
        (("localhost", 0), "port"),
        ((None, 9092), "host"),
    ],
)
def test_an_address_that_is_none_names_the_setting(kind, given: tuple, setting: str) -> None:
    with pytest.raises(ConfigError, match=f"^{setting}: "):
        kind(*given)


@pytest.mark.parametrize("kind", [SimpleConsumer, AsyncConsumer])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("timeout_seconds", "1s"),
        ("connect_timeout_seconds", -1),
        ("max_fetch_bytes", 0),
        ("poll_interval_ms", 1.5),
        ("on_corrupt", "ignore"),
    ],
)
def test_settings_of_consumers(kind, setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{setting}: "):
        kind("localhost", 9092, **{setting: value})


def test_what_is_quoted_is_bounded() -> None:
    with pytest.raises(HermesError) as raised:
        ProducerConfig(broker_list="0:localhost:9092", acks="x" * 10_000)
    assert len(str(raised.value)) < 300
