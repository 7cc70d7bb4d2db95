"""Settings of the producer: what is refused, and how it is named."""

from typing import Any

import pytest

from hermes.client import ProducerConfig
from hermes.client.producer_config import ListedBroker
from hermes.config.addresses import BrokerAddress
from hermes.errors import ConfigError
from hermes.protocol import Acks, Codec


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("broker_list", ""),
        ("broker_list", "localhost:9092,1:other:9092"),
        ("broker_list", "localhost:9092,"),
        ("broker_list", "localhost:x"),
        ("broker_list", "::1"),
        ("broker_list", "0:localhost"),
        ("broker_list", "0:localhost:0"),
        ("broker_list", "0:localhost:99999"),
        ("broker_list", "0:a:1,0:b:2"),
        ("broker_list", "x:localhost:9092"),
        ("producer_type", "fast"),
        ("acks", "all"),
        ("acks", 1),
        ("delivery_timeout", 0),
        ("delivery_timeout", "never"),
        ("compression", "lz4"),
        ("queue_full", "explode"),
        ("num_retries", -1),
        ("num_retries", 1.5),
        ("queue_size", 0),
        ("batch_size", 0),
        ("queue_bytes", True),
        ("max_message_bytes", 0),
        ("queue_time", "soon"),
        ("queue_time", -1),
        ("retry_backoff", None),
        ("retry_backoff", float("nan")),
        ("compressed_topics", "clicks"),
        ("partition_counts", {"clicks": 0}),
        ("callback_handler", object()),
    ],
)
def test_a_wrong_setting_is_named(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{setting}"):
        ProducerConfig(**{"broker_list": "0:localhost:9092", setting: value})


def test_brokers_are_ordered_by_their_ids() -> None:
    config = ProducerConfig(broker_list="10:b:2, 2:a:1,3:[::1]:9092")
    assert config.brokers() == (
        ListedBroker(2, BrokerAddress("a", 1)),
        ListedBroker(3, BrokerAddress("::1", 9092)),
        ListedBroker(10, BrokerAddress("b", 2)),
    )


def test_brokers_need_no_ids() -> None:
    config = ProducerConfig(broker_list="b:9093, localhost,[::1]:9,b:9093")
    assert config.brokers() == (
        ListedBroker(None, BrokerAddress("b", 9093)),
        ListedBroker(None, BrokerAddress("localhost", 9092)),
        ListedBroker(None, BrokerAddress("::1", 9)),
    )


def test_durations_are_texts_or_milliseconds() -> None:
    config = ProducerConfig(broker_list="0:a:1", queue_time="1.5s", retry_backoff=20)
    assert config.seconds("queue_time") == 1.5
    assert config.seconds("retry_backoff") == 0.02


def test_acknowledgements_and_codecs() -> None:
    config = ProducerConfig(
        broker_list="0:a:1", acks="flushed", compression="gzip", compressed_topics=["big"]
    )
    assert config.required_acks() is Acks.FLUSHED
    assert (config.codec_of("big"), config.codec_of("small")) == (Codec.GZIP, Codec.NONE)
    every = ProducerConfig(broker_list="0:a:1", compression="snappy")
    assert every.codec_of("small") is Codec.SNAPPY
    assert every.required_acks() is Acks.FLUSHED
    assert ProducerConfig(broker_list="0:a:1", acks="none").required_acks() is None


@pytest.mark.parametrize(
    "settings",
    [
        {"broker_list": "x" * 100_000},
        {"broker_list": f"0:{'x' * 100_000}:70000"},
        {"broker_list": ["x" * 100_000]},
        {"partition_counts": {"clicks": "x" * 100_000}},
    ],
)
def test_no_value_is_quoted_whole(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig(**{"broker_list": "0:a:1", **settings})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "20000d"])
def test_no_duration_is_longer_than_clocks_can_wait(value: float | str) -> None:
    with pytest.raises(ConfigError, match="enqueue_timeout"):
        ProducerConfig(broker_list="localhost:9092", enqueue_timeout=value)
