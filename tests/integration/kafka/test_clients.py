"""Kafka's clients, with their defaults: what each produces each of them consumes."""

import random
from collections.abc import Callable

import pytest
from kafka_clients import CLIENTS, CODECS, Got, KafkaClient, Sent

NAMES = [each.name for each in CLIENTS]
WITHOUT_NULL_HEADERS = [each.name for each in CLIENTS if not each.has_null_headers]

# librdkafka takes 1,000,000 bytes by default, with the key and what is around it.
LARGEST_BYTES = 999_000
NOISE = random.Random(7).randbytes(LARGEST_BYTES)

RECORDS = [
    Sent(b"x"),
    Sent(b"value", b"key", 1_700_000_000_123),
    Sent(b"", b"", 1),
    Sent(None, b"tombstone", 1_700_000_000_000),
    Sent("größer".encode(), "schlüssel".encode(), headers=(("h", b"1"), ("ä", b""), ("h", b"2"))),
    Sent(b"null header", headers=(("none", None),)),
    Sent(50_000 * b"abcd", b"k"),
    Sent(NOISE[:300_000], b"noise"),
    Sent(NOISE, b"largest"),
    Sent(LARGEST_BYTES * b"z", b"largest that compresses"),
    *(Sent(bytes([number]), b"%d" % number) for number in range(200)),
]


def records_of(name: str) -> list[Sent]:
    """What a client produces: most of them all."""
    if name not in WITHOUT_NULL_HEADERS:
        return RECORDS
    return [each for each in RECORDS if all(value is not None for _, value in each.headers)]


def topic_of(name: str, codec: str) -> str:
    return f"by-{name}-{codec}"


@pytest.fixture(scope="module")
def produced(
    bootstrap: str, client_named: Callable[[str], KafkaClient]
) -> dict[str, list[tuple[int, int]]]:
    """Where each record is, by topic: a topic for each client and codec."""
    return {
        topic_of(name, codec): client_named(name).produce(
            bootstrap, topic_of(name, codec), records_of(name), compression_type=codec
        )
        for name in NAMES
        for codec in CODECS
    }


@pytest.mark.parametrize("name", NAMES)
def test_each_record_gets_the_next_offset(
    name: str, produced: dict[str, list[tuple[int, int]]]
) -> None:
    for codec in CODECS:
        placed = produced[topic_of(name, codec)]
        assert placed == [(0, number) for number in range(len(records_of(name)))], codec


@pytest.mark.parametrize("name", NAMES)
def test_each_client_consumes_what_all_produced(
    name: str,
    bootstrap: str,
    produced: dict[str, list[tuple[int, int]]],
    client_named: Callable[[str], KafkaClient],
) -> None:
    count = sum(map(len, produced.values()))
    by_topic: dict[str, list[Got]] = {topic: [] for topic in produced}
    for each in client_named(name).read(bootstrap, list(produced), count):
        by_topic[each.topic].append(each)
    by_whom = {topic_of(each, codec): each for each in NAMES for codec in CODECS}
    for topic, records in by_topic.items():
        expected = records_of(by_whom[topic])
        assert [each.offset for each in records] == list(range(len(expected))), topic
        for sent, each in zip(expected, records, strict=True):
            assert (each.key, each.value) == (sent.key, sent.value), (topic, each.offset)
            assert each.headers == sent.headers, (topic, each.offset)
            if sent.timestamp_ms is not None:
                assert each.timestamp_ms == sent.timestamp_ms, (topic, each.offset)
            else:
                assert each.timestamp_ms > 1_700_000_000_000, (topic, each.offset)
