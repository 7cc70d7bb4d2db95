"""The client library against real brokers: what is sent comes back, and errors are as promised."""

import sys

import pytest

from hermes import (
    EARLIEST,
    LATEST,
    FetchRequest,
    MessageTooLargeBrokerError,
    OffsetOutOfRangeBrokerError,
    Producer,
    ProducerConfig,
    SimpleConsumer,
    UnknownTopicError,
    WrongPartitionError,
)
from hermes.client import AppendTime, SyncProducer
from hermes.errors import BrokerUnavailableError, ConfigError
from hermes.protocol import encode_message_set


def listed(*brokers) -> str:
    return ",".join(f"{number}:127.0.0.1:{each.port}" for number, each in enumerate(brokers))


def read_all(consumer: SimpleConsumer, topic: str, partition: int = 0, size: int = 65536):
    offset, payloads = 0, []
    while messages := list(consumer.fetch(FetchRequest(topic, partition, offset, size))):
        payloads += [message.payload for message, _ in messages]
        offset = messages[-1][1]
    return payloads


@pytest.mark.parametrize("producer_type", ["sync", "async"])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy"])
def test_what_is_sent_comes_back(start_broker, producer_type, compression) -> None:
    broker = start_broker()
    sent = [b"%d " % number * (number % 50) for number in range(2000)]
    settings = {"producer_type": producer_type, "compression": compression, "acks": "flushed"}
    with Producer(ProducerConfig(broker_list=listed(broker), **settings)) as producer:
        for start in range(0, 2000, 25):
            producer.send("clicks", sent[start : start + 25])
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        assert read_all(consumer, "clicks") == sent


def test_acks_none_has_arrived_after_close_and_becomes_visible(start_broker) -> None:
    broker = start_broker()
    with Producer(ProducerConfig(broker_list=listed(broker))) as producer:
        producer.send("clicks", [b"first", b"second"])
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        request = FetchRequest("clicks", 0, 0, 1 << 20)
        (result,) = consumer.fetch_waiting([request], max_wait_ms=30_000, min_bytes=31)
        assert [message.payload for message, _ in result] == [b"first", b"second"]
        assert result.high_watermark == 31


def test_keys_choose_partitions_over_two_brokers(start_broker) -> None:
    brokers = start_broker(num_partitions=3), start_broker(num_partitions=4)
    with Producer(ProducerConfig(broker_list=listed(*brokers), acks="written")) as producer:
        assert producer.send("t", b"x", key="a").result() == ("t", 3, 0)  # 6 of 7: broker 1
        assert producer.send("t", b"x", key="user-7").result() == ("t", 0, 0)  # 0: broker 0
    for broker, count in zip(brokers, (3, 4), strict=True):
        with SimpleConsumer("127.0.0.1", broker.port) as consumer:
            (topic,) = consumer.metadata(["t"]).topics
            assert topic.partition_count == count
            assert len(topic.partitions) == 1


def test_errors_of_a_real_broker(start_broker) -> None:
    broker = start_broker(auto_create_topics=False, max_message_bytes=100, topics={"known": {}})
    config = {"broker_list": listed(broker), "acks": "written"}
    with Producer(ProducerConfig(**config)) as producer:
        with pytest.raises(UnknownTopicError, match="unknown"):
            producer.send("unknown", b"x")
        with pytest.raises(MessageTooLargeBrokerError):
            producer.send("known", b"x" * 101)
        assert producer.send("known", b"x" * 100).result().offset == 0
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        with pytest.raises(WrongPartitionError):
            consumer.fetch(FetchRequest("known", 1, 0, 100))
        with pytest.raises(OffsetOutOfRangeBrokerError):
            consumer.fetch(FetchRequest("known", 0, 99_999, 100))


def test_offsets_boundaries_growth_and_deletion(start_broker) -> None:
    broker = start_broker()
    with Producer(ProducerConfig(broker_list=listed(broker), acks="flushed")) as producer:
        producer.send("clicks", [b"a" * 90, b"b" * 100_000])
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        assert consumer.get_offsets_before("clicks", 0, EARLIEST) == [0]
        assert consumer.get_offsets_before("clicks", 0, LATEST, max_offsets=1) == [100_110]
        assert consumer.boundary_before("clicks", 0, 5000) == 100
        assert read_all(consumer, "clicks", size=10) == [b"a" * 90, b"b" * 100_000]
        consumer.delete_topic("clicks")
        with pytest.raises(UnknownTopicError):
            consumer.delete_topic("clicks")


def test_times_of_appends(start_broker) -> None:
    broker = start_broker()
    with Producer(ProducerConfig(broker_list=listed(broker), acks="flushed")) as producer:
        for payload in (b"first", b"second", b"third"):
            producer.send("clicks", payload)
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        times = consumer.append_times("clicks", 0, 0, 1 << 62)
        assert [each.start_offset for each in times] == [0, *(each[1] for each in times[:-1])]
        assert times[-1].end_offset == 46
        assert None not in (moments := [each.time_ms for each in times])
        assert moments == sorted(set(moments))
        ages = consumer.append_times("clicks", 0, 15, 31, interval_ms=1 << 50)
        assert ages == [AppendTime(15, 31, 0)]
        assert consumer.append_times("clicks", 0, 46, 1 << 62) == []
        with pytest.raises(OffsetOutOfRangeBrokerError):
            consumer.append_times("clicks", 0, 47, 1 << 62)
        with pytest.raises(WrongPartitionError):
            consumer.append_times("clicks", 1, 0, 1 << 62)
        with pytest.raises(ConfigError):
            consumer.append_times("clicks", 0, 0, 46, interval_ms=0)


def test_a_refused_set_is_reported_by_the_barrier(start_broker) -> None:
    broker = start_broker()
    with SyncProducer("127.0.0.1", broker.port) as producer:
        producer.send("clicks", 0, b"\x00\x00\x00\x06\x01\x00\x00\x00\x00\x00")
        producer.barrier()
        with pytest.raises(BrokerUnavailableError, match=r"closed the connection|broke"):
            send_and_wait(producer, b"\x00\x00\x00\x06\x01\x00\x00\x00\x00\x01")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells when the end came")
def test_an_idle_producer_of_one_broker_goes_on(start_broker) -> None:
    broker = start_broker(idle_timeout="6s")
    message = encode_message_set([b"x"])
    # Idle is what had nothing to do for longer than a request may take, which is enough for one.
    with SyncProducer("127.0.0.1", broker.port, timeout_seconds=5) as producer:
        producer.send("clicks", 0, message)
        connection = producer.channel.connection
        assert connection._poll.poll(60_000)  # the broker closes what is idle
        producer.send("clicks", 0, message)
        producer.barrier()
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        request = FetchRequest("clicks", 0, 0, 1 << 20)
        (result,) = consumer.fetch_waiting([request], max_wait_ms=30_000, min_bytes=22)
        assert [message.payload for message, _ in result] == [b"x", b"x"]


def send_and_wait(producer: SyncProducer, message_set: bytes) -> None:
    producer.send("clicks", 0, message_set)
    producer.barrier()
