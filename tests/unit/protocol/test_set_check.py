import tracemalloc

import pytest

from hermes.errors import (
    ExpandedTooLargeError,
    InvalidMessageError,
    MessageTooLargeError,
    ProtocolError,
)
from hermes.protocol import (
    MIN_CHARGE_BYTES,
    Codec,
    SetCheck,
    check_message_set,
    check_plain_set,
    encode_message,
    encode_message_set,
)
from hermes.protocol.compression import compress

HELLO = bytes.fromhex("0000000b01003610a68668656c6c6f")
OLD = bytes.fromhex("00000008003f5dd4e56f6c64")
BAD = HELLO[:-1] + b"X"
LARGE = encode_message(bytes(101))


def check(message_set, max_message_bytes=100, **options):
    return check_message_set(message_set, max_message_bytes=max_message_bytes, **options)


def wrap(codec, inner):
    return encode_message(compress(codec, inner), attributes=codec)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_good_sets(kind):
    assert check(kind(HELLO)) == SetCheck(15, 1, False)
    assert check(kind(HELLO * 100)) == SetCheck(1500, 100, False)
    assert check(kind(OLD + HELLO)) == SetCheck(27, 2, False)
    assert check(kind(b"")) == SetCheck(0, 0, False)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_less_than_a_length_is_an_empty_set(length):
    assert check(HELLO[:length]) == SetCheck(0, 0, False)
    assert check(HELLO + HELLO[:length]) == SetCheck(15, 1, False)


@pytest.mark.parametrize("length", range(4, 15))
def test_an_incomplete_message_ends_the_set_unless_it_is_the_first(length):
    assert check(HELLO + HELLO[:length]) == SetCheck(15, 1, False)
    with pytest.raises(InvalidMessageError) as caught:
        check(HELLO[:length])
    assert caught.value.offset == 0


def test_inner_messages_are_counted():
    compressed = wrap(Codec.GZIP, HELLO * 3)

    assert check(compressed) == SetCheck(len(compressed), 3, True)
    assert check(HELLO + compressed + OLD).message_count == 5
    assert check(wrap(Codec.SNAPPY, compressed * 2 + OLD)).message_count == 7
    assert check(wrap(Codec.GZIP, b"")).message_count == 0
    assert check(wrap(Codec.GZIP, HELLO + HELLO[:-1])).message_count == 1


def test_an_incomplete_message_may_follow_a_compressed_one():
    compressed = wrap(Codec.GZIP, b"")

    assert check(compressed + HELLO[:9]) == SetCheck(len(compressed), 0, True)


@pytest.mark.parametrize(
    "bad",
    [
        BAD,
        bytes.fromhex("ffffffff616263646566"),  # length -1
        bytes.fromhex("00000000"),  # length 0
        bytes.fromhex("0000000b02003610a68668656c6c6f"),
        bytes.fromhex("0000000bff003610a68668656c6c6f"),
        bytes.fromhex("0000000b01033610a68668656c6c6f"),
        bytes.fromhex("000000050100000000"),  # shorter than its header
        bytes.fromhex("0000000400000000"),
        encode_message(b"this is not gzip", attributes=1),
        wrap(Codec.GZIP, HELLO + BAD),
        wrap(Codec.GZIP, HELLO[:-1]),
        wrap(Codec.GZIP, HELLO + bytes.fromhex("ffffffff")),
        wrap(Codec.GZIP, bytes(4)),
        wrap(Codec.GZIP, encode_message(b"", attributes=3)),
        wrap(Codec.SNAPPY, wrap(Codec.GZIP, BAD)),
    ],
)
def test_bad_messages_are_found_wherever_they_are(bad):
    for before in (b"", HELLO, OLD * 3, wrap(Codec.GZIP, HELLO)):
        with pytest.raises(InvalidMessageError) as caught:
            check(before + bad + HELLO)
        assert caught.value.offset == len(before)


def test_the_crc_of_a_wrapper_counts():
    wrapper = bytearray(wrap(Codec.GZIP, HELLO))
    wrapper[9] ^= 1
    with pytest.raises(InvalidMessageError):
        check(wrapper)


def test_the_limit_of_payloads_is_exact():
    for magic in (0, 1):
        assert check(encode_message(bytes(100), magic=magic)).message_count == 1
        with pytest.raises(MessageTooLargeError) as caught:
            check(HELLO + encode_message(bytes(101), magic=magic))
        assert (caught.value.size_bytes, caught.value.limit_bytes) == (101, 100)


def test_inner_messages_may_be_larger():
    assert check(wrap(Codec.GZIP, encode_message(bytes(5000)))).message_count == 1


def test_sizes_are_checked_before_contents():
    for found_later in (BAD, bytes.fromhex("000000050100000000"), wrap(Codec.GZIP, BAD)):
        with pytest.raises(MessageTooLargeError):
            check(found_later + LARGE)


def test_the_first_fault_of_the_first_pass_counts():
    for found_at_once in (bytes(4), bytes.fromhex("ffffffff"), bytes.fromhex("0000000102")):
        with pytest.raises(InvalidMessageError):
            check(HELLO + found_at_once + LARGE)
        with pytest.raises(MessageTooLargeError):
            check(HELLO + LARGE + found_at_once)


