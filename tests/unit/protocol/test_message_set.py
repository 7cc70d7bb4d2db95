import pytest

from hermes.errors import ExpandedTooLargeError, InvalidMessageError
from hermes.protocol import Codec, Message, MessageSet, encode_message, encode_message_set
from hermes.protocol.compression import compress

HELLO = bytes.fromhex("0000000b01003610a68668656c6c6f")
OLD = bytes.fromhex("00000008003f5dd4e56f6c64")
WORLD = bytes.fromhex("0000000c0100718498e8776f726c6421")
BAD = HELLO[:-1] + b"X"


def payloads_and_offsets(message_set, **options):
    return [(m.payload, offset) for m, offset in message_set.iterate(**options)]


def wrap(codec, inner):
    return encode_message(compress(codec, inner), attributes=codec)


def test_messages_and_where_to_go_on():
    message_set = MessageSet(HELLO + OLD + WORLD, base_offset=100)

    assert list(message_set) == [
        (Message.of(b"hello"), 115),
        (Message.of(b"old", magic=0), 127),
        (Message.of(b"world!"), 143),
    ]
    assert message_set.next_offset == 143
    assert list(message_set) == list(message_set)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind):
    message_set = MessageSet(kind(HELLO))

    assert payloads_and_offsets(message_set) == [(b"hello", 15)]
    assert type(next(iter(message_set))[0].payload) is bytes
    assert (len(message_set), message_set.data) == (15, HELLO)


@pytest.mark.parametrize("cut", range(1, len(WORLD)))
def test_a_message_that_is_not_all_there_ends_the_set(cut):
    message_set = MessageSet(HELLO + WORLD[:cut], base_offset=7)

    assert message_set.valid_bytes == 15
    assert payloads_and_offsets(message_set) == [(b"hello", 22)]
    assert (message_set.valid_bytes, message_set.next_offset) == (15, 22)


@pytest.mark.parametrize("cut", range(len(HELLO)))
def test_a_first_message_that_is_not_all_there_yields_nothing(cut):
    message_set = MessageSet(HELLO[:cut], base_offset=7)

    assert payloads_and_offsets(message_set) == []
    assert (message_set.valid_bytes, message_set.next_offset) == (0, 7)
    assert message_set.first_message_size == (15 if cut >= 4 else None)


def test_the_size_of_the_first_message():
    assert MessageSet(HELLO + OLD).first_message_size == 15
    assert MessageSet(bytes.fromhex("ffffffff")).first_message_size is None
    assert MessageSet(bytes.fromhex("7fffffff01")).first_message_size == 0x80000003


def test_free_attribute_bits_are_kept():
    message_set = MessageSet(bytes.fromhex("0000000801fcd8932aac6869"))

    assert [m.attributes for m, _ in message_set] == [0xFC]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_only_the_last_message_inside_moves_the_offset(codec):
    wrapper = wrap(codec, HELLO + OLD + WORLD)
    message_set = MessageSet(HELLO + wrapper + OLD, base_offset=1000)
    behind = 1015 + len(wrapper)

    assert payloads_and_offsets(message_set) == [
        (b"hello", 1015),
        (b"hello", 1015),
        (b"old", 1015),
        (b"world!", behind),
        (b"old", behind + 12),
    ]


def test_shallow_iteration_leaves_compressed_messages_closed():
    wrapper = wrap(Codec.GZIP, HELLO + WORLD)
    message_set = MessageSet(wrapper + HELLO)

    (first, first_offset), (second, _) = message_set.iterate(deep=False)
    assert (first.codec, first_offset) == (Codec.GZIP, len(wrapper))
    assert first.encode() == wrapper
    assert second.payload == b"hello"


def test_nested_sets_share_the_outermost_offsets():
    inner = wrap(Codec.SNAPPY, HELLO + WORLD)
    wrapper = wrap(Codec.GZIP, inner + inner)
    message_set = MessageSet(wrapper + HELLO)
    end = len(wrapper)

    assert payloads_and_offsets(message_set) == [
        (b"hello", 0),
        (b"world!", 0),
        (b"hello", 0),
        (b"world!", end),
        (b"hello", end + 15),
    ]


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\0\0", WORLD[:-1]])
def test_inner_sets_may_end_within_a_message_too(rest):
    wrapper = wrap(Codec.GZIP, HELLO + rest)

    assert payloads_and_offsets(MessageSet(wrapper)) == [(b"hello", len(wrapper))]


@pytest.mark.parametrize("inner", [b"", b"\0\0\0"])
def test_an_empty_compressed_set_yields_nothing_and_is_passed(inner):
    wrapper = wrap(Codec.GZIP, inner)
    message_set = MessageSet(wrapper, base_offset=50)

    assert list(message_set) == []
    assert message_set.next_offset == 50 + len(wrapper)
    assert payloads_and_offsets(MessageSet(wrapper + HELLO)) == [(b"hello", len(wrapper) + 15)]


def test_an_empty_set():
    assert list(MessageSet(b"", 5)) == []
    assert MessageSet(b"", 5).next_offset == 5


def test_sets_are_made_from_payloads():
    assert MessageSet.of([b"hello", b"world!"]).data == HELLO + WORLD
    assert MessageSet.of([b"old"], magic=0).data == OLD
    compressed = MessageSet.of([b"hello", b"old"], Codec.SNAPPY)
    assert [m.payload for m, _ in compressed] == [b"hello", b"old"]


# -- damage -------------------------------------------------------------------------------------


def test_damage_names_its_offset_and_the_next_good_one():
    messages = MessageSet(HELLO + BAD + WORLD, base_offset=1000).iterate()

    assert next(messages)[1] == 1015
    with pytest.raises(InvalidMessageError, match=r"offset 1015.*next one: 1030") as caught:
        next(messages)
    assert (caught.value.offset, caught.value.next_offset) == (1015, 1030)


