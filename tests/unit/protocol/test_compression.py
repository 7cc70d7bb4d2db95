import gzip
import io
import random
import struct
import tracemalloc
import zlib

import cramjam
import pytest

from hermes.errors import ExpandedTooLargeError, InvalidMessageError
from hermes.protocol import (
    MIN_CHARGE_BYTES,
    Codec,
    check_message_set,
    compress,
    decompress,
    encode_message,
)

SET = bytes.fromhex(
    "0000000b01003610a68668656c6c6f0000000c0100718498e8776f726c642100000006010000000000"
)
# As java.util.zip.GZIPOutputStream and snappy-java wrote it, recorded from 0.7.2's clients.
GZIP = bytes.fromhex(
    "1f8b08000000000002ff636060e06664301358d696919a9393cfc0c0c0c3c850d832e345797e514e8a2290cfc6c8"
    "0002007e9c777d29000000"
)
SNAPPY_FRAMED = bytes.fromhex(
    "82534e415050590000000001000000010000002b29a00000000b01003610a68668656c6c6f0000000c0100718498"
    "e8776f726c642100000006010000000000"
)
SNAPPY_RAW = SNAPPY_FRAMED[20:]
SNAPPY_HEADER = SNAPPY_FRAMED[:16]
EMPTY_MEMBER = gzip.compress(b"", mtime=0)
EMPTY_BLOCK = bytes.fromhex("0000000100")

LIMIT = 1 << 20


@pytest.mark.parametrize(
    ("codec", "payload"),
    [(Codec.GZIP, GZIP), (Codec.SNAPPY, SNAPPY_FRAMED), (Codec.SNAPPY, SNAPPY_RAW)],
)
def test_what_the_jvm_wrote_is_read(codec, payload):
    assert decompress(codec, payload, LIMIT) == SET
    assert decompress(codec, memoryview(payload), LIMIT) == SET


def test_snappy_is_written_byte_for_byte_as_snappy_java_does():
    assert compress(Codec.SNAPPY, SET) == SNAPPY_FRAMED


def test_gzip_is_written_so_that_others_read_it():
    assert gzip.decompress(compress(Codec.GZIP, SET)) == SET
    assert compress(Codec.GZIP, SET) == compress(Codec.GZIP, SET)  # no time in the header


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 200_000])
def test_what_is_written_can_be_read(codec, size):
    data = bytes(i * i % 251 for i in range(size))
    packed = compress(codec, data)

    limit = size + MIN_CHARGE_BYTES
    assert (packed if codec is Codec.NONE else decompress(codec, packed, limit)) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_the_limit_is_exact(codec):
    packed = compress(codec, bytes(70_000))

    assert decompress(codec, packed, 70_000) == bytes(70_000)
    with pytest.raises(ExpandedTooLargeError, match="69999"):
        decompress(codec, packed, 69_999)


def test_gzip_members_follow_each_other():
    one, three = bytes(100), b"three" * 100
    packed = gzip.compress(one) + gzip.compress(b"") + gzip.compress(three)

    assert decompress(Codec.GZIP, packed, 600 + MIN_CHARGE_BYTES) == one + three
    with pytest.raises(ExpandedTooLargeError):
        decompress(Codec.GZIP, packed, 599 + MIN_CHARGE_BYTES)


@pytest.mark.parametrize(
    ("codec", "header", "nothing"),
    [(Codec.GZIP, b"", EMPTY_MEMBER), (Codec.SNAPPY, SNAPPY_HEADER, EMPTY_BLOCK)],
    ids=["gzip", "snappy"],
)
def test_what_expands_to_nothing_counts_all_the_same(codec, header, nothing):
    packed = header + nothing * 1000

    assert decompress(codec, packed, 1000 * MIN_CHARGE_BYTES) == b""
    with pytest.raises(ExpandedTooLargeError, match="63999"):
        decompress(codec, packed, 1000 * MIN_CHARGE_BYTES - 1)


@pytest.mark.parametrize(
    ("codec", "payload"),
    [(Codec.GZIP, EMPTY_MEMBER), (Codec.SNAPPY, SNAPPY_HEADER), (Codec.SNAPPY, b"\0")],
    ids=["gzip", "snappy", "raw snappy"],
)
def test_an_empty_payload_counts_as_well(codec, payload):
    assert decompress(codec, payload, MIN_CHARGE_BYTES) == b""
    with pytest.raises(ExpandedTooLargeError):
        decompress(codec, payload, MIN_CHARGE_BYTES - 1)


class FedBytes:
    """Counts what zlib is given, and with it what zlib may have to give back as a copy."""

    def __init__(self):
        self.count = 0

    def decompressobj(self, window, _real=zlib.decompressobj):
        self._member = _real(window)
        return self

    def decompress(self, data, max_length):
        self.count += len(data)
        return self._member.decompress(data, max_length)

    def __getattr__(self, name):
        return getattr(self._member, name)


@pytest.mark.parametrize(
    "member",
    [EMPTY_MEMBER, GZIP, gzip.compress(random.Random(1).randbytes(7000), mtime=0)],
    ids=["empty", "small", "larger"],
)
def test_the_work_for_gzip_members_grows_no_faster_than_their_number(member, monkeypatch):
    fed = FedBytes()
    monkeypatch.setattr(zlib, "decompressobj", fed.decompressobj)
    counts = []
    for times in (500, 1000, 2000):
        fed.count = 0
        decompress(Codec.GZIP, member * times, 1 << 30)
        counts.append(fed.count)

    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])


