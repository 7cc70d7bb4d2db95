import pickle

import pytest

from hermes.errors import InvalidMessageError
from hermes.protocol import (
    Codec,
    Message,
    MessageSet,
    core,
    encode_fitting,
    encode_message,
    encode_message_set,
)
from hermes.protocol.messages import decode_message

HELLO = bytes.fromhex("0000000b01003610a68668656c6c6f")  # magic 1
OLD = bytes.fromhex("00000008003f5dd4e56f6c64")  # magic 0
EMPTY = bytes.fromhex("00000006010000000000")
WORLD = bytes.fromhex("0000000c0100718498e8776f726c6421")
FREE_BITS = bytes.fromhex("0000000801fcd8932aac6869")  # attributes 0xfc, recorded from 0.7.2


@pytest.mark.parametrize(
    ("golden", "payload", "magic", "attributes"),
    [(HELLO, b"hello", 1, 0), (OLD, b"old", 0, 0), (EMPTY, b"", 1, 0), (FREE_BITS, b"hi", 1, 0xFC)],
)
def test_golden_messages(golden, payload, magic, attributes):
    assert encode_message(payload, magic=magic, attributes=attributes) == golden

    message = decode_message(golden, 0, len(golden))
    assert (message.payload, message.magic, message.attributes) == (payload, magic, attributes)
    assert message.codec is Codec.NONE
    assert message.is_valid
    assert message.encode() == golden


def test_a_message_is_decoded_where_it_stands():
    assert decode_message(b"xx" + HELLO + OLD, 2, 2 + len(HELLO)).payload == b"hello"


def test_the_crc_is_the_one_carried():
    message = Message((b"hello", 1, 0, 1))

    assert message.crc == 1
    assert not message.is_valid
    assert message.encode() == bytes.fromhex("0000000b01000000000168656c6c6f")


def test_messages_are_values():
    message = Message.of(b"hello")

    assert message == Message.of(b"hello") != Message.of(b"hell")
    assert hash(message) == hash(Message.of(b"hello"))
    assert pickle.loads(pickle.dumps(message)) == message
    assert repr(message) == "Message(b'hello', 5 bytes, magic=1, attributes=0, crc=0x3610a686)"
    assert len(repr(Message.of(bytes(1000)))) < 300
    with pytest.raises(AttributeError):
        message.payload = b"other"


def test_codec_3_has_no_name():
    with pytest.raises(ValueError):
        _ = Message.of(b"", attributes=3).codec


@pytest.mark.parametrize(
    "damaged",
    [
        "0000000b01003610a68668656c6c58",  # payload
        "0000000b01003610a68768656c6c6f",  # crc
        "0000000b02003610a68668656c6c6f",  # magic 2
        "0000000bff003610a68668656c6c6f",  # magic -1
        "0000000b01033610a68668656c6c6f",  # codec 3
        "00000000",  # no magic
        "0000000101",  # no attributes
        "000000050100000000",  # a byte of the crc lacks
        "0000000400000000",  # the same for magic 0
    ],
)
def test_damaged_messages(damaged):
    data = bytes.fromhex(damaged)
    with pytest.raises(InvalidMessageError):
        decode_message(data, 0, len(data))


def test_a_set_is_its_messages():
    assert encode_message_set([b"hello", b"world!", b""]) == HELLO + WORLD + EMPTY
    assert encode_message_set(iter([b"hello"])) == HELLO
    assert encode_message_set((b"hello",)) == HELLO
    assert encode_message_set([b"old"], magic=0) == OLD
    assert encode_message_set([]) == b""


def test_a_compressed_set_is_one_message():
    assert encode_message_set([b"hello", b"world!", b""], Codec.SNAPPY) == bytes.fromhex(
        "000000450102b3d10c7682534e415050590000000001000000010000002b29a00000000b01003610a68668656c6c6f"
        "0000000c0100718498e8776f726c642100000006010000000000"
    )
    wrapper = encode_message_set([], Codec.GZIP)
    assert decode_message(wrapper, 0, len(wrapper)).codec is Codec.GZIP


