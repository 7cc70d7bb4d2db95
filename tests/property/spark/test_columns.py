"""Record batches hold what iterating over the message set gives, whatever the set is made of."""

from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.errors import InvalidMessageError
from hermes.protocol import Codec, MessageSet, encode_message_set
from hermes.spark import columns
from hermes.spark.columns import arrow_schema, record_batches
from hermes.spark.offsets import TopicPartition
from hermes.spark.options import ExtraColumns

PARTITION = TopicPartition("clicks", 3, 1)
PAYLOADS = st.binary(max_size=40)


@st.composite
def entries(draw: st.DrawFn) -> tuple[bytes, list[bytes], bool]:
    """One entry of a log: its bytes, its payloads, and whether they stand in a compressed set."""
    codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY]))
    if codec is Codec.NONE:
        payload = draw(PAYLOADS)
        return encode_message_set([payload], magic=draw(st.sampled_from([0, 1]))), [payload], False
    payloads = draw(st.lists(PAYLOADS, max_size=5))
    return encode_message_set(payloads, codec), payloads, True


def rows(fetched: MessageSet) -> list[tuple[object, ...]]:
    found = []
    for batch in record_batches(PARTITION, fetched):
        assert batch.rows.schema.equals(arrow_schema(ExtraColumns()))
        found += [tuple(row.values()) for row in batch.rows.to_pylist()]
    return found


@given(st.lists(entries(), max_size=12), PAYLOADS, st.integers(0, 9), st.integers(0, 1 << 40))
def test_every_message_is_a_row(
    log: list[tuple[bytes, list[bytes], bool]], cut_off: bytes, length: int, base: int
) -> None:
    data, expected = b"", []
    for encoded, payloads, _ in log:
        start, end = base + len(data), base + len(data) + len(encoded)
        places = enumerate(payloads)
        expected += [("clicks", 3, 1, start, end, index, payload) for index, payload in places]
        data += encoded
    tail = encode_message_set([cut_off])[:length]
    assert rows(MessageSet(data + tail, base)) == expected


@given(st.lists(entries(), min_size=1, max_size=12), st.data())
def test_batches_that_are_full_early_lose_nothing(
    log: list[tuple[bytes, list[bytes], bool]], data: st.DataObject
) -> None:
    fetched = MessageSet(b"".join(encoded for encoded, _, _ in log), 7)
    whole = rows(fetched)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "MAX_BATCH_BYTES", data.draw(st.integers(1, 100)))
        assert rows(fetched) == whole
        made = list(record_batches(PARTITION, fetched))
    assert made[-1].next_offset == 7 + len(fetched)


@pytest.mark.parametrize("mode", ["raise", "skip"])
@given(log=st.lists(entries(), min_size=1, max_size=12), data=st.data())
def test_damage_is_met_as_iterating_meets_it(
    log: list[tuple[bytes, list[bytes], bool]], data: st.DataObject, mode: Literal["raise", "skip"]
) -> None:
    damaged = bytearray(b"".join(encoded for encoded, _, _ in log))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    by_rows = fetch_after_fetch(bytes(damaged), mode, rows_of)
    assert by_rows == fetch_after_fetch(bytes(damaged), mode, messages_of)


Step = tuple[list[bytes], int]


def fetch_after_fetch(
    log: bytes, mode: Literal["raise", "skip"], steps: Callable[[MessageSet], Iterator[Step]]
) -> tuple[list[bytes], int | None]:
    """Read a log as a task does: each fetch starts where the one before ended.

    Returns the values, and where a damaged message ended it.
    """
    values: list[bytes] = []
    offset, before = 0, -1
    try:
        while offset > before:
            before = offset
            for more, reached in steps(MessageSet(log[before:], before, on_corrupt=mode)):
                values += more
                offset = reached
    except InvalidMessageError as error:
        return values, error.offset
    return values, None


def rows_of(fetched: MessageSet) -> Iterator[Step]:
    for batch in record_batches(PARTITION, fetched, skip_damaged=fetched._skip):
        yield batch.rows.column("value").to_pylist(), batch.next_offset


def messages_of(fetched: MessageSet) -> Iterator[Step]:
    for message, _ in fetched:
        yield [message.payload], fetched.base_offset
    yield [], fetched.next_offset
