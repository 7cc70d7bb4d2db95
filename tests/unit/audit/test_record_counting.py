"""Counting messages of Kafka's format: by a stamp, or by their own time."""

import zlib

import pytest

from hermes.audit.record_counting import CountedRecords, count_one_by_one
from hermes.protocol import RecordSet
from hermes.protocol.record_batches import decode_header, with_crc
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch
from hermes.protocol.stamps import Stamper, mixed

WINDOW_MS = 1000


def stamp(time_ms=5_000, process=7):
    return Stamper(process, "web-7").stamped([b""], time_ms)[0]


def counted(*batches, base_offset=0):
    return CountedRecords(RecordSet(b"".join(batches), base_offset), WINDOW_MS)


def test_without_a_stamp_it_is_its_own_timestamp_and_what_it_holds():
    records = [
        Record(0, 1999, b"key", b"value"),
        Record(1, 2000, None, None),
        Record(2, -1, None, b""),
    ]
    found = counted(encode_batch(records)).found
    assert found == {
        (1000, 0): (1, mixed(1999, zlib.crc32(b"keyvalue"))),
        (2000, 0): (1, mixed(2000, 0)),
        (0, 0): (1, mixed(0, 0)),
    }


def test_a_stamp_in_a_header_or_before_the_value_counts_instead():
    mark = stamp()
    headers = (("source", b"shop"), ("hermes-audit", b"none"), ("hermes-audit", mark))
    records = [Record(0, 99, b"key", b"value", headers), Record(1, 99, b"key", mark + b"value")]
    found = counted(encode_batch(records)).found
    sums = mixed(0, zlib.crc32(mark + b"keyvalue")) + mixed(0, zlib.crc32(mark + b"value"))
    assert found == {(5000, 7): (2, sums % 2**64)}


@pytest.mark.parametrize("codec", RecordCodec)
def test_compressed_batches_are_opened(codec):
    records = [Record(n, 1000 * n, None, b"x" * 50) for n in range(9)]
    assert counted(encode_batch(records, codec)).found == counted(encode_batch(records)).found


def test_later_records_of_a_batch_may_be_older():
    records = [Record(0, 5_500, None, b"x"), Record(1, 1_500, None, b"x")]
    assert sorted(counted(encode_batch(records)).found) == [(1000, 0), (5000, 0)]


def test_the_brokers_time_counts_where_it_sets_that():
    batch = encode_batch([Record(0, 1_500, None, b"x"), Record(1, 2_500, None, b"x")])
    header = decode_header(batch)._replace(attributes=8, max_timestamp_ms=9_100)
    ((window, count),) = counted(with_crc(header, batch[61:]) + batch[61:]).found.items()
    assert (window, count[0]) == ((9000, 0), 2)


def test_only_from_the_base_offset_on():
    records = [Record(n, 1_000, None, b"x") for n in range(10, 20)]
    found = counted(encode_batch(records), base_offset=17)
    assert found.found[1000, 0][0] == 3
    assert found.empty == 0


def test_offsets_without_a_message_are_told():
    first = encode_batch([Record(0, 1, None, b"x"), Record(3, 1, None, b"x")])
    second = encode_batch([Record(9, 1, None, b"x")], last_offset=10)
    assert counted(first, second).empty == 8


def test_what_is_damaged_is_skipped_and_nothing_is_said_about_offsets():
    good = encode_batch([Record(0, 1, None, b"x")])
    wrong = bytearray(encode_batch([Record(1, 1, None, b"x")]))
    wrong[-1] ^= 1
    lying = encode_batch([Record(2, 1, None, b"x")])
    header = decode_header(lying)._replace(record_count=2)
    unknown = decode_header(lying)._replace(attributes=7)
    for bad in (
        bytes(wrong),
        *(with_crc(each, lying[61:]) + lying[61:] for each in (header, unknown)),
    ):
        found = counted(good, bad)
        assert (found.damaged, found.empty) == (1, 0)


def test_a_consumer_counts_the_same_one_by_one():
    headers = (("hermes-audit", stamp()), ("null", None))
    records = [Record(0, 1_500, b"k", b"v", headers), Record(1, 1_500, None, None)]
    assert count_one_by_one(records, WINDOW_MS) == counted(encode_batch(records)).found
