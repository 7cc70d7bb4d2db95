"""Fetched bytes as stretches, whatever is damaged or cut off."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.errors import InvalidMessageError
from hermes.mirror.stretches import Stretch, boundaries, stretches, whole_until
from hermes.protocol import Codec, encode_message, encode_message_set


def found(data: bytes, base: int = 0) -> list[tuple[int, int, int, str]]:
    return [(each.begin, each.end, each.messages, each.fault) for each in stretches(data, base)]


def test_a_plain_set_is_one_stretch() -> None:
    data = encode_message_set([b"one", b"two", b"three"])
    (stretch,) = stretches(data, 1_000)
    assert stretch[:2] == (1_000, 1_000 + len(data))
    assert bytes(stretch.data) == data
    assert stretch.messages == 3


def test_nothing_is_no_stretch() -> None:
    assert found(b"") == []


def test_what_is_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    data = encode_message_set([b"one", b"two"])
    whole = len(encode_message(b"one"))
    for end in range(whole, len(data)):
        assert found(data[:end]) == [(0, whole, 1, "")]


def test_messages_of_all_kinds_are_one_stretch() -> None:
    data = (
        encode_message_set([b"old"], magic=0)
        + encode_message_set([b"a", b"b"], Codec.GZIP)
        + encode_message_set([b"new"])
        + encode_message_set([b"c"], Codec.SNAPPY)
        + encode_message_set([b""], magic=0)
    )
    assert found(data) == [(0, len(data), 5, "")]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_damaged_payload_is_a_stretch_without_data(codec: Codec) -> None:
    before, after = encode_message_set([b"a" * 50]), encode_message_set([b"b" * 50])
    bad = bytearray(encode_message_set([b"x" * 50], codec))
    bad[-3] ^= 1
    assert found(before + bytes(bad) + after, 10) == [
        (10, 10 + len(before), 1, ""),
        (10 + len(before), 10 + len(before + bad), 0, "damaged"),
        (10 + len(before + bad), 10 + len(before + bad + after), 1, ""),
    ]


def test_damage_at_the_start_ends_where_the_next_message_begins() -> None:
    data = b"\xff" * 30 + encode_message_set([b"b" * 50])
    assert found(data) == [(0, 30, 0, "damaged"), (30, len(data), 1, "")]


def test_damage_without_an_end_in_sight_is_an_error_with_its_place() -> None:
    with pytest.raises(InvalidMessageError, match="offset 700") as caught:
        found(b"\xff" * 64, 700)
    assert caught.value.offset == 700


def test_such_damage_behind_good_messages_is_left_for_the_next_fetch() -> None:
    data = encode_message_set([b"good"])
    assert found(data + b"\xff" * 64) == [(0, len(data), 1, "")]


@given(
    payloads=st.lists(st.binary(max_size=40), min_size=1, max_size=12),
    position=st.integers(0, 10_000),
    value=st.integers(1, 255),
    cut=st.integers(0, 30),
)
def test_stretches_have_no_holes_and_hold_only_what_was_sent(
    payloads: list[bytes], position: int, value: int, cut: int
) -> None:
    data = bytearray(encode_message_set(payloads))
    data[position % len(data)] ^= value
    whole = {encode_message(each) for each in payloads}
    end = 0
    for stretch in stretches_until_an_error(bytes(data[: len(data) - cut])):
        assert stretch.begin == end < stretch.end
        assert (stretch.messages == 0) == (stretch.fault != "")
        end = stretch.end
        for start, stop in boundaries(stretch.data):
            touched = range(stretch.begin + start, stretch.begin + stop)
            assert bytes(stretch.data[start:stop]) in whole or position % len(data) in touched


def stretches_until_an_error(data: bytes) -> list[Stretch]:
    found = []
    with suppress(InvalidMessageError):
        for each in stretches(data, 0):
            found.append(each)
    return found


def test_the_boundary_behind_a_place() -> None:
    data = encode_message_set([b"a" * 10, b"b" * 10, b"c" * 10])
    size = len(data) // 3
    assert [whole_until(data, least) for least in (1, size, size + 1, 3 * size)] == [
        size,
        size,
        2 * size,
        3 * size,
    ]