def test_damage_is_skipped_and_counted_when_asked():
    message_set = MessageSet(BAD + HELLO + BAD + BAD + WORLD + OLD[:5], on_corrupt="skip")

    assert payloads_and_offsets(message_set) == [(b"hello", 30), (b"world!", 76)]
    assert message_set.skipped_count == 2
    assert message_set.next_offset == 76
    list(message_set)
    assert message_set.skipped_count == 2


def test_a_damaged_last_message_is_passed_when_its_length_leads_to_the_end():
    message_set = MessageSet(HELLO + BAD, on_corrupt="skip")

    assert payloads_and_offsets(message_set) == [(b"hello", 15)]
    assert (message_set.skipped_count, message_set.next_offset) == (1, 30)
    with pytest.raises(InvalidMessageError) as caught:
        list(MessageSet(HELLO + BAD))
    assert caught.value.next_offset == 30


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_damage_with_nothing_good_behind(on_corrupt):
    nonsense = b"\xff" * 50
    with pytest.raises(InvalidMessageError, match="none follows") as caught:
        list(MessageSet(nonsense, 9, on_corrupt=on_corrupt))
    assert (caught.value.offset, caught.value.next_offset) == (9, None)


def test_skipping_stops_before_damage_with_nothing_good_behind():
    message_set = MessageSet(HELLO + b"\xff" * 50, on_corrupt="skip")

    assert payloads_and_offsets(message_set) == [(b"hello", 15)]
    assert message_set.next_offset == 15


def test_a_length_that_grew_is_told_from_a_message_that_is_not_all_there():
    grown = bytes.fromhex("0100000b") + HELLO[4:]
    with pytest.raises(InvalidMessageError) as caught:
        list(MessageSet(grown + WORLD + OLD, 100))
    assert (caught.value.offset, caught.value.next_offset) == (100, 115)

    message_set = MessageSet(grown + WORLD + OLD, on_corrupt="skip")
    assert [m.payload for m, _ in message_set] == [b"world!", b"old"]

    later = MessageSet(HELLO + grown + WORLD)  # only a fetch that starts there can tell
    assert payloads_and_offsets(later) == [(b"hello", 15)]


@pytest.mark.parametrize(
    "wrapper",
    [
        wrap(Codec.GZIP, HELLO + BAD),
        wrap(Codec.GZIP, HELLO[:-1]),
        wrap(Codec.GZIP, bytes.fromhex("ffffffff")),
        wrap(Codec.GZIP, HELLO + bytes.fromhex("ffffffff")),
        wrap(Codec.GZIP, bytes(4)),
        wrap(Codec.SNAPPY, wrap(Codec.GZIP, BAD)),
        encode_message(b"no gzip", attributes=1),
        encode_message(b"no snappy", attributes=2),
        encode_message(b"no codec", attributes=3),
    ],
)
def test_damage_inside_condemns_the_whole_compressed_message(wrapper):
    behind = 15 + len(wrapper)
    with pytest.raises(InvalidMessageError) as caught:
        list(MessageSet(HELLO + wrapper + WORLD))
    assert (caught.value.offset, caught.value.next_offset) == (15, behind)

    message_set = MessageSet(HELLO + wrapper + WORLD, on_corrupt="skip")
    assert payloads_and_offsets(message_set) == [(b"hello", 15), (b"world!", behind + 16)]
    assert message_set.skipped_count == 1


def test_a_damaged_wrapper_does_not_count_as_its_contents():
    wrapper = bytearray(wrap(Codec.GZIP, HELLO))
    wrapper[6] ^= 1
    with pytest.raises(InvalidMessageError, match="CRC"):
        list(MessageSet(wrapper))


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_what_expands_beyond_the_limit_is_never_skipped(on_corrupt):
    wrapper = wrap(Codec.GZIP, encode_message_set([bytes(1000)]))
    message_set = MessageSet(wrapper, 3, on_corrupt=on_corrupt, max_expanded_bytes=1009)
    with pytest.raises(ExpandedTooLargeError, match="1009") as caught:
        list(message_set)
    assert (caught.value.offset, caught.value.next_offset) == (3, 3 + len(wrapper))

    assert len(list(MessageSet(wrapper, max_expanded_bytes=1010))) == 1


def test_nesting_has_a_limit():
    nested = HELLO
    for _ in range(16):
        nested = wrap(Codec.SNAPPY, nested)
    assert [m.payload for m, _ in MessageSet(nested)] == [b"hello"]
    with pytest.raises(InvalidMessageError, match="16 deep"):
        list(MessageSet(wrap(Codec.SNAPPY, nested)))


def test_valid_bytes_stop_at_nonsense_lengths():
    assert MessageSet(HELLO + bytes.fromhex("ffffffff")).valid_bytes == 15


def test_a_tail_of_unknown_magic_is_damage_as_soon_as_it_can_be_passed():
    nonsense = b"GARBAGE!!"
    with pytest.raises(InvalidMessageError) as caught:
        list(MessageSet(nonsense + HELLO, 30))
    assert (caught.value.offset, caught.value.next_offset) == (30, 39)
    with pytest.raises(InvalidMessageError) as caught:
        list(MessageSet(nonsense, 30))
    assert caught.value.next_offset is None

    messages = MessageSet(HELLO + nonsense + WORLD).iterate()
    assert next(messages)[1] == 15
    with pytest.raises(InvalidMessageError) as caught:
        next(messages)
    assert (caught.value.offset, caught.value.next_offset) == (15, 24)
    assert payloads_and_offsets(MessageSet(HELLO + nonsense)) == [(b"hello", 15)]
