"""Topics of 0.7 for Kafka clients: every message once, wherever they begin, stop and go on."""

import os
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest
from batches import holding
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_bench import KafkaBench, encode_request, messages
from transacted_logs import transactional

from hermes.protocol import Codec, encode_message_set
from hermes.protocol.record_batches import BatchHeader, decode_header
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch, iterate_records
from hermes.storage import FileLayer

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NOW_MS = 1_800_000_000_000


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = make_bench(tmp_path)
    yield bench
    bench.close()


def make_bench(path: Path, **values: Any) -> KafkaBench:
    bench = KafkaBench(path, **values)
    bench.shared.topics.create("old")
    return bench


def append(bench: KafkaBench, *payloads: bytes, codec: Codec = Codec.NONE) -> int:
    """Append one set; where it starts."""
    log = bench.shared.topics.for_produce("old", 0)
    data = encode_message_set(payloads, codec)
    start = log.append((data,), len(data), len(payloads), NOW_MS)
    log.flush()
    return start


def fetch(bench: KafkaBench, offset: int, max_bytes: int = 1 << 20) -> Any:
    answer = bench.ask(
        "Fetch",
        11,
        replica_id=-1,
        max_wait=_ms(0),
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(_topic(11, partition=0, fetch_offset=offset, partition_max_bytes=max_bytes),),
        forgotten_topics_data=(),
        rack_id="",
    )
    return answer.responses[0].partitions[0]


def _ms(value: int) -> Any:
    return timedelta(milliseconds=value)


def _topic(version: int, **partition: Any) -> Any:
    kinds = messages("Fetch", version, "request")
    return kinds.FetchTopic(topic="old", partitions=(kinds.FetchPartition(**partition),))


def read(
    bench: KafkaBench, offset: int, max_bytes: int = 1 << 20
) -> tuple[BatchHeader, list[Record]]:
    found = fetch(bench, offset, max_bytes)
    assert found.error_code == 0
    header = decode_header(found.records)
    assert header.size_bytes == len(found.records)
    return header, list(iterate_records(found.records, header))


def test_a_batch_reaches_to_the_byte_before_the_next_message(bench: KafkaBench) -> None:
    append(bench, b"one", b"", b"three")
    following = append(bench, b"four")
    end = bench.shared.topics.for_produce("old", 0).high_watermark
    header, records = read(bench, 0)
    assert [(each.offset, each.value) for each in records] == [
        (0, b"one"),
        (13, b""),
        (23, b"three"),
        (following, b"four"),
    ]
    assert (header.base_offset, header.next_offset) == (0, end)
    assert {each.timestamp_ms for each in records} == {NOW_MS}


def test_an_offset_inside_a_message_goes_on_to_the_next(bench: KafkaBench) -> None:
    append(bench, b"one", b"two")
    for inside in range(1, 14):
        _, records = read(bench, inside)
        assert [each.value for each in records] == [b"two"]


def test_where_nothing_follows_an_empty_batch_leads_on(bench: KafkaBench) -> None:
    append(bench, b"one")
    header, records = read(bench, 5)
    assert (header.base_offset, header.next_offset, records) == (5, 13, [])
    assert fetch(bench, 13).records == b""


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_a_compressed_set_can_be_left_and_resumed_anywhere(bench: KafkaBench, codec: Codec) -> None:
    payloads = [b"%d" % n for n in range(8)]
    start = append(bench, b"before")
    start = append(bench, *payloads, codec=codec)
    append(bench, b"after")
    for skipped in range(8):
        _, records = read(bench, start + skipped)
        assert [each.value for each in records] == [*payloads[skipped:], b"after"]
        assert records[0].offset == start + skipped
    _, records = read(bench, start + 8)
    assert [each.value for each in records] == [b"after"]


def test_a_set_without_offsets_for_all_its_messages_is_refused(bench: KafkaBench) -> None:
    before = append(bench, b"before")
    start = append(bench, *[b""] * 5000, codec=Codec.GZIP)
    _, records = read(bench, before)
    assert [each.value for each in records] == [b"before"]
    assert fetch(bench, start).error_code == 43


def test_a_message_larger_than_asked_for_is_sent_whole(bench: KafkaBench) -> None:
    append(bench, b"x" * 10_000, b"next")
    _, records = read(bench, 0, max_bytes=100)
    assert [len(each.value or b"") for each in records] == [10_000]


def test_a_damaged_length_has_no_more_read_than_messages_have(tmp_path: Path) -> None:
    """It may claim all that follows in its segment."""
    largest = [0]

    class Files(FileLayer):
        def pread(self, descriptor: int, length: int, position: int) -> bytes:
            largest[0] = max(largest[0], length)
            return super().pread(descriptor, length, position)

    bench = make_bench(tmp_path, files=Files())
    log = bench.shared.topics.for_produce("old", 0)
    data = bytearray(encode_message_set([bytes(500_000)] * 60))
    data[:4] = (25_000_000).to_bytes(4)
    log.append((bytes(data),), len(data), 60, NOW_MS)
    log.flush()
    assert fetch(bench, 0).error_code == 2
    assert largest[0] < 10_000_000
    bench.close()


