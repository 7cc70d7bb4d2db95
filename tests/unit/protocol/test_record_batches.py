"""Record batches, on bytes that kafka-python 2.3 wrote: what their headers say, and what is taken.

The conformance suite compares the latter with a real Kafka 4. Either core checks what they hold.
"""

import pytest
from batches import GZIP, NOW_MS, PLAIN, holding, resealed

from hermes.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    InvalidRecordError,
    InvalidTimestampError,
)
from hermes.protocol.record_batches import (
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    BatchRules,
    check_batches,
    decode_header,
    encode_header,
    expands,
    is_intact,
    next_in,
    placed,
)
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch, iterate_records

RULES = BatchRules(1 << 20)
KEYED = RULES._replace(needs_keys=True)
BROKERS_TIME = RULES._replace(is_log_append_time=True)

#: size 8 | attributes | time 0 | offset 0 | key `k` | value `v` | no headers
RECORD = bytes.fromhex("10 00 00 00 026b 0276 00")


def header_of(data: bytes) -> BatchHeader:
    return decode_header(data)


def test_what_a_plain_batch_says() -> None:
    header = header_of(PLAIN)
    assert header == BatchHeader(0, 90, 0, 0x63509757, 0, 1, NOW_MS, NOW_MS + 7, -1, -1, -1, 2)
    assert (header.codec, header.last_offset, header.next_offset) == (0, 1, 2)
    assert (header.has_producer, header.last_sequence) == (False, -1)
    assert (header.is_control, header.is_transactional, header.is_log_append_time) == (False,) * 3
    assert header.delete_horizon_ms is None
    assert encode_header(header) + PLAIN[HEADER_BYTES:] == PLAIN


def test_what_an_idempotent_producers_batch_says() -> None:
    header = header_of(GZIP)
    assert (header.codec, header.record_count, header.size_bytes) == (1, 3, len(GZIP))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, 2**31 - 1)
    assert header.last_sequence == 1
    assert header.has_producer


def test_batches_get_their_place_without_a_new_crc() -> None:
    sent = PLAIN + GZIP
    parts = placed(sent, check_batches(sent, BatchRules(1000)), 1000, 7)
    data = b"".join(parts)
    first, second = decode_header(data), decode_header(data, len(PLAIN))
    assert (first.base_offset, first.leader_epoch, first.next_offset) == (1000, 7, 1002)
    assert (second.base_offset, second.leader_epoch, second.next_offset) == (1002, 7, 1005)
    assert data[16 : len(PLAIN)] == PLAIN[16:]
    assert data[len(PLAIN) + 16 :] == GZIP[16:]
    assert is_intact(data[: len(PLAIN)])
    assert is_intact(data[len(PLAIN) :])


def test_log_append_time_is_one_for_all_messages() -> None:
    sent = PLAIN + GZIP
    data = b"".join(placed(sent, check_batches(sent, BatchRules(1000)), 5, 0, NOW_MS + 99))
    for start, end, codec in ((0, len(PLAIN), 0), (len(PLAIN), len(data), 1)):
        header = decode_header(data, start)
        assert (header.max_timestamp_ms, header.is_log_append_time) == (NOW_MS + 99, True)
        assert (header.base_timestamp_ms, header.codec) == (NOW_MS, codec)
        assert is_intact(data[start:end])
    assert data[HEADER_BYTES : len(PLAIN)] == PLAIN[HEADER_BYTES:]


def appended(data: bytes, rules: BatchRules = RULES, append_time_ms: int | None = None) -> bytes:
    """What is on disk of a batch, as the first of a log."""
    stored = b"".join(placed(data, check_batches(data, rules), 0, 0, append_time_ms))
    assert is_intact(stored)
    return stored


def test_what_was_sent_is_checked_batch_by_batch() -> None:
    for data in (PLAIN + GZIP, bytearray(PLAIN + GZIP), memoryview(PLAIN + GZIP)):
        assert check_batches(data, BatchRules(101)) == [decode_header(PLAIN), decode_header(GZIP)]
    with pytest.raises(BatchTooLargeError, match="a batch of 101 bytes; the limit is 100"):
        check_batches(PLAIN + GZIP, BatchRules(100))


