"""What a producer sends to topics that keep keys, headers and times."""

from contextlib import suppress

import pytest

from hermes.client import Keys, Producer, ProducerConfig, RecordData
from hermes.client.grouping import encode_records
from hermes.errors import EncodingError, WrongFormatError
from hermes.protocol import Codec, RecordSet


def start(memory_broker, *topics: str):
    broker = memory_broker()
    broker.records = {topic: bytearray() for topic in topics}
    return broker


def producer_of(broker, **settings) -> Producer:
    return Producer(ProducerConfig(broker_list=f"7:{broker.host}:{broker.port}", **settings))


def stored(broker, topic: str = "orders") -> list[tuple]:
    found = RecordSet(bytes(broker.records[topic]))
    return [(each.key, each.payload, each.headers) for each, _ in found]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy"])
def test_a_topic_of_records_gets_what_was_sent_with_its_keys(
    memory_broker, kind: str, compression: str
) -> None:
    broker = start(memory_broker, "orders")
    with producer_of(broker, producer_type=kind, compression=compression) as producer:
        handles = [
            producer.send("orders", b"plain"),
            producer.send("orders", [b"a", b"b"], key="user-7"),
            producer.send("orders", [b"c", b"d"], key=Keys([b"\xff", None])),
            producer.send("orders", RecordData(b"more", (("h", b"1"), ("h", None)), 17), key=b"k"),
            producer.send("orders", RecordData(None), key=b"gone"),
        ]
        assert [handle.result().offset for handle in handles] == [0, 1, 3, 5, 6]
    assert stored(broker) == [
        (None, b"plain", ()),
        (b"user-7", b"a", ()),
        (b"user-7", b"b", ()),
        (b"\xff", b"c", ()),
        (None, b"d", ()),
        (b"k", b"more", (("h", b"1"), ("h", None))),
        (b"gone", None, ()),
    ]
    times = [each.timestamp_ms for each, _ in RecordSet(bytes(broker.records["orders"]))]
    assert times[5] == 17
    assert min(times[:5]) > 1_700_000_000_000


def test_only_the_first_set_is_sent_twice(memory_broker) -> None:
    broker = start(memory_broker, "orders")
    with producer_of(broker, producer_type="sync") as producer:
        for _ in range(3):
            producer.send("orders", b"x")
    assert [kind for kind in broker.request_types() if kind in (64, 83)] == [64, 83, 83, 83]


def test_a_topic_of_messages_keeps_no_headers_and_says_so(memory_broker) -> None:
    broker = start(memory_broker)
    with producer_of(broker, producer_type="sync") as producer:
        for _ in range(2):
            with pytest.raises(WrongFormatError, match="format: kafka"):
                producer.send("clicks", RecordData(b"x", (("h", b"1"),)))
        producer.send("clicks", b"plain", key=7)
    assert broker.payloads("clicks") == [b"plain"]


def test_a_topic_that_has_become_one_of_records_loses_no_key(memory_broker) -> None:
    broker = start(memory_broker)
    with producer_of(broker, producer_type="sync") as producer:
        producer.send("orders", b"before", key=b"k")
        assert broker.payloads("orders") == [b"before"]
        broker.records["orders"] = bytearray()
        producer.send("orders", b"without a key")
        producer.send("orders", b"after", key=b"k")
    assert stored(broker) == [(None, b"without a key", ()), (b"k", b"after", ())]


def test_a_key_that_cannot_be_kept_is_refused(memory_broker) -> None:
    broker = start(memory_broker, "orders")
    with producer_of(broker, producer_type="sync") as producer:
        with pytest.raises((EncodingError, WrongFormatError), match="int"):
            producer.send("orders", b"x", key=7)
        with pytest.raises(EncodingError, match="int"):
            producer.send("orders", b"x", key=7)
        with pytest.raises(EncodingError, match="headers"):
            producer.send("orders", RecordData(b"x", headers={"h": 1}.items()))
    assert stored(broker) == []