def test_what_sets_expand_to_counts_towards_the_largest_response(tmp_path: Path) -> None:
    """Else a few bytes that are asked for of each of many partitions would fill the memory."""
    bench = KafkaBench(tmp_path, topics={"old": {"partitions": 4}})
    bench.shared.topics.create_declared("old")
    for partition in (1, 2, 3):
        log = bench.shared.topics.for_produce("old", partition)
        data = encode_message_set([b"x" * 10_000], Codec.GZIP)
        log.append((data,), len(data), 1, NOW_MS)
        log.flush()
    kinds = messages("Fetch", 11, "request")
    partitions = tuple(
        kinds.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
        for number in range(4)
    )
    answer = bench.ask(
        "Fetch",
        11,
        replica_id=-1,
        max_wait=_ms(0),
        min_bytes=1,
        max_bytes=15_000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(kinds.FetchTopic(topic="old", partitions=partitions),),
        forgotten_topics_data=(),
        rack_id="",
    )
    found = answer.responses[0].partitions
    assert [each.error_code for each in found] == [0, 0, 0, 0]
    assert [len(each.records) // 10_000 for each in found] == [0, 1, 1, 0]
    assert found[3].high_watermark > 0
    bench.close()


@pytest.mark.parametrize(("offset", "code"), [(-1, 1), (14, 1), (13, 0)])
def test_offsets_beyond_the_log_are_out_of_range(bench: KafkaBench, offset: int, code: int) -> None:
    append(bench, b"one")
    assert fetch(bench, offset).error_code == code


def test_a_damaged_message_is_told(bench: KafkaBench) -> None:
    append(bench, b"one")
    log = bench.shared.topics.for_produce("old", 0)
    data = bytearray(encode_message_set([b"two"]))
    data[-1] ^= 1
    log.append((bytes(data),), len(data), 1, NOW_MS)
    log.flush()
    _, records = read(bench, 0)
    assert [each.value for each in records] == [b"one"]
    assert fetch(bench, 13).error_code == 2


def test_what_precedes_a_set_that_cant_be_expanded_is_read(bench: KafkaBench) -> None:
    append(bench, b"one", b"two")
    payload = b"no gzip"
    crc = crc32(payload).to_bytes(4)
    data = (6 + len(payload)).to_bytes(4) + bytes((1, Codec.GZIP)) + crc + payload
    log = bench.shared.topics.for_produce("old", 0)
    start = log.append((data,), len(data), 1, NOW_MS)
    log.flush()
    header, records = read(bench, 0)
    assert [each.value for each in records] == [b"one", b"two"]
    assert header.next_offset == start
    assert fetch(bench, start).error_code == 2


@settings(deadline=None, max_examples=40)
@given(
    sets=st.lists(
        st.tuples(
            st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY]),
            st.lists(st.binary(max_size=30), min_size=1, max_size=6),
        ),
        min_size=1,
        max_size=6,
    ),
    taken=st.lists(st.integers(1, 7), min_size=1),
    max_bytes=st.integers(1, 200),
)
def test_who_stops_anywhere_reads_each_message_once(
    tmp_path_factory: pytest.TempPathFactory,
    sets: list[tuple[Codec, list[bytes]]],
    taken: list[int],
    max_bytes: int,
) -> None:
    """As Java's consumer does: after a message its offset and one, after a batch its end."""
    bench = make_bench(tmp_path_factory.mktemp("legacy"))
    for codec, payloads in sets:
        append(bench, *payloads, codec=codec)
    end = bench.shared.topics.for_produce("old", 0).high_watermark
    seen: list[bytes | None] = []
    position, turn = 0, 0
    while position < end:
        header, records = read(bench, position, max_bytes)
        count = taken[turn % len(taken)]
        turn += 1
        seen += [each.value for each in records[:count]]
        position = header.next_offset if count >= len(records) else records[count - 1].offset + 1
    assert seen == [payload for _, payloads in sets for payload in payloads]
    bench.close()


# -- by time ------------------------------------------------------------------------------------


def test_offsets_by_time_are_those_of_the_appends(bench: KafkaBench) -> None:
    log = bench.shared.topics.for_produce("old", 0)
    data = encode_message_set([b"one"])
    for time_ms in (1000, 2000, 3000):
        log.append((data,), len(data), 1, time_ms)
        log.flush()
    found = {
        asked: _list_offsets(bench, asked)
        for asked in (EARLIEST, LATEST, MAX_TIMESTAMP, 0, 500, 1000, 1001, 3000, 3001)
    }
    assert found == {
        EARLIEST: (0, -1),
        LATEST: (39, -1),
        MAX_TIMESTAMP: (26, 3000),
        0: (0, 1000),  # not -1, of the end, for the ms before
        500: (0, 1000),
        1000: (0, 1000),
        1001: (13, 2000),
        3000: (26, 3000),
        3001: (-1, -1),
    }


