"""What clients of Kafka's exchange in tests: records of all kinds, and how each comes back."""

import random
from collections.abc import Iterable, Mapping, Sequence

from kafka_clients import CODECS, Got, KafkaClient, Sent

__all__ = ["RECORDS", "check_read", "produce_all", "records_of", "topic_of"]

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


def records_of(client: type[KafkaClient]) -> list[Sent]:
    """What a client produces: most of them all."""
    if client.has_null_headers:
        return RECORDS
    return [each for each in RECORDS if all(value is not None for _, value in each.headers)]


def topic_of(client: type[KafkaClient], codec: str) -> str:
    """The topic to which a client produces with a codec."""
    return f"by-{client.name}-{codec}"


def produce_all(
    client: KafkaClient, address: str, codecs: Sequence[str] = CODECS
) -> dict[str, list[tuple[int, int]]]:
    """Produce the records with each codec; where each is, by topic."""
    return {
        topic_of(type(client), codec): client.produce(
            address, topic_of(type(client), codec), records_of(type(client)), compression_type=codec
        )
        for codec in codecs
    }


def check_read(reader: KafkaClient, address: str, topics: Mapping[str, type[KafkaClient]]) -> None:
    """Read topics, each with the records of the client that is named: all are as they were sent."""
    count = sum(len(records_of(each)) for each in topics.values())
    by_topic: dict[str, list[Got]] = {topic: [] for topic in topics}
    for each in reader.read(address, list(topics), count):
        by_topic[each.topic].append(each)
    for topic, records in by_topic.items():
        producer = topics[topic]
        expected = records_of(producer)
        assert [each.offset for each in records] == list(range(len(expected))), topic
        order = list if reader.keeps_headers and producer.keeps_headers else _by_name
        for sent, each in zip(expected, records, strict=True):
            assert (each.key, each.value) == (sent.key, sent.value), (topic, each.offset)
            assert order(each.headers) == order(sent.headers), (topic, each.offset)
            if sent.timestamp_ms is not None:
                assert each.timestamp_ms == sent.timestamp_ms, (topic, each.offset)
            else:
                assert each.timestamp_ms > 1_700_000_000_000, (topic, each.offset)


def _by_name(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    return sorted(headers, key=lambda each: each[0])
