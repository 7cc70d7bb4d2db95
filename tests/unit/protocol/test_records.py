"""Records inside Kafka's record batches, held to bytes that Kafka's own library wrote."""

import json
from pathlib import Path

import pytest

from hermes.errors import ExpandedTooLargeError, InvalidMessageError, LocalProtocolError
from hermes.protocol.record_batches import HEADER_BYTES, decode_header
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch, iterate_records

_RECORDED = json.loads(
    (Path(__file__).parents[2] / "vectors" / "kafka-4.json").read_text(encoding="utf-8")
)
VECTORS = {each["name"]: bytes.fromhex(each["hex"]) for each in _RECORDED["vectors"]}
CODECS = list(RecordCodec)

# What KafkaRecords.java appends to each batch.
WRITTEN = [
    Record(41, 1_700_000_000_000, b"key", b"value"),
    Record(
        42,
        1_700_000_000_007,
        None,
        b"",
        (("näme", "ü".encode()), ("none", None), ("näme", b"")),
    ),
    Record(43, 1_699_999_999_000, b"", None),
    Record(44, 1_700_000_100_000, b"key", 300 * b"x"),
]
PRODUCER = {"producer_id": 4711, "producer_epoch": 3, "base_sequence": 70}


def decode(batch: bytes, **options: int) -> list[Record]:
    return list(iterate_records(batch, decode_header(batch), **options))


@pytest.mark.parametrize("codec", CODECS)
def test_what_kafka_wrote_is_read(codec: RecordCodec) -> None:
    assert decode(VECTORS[codec.name.lower()]) == WRITTEN


def test_plain_records_are_written_as_kafka_writes_them() -> None:
    written = bytearray(encode_batch(WRITTEN, **PRODUCER))
    written[12:16] = (5).to_bytes(4, "big")  # the leader epoch, which brokers set
    assert written == VECTORS["none"]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_written_is_read_again(codec: RecordCodec) -> None:
    batch = encode_batch(WRITTEN, codec, **PRODUCER)
    assert decode(batch) == WRITTEN
    header = decode_header(batch)
    assert (header.codec, header.record_count, header.last_offset_delta) == (codec, 4, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, 70)
    assert header.size_bytes == len(batch)


def test_a_batch_within_a_buffer_is_read_from_its_position() -> None:
    first, second = VECTORS["none"], VECTORS["lz4"]
    buffer = memoryview(first + second)
    header = decode_header(buffer, len(first))
    assert list(iterate_records(buffer, header, len(first))) == WRITTEN


def test_under_log_append_time_all_records_have_the_batchs() -> None:
    assert decode(VECTORS["log append time"]) == [Record(0, 1_700_000_000_042, None, b"appended")]


def test_offsets_may_have_gaps() -> None:
    left = [
        Record(103, 1_700_000_000_000, b"a", b"left"),
        Record(105, 1_700_000_000_001, b"b", b"over"),
    ]
    assert decode(VECTORS["gaps"]) == left
    header = decode_header(encode_batch(left, last_offset=109))
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (103, 6, 2)


@pytest.mark.parametrize(
    "number", [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31, -(2**31), 2**62, -(2**62)]
)
def test_deltas_of_any_size_come_back(number: int) -> None:
    records = [Record(0, 0, None, b"first"), Record(1, number, None, b"second")]
    assert decode(encode_batch(records)) == records


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size_bytes", [0, 1, 62, 63, 64, 8_190, 70_000, 1_000_000])
def test_values_of_any_size_come_back(codec: RecordCodec, size_bytes: int) -> None:
    records = [Record(0, 5, b"k", size_bytes * b"v", (("h", b"x"),))]
    assert decode(encode_batch(records, codec)) == records


def with_body(body: bytes, count: int = 1, codec: int = 0) -> bytes:
    """A batch whose records are these bytes, with a CRC that nobody looks at."""
    header = bytearray(encode_batch([Record(0, 0, None, None)])[:HEADER_BYTES])
    header[8:12] = (HEADER_BYTES - 12 + len(body)).to_bytes(4, "big")
    header[21:23] = codec.to_bytes(2, "big")
    header[57:61] = count.to_bytes(4, "big", signed=True)
    return bytes(header) + body


