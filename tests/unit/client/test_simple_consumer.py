"""The simple consumer against brokers in memory: of Hermes, of Kafka 0.7, and hostile ones."""

import struct

import pytest

from hermes.client import EARLIEST, LATEST, FetchRequest, SimpleConsumer
from hermes.errors import (
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    ConfigError,
    InvalidFetchSizeError,
    InvalidMessageError,
    MessageLargerThanFetchError,
    OffsetOutOfRangeBrokerError,
    RemoteProtocolError,
    UnknownTopicError,
    UnsupportedRequestVersionError,
    WrongPartitionError,
)
from hermes.protocol import Codec, encode_message_set, fetch_response_header

FIRST = encode_message_set([b"first"])
SECOND = encode_message_set([b"second"])
THIRD = encode_message_set([b"third"])


def start(memory_broker, log: bytes = b"", **options):
    broker = memory_broker(**options)
    if log:
        broker.logs["clicks", 0] = bytearray(log)
    return broker


def consumer_of(broker, **options) -> SimpleConsumer:
    return SimpleConsumer(broker.host, broker.port, **options)


def fetched(consumer: SimpleConsumer, offset: int = 0, max_size: int = 1 << 20):
    return [
        (message.payload, following)
        for message, following in consumer.fetch(FetchRequest("clicks", 0, offset, max_size))
    ]


def flipped(log: bytes, position: int, bit: int = 0) -> bytes:
    return log[:position] + bytes([log[position] ^ 1 << bit]) + log[position + 1 :]


def test_fetches_messages_with_the_offsets_to_go_on_from(memory_broker) -> None:
    broker = start(memory_broker, FIRST + SECOND)
    with consumer_of(broker) as consumer:
        assert fetched(consumer) == [(b"first", 15), (b"second", 31)]
        assert fetched(consumer, 15) == [(b"second", 31)]
        assert fetched(consumer, 31) == []
    assert broker.request_types() == [1, 1, 1]  # nothing is asked that a 0.7 would not know


def test_an_unfinished_message_at_the_end_is_left_for_the_next_fetch(memory_broker) -> None:
    with consumer_of(start(memory_broker, FIRST + SECOND)) as consumer:
        assert fetched(consumer, max_size=30) == [(b"first", 15)]


def test_a_topic_that_does_not_exist_is_an_error(memory_broker) -> None:
    broker = start(memory_broker)
    with consumer_of(broker) as consumer:
        for _ in range(2):  # it is not forgotten, nor remembered
            with pytest.raises(UnknownTopicError, match=rf"'clicks' on {consumer.address}: the t"):
                fetched(consumer)
        broker.logs["clicks", 0] = bytearray()
        asked = len(broker.request_types())
        assert fetched(consumer) == fetched(consumer) == []
        assert broker.request_types()[asked:] == [1, 66, 1]  # metadata is asked for once


def test_a_kafka_0_7_has_every_topic(memory_broker) -> None:
    with consumer_of(start(memory_broker, hermes=False)) as consumer:
        assert fetched(consumer) == []
    broker = start(memory_broker, hermes=False)
    with consumer_of(broker, supports_hermes_requests=False) as consumer:
        assert fetched(consumer) == []
    assert broker.request_types() == [1]


def test_compressed_sets_are_opened(memory_broker) -> None:
    log = encode_message_set([b"a", b"b"], Codec.GZIP) + FIRST
    wrapper = len(log) - 15
    with consumer_of(start(memory_broker, log)) as consumer:
        assert fetched(consumer) == [(b"a", 0), (b"b", wrapper), (b"first", len(log))]


@pytest.mark.parametrize("max_size", [1, 3, 4, 5, 11])
def test_a_message_larger_than_the_fetch_makes_it_grow(memory_broker, max_size: int) -> None:
    large = encode_message_set([b"x" * 200_000])
    with consumer_of(start(memory_broker, large + FIRST)) as consumer:
        (only,) = fetched(consumer, max_size=max_size)
        assert only == (b"x" * 200_000, len(large))


def test_growth_ends_at_the_limit_with_offset_and_size(memory_broker) -> None:
    broker = start(memory_broker, FIRST + encode_message_set([b"x" * 5000]) + SECOND)
    with (
        consumer_of(broker, max_fetch_bytes=1000) as consumer,
        pytest.raises(MessageLargerThanFetchError, match="raise max_fetch_bytes") as caught,
    ):
        fetched(consumer, 15, 100)
    assert (caught.value.offset, caught.value.size_bytes) == (15, 5010)
    assert len(broker.requests) == 2


def test_a_fetch_larger_than_the_limit_is_not_cut(memory_broker) -> None:
    with consumer_of(start(memory_broker, FIRST + SECOND), max_fetch_bytes=1) as consumer:
        assert len(fetched(consumer, max_size=31)) == 2


def test_a_fetch_of_nothing_gives_nothing(memory_broker) -> None:
    with consumer_of(start(memory_broker, FIRST)) as consumer:
        assert fetched(consumer, max_size=0) == []


