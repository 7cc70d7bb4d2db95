from typing import Any

import pytest

from hermes.coordination.layout import (
    BrokerNode,
    BrokerPartition,
    GroupPaths,
    Subscription,
    broker_path,
    check_node_name,
    format_broker,
    format_number,
    format_subscription,
    make_consumer_id,
    parse_broker,
    parse_broker_id,
    parse_number,
    parse_partition,
    parse_partition_count,
    parse_subscription,
    topic_path,
)
from hermes.coordination.topic_filters import Blacklist, Whitelist
from hermes.errors import ConfigError, InvalidNodeError

STATIC = bytes.fromhex("7b202273742d31223a20322c2273742d32223a2031207d")
WHITE = bytes.fromhex("2a322a776c2d2e2a")
BROKER = bytes.fromhex(
    "3132372e302e302e312d313739353232303636363339353a3132372e302e302e313a3139303933"
)


def test_a_broker_writes_itself_as_kafka_does() -> None:
    assert format_broker("127.0.0.1", 19093, 1795220666395) == BROKER
    assert broker_path(0) == "/brokers/ids/0"
    assert topic_path("dash-name", 0) == "/brokers/topics/dash-name/0"
    assert format_number(2) == b"2"


def test_a_subscription_is_written_as_kafka_writes_it() -> None:
    assert format_subscription(Subscription({"st-1": 2, "st-2": 1})) == STATIC
    assert format_subscription(Subscription({}, Whitelist("wl-.*"), 2)) == WHITE
    assert format_subscription(Subscription({}, Blacklist("wl-.*"), 1)) == b"!1!wl-.*"
    assert format_subscription(Subscription({"clicks": 1})) == b'{ "clicks": 1 }'


def test_a_group_has_the_paths_of_the_recording(kafka_vectors: dict[str, Any]) -> None:
    paths = GroupPaths("grp-static")
    consumer_id = make_consumer_id("grp-static", "vm", 1795221927872, "ea5722bf")
    partition = BrokerPartition(0, 1)
    for path in (
        paths.root,
        paths.ids,
        paths.member(consumer_id),
        paths.offsets("st-1"),
        paths.offset("st-1", partition),
        paths.owners("st-1"),
        paths.owner("st-1", partition),
    ):
        assert f"jvm/zk/static{path}" in kafka_vectors["vectors"]


def test_what_kafka_wrote_is_read() -> None:
    assert parse_broker("/x", BROKER) == BrokerNode("127.0.0.1-1795220666395", "127.0.0.1", 19093)
    assert parse_subscription("/x", STATIC) == Subscription({"st-1": 2, "st-2": 1})
    white = parse_subscription("/x", WHITE)
    assert white == Subscription({}, Whitelist("wl-.*"), 2)
    assert (white.streams_of("wl-a"), white.streams_of("other")) == (2, 0)
    assert parse_number("/x", b"16") == 16


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"clicks", Subscription({"clicks": 1})),
        (b'{"a":1,"b":3}', Subscription({"a": 1, "b": 3})),
        (b" {} ", Subscription({})),
        (b"!1!a,b", Subscription({}, Blacklist("a|b"), 1)),
    ],
)
def test_other_clients_subscriptions_are_read(value: bytes, expected: Subscription) -> None:
    assert parse_subscription("/x", value) == expected


def test_the_address_alone_is_a_broker_too() -> None:
    assert parse_broker("/x", b"box:9092") == BrokerNode("", "box", 9092)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (parse_broker, b""),
        (parse_broker, b"a:b:c"),
        (parse_broker, b"a:b:0"),
        (parse_broker, b"\xff"),
        (parse_number, b"12x"),
        (parse_number, b""),
        (parse_number, b"9223372036854775808"),
        (parse_number, "٣".encode()),
        (parse_partition_count, b"-3"),
        (parse_partition_count, b"2000000000"),
        (parse_partition_count, b"many"),
        (parse_broker, b"a:b:" + b"9" * 5000),
        (parse_subscription, b'{"a": 2000000000}'),
        (parse_subscription, b"*2000000000*a"),
        (parse_subscription, b"!" + b"9" * 5000 + b"!a"),
        (parse_subscription, b'{"a":' * 100_000),
        (parse_subscription, b""),
        (parse_subscription, b"{ broken"),
        (parse_subscription, b'{"a": "two"}'),
        (parse_subscription, b'{"a": -1}'),
        (parse_subscription, b"*1*(("),
        (parse_subscription, b"a/b"),
    ],
)
def test_nonsense_is_refused_with_its_path(read: Any, value: bytes) -> None:
    with pytest.raises(InvalidNodeError, match=r"^/where: "):
        read("/where", value)


def test_names_of_nodes_are_checked() -> None:
    assert parse_partition("/x", "10-3") == (10, 3)
    assert parse_broker_id("/x", "7") == 7
    for name in ("10", "a-1", "1-", "-1-2", "1-2-3", "9" * 5000 + "-1"):
        with pytest.raises(InvalidNodeError):
            parse_partition("/x", name)
    with pytest.raises(InvalidNodeError):
        parse_broker_id("/x", "-1")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "\U0001f600"])
def test_a_group_that_no_path_can_hold_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        check_node_name("group", name)


def test_an_ipv6_address_is_not_registered() -> None:
    with pytest.raises(ConfigError, match="colons"):
        format_broker("::1", 9092, 0)
