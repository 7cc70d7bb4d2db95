"""Copies are compared by offset, epoch and CRC; compacted ones by what both have."""

from collections.abc import Iterator

from hermes.client.replica_verifying import first_difference
from hermes.protocol.record_batches import HEADER_BYTES, BatchHeader, decode_header, encode_header
from hermes.protocol.records import Record, encode_batch

Batch = tuple[BatchHeader, bytes]


def batch(offset: int, *values: bytes | None, epoch: int = 3, key: bytes | None = None) -> Batch:
    records = [Record(offset + n, 5, key, value) for n, value in enumerate(values)]
    data = encode_batch(records)
    header = decode_header(data)._replace(leader_epoch=epoch, base_offset=offset)
    return header, encode_header(header) + data[HEADER_BYTES:]


def difference(ours: list[Batch], theirs: list[Batch], *, is_compacted: bool = False) -> str:
    return first_difference(iter(ours), iter(theirs), is_compacted=is_compacted)


def test_what_is_equal_is_equal() -> None:
    same = [batch(0, b"a", b"b"), batch(2, b"c", epoch=4)]
    assert difference(same, list(same)) == ""
    assert difference([], []) == ""


def test_the_first_difference_is_told() -> None:
    ours = [batch(0, b"a", b"b"), batch(2, b"c")]
    assert "offset 2 holds something else" in difference(ours, [ours[0], batch(2, b"x")])
    assert "epoch 4, and of 3" in difference(ours, [ours[0], batch(2, b"c", epoch=4)])
    assert "offsets 0 to 0 are one batch" in difference(ours, [batch(0, b"a"), batch(1, b"b")])
    assert "only the leader has offset 2" in difference(ours, ours[:1])
    assert "only it has offset 2" in difference(ours[:1], ours)


def test_what_is_damaged_in_both_is_not_equal() -> None:
    header, data = batch(0, b"value")
    damaged = header, data[:-1] + bytes([data[-1] ^ 1])
    assert "damaged" in difference([damaged], [damaged])
    assert "its is damaged" in difference([(header, data)], [damaged])
    assert "damaged" in difference([(header, data)], [damaged], is_compacted=True)


def test_of_compacted_ones_what_both_have_is_compared() -> None:
    def kept(*offsets: int) -> Iterator[Batch]:
        return (batch(each, b"v%d" % each, key=b"k") for each in offsets)

    ours, theirs = list(kept(1, 4, 5, 9)), list(kept(0, 4, 7, 9))
    assert difference(ours, theirs, is_compacted=True) == ""
    assert difference(ours, theirs) != ""
    other = [*theirs[:3], batch(9, b"another", key=b"k")]
    assert "offset 9" in difference(ours, other, is_compacted=True)
