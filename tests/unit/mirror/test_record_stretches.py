"""Record batches as stretches: what goes on as it is, what is made anew, and what is left out."""

from collections.abc import Sequence
from struct import pack

import pytest
from batches import GZIP, NOW_MS, PLAIN, resealed

from hermes.errors import InvalidMessageError
from hermes.mirror.record_stretches import record_stretches
from hermes.mirror.stretches import Stretch
from hermes.protocol.record_batches import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    decode_header,
    is_intact,
)
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.record_set import RecordSet
from hermes.protocol.records import Record, encode_batch


def at(offset: int, data: bytes) -> bytes:
    """A batch at its place in a log, of leader epoch 7."""
    return pack(">q", offset) + data[8:12] + pack(">i", 7) + data[16:]


def found(
    data: bytes, base: int = 0, aborted: Sequence[tuple[int, int]] = (), there: int = 0
) -> list[Stretch]:
    return list(record_stretches(RecordSet(data, base, aborted=aborted), there))


def values(stretch: Stretch) -> list[tuple[int, bytes | None]]:
    assert is_intact(stretch.data)
    return [(each.offset, each.value) for each in RecordSet(stretch.data).records()]


def marker(producer_id: int, kind: int) -> bytes:
    """A control batch: 0 aborts a transaction, 1 commits it."""
    record = Record(0, NOW_MS, pack(">hh", 0, kind), pack(">hi", 0, 0))
    return resealed(
        encode_batch([record], producer_id=producer_id, producer_epoch=0),
        attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
    )


def test_a_producers_batch_goes_on_as_it_is() -> None:
    (stretch,) = found(at(500, PLAIN), 500)
    assert stretch == (500, 502, PLAIN[:12] + b"\xff" * 4 + PLAIN[16:], 2, "", True, True, 0)


def test_an_idempotent_producers_batch_loses_its_producer_and_is_not_opened() -> None:
    (stretch,) = found(at(40, GZIP), 40)
    header = decode_header(stretch.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.base_offset == 0
    assert header.codec == RecordCodec.GZIP
    assert stretch.data[HEADER_BYTES:] == GZIP[HEADER_BYTES:]
    assert is_intact(stretch.data)
    assert stretch.is_verbatim
    assert (stretch.begin, stretch.end, stretch.messages) == (40, 43, 3)


def test_the_last_batch_may_be_cut() -> None:
    data = at(0, PLAIN) + at(2, PLAIN)
    for end in range(len(PLAIN), 2 * len(PLAIN)):
        assert [each.end for each in found(data[:end])] == [2]
    assert [each.end for each in found(data)] == [2, 4]
    assert found(b"") == []


def test_messages_before_the_offset_are_left_out() -> None:
    (stretch,) = found(at(9, PLAIN), 10)
    assert (stretch.begin, stretch.end, stretch.messages) == (10, 11, 1)
    assert stretch.is_verbatim
    assert values(stretch) == [(0, b"world")]
    assert found(at(3, PLAIN), 5) == []


@pytest.mark.parametrize("codec", [RecordCodec.NONE, RecordCodec.ZSTD])
def test_a_compacted_batch_is_made_anew_without_its_holes(codec: RecordCodec) -> None:
    kept = [Record(n, NOW_MS + n, b"k%d" % n, b"v%d" % n, (("h", None),)) for n in (21, 25)]
    (stretch,) = found(encode_batch(kept, codec, last_offset=29), 20)
    assert (stretch.begin, stretch.end, stretch.messages) == (20, 30, 2)
    assert (stretch.is_verbatim, stretch.empty) == (False, 8)
    header = decode_header(stretch.data)
    assert (header.codec, header.last_offset_delta) == (codec, 1)
    assert list(RecordSet(stretch.data).records()) == [
        each._replace(offset=n) for n, each in enumerate(kept)
    ]


def test_a_stretch_ends_where_the_target_is_already() -> None:
    kept = [Record(n, NOW_MS, None, b"%d" % n) for n in (20, 21, 25)]
    data = encode_batch(kept, last_offset=29)
    first, second = found(data, 20, there=23)
    assert (first.begin, first.end, first.messages, first.empty) == (20, 23, 2, 1)
    assert (second.begin, second.end, second.messages, second.empty) == (23, 30, 1, 6)
    assert values(first) + values(second) == [(0, b"20"), (1, b"21"), (0, b"25")]
    for there in (19, 20, 30, 31):
        assert [(each.begin, each.end) for each in found(data, 20, there=there)] == [(20, 30)]


def test_nothing_is_left_of_an_empty_batch_but_its_range() -> None:
    emptied = resealed(at(5, PLAIN)[:HEADER_BYTES], size_bytes=HEADER_BYTES, record_count=0)
    assert found(emptied, 5) == [(5, 7, b"", 0, "", False, True, 2)]


@pytest.mark.parametrize("bit", [LOG_APPEND_TIME_BIT, DELETE_HORIZON_BIT])
def test_what_brokers_say_of_times_is_for_them_to_say(bit: int) -> None:
    sent = resealed(PLAIN, attributes=bit, max_timestamp_ms=NOW_MS + 99)
    (stretch,) = found(sent)
    header = decode_header(stretch.data)
    assert header.attributes == 0
    times = [each.timestamp_ms for each in RecordSet(stretch.data).records()]
    assert times == [each.timestamp_ms for each in RecordSet(sent).records()]


def test_only_committed_transactions_go_on() -> None:
    def sent(offset: int, producer_id: int) -> bytes:
        changes = {"attributes": TRANSACTIONAL_BIT, "producer_id": producer_id}
        return at(offset, resealed(PLAIN, **changes, producer_epoch=0, base_sequence=0))

    data = (
        sent(0, 1)  # aborted
        + sent(2, 2)  # committed
        + at(4, marker(1, 0))
        + sent(5, 1)  # the next of the first producer, committed
        + at(7, marker(2, 1))
        + at(8, marker(1, 1))
    )
    stretches = found(data, 0, [(1, 0)])
    assert not any(each.empty for each in stretches)
    assert [(each.begin, each.end, each.messages) for each in stretches] == [
        (0, 2, 0), (2, 4, 2), (4, 5, 0), (5, 7, 2), (7, 8, 0), (8, 9, 0),
    ]  # fmt: skip
    for each in (stretches[1], stretches[3]):
        assert decode_header(each.data).attributes == 0
        assert values(each) == [(0, b"hello"), (1, b"world")]


def test_a_damaged_batch_ends_where_the_next_one_begins() -> None:
    bad = bytearray(at(10, PLAIN))
    bad[-3] ^= 1
    before, damaged, after = found(at(8, PLAIN) + bad + at(12, PLAIN), 8)
    assert (before.end, after.begin, after.messages) == (10, 12, 2)
    assert damaged == (10, 12, b"", 0, "damaged", False, True, 0)
    with pytest.raises(InvalidMessageError, match="damaged batch at offset 10, and none follows"):
        found(bytes(bad), 10)


def test_older_messages_are_not_taken_for_batches() -> None:
    old = bytearray(at(3, PLAIN))
    old[16] = 1
    with pytest.raises(InvalidMessageError, match="at offset 3: its magic is 1"):
        found(bytes(old), 3)
