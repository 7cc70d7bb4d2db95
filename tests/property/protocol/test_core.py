"""The compiled loops against those in Python: the same results, errors and positions."""

from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.errors import HermesError
from hermes.protocol import (
    Codec,
    Message,
    MessageSet,
    check_message_set,
    compress,
    core,
    encode_message,
    encode_message_set,
    loops,
)

payloads = st.binary(max_size=30) | st.integers(0, 400).map(bytes)


LENGTHS = ["ffffffff", "7fffffff0100", "00000000000000000000", "0000000501", "0000000601"]


def wrapped(data: bytes, codec: Codec) -> bytes:
    return encode_message(compress(codec, data), attributes=codec)


messages = st.one_of(
    st.lists(payloads, max_size=8).map(encode_message_set),
    payloads.map(lambda each: encode_message(each, magic=0)),
    st.builds(
        lambda each, bits: encode_message(each, attributes=bits), payloads, st.integers(0, 255)
    ),
    st.builds(
        lambda each, codec: wrapped(encode_message_set(each), codec),
        st.lists(payloads, max_size=4),
        st.sampled_from([Codec.GZIP, Codec.SNAPPY]),
    ),
    st.binary(max_size=20),
    st.sampled_from(
        [b"\xff" * 4, b"\x7f\xff\xff\xff\1\0", bytes(10), b"\0\0\0\5\1", b"\0\0\0\6\1"]
    ),
)


@st.composite
def sets(draw: st.DrawFn) -> bytes:
    """Messages of all kinds, of which some bytes may have been exchanged, and the end cut off."""
    data = bytearray(b"".join(draw(st.lists(messages, max_size=6))))
    for _ in range(draw(st.integers(0, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def told(error: Exception) -> object:
    names = ("offset", "next_offset", "size_bytes")
    return type(error), str(error), [getattr(error, name, None) for name in names]


def read(data: bytes, base: int, on_corrupt: str, deep: bool) -> object:
    """All that a consumer can see of a set."""
    message_set = MessageSet(data, base, on_corrupt=on_corrupt, max_expanded_bytes=2_000)
    seen: list[object] = []
    try:
        for message, next_offset in message_set.iterate(deep=deep):
            seen.append((type(message), tuple(message), next_offset))
    except HermesError as error:
        seen.append(told(error))
    return seen, message_set.valid_bytes, message_set.next_offset, message_set.skipped_count


def check(data: bytes, most: int) -> object:
    """All that a broker can see of it."""
    try:
        return check_message_set(data, max_message_bytes=most, max_expanded_bytes=2_000)
    except HermesError as error:
        return told(error)


def count(data: bytes, start: int, end: int) -> object:
    collected: list[bytes] = []
    return (
        core.count_plain(data, start, end),
        core.count_plain(memoryview(data), start, end),
        core.count_uncompressed(data, start, end) if start <= end else None,
        core.collect_plain(data, start, collected),
        collected,
    )


def encode(payloads: list[object]) -> object:
    try:
        return encode_message_set(payloads)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError) as error:
        return told(error)


@pytest.fixture(scope="module")
def either_core() -> None:
    """Stands in for the one that runs everything twice: here each example does."""
    pytest.importorskip("hermes.protocol._core", reason="there was no compiler")


def with_each(what: object, *arguments: object) -> None:
    results = []
    for module in (loops, import_module("hermes.protocol._core")):
        with pytest.MonkeyPatch.context() as patch:
            for name in set(core.__all__) - {"KIND"}:
                patch.setattr(core, name, getattr(module, name))
            results.append(what(*arguments))  # type: ignore[operator]
    assert results[0] == results[1]


@settings(max_examples=600)
@given(
    sets(),
    st.sampled_from([0, 1, 1 << 40, (1 << 63) - 100, 1 << 70]),
    st.sampled_from(["raise", "skip"]),
    st.booleans(),
)
def test_a_consumer_sees_the_same(data: bytes, base: int, on_corrupt: str, deep: bool) -> None:
    with_each(read, data, base, on_corrupt, deep)


@settings(max_examples=400)
@given(sets(), st.integers(0, 500))
def test_a_broker_sees_the_same(data: bytes, most: int) -> None:
    with_each(check, data, most)


@settings(max_examples=300)
@given(st.data())
def test_every_part_of_it_counts_the_same(data: st.DataObject) -> None:
    whole = data.draw(sets())
    start, end = (data.draw(st.integers(0, len(whole))) for _ in range(2))
    with_each(count, whole, start, end)


@given(
    st.lists(
        payloads
        | st.sampled_from([bytearray(b"x"), memoryview(b"xyz"), memoryview(b"abcd")[::2]])
        | st.sampled_from([None, 5, "text", [b"x"]])
    )
)
def test_payloads_are_encoded_or_refused_alike(payloads: list[object]) -> None:
    with_each(encode, payloads)


@given(st.lists(payloads), st.integers(0, 1))
def test_what_was_encoded_is_read(payloads: list[bytes], magic: int) -> None:
    def round_trip() -> list[Message]:
        return [message for message, _ in MessageSet.of(payloads, magic=magic)]

    with_each(round_trip)
    assert [message.payload for message in round_trip()] == payloads