@pytest.mark.parametrize("size", [1000, 5000, 21_000, 300_000])
def test_gzip_members_of_any_length_are_read_in_pieces(size):
    one = random.Random(size).randbytes(size)
    with_name = struct.pack("<4sIBB", b"\x1f\x8b\x08\x08", 0, 0, 255) + b"n" * size + b"\0"
    packed = gzip.compress(one) + with_name + gzip.compress(one)[10:] + EMPTY_MEMBER

    assert decompress(Codec.GZIP, packed + b"garbage" * size, 1 << 20) == one + one
    with pytest.raises(InvalidMessageError, match="truncated"):
        decompress(Codec.GZIP, packed[:-1], 1 << 20)


@pytest.mark.parametrize("garbage", [b"x", bytes(100), b"\x1f\x8b\x07" + bytes(40), GZIP[:18]])
def test_what_follows_gzip_and_is_no_member_is_ignored(garbage):
    assert decompress(Codec.GZIP, GZIP + garbage, LIMIT) == SET


def test_a_further_gzip_member_that_is_broken_is_an_error():
    second = bytearray(GZIP)
    second[30] ^= 0xFF
    with pytest.raises(InvalidMessageError):
        decompress(Codec.GZIP, GZIP + second, LIMIT)


def test_a_gzip_header_may_hold_a_name():
    packed = io.BytesIO()
    with gzip.GzipFile("a-name", "wb", fileobj=packed, mtime=1) as file:
        file.write(SET)

    assert decompress(Codec.GZIP, packed.getvalue(), LIMIT) == SET


@pytest.mark.parametrize("length", range(len(GZIP)))
def test_truncated_gzip(length):
    with pytest.raises(InvalidMessageError):
        decompress(Codec.GZIP, GZIP[:length], LIMIT)


@pytest.mark.parametrize("position", [-1, -4, -5, -8])
def test_a_gzip_trailer_must_fit(position):
    packed = bytearray(GZIP)
    packed[position] ^= 1
    with pytest.raises(InvalidMessageError):
        decompress(Codec.GZIP, packed, LIMIT)


def test_zlib_and_plain_data_are_no_gzip():
    for data in (zlib.compress(SET), SET, b"this is not gzip"):
        with pytest.raises(InvalidMessageError):
            decompress(Codec.GZIP, data, LIMIT)


# Cut within the first block's length there is simply no block: see the next test.
@pytest.mark.parametrize("length", [*range(16), *range(20, len(SNAPPY_FRAMED))])
def test_truncated_snappy(length):
    with pytest.raises(InvalidMessageError):
        decompress(Codec.SNAPPY, SNAPPY_FRAMED[:length], LIMIT)


@pytest.mark.parametrize("stray", [b"", b"\0", b"\0\0", b"\0\0\0"])
def test_less_than_a_length_at_the_end_of_snappy_is_ignored(stray):
    assert decompress(Codec.SNAPPY, SNAPPY_FRAMED + stray, LIMIT) == SET
    assert decompress(Codec.SNAPPY, SNAPPY_FRAMED[:16] + stray, LIMIT) == b""


def test_snappy_blocks_follow_each_other():
    packed = compress(Codec.SNAPPY, SET * 10) + compress(Codec.SNAPPY, SET * 10)[16:]

    assert decompress(Codec.SNAPPY, packed, 20 * len(SET)) == SET * 20
    with pytest.raises(ExpandedTooLargeError, match=f"{20 * len(SET) - 1} bytes"):
        decompress(Codec.SNAPPY, packed, 20 * len(SET) - 1)


@pytest.mark.parametrize("version", ["00000000", "ffffffff"])
def test_snappy_of_an_unknown_version(version):
    packed = SNAPPY_FRAMED[:8] + bytes.fromhex(version) + SNAPPY_FRAMED[12:]
    with pytest.raises(InvalidMessageError):
        decompress(Codec.SNAPPY, packed, LIMIT)


def test_later_snappy_versions_are_tried():
    packed = SNAPPY_FRAMED[:8] + bytes.fromhex("0000000200000002") + SNAPPY_FRAMED[16:]

    assert decompress(Codec.SNAPPY, packed, LIMIT) == SET


@pytest.mark.parametrize("length", ["ffffffff", "80000000", "7fffffff", "00000000"])
def test_nonsense_lengths_of_snappy_blocks(length):
    packed = SNAPPY_FRAMED[:16] + bytes.fromhex(length) + SNAPPY_FRAMED[20:]
    with pytest.raises(InvalidMessageError):
        decompress(Codec.SNAPPY, packed, LIMIT)


def test_a_snappy_block_can_not_claim_more_than_snappy_can_do():
    claims_4_gigabytes = bytes.fromhex("ffffffff0f") + SNAPPY_RAW[1:]
    with pytest.raises(InvalidMessageError) as caught:
        decompress(Codec.SNAPPY, claims_4_gigabytes, 1 << 33)
    assert not isinstance(caught.value, ExpandedTooLargeError)


def test_the_densest_snappy_is_still_believed():
    dense = bytes(cramjam.snappy.compress_raw(bytes(1 << 16)))

    assert decompress(Codec.SNAPPY, dense, 1 << 16) == bytes(1 << 16)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_a_bomb_costs_no_more_memory_than_the_limit(codec):
    bomb = compress(codec, bytes(30_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(ExpandedTooLargeError):
            decompress(codec, bomb, 1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 4_000_000


def test_what_expands_far_is_never_in_memory_twice():
    packed = compress(Codec.GZIP, encode_message(bytes(30_000_000)))
    message_set = encode_message(packed, attributes=Codec.GZIP)
    tracemalloc.start()
    try:
        check = check_message_set(
            message_set, max_message_bytes=1_000_000, max_expanded_bytes=1 << 25
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert check.message_count == 1
    assert peak < 1.4 * 30_000_000
