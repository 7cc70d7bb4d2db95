"""Hermes' own clients on topics of Kafka's format."""

import asyncio
import re
from collections.abc import Iterator

import pytest

from hermes import aio
from hermes.client import (
    FetchRequest,
    Producer,
    ProducerConfig,
    RecordData,
    RecordSet,
    SimpleConsumer,
    SyncProducer,
)
from hermes.errors import (
    InvalidMessageBrokerError,
    MessageTooLargeBrokerError,
    OffsetOutOfRangeBrokerError,
    UnknownTopicError,
    WrongFormatError,
)
from hermes.protocol import Acks, ProduceRequest, encode_message_set
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch
from hermes.testing import RunningBroker, running_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def consumer(broker: RunningBroker) -> Iterator[SimpleConsumer]:
    with SimpleConsumer(broker.host, broker.port) as made:
        yield made


@pytest.fixture
def topic(consumer: SimpleConsumer, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W+", "-", request.node.name)
    consumer.create_topic(name, {"format": "kafka"})
    return name


def producing(broker: RunningBroker, **settings) -> Producer:
    return Producer(ProducerConfig(broker_list=broker.broker_list, **settings))


def send(producer: SyncProducer, topic: str, *batches: bytes) -> list:
    produces = [ProduceRequest(topic, 0, b"".join(batches))]
    return producer.send_records(produces, Acks.FLUSHED)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_was_sent_is_read(
    broker: RunningBroker, consumer: SimpleConsumer, topic: str, kind: str
) -> None:
    with producing(broker, producer_type=kind, acks="flushed") as producer:
        first = producer.send(topic, [b"a", b"b"], key="k").result()
        last = producer.send(topic, RecordData(None, (("h", b"1"),), 5), key=b"gone").result()
    assert (first.offset, last.offset) == (0, 2)

    (waited,) = consumer.fetch_waiting([FetchRequest(topic, 0, 0, 10)], 1000)
    (fetched,) = consumer.multifetch([FetchRequest(topic, 0, 1, 1 << 20)])
    found = list(consumer.fetch(FetchRequest(topic, 0, 0, 1 << 20)))

    assert [(each.key, each.payload, after) for each, after in found] == [
        (b"k", b"a", 1),
        (b"k", b"b", 2),
        (b"gone", None, 3),
    ]
    assert (found[2][0].headers, found[2][0].timestamp_ms) == ((("h", b"1"),), 5)
    assert waited.high_watermark == 3
    assert [after for _, after in waited][:2] == [1, 2]  # a batch comes whole
    assert [after for _, after in fetched] == [2, 3]


def test_offsets_count_records_everywhere(
    broker: RunningBroker, consumer: SimpleConsumer, topic: str
) -> None:
    with producing(broker, acks="flushed") as producer:
        producer.send(topic, [b"x" * 100] * 50)
    assert consumer.get_offsets_before(topic, 0, -1) == [50]
    assert consumer.get_offsets_before(topic, 0, -2) == [0]
    (described,) = consumer.metadata([topic]).topics
    assert described.partitions[0].high_watermark == 50
    assert list(consumer.fetch(FetchRequest(topic, 0, 50, 100))) == []
    with pytest.raises(OffsetOutOfRangeBrokerError):
        consumer.fetch(FetchRequest(topic, 0, 51, 100))


@pytest.mark.parametrize("codec", RecordCodec)
def test_every_codec_is_read(
    broker: RunningBroker, consumer: SimpleConsumer, topic: str, codec: RecordCodec
) -> None:
    records = [Record(n, n, b"k", b"value %d" % n * 20) for n in range(100)]
    with SyncProducer(broker.host, broker.port) as producer:
        (result,) = send(producer, topic, encode_batch(records, codec))
    assert result.offset == 0
    found = consumer.fetch(FetchRequest(topic, 0, 30, 1 << 20))
    assert [each.payload for each, _ in found] == [each.value for each in records[30:]]


def test_several_batches_follow_one_another(
    broker: RunningBroker, consumer: SimpleConsumer, topic: str
) -> None:
    batch = encode_batch([Record(0, 1, None, b"a"), Record(1, 2, None, b"b")])
    with SyncProducer(broker.host, broker.port) as producer:
        assert [each.offset for each in send(producer, topic, batch, batch)] == [0]
        assert [each.offset for each in send(producer, topic, batch)] == [4]
    assert [after for _, after in consumer.fetch(FetchRequest(topic, 0, 3, 1000))] == [4, 5, 6]


@pytest.mark.parametrize("kind", [InvalidMessageBrokerError, MessageTooLargeBrokerError])
def test_bad_batches_are_refused_by_themselves(
    broker: RunningBroker, consumer: SimpleConsumer, topic: str, kind: type
) -> None:
    bad = bytearray(encode_batch([Record(0, 1, None, b"x")]))
    bad[-1] ^= 1
    if kind is MessageTooLargeBrokerError:
        bad = bytearray(encode_batch([Record(0, 1, None, bytes(1_100_000))]))
    good = encode_batch([Record(0, 1, None, b"good")])
    with SyncProducer(broker.host, broker.port) as producer:
        produces = [ProduceRequest(topic, 0, each) for each in (bytes(bad), good)]
        refused, stored = producer.send_records(produces, Acks.FLUSHED)
    assert type(refused) is kind
    assert stored.offset == 0


def test_bytes_of_the_other_format_are_refused_with_the_reason(
    broker: RunningBroker, consumer: SimpleConsumer, topic: str
) -> None:
    messages = encode_message_set([b"x"])
    with SyncProducer(broker.host, broker.port) as producer:
        (refused,) = producer.send_acknowledged([ProduceRequest(topic, 0, messages)])
        assert type(refused) is WrongFormatError
        producer.send_acknowledged([ProduceRequest("of-0-7", 0, messages)])
        (refused,) = send(producer, "of-0-7", encode_batch([Record(0, 1, None, b"x")]))
        assert type(refused) is WrongFormatError
    assert consumer.get_offsets_before(topic, 0, -1) == [0]


def test_both_formats_come_in_one_fetch(
    broker: RunningBroker, consumer: SimpleConsumer, topic: str
) -> None:
    with producing(broker, acks="flushed") as producer:
        producer.send(topic, b"record", key=b"k")
        producer.send("messages", b"message", key=b"k")
    requests = [FetchRequest(each, 0, 0, 1000) for each in (topic, "messages", "never")]
    for results in (consumer.fetch_waiting(requests, 0), consumer.multifetch(requests)):
        never = results.pop()
        assert isinstance(never.error, UnknownTopicError)
        assert [[(each.key, each.payload) for each, _ in result] for result in results] == [
            [(b"k", b"record")],
            [(None, b"message")],
        ]
        assert isinstance(results[0].messages, RecordSet)


def test_asyncio_clients_do_the_same(broker: RunningBroker, topic: str) -> None:
    async def talk() -> list[tuple]:
        config = ProducerConfig(broker_list=broker.broker_list, producer_type="async")
        async with (
            aio.Producer(config) as producer,
            aio.SimpleConsumer(broker.host, broker.port) as consumer,
        ):
            for number in range(3):
                await producer.send(topic, RecordData(b"v%d" % number, (("h", b"1"),)), key=b"k")
            found = []
            async for message, following in consumer.follow(topic, 0, 0):
                found.append((message.key, message.payload, message.headers, following))
                if following == 3:
                    return found
        raise AssertionError

    headers = (("h", b"1"),)
    assert asyncio.run(asyncio.wait_for(talk(), 60)) == [
        (b"k", b"v%d" % number, headers, number + 1) for number in range(3)
    ]
