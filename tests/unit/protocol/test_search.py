import random

import pytest

from hermes.protocol import encode_message, find_valid_message
from hermes.protocol.search import find_after_damaged_length

MAX = 1_000_000


def find(buffer, start=0, max_message_bytes=MAX, **options):
    return find_valid_message(buffer, start, max_message_bytes=max_message_bytes, **options)


def message(size, filler=b"text", **options):
    return encode_message((filler * size)[:size], **options)


def with_length(encoded, length):
    return length.to_bytes(4, "big") + encoded[4:]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_good_message_is_found_where_it_is(kind):
    assert find(kind(message(50))) == 0
    assert find(kind(b"??" + message(0) + b"??"), 2) == 2
    assert find(kind(message(3, magic=0))) == 0


def test_there_may_be_none():
    assert find(b"") is None
    assert find(b"nonsense" * 100) is None
    assert find(message(50)[:-1]) is None
    assert find(message(50), 1) is None
    assert find(message(50), 60) is None


def test_the_end_is_respected():
    assert find(message(50), end=60) == 0
    assert find(message(50), end=59) is None
    assert find(b"?" + message(50) + message(50), end=61) == 1


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"?", bytes.fromhex("00000006")])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 1000, 65_532, 65_533, 65_536, 65_537, 100_000])
def test_nonsense_before_a_message_is_passed(filler, count):
    nonsense = (filler * count)[:count]

    assert find(nonsense + message(80)) == count


def test_random_nonsense_is_passed():
    nonsense = random.Random(7).randbytes(300_000)

    assert find(nonsense + message(80)) == len(nonsense)
    assert find(nonsense) is None


def test_the_length_of_a_damaged_message_leads_to_the_next():
    inside = message(20)
    damaged = bytearray(encode_message(b"before" + inside + b"after"))
    damaged[-1] ^= 1

    # Its payload holds a whole message, which is not one of the log's.
    assert find(damaged + message(5)) == len(damaged)
    assert find(damaged + damaged + message(5)) == 2 * len(damaged)


@pytest.mark.parametrize("length", [54 - 32, 54 + 64, 54 + 128])
def test_a_damaged_length_does_not_lead_over_good_messages(length):
    messages = [message(54, filler) for filler in (b"one", b"two", b"three", b"four")]
    log = with_length(messages[0], length) + b"".join(messages[1:])

    assert len(messages[0]) == 64  # so that the wrong lengths lead to other good messages
    assert find(log) == 64


@pytest.mark.parametrize("length", [126, 127, 5, 0, 0x00FFFFFF])
def test_a_damaged_length_with_messages_in_the_payload(length):
    inside = message(20)
    first = encode_message(inside + inside)
    log = with_length(first, length) + message(50) + message(7)

    assert find(log) == len(first)  # 126 leads to the last message, the others nowhere


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x00FFFFFF])
def test_nonsense_lengths(length, magic):
    first = with_length(message(50, magic=magic), length)

    assert find(first + message(50)) == len(first)


def test_messages_above_the_limit_are_none():
    log = b"?" + message(300)

    assert find(log, max_message_bytes=300) == 1
    assert find(log, max_message_bytes=299) is None
    assert find(log, max_message_bytes=70_000) == 1
    assert find(log, max_message_bytes=(1 << 31) - 7) == 1


@pytest.mark.parametrize("size", [0, 1, 249, 250, 251, 65_529, 65_530, 70_000])
def test_sizes_around_the_bytes_of_the_length(size):
    log = b"\xff\xff" + message(size)
    for limit in (size, size + 1, 2 * size + 100, MAX):
        assert find(log, max_message_bytes=limit) == 2


def test_unknown_magic_and_codec_are_passed():
    unknown_magic = bytearray(message(30))
    unknown_magic[4] = 2
    unknown_codec = bytearray(message(30))
    unknown_codec[5] = 3

    assert find(unknown_magic + unknown_codec + message(30)) == 80
    assert find(message(30, attributes=2)) == 0
    assert find(message(30, attributes=0xFC)) == 0


def test_work_is_bounded_when_everything_looks_like_a_large_message():
    # Every fourth position claims a message of a quarter of a megabyte whose CRC is wrong: checked
    # one by one that would be more than 10 GB of CRCs.
    trap = bytes.fromhex("0004 0001") * 100_000

    assert find(trap + message(80)) == len(trap)
    assert find(trap) is None


def test_a_message_that_is_not_all_there_is_not_damaged():
    whole = message(500)

    assert find_after_damaged_length(whole[:-1], 0, max_message_bytes=MAX) is None
    assert find_after_damaged_length(b"", 0, max_message_bytes=MAX) is None
    assert find_after_damaged_length(b"\xff" * 50, 0, max_message_bytes=MAX) is None
    # A message inside the payload proves nothing.
    nested = encode_message(whole + b"and more")[:-1]
    assert find_after_damaged_length(nested, 0, max_message_bytes=MAX) is None


@pytest.mark.parametrize("magic", [0, 1])
def test_the_crc_tells_where_a_message_of_damaged_length_ends(magic):
    inside = message(20)
    first = with_length(encode_message(inside + inside, magic=magic), 0x00FFFFFF)
    log = first + message(5) + message(6)

    assert find_after_damaged_length(log, 0, max_message_bytes=MAX) == len(first)
    assert find_after_damaged_length(b"x" + log, 1, max_message_bytes=MAX) == 1 + len(first)
    assert find_after_damaged_length(log, 0, end=len(first), max_message_bytes=MAX) == len(first)
    assert find_after_damaged_length(log, 0, end=len(first) - 1, max_message_bytes=MAX) is None