@pytest.mark.parametrize(
    ("message", "key"),
    [
        (RecordData(b"x", timestamp_ms="now"), b"k"),  # type: ignore[arg-type]
        (RecordData(b"x", timestamp_ms=1 << 63), b"k"),
        (RecordData(b"x", (("\ud800", b"1"),)), b"k"),
        (RecordData(b"x", 7), b"k"),  # type: ignore[arg-type]
        (b"x", "\ud800"),
        (b"x", 7),
    ],
)
def test_what_cannot_be_sent_costs_no_other_message(memory_broker, message, key) -> None:
    broker = start(memory_broker, "orders")
    with producer_of(broker, producer_type="async") as producer:
        for topic in ("clicks", "orders"):
            producer.send(topic, b"0").result(10)
        broker.paused.clear()
        handles = [producer.send("clicks", b"1")]  # on its way, so that what follows leaves at once
        handles += [producer.send("clicks", b"2"), producer.send("orders", b"3", key=b"k")]
        wrong = None
        with suppress(EncodingError):  # said at once, or later
            wrong = producer.send("orders", message, key=key)
        handles.append(producer.send("orders", b"4", key=b"k"))
        broker.paused.set()
        if wrong is not None:
            assert isinstance(wrong.exception(10), EncodingError)
        assert [each.exception(10) for each in handles] == [None] * 4
    assert [payload for _, payload, _ in stored(broker)] == [b"0", b"3", b"4"]


def test_headers_for_a_topic_that_keeps_none_cost_no_other_message(memory_broker) -> None:
    broker = start(memory_broker)
    with producer_of(broker, producer_type="async") as producer:
        producer.send("clicks", b"0").result(10)
        broker.paused.clear()
        producer.send("clicks", b"1")
        before = producer.send("clicks", b"2")
        wrong = producer.send("clicks", b"x", headers={"h": b"1"})
        after = producer.send("clicks", b"3")
        broker.paused.set()
        assert (before.exception(10), after.exception(10)) == (None, None)
        with pytest.raises(WrongFormatError, match="no headers"):
            wrong.result(10)
    assert broker.payloads("clicks") == [b"0", b"1", b"2", b"3"]


def test_what_has_headers_overtakes_nothing_in_a_topic_whose_format_is_not_known(
    memory_broker,
) -> None:
    broker = start(memory_broker, "orders", "warm")
    with producer_of(broker, producer_type="async", compression="gzip") as producer:
        producer.send("warm", b"0").result(10)
        broker.paused.clear()
        producer.send("warm", b"1")  # on its way, so that what follows leaves at once
        large = [b"%d" % number * 600_000 for number in range(3)]  # more than a set holds
        for each in large:
            producer.send("orders", each, key=b"k")
        producer.send("orders", RecordData(None), key=b"k")
        broker.paused.set()
    assert [payload for _, payload, _ in stored(broker)] == [*large, None]


def test_a_producer_of_very_many_topics_sends_records_to_all(memory_broker, monkeypatch) -> None:
    monkeypatch.setattr("hermes.client.grouping._MOST_TOPICS", 1)
    broker = start(memory_broker, "one", "two")
    with producer_of(broker, producer_type="sync") as producer:
        for topic in ("one", "two", "two"):
            producer.send(topic, b"x", key=b"k")
    assert stored(broker, "two") == [(b"k", b"x", ())] * 2


def test_batches_are_cut_to_what_a_broker_takes() -> None:
    payloads = [b"%05d" % number * 100 for number in range(100)]
    encoded = encode_records(payloads, (), (), Codec.NONE, max_batch_bytes=5_000)
    found = RecordSet(encoded.data)
    assert [header.size_bytes <= 5_000 for _, header in found.batches()].count(True) > 10
    records = [each.payload for each, _ in RecordSet(encoded.data)]
    assert records[:9] == payloads[:9]
    assert sum(header.record_count for _, header in found.batches()) == 100
