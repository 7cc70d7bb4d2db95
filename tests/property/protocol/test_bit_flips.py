"""Every bit of a 4 KiB log flipped: the bad message is never handed out, all others always are."""

import pytest

from hermes.errors import InvalidMessageError
from hermes.protocol import Codec, MessageSet, encode_message_set, find_valid_message

LOG_BYTES = 4096


def messages_of(sizes):
    """Encoded messages of these sizes, the last one cut to make the log 4 KiB long."""
    messages, total = [], 0
    for number in range(LOG_BYTES):
        size = min(sizes[number % len(sizes)], LOG_BYTES - total - 10)
        if LOG_BYTES - total - 10 - size < 10:
            size = LOG_BYTES - total - 10
        messages.append(encode_message_set([(b"message %d " % number * 40)[:size]]))
        total += len(messages[-1])
        if total == LOG_BYTES:
            return messages
    raise AssertionError


LOGS = {
    # Lengths that one flip turns into a multiple of the others': the chain leads astray.
    "powers of two": messages_of([54]),
    "of all sizes": messages_of([200, 0, 13, 1, 77, 250, 30]),
    # Smaller ones: messages of magic 0, and compressed ones, take longer to read.
    "of old": [encode_message_set([b"message %d" % n * 3], magic=0) for n in range(25)],
    "compressed": [  # snappy leaves whole messages readable in its payloads
        encode_message_set([b"inside %d" % n, b"and more"], codec)
        for n in range(4)
        for codec in (Codec.SNAPPY, Codec.GZIP)
    ],
}


def payloads(message_set):
    return [message.payload for message, _ in message_set]


def read_skipping(log):
    """Read to the end as a consumer that skips damage, starting again where a set ended."""
    found, position, skipped = [], 0, 0
    while position < len(log):
        message_set = MessageSet(log[position:], position, on_corrupt="skip")
        found += payloads(message_set)
        skipped += message_set.skipped_count
        if not message_set.valid_bytes:
            break
        position = message_set.next_offset
    return found, skipped


def covered_bits(message):
    """The bits that length, magic, codec bits, CRC or payload have; the rest mean nothing.

    Left out is the bit that makes a compressed message a plain one: no check covers it, since
    0.7's CRC doesn't.
    """
    free = range(5 * 8 + 2, 6 * 8) if message[4] == 1 else ()
    codec = message[5] & 3 if message[4] == 1 else 0
    unnoticed = {5 * 8 + bit for bit in range(2) if codec == 1 << bit}
    return [bit for bit in range(len(message) * 8) if bit not in free and bit not in unnoticed]


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS.keys())
def test_every_flip_is_noticed_and_costs_one_message(log):
    whole = b"".join(log)
    inside = [payloads(MessageSet(message)) for message in log]
    position = 0
    for number, message in enumerate(log):
        others = [each for n, list_ in enumerate(inside) if n != number for each in list_]
        following = position + len(message)
        for bit in covered_bits(message):
            flipped = bytearray(whole)
            flipped[position + bit // 8] ^= 1 << bit % 8
            check_one(bytes(flipped), position, following, others)
        position = following


def check_one(flipped, bad, following, others):
    found, skipped = read_skipping(flipped)
    assert (found, skipped) == (others, 1)

    # A consumer that starts at the bad message learns where it is and where to go on.
    with pytest.raises(InvalidMessageError) as caught:
        list(MessageSet(flipped[bad:], bad))
    assert (caught.value.offset, caught.value.next_offset) == (bad, following)


def test_a_search_from_the_bad_message_finds_the_next():
    log = LOGS["powers of two"]
    whole = b"".join(log)
    third, fourth = (sum(map(len, log[:n])) for n in (2, 3))
    for bit in range(len(log[2]) * 8):
        if not 5 * 8 <= bit < 6 * 8:  # no CRC covers the attributes
            flipped = bytearray(whole)
            flipped[third + bit // 8] ^= 1 << bit % 8
            assert find_valid_message(flipped, third, max_message_bytes=1000) == fourth