def _list_offsets(bench: KafkaBench, time_ms: int) -> tuple[int, int]:
    kinds = messages("ListOffsets", 7, "request")
    partition = kinds.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=time_ms
    )
    topic = kinds.ListOffsetsTopic(name="old", partitions=(partition,))
    answer = bench.ask("ListOffsets", 7, replica_id=-1, isolation_level=0, topics=(topic,))
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0
    return found.offset, found.timestamp


# -- in -----------------------------------------------------------------------------------------


def _produce(bench: KafkaBench, *records: Record, in_transaction: bool = False) -> Any:
    batch = encode_batch(records)
    return _produce_batch(bench, transactional(batch) if in_transaction else batch)


def _produce_batch(bench: KafkaBench, batch: bytes) -> Any:
    kinds = messages("Produce", 9, "request")
    partition = kinds.PartitionProduceData(index=0, records=batch)
    topic = kinds.TopicProduceData(name="old", partition_data=(partition,))
    answer = bench.ask(
        "Produce", 9, transactional_id=None, acks=-1, timeout=_ms(30_000), topic_data=(topic,)
    )
    return answer.responses[0].partition_responses[0]


def test_values_alone_become_messages_of_0_7(bench: KafkaBench) -> None:
    answer = _produce(bench, Record(0, 5, None, b"one"), Record(1, 5, None, b"two"))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    _, records = read(bench, 0)
    assert [each.value for each in records] == [b"one", b"two"]


def test_no_more_than_one_batch_is_expanded_at_a_time(bench: KafkaBench) -> None:
    """A few KB of what compresses well would fill the memory."""
    count, size = 40, 1_000_000
    _produce(bench, Record(0, 5, None, b"one"))  # which loads what carries it out
    kinds = messages("Produce", 9, "request")
    batch = encode_batch([Record(0, 5, None, bytes(size))], RecordCodec.ZSTD)
    data = tuple(kinds.PartitionProduceData(index=0, records=batch) for _ in range(count))
    topics = (kinds.TopicProduceData(name="old", partition_data=data),)
    connection, transport = bench.connect_kafka()
    tracemalloc.start()
    try:
        connection.dataReceived(
            encode_request(
                "Produce",
                9,
                transactional_id=None,
                acks=1,
                timeout=_ms(30_000),
                topic_data=topics,
            )
        )
        bench.turns(transport)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bench.shared.topics.for_produce("old", 0).end_offset > count * size
    assert peak_bytes < 10 * size


def test_a_transaction_has_no_room_in_0_7(bench: KafkaBench) -> None:
    answer = _produce(bench, Record(0, 5, None, b"one"), in_transaction=True)
    assert answer.error_code == 43
    assert "format of Kafka 0.7, which has no transactions" in answer.error_message


@pytest.mark.parametrize(
    "record",
    [
        Record(1, 5, b"a key", b"two"),
        Record(1, 5, None, b"two", (("a", b"header"),)),
        Record(1, 5, None, None),
    ],
)
def test_what_0_7_has_no_room_for_is_refused_as_a_whole(bench: KafkaBench, record: Record) -> None:
    answer = _produce(bench, Record(0, 5, None, b"one"), record)
    assert answer.error_code == 87
    assert "message 1 has " in answer.error_message
    assert bench.shared.topics.for_produce("old", 0).end_offset == 0


@pytest.mark.parametrize(
    "batch",
    [
        holding(b"no record", codec=RecordCodec.GZIP),
        holding(b"no gzip", attributes=RecordCodec.GZIP),
    ],
    ids=["records", "codec"],
)
def test_what_is_malformed_inside_is_not_to_be_sent_again(bench: KafkaBench, batch: bytes) -> None:
    """Its CRC is right: that is how its producer has made it."""
    answer = _produce_batch(bench, batch)
    assert answer.error_code == 87
    assert bench.shared.topics.for_produce("old", 0).end_offset == 0


def test_a_setting_refuses_all(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, kafka_to_0_7="refuse")
    answer = _produce(bench, Record(0, 5, None, b"one"))
    assert answer.error_code == 43
    assert "kafka_to_0_7" in answer.error_message
    bench.close()


def test_what_looks_like_a_message_inside_a_compressed_set_is_none(bench: KafkaBench) -> None:
    """Snappy keeps what it can't shrink as it is: whole messages, at offsets that others count."""
    payloads = [Random(n).randbytes(60) for n in range(60)]
    start = append(bench, b"before")
    start = append(bench, *payloads, codec=Codec.SNAPPY)
    following = append(bench, b"after")
    content = encode_message_set([payloads[0]])
    with bench.shared.topics.for_produce("old", 0).read(start, following - start) as part:
        data = os.pread(part.fileno(), part.length, part.position)
    assert 0 < data.index(content) < len(payloads)
    for skipped in range(len(payloads)):
        _, records = read(bench, start + skipped)
        assert [each.value for each in records] == [*payloads[skipped:], b"after"]