ONE = bytes.fromhex("0e 00 00 00 01 02 78 00")  # no key, value x

# What is wrong with the records, and words of the error.
DAMAGED = {
    "": (b"", 1, "record 0 is incomplete"),
    "one is missing": (ONE, 2, "record 1 is incomplete"),
    "a claim of two thousand million": (ONE, 2**31 - 1, "record 1 is incomplete"),
    "one too many": (ONE + ONE, 1, "8 bytes follow the 1 records"),
    "a length beyond the end": (b"\x10" + ONE[1:], 1, "claims 8 bytes where 7 are left"),
    "a negative length": (b"\x01" + ONE[1:], 1, "claims -1 bytes"),
    "a length that is too small": (b"\x0c" + ONE[1:], 1, "claims 6 bytes and takes 7"),
    "a key beyond the end": (bytes.fromhex("0e 00 00 00 50 02 78 00"), 1, "claims 40 bytes"),
    "headers without bytes": (bytes.fromhex("0e 00 00 00 01 02 78 50"), 1, "40 headers in 0"),
    "a negative count of headers": (bytes.fromhex("0e 00 00 00 01 02 78 01"), 1, "-1 headers"),
    "a header without a key": (
        bytes.fromhex("12 00 00 00 01 02 78 02 01 01"),
        1,
        "a header has no key",
    ),
    "an endless number": (b"\x80" * 40, 1, "longer than 32 bits"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_records_are_refused(name: str) -> None:
    body, count, words = DAMAGED[name]
    with pytest.raises(InvalidMessageError, match=words) as caught:
        decode(with_body(body, count))
    assert caught.value.offset == 0
    assert caught.value.next_offset == 1


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_and_every_flipped_bit_ends_in_records_or_in_one_error(
    codec: RecordCodec,
) -> None:
    """Nothing else is raised, whatever a peer sends; what passes had its CRC checked before."""
    body = encode_batch(WRITTEN[:3], codec)[HEADER_BYTES:]
    refused = 0
    for end in range(len(body)):
        with pytest.raises(InvalidMessageError):
            decode(with_body(body[:end], 3, codec))
    for position in range(len(body)):
        for bit in range(8):
            flipped = bytearray(body)
            flipped[position] ^= 1 << bit
            try:
                decode(with_body(bytes(flipped), 3, codec))
            except InvalidMessageError:
                refused += 1
    assert refused > len(body)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist_are_refused(codec: int) -> None:
    with pytest.raises(InvalidMessageError, match=f"the codec {codec} is unknown"):
        decode(with_body(ONE, 1, codec))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_bombs_are_refused(codec: RecordCodec) -> None:
    batch = encode_batch([Record(0, 0, None, bytes(10_000_000))], codec)
    assert decode(batch, max_expanded_bytes=10_000_100)
    with pytest.raises(ExpandedTooLargeError, match="expand to more than") as caught:
        decode(batch, max_expanded_bytes=10_000_000)
    assert caught.value.offset == 0


def test_there_is_no_batch_without_records() -> None:
    with pytest.raises(LocalProtocolError, match="at least one"):
        encode_batch([])


@pytest.mark.parametrize(
    ("first", "second"), [(5, 5), (5, 4), (0, 2**31)], ids=["twice", "backwards", "too far"]
)
def test_offsets_that_a_batch_cannot_hold_are_refused(first: int, second: int) -> None:
    records = [Record(first, 0, None, b""), Record(second, 0, None, b"")]
    with pytest.raises(LocalProtocolError, match=f"offset {second} can't follow {first}"):
        encode_batch(records)


def test_values_that_a_batch_cannot_hold_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="doesn't fit into a batch"):
        encode_batch([Record(0, 2**63, None, b"")])
