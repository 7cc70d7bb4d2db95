"""Record batches as consumers see them."""

import pytest

from hermes.errors import ExpandedTooLargeError, InvalidMessageError
from hermes.protocol import RecordSet
from hermes.protocol.loops import ListedRows
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch


def batch(first: int, *values: bytes | None, codec: RecordCodec = RecordCodec.NONE) -> bytes:
    records = [
        Record(first + number, 1000 + number, b"k%d" % number, value, (("h", b"1"),))
        for number, value in enumerate(values)
    ]
    return encode_batch(records, codec)


TWO = batch(5, b"first", None) + batch(7, b"third", codec=RecordCodec.ZSTD)


class Row(tuple):
    pass


def test_records_come_with_all_that_they_have_and_the_offset_after_them() -> None:
    fetched = RecordSet(TWO, 5)
    assert not fetched.is_read

    found = [(message.payload, message.key, after) for message, after in fetched]

    assert found == [(b"first", b"k0", 6), (None, b"k1", 7), (b"third", b"k0", 8)]
    (message, _), *_ = fetched
    assert (message.timestamp_ms, message.headers, message.magic) == (1000, (("h", b"1"),), 2)
    assert message.is_valid
    assert fetched.is_read
    assert fetched.next_offset == 8
    assert fetched.valid_bytes == len(fetched) == len(TWO)


def test_a_record_without_a_time_has_none() -> None:
    ((message, _),) = RecordSet(encode_batch([Record(0, -1, None, b"x")]))
    assert (message.timestamp_ms, message.key, message.headers) == (None, None, ())


def test_what_lies_before_the_offset_is_left_out() -> None:
    assert [after for _, after in RecordSet(TWO, 6)] == [7, 8]
    assert [after for _, after in RecordSet(TWO, 7)] == [8]


def test_offsets_that_compaction_has_removed_are_passed_over() -> None:
    kept = encode_batch([Record(3, 0, None, b"a"), Record(9, 0, None, b"b")], last_offset=20)
    fetched = RecordSet(kept, 2)
    assert [after for _, after in fetched] == [4, 10]
    assert fetched.next_offset == 21


@pytest.mark.parametrize("cut", range(1, len(TWO)))
def test_a_cut_batch_at_the_end_is_left_for_the_next_fetch(cut: int) -> None:
    fetched = RecordSet(TWO[:cut], 5)
    count = len(list(fetched))
    assert count == (2 if cut >= len(batch(5, b"first", None)) else 0)
    assert fetched.next_offset == (7 if count else 5)


def test_a_damaged_batch_raises_behind_what_is_good_or_is_skipped() -> None:
    damaged = bytearray(TWO + batch(8, b"fourth"))
    damaged[len(batch(5, b"first", None)) + 40] ^= 1

    found = iter(RecordSet(damaged, 5))
    assert [after for _, after in (next(found), next(found))] == [6, 7]
    with pytest.raises(InvalidMessageError) as raised:
        next(found)
    assert (raised.value.offset, raised.value.next_offset) == (7, 8)

    careless = RecordSet(damaged, 5, on_corrupt="skip")
    assert [after for _, after in careless] == [6, 7, 9]
    assert careless.skipped_count == 1


def test_no_batch_where_one_should_be_raises_and_goes_nowhere() -> None:
    fetched = RecordSet(b"\xff" * 100, 5)
    assert fetched.next_offset == 5
    with pytest.raises(InvalidMessageError, match="offset 5"):
        list(fetched)


def test_a_bomb_is_refused_whatever_is_skipped() -> None:
    bomb = batch(0, b"0" * 1_000_000, codec=RecordCodec.GZIP)
    with pytest.raises(ExpandedTooLargeError):
        list(RecordSet(bomb, on_corrupt="skip", max_expanded_bytes=10_000))


def test_rows_come_some_at_a_time_and_before_an_error() -> None:
    damaged = bytearray(TWO)
    damaged[-1] ^= 1
    runs = RecordSet(damaged, 5).rows(Row, ("t", 1, 2), 10)
    run = next(runs)
    assert isinstance(run, ListedRows)
    assert run.listed == [(b"first", "t", 1, 5, 6, 2), (None, "t", 1, 6, 7, 2)]
    assert [(row.key, row.timestamp_ms) for row in run.listed] == [(b"k0", 1000), (b"k1", 1001)]
    with pytest.raises(InvalidMessageError):
        next(runs)
    assert [len(run.listed) for run in RecordSet(TWO, 5).rows(Row, ("t", 1, 2), 2)] == [2, 1]