def test_a_large_message_that_is_not_all_there_is_no_large_message():
    assert check(HELLO + LARGE[:-1]) == SetCheck(15, 1, False)


def test_the_budget_counts_all_messages_and_all_levels():
    inner = encode_message_set([bytes(range(198)) * 5])  # 1000 bytes
    once = wrap(Codec.GZIP, inner)
    assert len(once) > MIN_CHARGE_BYTES
    twice = wrap(Codec.GZIP, once)

    assert check(once * 3, 1000, max_expanded_bytes=3000).message_count == 3
    with pytest.raises(ExpandedTooLargeError, match="2999"):
        check(once * 3, 1000, max_expanded_bytes=2999)
    assert check(twice, 1000, max_expanded_bytes=1000 + len(once)).message_count == 1
    with pytest.raises(ExpandedTooLargeError):
        check(twice, 1000, max_expanded_bytes=999 + len(once))


@pytest.mark.parametrize(
    "empty",
    [
        wrap(Codec.GZIP, b""),
        wrap(Codec.SNAPPY, b""),  # no block
        encode_message(b"\0", attributes=Codec.SNAPPY),  # one block of 0 bytes
    ],
    ids=["gzip", "snappy", "raw snappy"],
)
def test_empty_compressed_messages_are_charged_to_the_budget(empty):
    each = MIN_CHARGE_BYTES
    assert check(empty * 10, max_expanded_bytes=10 * each).message_count == 0
    with pytest.raises(ExpandedTooLargeError):
        check(empty * 10, max_expanded_bytes=10 * each - 1)

    nested = wrap(Codec.GZIP, empty * 10)
    enough = 10 * (len(empty) + each)
    assert check(nested, 1000, max_expanded_bytes=enough).message_count == 0
    with pytest.raises(ExpandedTooLargeError):
        check(nested, 1000, max_expanded_bytes=enough - 1)


def test_a_small_message_of_very_many_empty_gzip_members_is_refused():
    members = encode_message(compress(Codec.GZIP, b"") * 100_000, attributes=Codec.GZIP)
    bomb = wrap(Codec.GZIP, members)
    assert len(bomb) < 10_000
    with pytest.raises(ExpandedTooLargeError):
        check(bomb, 10_000, max_expanded_bytes=len(members) + 99_999 * MIN_CHARGE_BYTES)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_tiny_messages_count_for_no_more_than_their_bytes(codec, magic):
    tiny = encode_message(b"", magic=magic)
    inner = tiny * (256 * 1024 // len(tiny))
    compressed = wrap(codec, inner)
    limit = len(inner) + MIN_CHARGE_BYTES
    result = check(compressed, len(compressed), max_expanded_bytes=limit)

    assert result.message_count == len(inner) // len(tiny)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_bombs_cost_no_more_memory_than_the_limit(codec, levels):
    bomb = encode_message(bytes(20_000_000))
    for _ in range(levels):
        bomb = wrap(codec, bomb)
    tracemalloc.start()
    try:
        with pytest.raises(ExpandedTooLargeError):
            check(bomb, 2_000_000, max_expanded_bytes=1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 8_000_000


def test_a_bomb_of_many_small_ones_is_cut_short():
    small = wrap(Codec.GZIP, encode_message(bytes(50_000)))
    with pytest.raises(ExpandedTooLargeError):
        check(wrap(Codec.GZIP, small * 100), 1_000_000, max_expanded_bytes=500_000)


def test_nesting_has_a_limit():
    nested = HELLO
    for _ in range(17):
        nested = wrap(Codec.SNAPPY, nested)
    with pytest.raises(InvalidMessageError, match="16 deep"):
        check(nested, 10_000)


def test_large_sets_take_the_same_decisions():
    payloads = [bytes([n]) * 90 for n in range(100)]
    large = encode_message_set(payloads)

    assert check(large) == SetCheck(10_000, 100, False)
    assert check(large + HELLO[:-1]) == SetCheck(10_000, 100, False)
    with pytest.raises(InvalidMessageError) as caught:
        check(large + BAD)
    assert caught.value.offset == 10_000
    with pytest.raises(ProtocolError):
        check(large[:-5] + bytes(5) + large)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_plain_sets_are_checked_as_any_other(kind):
    large = encode_message_set([bytes([n]) * 90 for n in range(100)])
    for plain in (HELLO, HELLO * 100, large):
        found = check_plain_set(kind(plain), max_message_bytes=100)
        assert found == check(plain)
        assert found.valid_bytes == len(plain)


@pytest.mark.parametrize(
    "other",
    [
        b"",
        HELLO[:3],
        HELLO + HELLO[:-1],
        HELLO + b"\0",
        HELLO + BAD,
        HELLO + OLD,
        HELLO + encode_message(b"free bits", attributes=4),
        HELLO + wrap(Codec.GZIP, HELLO),
        HELLO + LARGE + BAD,
    ],
    ids=range(9),
)
def test_whatever_is_not_plain_is_left(other):
    assert check_plain_set(other, max_message_bytes=100) is None


def test_plain_sets_keep_to_the_limit_of_payloads():
    with pytest.raises(MessageTooLargeError) as caught:
        check_plain_set(HELLO + LARGE, max_message_bytes=100)
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (101, 100)
    assert check_plain_set(HELLO + LARGE, max_message_bytes=101).message_count == 2
