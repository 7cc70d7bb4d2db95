"""Stamps: their bytes, what is none, and how messages are counted by them."""

import itertools
import random

import pytest

from hermes.errors import LocalProtocolError
from hermes.protocol import core, encode_message, encode_message_set
from hermes.protocol.stamps import STAMP, Stamp, Stamper, mixed, read_stamp, without_stamp

#: Of 2023-11-14T22:13:20.123Z, process 0xabcdef, message 7, host "web".
GOLDEN = bytes.fromhex("f5484155 01 03 0000018bcfe5687b 0000000000abcdef 00000007") + b"web"


def stamped(payloads, time_ms=5_000, process=1):
    return Stamper(process, "h").stamped(payloads, time_ms)


def test_a_stamp_has_these_bytes():
    stamper = Stamper(0xABCDEF, "web")
    stamper.stamped([b""] * 7, 0)
    assert stamper.stamped([b"click"], 1_700_000_000_123) == [GOLDEN + b"click"]
    assert stamper.size_bytes == len(GOLDEN)


def test_a_stamp_is_read_and_taken_off():
    stamp = Stamp(1_700_000_000_123, 0xABCDEF, 7, "web")
    assert read_stamp(GOLDEN + b"click") == (stamp, b"click")
    assert read_stamp(GOLDEN) == (stamp, b"")
    assert without_stamp(GOLDEN + b"click") == b"click"


def test_a_stamped_payload_is_stamped_again_and_comes_back_whole():
    once = GOLDEN + b"click"
    assert without_stamp(stamped([once])[0]) == once


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"click",
        GOLDEN[:-1],
        GOLDEN[:4] + b"\x02" + GOLDEN[5:],
        GOLDEN[:6] + b"\x00\x01" + GOLDEN[8:],
        GOLDEN[:6] + b"\xff" * 8 + GOLDEN[14:],
        GOLDEN[:14] + bytes(8) + GOLDEN[22:],
    ],
)
def test_what_is_no_stamp_is_part_of_the_payload(payload):
    assert read_stamp(payload) == (None, payload)
    found = {}
    core.tally(encode_message_set([payload]), 0, 1000, found)
    assert list(found) == [(0, 0)]


def test_numbers_go_on_and_wrap():
    stamper = Stamper(1, "")
    stamper._next = 2**32 - 1
    numbers = [read_stamp(each)[0].number for each in stamper.stamped([b"a", b"b"], 1)]
    numbers.append(read_stamp(stamper.stamped([b"c"], 1)[0])[0].number)
    assert numbers == [2**32 - 1, 0, 1]


def test_what_a_stamp_cannot_say_is_kept_within_it():
    long = Stamper(1, "h" * 300)
    assert read_stamp(long.stamped([b"x"], -5)[0])[0] == Stamp(0, 1, 0, "h" * 255)
    assert read_stamp(long.stamped([b"x"], 1 << 60)[0])[0].time_ms == (1 << 48) - 1
    for process in (0, -1, 1 << 64):
        with pytest.raises(LocalProtocolError):
            Stamper(process, "h")


def test_messages_are_counted_by_window_and_process():
    messages = [*stamped([b"a", b"b"], 59_999), *stamped([b"c"], 60_000), *stamped([b"d"], 7, 9)]
    data = encode_message_set([*messages, b"plain"])
    found = {}
    assert core.tally(memoryview(data), 0, 60_000, found) == len(data)
    crcs = [encode_message(each)[6:10] for each in [*messages, b"plain"]]
    numbers = [0, 1, 0, 0, 0]
    parts = [mixed(n, int.from_bytes(c)) for n, c in zip(numbers, crcs, strict=True)]
    assert found == {
        (0, 1): (2, (parts[0] + parts[1]) % 2**64),
        (60_000, 1): (1, parts[2]),
        (0, 9): (1, parts[3]),
        (0, 0): (1, parts[4]),
    }


def test_a_tally_adds_to_what_there_is_and_stops_at_what_is_not_plain():
    data = encode_message_set(stamped([b"a"], 1))
    found = {}
    for _ in range(2):
        core.tally(data, 0, 1000, found)
    ((count, total),) = found.values()
    alone = {}
    for other in (encode_message(b"old", magic=0), data[:-1] + b"?", data[:-1]):
        alone.clear()
        assert core.tally(data + other, 0, 1000, alone) == len(data)
        assert (count, total) == (2, 2 * alone[0, 1][1] % 2**64)
    assert core.tally(data, len(data), 1000, found) == len(data)


def test_one_missing_and_one_doubled_never_cancel():
    """However alike messages are: the same payload, the same millisecond, their numbers differ."""
    messages = stamped([b"same"] * 40)

    def summed(chosen):
        found = {}
        core.tally(encode_message_set(chosen), 0, 60_000, found)
        return found

    whole = summed(messages)
    for lost, doubled in itertools.permutations(range(40), 2):
        chosen = list(messages)
        chosen[lost] = messages[doubled]
        assert summed(chosen) != whole
    rng = random.Random(1)
    for _ in range(200):
        shuffled = rng.sample(messages, 40)
        assert summed(shuffled) == whole
        gone, twice = shuffled[:3], shuffled[3:6]
        assert summed([*(each for each in shuffled if each not in gone), *twice]) != whole


def test_a_window_has_a_length():
    with pytest.raises(ZeroDivisionError):
        core.tally(encode_message_set(stamped([b"x"])), 0, 0, {})


def test_the_layout_has_the_size_that_the_core_was_compiled_with():
    assert STAMP.size == 26
