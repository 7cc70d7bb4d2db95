"""Headers and a partition as arguments of `send`: for every kind of producer, on real brokers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from hermes import FetchRequest, Producer, ProducerConfig, RecordData, SimpleConsumer, aio
from hermes.client import Keys
from hermes.client.groups import BrokerPartition
from hermes.client.payloads import InPartition
from hermes.errors import (
    ArgumentError,
    EncodingError,
    RoutingError,
    UnknownTopicError,
    WrongFormatError,
)
from hermes.testing import RunningBroker, running_broker

Send = Callable[..., Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(settings={"num_partitions": 4}) as started:
        yield started


@pytest.fixture(params=["sync", "async", "asyncio"])
def send(request: pytest.FixtureRequest, broker: RunningBroker) -> Iterator[Send]:
    """What sends, and gives the outcome."""
    config = ProducerConfig(broker_list=broker.address, acks="flushed")
    if request.param == "asyncio":
        with asyncio.Runner() as runner:

            async def make() -> aio.Producer:
                return aio.Producer(config)

            producer = runner.run(make())

            async def wait(sent: Awaitable[Any]) -> Any:
                return await sent

            yield lambda *args, **options: runner.run(wait(producer.send(*args, **options)))
            runner.run(producer.close())
        return
    kind = ProducerConfig(broker_list=broker.address, acks="flushed", producer_type=request.param)
    with Producer(kind) as blocking:
        yield lambda *args, **options: blocking.send(*args, **options).result()


def create(broker: RunningBroker, topic: str, **settings: object) -> str:
    with SimpleConsumer(broker.address) as consumer:
        consumer.create_topic(topic, settings)
    return topic


def stored(broker: RunningBroker, topic: str, partition: int) -> list[tuple[Any, ...]]:
    with SimpleConsumer(broker.address) as consumer:
        found = consumer.fetch(FetchRequest(topic, partition, 0, 1 << 20))
        return [(each.key, each.payload, each.headers) for each, _ in found]


def test_a_topic_that_keeps_them(broker: RunningBroker, send: Send, request) -> None:
    topic = create(broker, f"orders-{request.node.callspec.id}", format="kafka")
    sent = send(topic, b"one", key="k", headers={"a": b"1", "b": None}, partition=3)
    assert sent == (topic, 3, 0)
    pairs = [("a", b"1"), ("a", b"2")]
    assert send(topic, [b"two", b"three"], headers=pairs, partition=3).offset == 1
    assert send(topic, [b"four", b"five"], Keys([b"x", b"y"]), partition=3).offset == 3
    data = RecordData(b"six", timestamp_ms=17)
    assert send(topic, data, headers=iter(pairs), partition=BrokerPartition(0, 3)).offset == 5
    assert send(topic, b"seven", headers={}, partition=2) == (topic, 2, 0)
    both = (("a", b"1"), ("a", b"2"))
    assert stored(broker, topic, 3) == [
        (b"k", b"one", (("a", b"1"), ("b", None))),
        (None, b"two", both),
        (None, b"three", both),
        (b"x", b"four", ()),
        (b"y", b"five", ()),
        (None, b"six", both),
    ]
    assert stored(broker, topic, 2) == [(None, b"seven", ())]


def test_a_topic_of_0_7s_format_keeps_neither_headers_nor_keys(broker, send, request) -> None:
    topic = f"clicks-{request.node.callspec.id}"
    assert send(topic, b"one", partition=2) == (topic, 2, 0)
    assert send(topic, [b"two", b"three"], key="k", partition=2).partition == 2
    assert send(topic, b"four", headers={}, partition=2).partition == 2
    for _ in range(2):
        with pytest.raises(WrongFormatError, match=f"'{topic}' has 0.7's format, .* no headers"):
            send(topic, b"five", headers={"a": b"1"}, partition=2)
    found = [payload for _, payload, _ in stored(broker, topic, 2)]
    assert found == [b"one", b"two", b"three", b"four"]


@pytest.mark.parametrize("settings", [{}, {"format": "kafka"}])
def test_a_partition_that_is_not_there(broker, send, request, settings) -> None:
    topic = create(broker, f"few-{request.node.callspec.id}", **settings)
    for partition in (4, BrokerPartition(0, 4), BrokerPartition(9, 0)):
        said = f"'{topic}' has no partition {partition}, but 0 to 3"
        with pytest.raises(RoutingError, match=said):
            send(topic, b"x", partition=partition)
    with SimpleConsumer(broker.address) as consumer:
        consumer.alter_topic(topic, {"partitions": 5})
    assert send(topic, b"x", partition=4) == (topic, 4, 0)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"partition": -1}, ArgumentError, r"partition: expected a number from 0 on, .*-1 \(int\)"),
        ({"partition": "0"}, ArgumentError, "partition: expected a number from 0 on"),
        ({"partition": True}, ArgumentError, "partition: expected a number from 0 on"),
        ({"headers": {"a": "text"}}, EncodingError, "headers: expected pairs of a string"),
        ({"headers": [b"a"]}, EncodingError, "headers: expected pairs of a name and bytes"),
        ({"headers": 7}, EncodingError, "headers: expected pairs of a name and bytes"),
        ({"header": {}}, ArgumentError, "send: there is no 'header'; did you mean 'headers'"),
        ({"value": b"x"}, ArgumentError, "send: there is no 'value'; did you mean 'messages'"),
        ({"timestamp_ms": 7}, ArgumentError, r"RecordData\(value, timestamp_ms=...\)"),
        ({"on_delivery": print}, ArgumentError, "add_done_callback"),
    ],
)  # fmt: skip
def test_mistakes(send: Send, options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        send("mistakes", b"x", **options)


def test_headers_given_twice(send: Send) -> None:
    with pytest.raises(ArgumentError, match="headers: they are given twice"):
        send("mistakes", RecordData(b"x", (("a", b"1"),)), headers={"b": b"2"})


def test_nothing_of_it_was_created_by_mistake(broker: RunningBroker) -> None:
    with SimpleConsumer(broker.address) as consumer, pytest.raises(UnknownTopicError):
        consumer.describe_partitions("mistakes")


def test_a_number_that_several_brokers_have() -> None:
    with running_broker() as first, running_broker(settings={"broker_id": 1}) as second:
        listed = f"{first.address},{second.address}"
        with Producer(ProducerConfig(broker_list=listed, acks="flushed")) as producer:
            with pytest.raises(RoutingError, match=r"brokers 0, 1: .*BrokerPartition\(0, 0\)"):
                producer.send("clicks", b"x", partition=0)
            producer.send("clicks", b"x", partition=BrokerPartition(1, 0))
            with pytest.raises(RoutingError, match="no partition 1, but 0 to 0, on brokers 0, 1"):
                producer.send("clicks", b"x", partition=1)
        assert stored(second, "clicks", 0) == [(None, b"x", ())]


def test_handlers_see_them(broker: RunningBroker) -> None:
    from zope.interface import implementer

    from hermes.interfaces import IEventHandler

    seen: list[Any] = []

    @implementer(IEventHandler)
    class Watching:
        def handle(self, items: Any, send: Any) -> Any:
            seen.extend(items)
            return send(items)

        def close(self) -> None:
            pass

    topic = create(broker, "watched", format="kafka")
    config = ProducerConfig(broker_list=broker.address, acks="flushed", event_handler=Watching())
    with Producer(config) as producer:
        assert producer.send(topic, b"x", b"k", headers={"a": b"1"}, partition=1).result()[1] == 1
    assert seen == [(topic, RecordData(b"x", (("a", b"1"),)), InPartition(1, b"k"))]
    assert stored(broker, topic, 1) == [(b"k", b"x", (("a", b"1"),))]