@pytest.mark.parametrize("view", [bytes, memoryview])
def test_plain_messages_are_counted(view):
    data = view(b"??" + HELLO + WORLD + EMPTY + b"!!")

    assert core.count_plain(data, 2, len(data) - 2) == 3
    assert core.count_plain(data, 2, 2 + len(HELLO)) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HELLO[:-1],
        HELLO + WORLD[:-1],
        HELLO + b"\0",
        HELLO + bytes(4),
        HELLO + bytes(10),
        OLD,
        FREE_BITS,
        encode_message_set([b"a"], Codec.GZIP),
        HELLO[:-1] + b"?",
        bytes.fromhex("000000050100000000"),  # too short for its header
        bytes.fromhex("00000005010000000000"),
        bytes.fromhex("ffffffff010000000000"),
        bytes.fromhex("80000006010000000000"),
    ],
)
def test_whatever_is_not_plain_is_not_counted(data):
    assert core.count_plain(data, 0, len(data)) == 0
    # What stands behind the end must not matter, though it is looked at when it is there.
    assert core.count_plain(data + EMPTY * 3, 0, len(data)) == 0


@pytest.mark.parametrize("view", [bytes, memoryview])
def test_uncompressed_messages_of_every_kind_are_counted(view):
    messages = HELLO + OLD + FREE_BITS + EMPTY
    data = view(b"??" + messages + b"!!")

    assert core.count_uncompressed(data, 2, 2 + len(messages)) == (4, 2 + len(messages))
    assert core.count_uncompressed(data, 2, 1 + len(messages)) == (
        3,
        2 + len(messages) - len(EMPTY),
    )


@pytest.mark.parametrize(
    "other",
    [
        b"",
        HELLO[:-1],
        OLD[:-1],
        bytes(4),
        bytes(10),
        encode_message_set([b"a"], Codec.GZIP),
        encode_message(b"a", attributes=3),
        HELLO[:-1] + b"?",
        OLD[:-1] + b"?",
        FREE_BITS[:-1] + b"?",
        OLD[:5] + b"\x40" + OLD[6:],  # the first byte of its CRC
        OLD[:8] + b"\xd5" + OLD[9:],  # the last one
        bytes.fromhex("0000000b02003610a68668656c6c6f"),
        bytes.fromhex("0000000bff003610a68668656c6c6f"),
        bytes.fromhex("000000040000000000"),  # too short for its header
        bytes.fromhex("00000005010000000000"),
        bytes.fromhex("00000005010400000000"),
        bytes.fromhex("ffffffff000000000000"),
        bytes.fromhex("80000006010400000000"),
    ],
)
def test_counting_uncompressed_messages_stops_at_everything_else(other):
    data = OLD + FREE_BITS + other
    stop = len(OLD + FREE_BITS)

    assert core.count_uncompressed(data, 0, len(data)) == (2, stop)
    # What stands behind the end must not matter, though it is looked at when it is there.
    assert core.count_uncompressed(data + EMPTY * 3, 0, len(data)) == (2, stop)


def test_an_empty_message_of_the_old_magic_may_be_left_at_the_end():
    empty = encode_message(b"", magic=0)

    assert core.count_uncompressed(empty * 3, 0, 27) == (2, 18)
    assert core.count_uncompressed(empty * 3 + bytes(1), 0, 28) == (3, 27)


def test_sets_that_fit_are_made_in_halves():
    payloads = [bytes([n]) * 30 for n in range(5)]

    def cut(codec, **limits):
        sets = list(encode_fitting(payloads, codec, **({"max_message_bytes": 30} | limits)))
        assert [each for part, _ in sets for each in part] == payloads
        for part, encoded in sets:
            assert [message.payload for message, _ in MessageSet(encoded)] == part
        return [len(part) for part, _ in sets]

    assert cut(Codec.NONE) == [5]
    assert cut(Codec.NONE, max_set_bytes=80) == [2, 1, 2]
    assert cut(Codec.NONE, max_set_bytes=1) == [1] * 5
    assert cut(Codec.GZIP, max_message_bytes=1000) == [5]
    assert cut(Codec.GZIP) == [1] * 5


def test_a_payload_that_compressing_made_too_large_goes_as_it_is():
    payload = b"short"
    ((part, encoded),) = encode_fitting([payload], Codec.GZIP, max_message_bytes=5)
    assert (part, encoded) == ([payload], encode_message_set([payload]))
