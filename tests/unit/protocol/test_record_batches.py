"""The headers of record batches, on bytes that kafka-python 2.3 wrote."""

from batches import GZIP, NOW_MS, PLAIN

from hermes.protocol.batch_check import BatchRules, check_batches
from hermes.protocol.record_batches import (
    HEADER_BYTES,
    BatchHeader,
    decode_header,
    encode_header,
    is_intact,
    placed,
)


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