def test_every_byte_after_the_epoch_is_covered() -> None:
    """What lies before may be anything but the length."""
    for position in range(len(PLAIN)):
        data = bytearray(PLAIN)
        data[position] ^= 1
        if position in range(12, 16):
            assert check_batches(data, RULES)[0].leader_epoch == 1 << 8 * (15 - position)
        else:
            with pytest.raises(InvalidBatchError):
                check_batches(data, RULES)
    for length in range(len(PLAIN)):
        with pytest.raises(InvalidBatchError):
            check_batches(PLAIN[:length], RULES)
        assert next_in(PLAIN[:length], 0) is None


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (b"", InvalidRecordError, "there is no batch in it"),
        (b"x" * 10, CorruptBatchError, "10 bytes are left"),
        (PLAIN[:8] + b"\x7f\xff\xff\xff" + PLAIN[12:], CorruptBatchError, "bytes too many"),
        (PLAIN[:8] + b"\xff\xff\xff\xff" + PLAIN[12:], CorruptBatchError, "its length is -1"),
        (PLAIN[:16] + b"\x03" + PLAIN[17:], CorruptBatchError, "its magic is 3"),
        (PLAIN[:16] + b"\x01" + PLAIN[17:30], InvalidRecordError, "its magic is 1, expected 2"),
        (PLAIN[:-1] + b"\x01", CorruptBatchError, "the CRC of the batch is not 0x63509757"),
        (resealed(PLAIN, base_offset=5), InvalidRecordError, "its base offset is 5"),
        (resealed(PLAIN, base_offset=-1), CorruptBatchError, "of offsets -1 to 0"),
        (resealed(PLAIN, record_count=3), InvalidRecordError, "3 messages and offsets 0 to 1"),
        (resealed(PLAIN, record_count=0, last_offset_delta=-1), CorruptBatchError, "0 to -1"),
        (
            resealed(PLAIN, record_count=2**31 - 1, last_offset_delta=2**31 - 2),
            InvalidRecordError,
            "2147483647 messages",
        ),
        (
            resealed(PLAIN, record_count=5, last_offset_delta=4),
            InvalidRecordError,
            "message 2 of 5",
        ),
        (resealed(PLAIN, attributes=5), InvalidRecordError, "the codec 5 is unknown"),
        (resealed(PLAIN, attributes=0x20), InvalidRecordError, "may not write control records"),
        (resealed(PLAIN, producer_id=1), InvalidRecordError, "its sequence number is -1"),
    ],
)
def test_what_is_refused(data: bytes, error: type[InvalidBatchError], text: str) -> None:
    with pytest.raises(error, match=text):
        check_batches(data, RULES)


@pytest.mark.parametrize(
    ("body", "count", "text"),
    [
        (b"", 1, "message 0 of 1: it goes on beyond its end"),
        (RECORD, 2, "message 1 of 2: it goes on beyond its end"),
        (RECORD + b"xx", 1, "message 1 of 1: more bytes follow"),
        (RECORD + RECORD, 2, "message 1 of 2: its offset"),
        (bytes.fromhex("10 00 00 02 026b 0276 00"), 1, "message 0 of 1: its offset"),
        (bytes.fromhex("12 00 00 00 026b 0276 00"), 1, "beyond its end"),  # one byte less than said
        (bytes.fromhex("0e 00 00 00 026b 0276 00"), 1, "beyond its end"),  # one more
        (bytes.fromhex("12 00 00 00 026b 0276 00 00"), 1, "another size"),
        (bytes.fromhex("03 00 00 00 026b 0276 00"), 1, "another size"),  # -2
        (bytes.fromhex("00 00 00 00 026b 0276 00"), 1, "beyond its end"),
        (bytes.fromhex("10 00 00 00 646b 0276 00"), 1, "beyond its end"),  # a key of 50 bytes
        (bytes.fromhex("10 00 00 00 026b 0476 00"), 1, "beyond its end"),
        (bytes.fromhex("10 00 00 00 026b 0276 01"), 1, "no count"),  # -1
        (bytes.fromhex("10 00 00 00 026b 0276 0a"), 1, "beyond its end"),
        (bytes.fromhex("16 00 00 00 026b 0276 02 01 0278"), 1, "no name"),  # headers: one
        (bytes.fromhex("18 00 00 00 026b 0276 02 0268 0478"), 1, "beyond its end"),
        (bytes.fromhex("18 00 00 00 828080808000 6b 01 00"), 1, "too many bytes"),
        (bytes.fromhex("20 00 8080808080808080808000 00 01 01 00"), 1, "too many bytes"),
    ],
)
def test_messages_that_are_not_what_is_said_are_refused(body: bytes, count: int, text: str) -> None:
    with pytest.raises(InvalidRecordError, match=text):
        check_batches(holding(body, count), RULES)
    compressed = holding(body, count, RecordCodec.LZ4)
    assert len(check_batches(compressed, RULES)) == 1  # which is not read
    with pytest.raises(InvalidRecordError, match=text):
        check_batches(compressed, KEYED)