def test_a_negative_size_is_refused_before_it_is_sent(memory_broker) -> None:
    broker = start(memory_broker, FIRST)
    with consumer_of(broker) as consumer, pytest.raises(InvalidFetchSizeError):
        fetched(consumer, max_size=-1)
    assert broker.requests == []


# Every bit but the attributes' free ones, which the CRC doesn't cover.
COVERED = [(byte, bit) for byte in range(15) for bit in range(8) if byte != 5 or bit < 2]


@pytest.mark.parametrize(("position", "bit"), COVERED)
def test_any_flipped_bit_of_a_message_is_named_with_the_way_on(
    memory_broker, position: int, bit: int
) -> None:
    log = SECOND + flipped(FIRST, position, bit) + THIRD
    with consumer_of(start(memory_broker, log)) as consumer:
        # Behind an impossible length the set ends; the next fetch starts at the damage.
        with pytest.raises(InvalidMessageError) as caught:
            fetched(consumer, fetched(consumer)[-1][1])
        assert (caught.value.offset, caught.value.next_offset) == (16, 31)
        assert fetched(consumer, 31) == [(b"third", 46)]


@pytest.mark.parametrize("position", [0, 3, 4, 5, 6, 12])
def test_damage_is_skipped_and_counted_when_asked(memory_broker, position: int) -> None:
    log = flipped(FIRST, position) + SECOND
    with consumer_of(start(memory_broker, log), on_corrupt="skip") as consumer:
        assert fetched(consumer) == [(b"second", 31)]
        assert consumer.skipped_count == 1


def test_the_way_on_is_found_beyond_the_fetch(memory_broker) -> None:
    damaged = flipped(encode_message_set([b"x" * 300_000]), 100)
    broker = start(memory_broker, damaged + SECOND)
    with consumer_of(broker) as consumer, pytest.raises(InvalidMessageError) as caught:
        fetched(consumer, max_size=100)
    assert (caught.value.offset, caught.value.next_offset) == (0, len(damaged))
    with consumer_of(broker, on_corrupt="skip") as consumer:
        assert fetched(consumer, max_size=100) == [(b"second", len(damaged) + 16)]


def test_an_offset_within_a_message_is_named(memory_broker) -> None:
    with consumer_of(start(memory_broker, FIRST + SECOND)) as consumer:
        with pytest.raises(InvalidMessageError) as caught:
            fetched(consumer, 7)
        assert (caught.value.offset, caught.value.next_offset) == (7, 15)


def test_errors_of_the_broker_name_what_was_asked(memory_broker) -> None:
    with consumer_of(start(memory_broker, FIRST)) as consumer:
        with pytest.raises(OffsetOutOfRangeBrokerError, match="'clicks' partition 0 offset 99"):
            fetched(consumer, 99)
        with pytest.raises(WrongPartitionError, match="partition 5"):
            consumer.fetch(FetchRequest("clicks", 5, 0, 100))
        assert fetched(consumer) == [(b"first", 15)]


@pytest.mark.parametrize("waiting", [False, True])
def test_several_fetches_fail_one_by_one(memory_broker, waiting: bool) -> None:
    broker = start(memory_broker, FIRST + SECOND)
    requests = [
        FetchRequest("clicks", 0, 15, 1000),
        FetchRequest("clicks", 1, 0, 1000),
        FetchRequest("nothing", 0, 0, 1000),
        FetchRequest("clicks", 0, 0, 3),
        FetchRequest("clicks", 0, 7, 1000),
    ]
    with consumer_of(broker) as consumer:
        results = consumer.fetch_waiting(requests, 0) if waiting else consumer.multifetch(requests)
    assert [each.request for each in results] == requests
    assert [message.payload for message, _ in results[0]] == [b"second"]
    assert isinstance(results[1].error, WrongPartitionError)
    with pytest.raises(WrongPartitionError):
        list(results[1])
    assert isinstance(results[2].error, UnknownTopicError)
    assert [message.payload for message, _ in results[3]] == [b"first", b"second"]
    assert isinstance(results[4].error, InvalidMessageError)
    watermarks = [each.high_watermark for each in results]
    assert watermarks == ([31, -1, -1, 31, 31] if waiting else [None] * 5)


def test_a_0_7_broker_is_asked_again_until_the_wait_ends(memory_broker) -> None:
    broker = start(memory_broker, FIRST, hermes=False)
    request = FetchRequest("clicks", 0, 15, 1000)
    with consumer_of(broker, supports_hermes_requests=False, poll_interval_ms=1) as consumer:
        (result,) = consumer.fetch_waiting([request], max_wait_ms=3)
        assert list(result) == []
        assert broker.request_types() == [2, 2, 2, 2]
        (result,) = consumer.fetch_waiting([FetchRequest("clicks", 0, 0, 1000)], 1000)
        assert len(list(result)) == 1
        assert len(broker.requests) == 5


