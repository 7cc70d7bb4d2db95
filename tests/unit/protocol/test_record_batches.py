"""Record batches, on bytes that kafka-python 2.3 wrote."""

import pytest
from crc32c import crc32c

from hermes.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    InvalidRecordError,
)
from hermes.protocol.record_batches import (
    HEADER_BYTES,
    BatchHeader,
    check_batches,
    decode_header,
    encode_header,
    is_intact,
    next_in,
    placed,
)

#: Two messages, plain: b"hello" with a key and a header, b"world" 7 ms later.
PLAIN = bytes.fromhex(
    "00000000000000000000004e0000000002635097570000000000010000019e704488000000019e70448807ffffffff"
    "ffffffffffffffffffff0000000220000000026b0a68656c6c6f020268027816000e02010a776f726c6400"
)
#: Three messages in gzip of the producer 4711 in its epoch 3, the first with the last sequence.
GZIP = bytes.fromhex(
    "0000000000000000000000590000000002c5a2e4980001000000020000019e704488000000019e7044880000000000"
    "0000126700037fffffff000000031f8b0800b93b036b02ff3361606060d448c402184c181899704a31b3e0900200a9"
    "0fede651000000"
)
NOW_MS = 1_780_000_000_000


def header_of(data: bytes) -> BatchHeader:
    return decode_header(data)


def resealed(data: bytes, **changes: int) -> bytes:
    """A batch that says something else, with a CRC that fits."""
    header = encode_header(decode_header(data)._replace(**changes)) + data[HEADER_BYTES:]
    return header[:17] + crc32c(header[21:]).to_bytes(4, "big") + header[21:]


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


def test_what_was_sent_is_checked_batch_by_batch() -> None:
    for data in (PLAIN + GZIP, bytearray(PLAIN + GZIP), memoryview(PLAIN + GZIP)):
        assert check_batches(data, 101) == [header_of(PLAIN), header_of(GZIP)]
    with pytest.raises(BatchTooLargeError, match="a batch of 101 bytes; the limit is 100"):
        check_batches(PLAIN + GZIP, 100)


def test_every_byte_after_the_epoch_is_covered() -> None:
    """What lies before may be anything but the length."""
    for position in range(len(PLAIN)):
        data = bytearray(PLAIN)
        data[position] ^= 1
        if position in range(12, 16):
            assert check_batches(data, 1000)[0].leader_epoch == 1 << 8 * (15 - position)
        else:
            with pytest.raises(InvalidBatchError):
                check_batches(data, 1000)
    for length in range(len(PLAIN)):
        with pytest.raises(InvalidBatchError):
            check_batches(PLAIN[:length], 1000)
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
        (resealed(PLAIN, record_count=5, last_offset_delta=4), InvalidRecordError, "4 fit at most"),
        (resealed(PLAIN, attributes=5), InvalidRecordError, "the codec 5 is unknown"),
        (resealed(PLAIN, attributes=0x20), InvalidRecordError, "may not write control records"),
        (resealed(PLAIN, producer_id=1), InvalidRecordError, "its sequence number is -1"),
    ],
)
def test_what_is_refused(data: bytes, error: type[InvalidBatchError], text: str) -> None:
    with pytest.raises(error, match=text):
        check_batches(data, 1000)


def test_batches_get_their_place_without_a_new_crc() -> None:
    sent = PLAIN + GZIP
    parts = placed(sent, check_batches(sent, 1000), 1000, 7)
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
    data = b"".join(placed(sent, check_batches(sent, 1000), 5, 0, NOW_MS + 99))
    for start, end, codec in ((0, len(PLAIN), 0), (len(PLAIN), len(data), 1)):
        header = decode_header(data, start)
        assert (header.max_timestamp_ms, header.is_log_append_time) == (NOW_MS + 99, True)
        assert (header.base_timestamp_ms, header.codec) == (NOW_MS, codec)
        assert is_intact(data[start:end])
    assert data[HEADER_BYTES : len(PLAIN)] == PLAIN[HEADER_BYTES:]