@pytest.mark.parametrize(
    ("body", "key", "value"),
    [
        ("10 00 00 00 026b 0276 00", b"k", b"v"),
        ("10 ff 00 00 026b 0276 00", b"k", b"v"),  # attributes that mean nothing
        ("0c 00 00 00 01 01 00", None, None),
        ("0c 00 00 00 03 05 00", None, None),  # -2 and -3 are null, too
        ("12 00 00 00 82006b 0276 00", b"k", b"v"),  # more bytes than needed
        ("18 00 00 00 82808080706b 0276 00", b"k", b"v"),  # more than 32 bits, which are lost
        ("18 00 00 00 026b 0276 02 02ff 0278", b"k", b"v"),  # a header's name is not text
        ("16 00 00 00 026b 0276 02 0268 03", b"k", b"v"),  # a header of null
    ],
)
def test_what_kafka_takes_is_taken_and_read_again(
    body: str, key: bytes | None, value: bytes | None
) -> None:
    stored = appended(holding(bytes.fromhex(body)))
    (record,) = iterate_records(stored, decode_header(stored))
    assert (record.key, record.value) == (key, value)


def test_the_largest_timestamp_is_what_it_is() -> None:
    """A wrong one would mislead look-ups by time; Kafka computes it, too."""
    records = [Record(0, 7, b"k", b"v"), Record(1, 9, b"k", b"v"), Record(2, 8, b"k", b"v")]
    good = encode_batch(records)
    assert appended(good)[16:] == good[16:]
    for said in (8, 10, -1, 1 << 40):
        stored = appended(resealed(good, max_timestamp_ms=said, attributes=0x7F00))
        assert stored[16:] == good[16:]  # with attributes that are known, as in Kafka
    overflowing = bytes.fromhex("22 00 feffffffffffffffff01 00 026b 0276 00")
    times = {"base_timestamp_ms": 1 << 62, "max_timestamp_ms": 5}
    stored = appended(holding(overflowing, **times))
    assert decode_header(stored).max_timestamp_ms == -1
    (record,) = iterate_records(stored, decode_header(stored))
    assert record.timestamp_ms == -(1 << 62) - 1  # as Java's numbers go round
    squeezed = encode_batch(records, RecordCodec.GZIP)
    believed = resealed(squeezed, max_timestamp_ms=5)
    assert decode_header(appended(believed)).max_timestamp_ms == 5
    assert decode_header(appended(believed, KEYED)).max_timestamp_ms == 9


@pytest.mark.parametrize("codec", [RecordCodec.NONE, RecordCodec.GZIP])
def test_a_producer_may_not_say_that_times_are_the_brokers(codec: RecordCodec) -> None:
    good = encode_batch([Record(n, 7, b"k", b"v") for n in range(200)], codec)
    said = resealed(good, attributes=codec | LOG_APPEND_TIME_BIT, max_timestamp_ms=9)
    header = decode_header(appended(said))
    assert (header.is_log_append_time, header.max_timestamp_ms) == (False, 9)
    for rules, data in ((BROKERS_TIME, said), (RULES, resealed(said, max_timestamp_ms=-1))):
        with pytest.raises(InvalidTimestampError) as refused:
            check_batches(data, rules)
        assert refused.value.records == tuple(range(100))
    stored = appended(good, BROKERS_TIME, 1234)
    assert {each.timestamp_ms for each in iterate_records(stored, decode_header(stored))} == {1234}


@pytest.mark.parametrize("codec", RecordCodec)
def test_a_compacted_topic_takes_no_message_without_a_key(codec: RecordCodec) -> None:
    def batch(*keys: bytes | None) -> bytes:
        return encode_batch([Record(n, 7, key, b"v") for n, key in enumerate(keys)], codec)

    appended(batch(b"k", b""), KEYED)
    appended(batch(None), RULES)
    with pytest.raises(InvalidRecordError, match="2 of 3 messages have no key") as refused:
        check_batches(batch(None, b"k", None), KEYED)
    assert refused.value.records == (0, 2)
    with pytest.raises(InvalidRecordError, match="the first is message 1") as refused:
        check_batches(batch(b"k", *[None] * 500), KEYED)
    assert refused.value.records == tuple(range(1, 101))
    assert expands(batch(b"k"), KEYED) is (codec is not RecordCodec.NONE)
    assert expands(PLAIN + batch(b"k"), KEYED) is (codec is not RecordCodec.NONE)
    assert not expands(batch(b"k"), RULES)
    assert not expands(b"?", KEYED)


@pytest.mark.parametrize("codec", [each for each in RecordCodec if each])
def test_what_cannot_be_expanded_is_refused_where_it_has_to_be(codec: RecordCodec) -> None:
    batch = encode_batch([Record(0, 7, b"k", bytes(10_000))], codec)
    with pytest.raises(InvalidRecordError, match="more than"):
        check_batches(batch, KEYED._replace(max_expanded_bytes=5_000))
    broken = resealed(holding(b"nothing of the kind"), attributes=codec)
    with pytest.raises(InvalidRecordError):
        check_batches(broken, KEYED)