def test_a_0_7_broker_is_found_out_once(memory_broker) -> None:
    broker = start(memory_broker, FIRST, hermes=False)
    with consumer_of(broker) as consumer:
        assert not consumer.supports(66)
        assert broker.request_types() == [66, 4, 66]
        assert consumer.supports(4)
        for call in (
            consumer.metadata,
            lambda: consumer.boundary_before("clicks", 0, 7),
            lambda: consumer.append_times("clicks", 0, 0, 7),
            lambda: consumer.delete_topic("clicks"),
        ):
            with pytest.raises(UnsupportedRequestVersionError, match=r"Kafka 0\.7"):
                call()
        assert len(broker.requests) == 3
        assert fetched(consumer) == [(b"first", 15)]


def test_a_broker_that_drops_the_question_once_is_no_0_7(memory_broker) -> None:
    broker = start(memory_broker, FIRST)
    broker.drop = [66]
    with consumer_of(broker) as consumer:
        assert consumer.supports(66)


def test_a_broker_that_is_down_is_no_0_7(unused_port: int) -> None:
    with (
        SimpleConsumer("127.0.0.1", unused_port) as consumer,
        pytest.raises(BrokerUnavailableError),
    ):
        consumer.metadata()


def test_metadata(memory_broker) -> None:
    with consumer_of(start(memory_broker, FIRST, partition_count=3)) as consumer:
        answer = consumer.metadata()
        assert (answer.broker_id, answer.version) == (7, "1.2.3")
        (topic,) = answer.topics
        assert (topic.topic, topic.partition_count) == ("clicks", 3)
        assert [each.high_watermark for each in topic.partitions] == [15]
        (missing,) = consumer.metadata(["nothing"]).topics
        assert missing.error == 65


def test_offsets_boundaries_and_deletion(memory_broker) -> None:
    broker = start(memory_broker, FIRST + SECOND)
    with consumer_of(broker) as consumer:
        assert consumer.get_offsets_before("clicks", 0, EARLIEST) == [0]
        assert consumer.get_offsets_before("clicks", 0, LATEST, max_offsets=1) == [31]
        assert consumer.boundary_before("clicks", 0, 20) == 15
        consumer.delete_topic("clicks")
        with pytest.raises(UnknownTopicError, match="clicks"):
            consumer.delete_topic("clicks")
        with pytest.raises(ConfigError, match="max_offsets"):
            consumer.get_offsets_before("clicks", 0, LATEST, -1)


def test_a_broken_connection_is_repaired_within_the_call(memory_broker) -> None:
    broker = start(memory_broker, FIRST)
    broker.drop = [1]
    with consumer_of(broker) as consumer:
        assert fetched(consumer) == [(b"first", 15)]
        broker.drop = [1, 1]
        with pytest.raises(BrokerUnavailableError):
            fetched(consumer)


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x01\x00",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_garbage_is_an_error_and_costs_the_connection(scripted, answer: bytes) -> None:
    good = fetch_response_header(len(FIRST)) + FIRST
    broker = scripted(
        ["read one request", answer, "read until the client closes"],
        ["read one request", good, "read until the client closes"],
    )
    with consumer_of(broker) as consumer:
        with pytest.raises(RemoteProtocolError):
            fetched(consumer)
        assert fetched(consumer) == [(b"first", 15)]


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_with_another_number_of_entries_is_refused(scripted, count: int) -> None:
    entries = fetch_response_header(0) * count
    answer = struct.pack(">ih", 2 + len(entries), 0) + entries
    broker = scripted(["read one request", answer, "read until the client closes"])
    with consumer_of(broker) as consumer, pytest.raises(RemoteProtocolError, match="1 fetches"):
        consumer.multifetch([FetchRequest("clicks", 0, 0, 100)])


def test_silence_ends_at_the_timeout(scripted) -> None:
    broker = scripted(["read one request", "read until the client closes"])
    with consumer_of(broker, timeout_seconds=0.05) as consumer, pytest.raises(BrokerTimeoutError):
        fetched(consumer)


def test_a_waiting_fetch_may_take_its_wait_longer_than_the_timeout(memory_broker) -> None:
    broker = start(memory_broker, FIRST)
    with consumer_of(broker, timeout_seconds=0.05, supports_hermes_requests=True) as consumer:
        (result,) = consumer.fetch_waiting([FetchRequest("clicks", 0, 0, 100)], 10_000)
        broker.paused.clear()
        with pytest.raises(BrokerTimeoutError, match=r"0\.07 s"):
            consumer.fetch_waiting([FetchRequest("clicks", 0, 15, 100)], 20)
    assert len(list(result)) == 1


def test_a_closed_consumer_says_so(memory_broker) -> None:
    consumer = consumer_of(start(memory_broker))
    consumer.close()
    with pytest.raises(ClientError, match="closed"):
        fetched(consumer)


@pytest.mark.parametrize(
    ("option", "value"),
    [("max_fetch_bytes", 0), ("on_corrupt", "ignore"), ("poll_interval_ms", 0)],
)
def test_wrong_settings_are_refused(option: str, value: object) -> None:
    with pytest.raises(ConfigError, match=option):
        SimpleConsumer("localhost", 9092, **{option: value})
