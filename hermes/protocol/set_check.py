"""What a broker checks before it appends a message set: exactly what Kafka 0.7 checks.

0.7 looks at a set twice. First at the sizes of outer messages: if one is too large, it drops
the set and keeps the connection. Then at everything, inner sets included: if anything is wrong, it
closes the connection. The order matters when a set has several faults, so it is kept. Nearly every
set has none, and passes in a single pass.
"""

from typing import NamedTuple

from hermes.errors import InvalidMessageError, MessageTooLargeError
from hermes.protocol import core
from hermes.protocol.compression import Codec
from hermes.protocol.expansion import DEFAULT_MAX_EXPANDED_BYTES, Expansion
from hermes.protocol.messages import (
    HEADER_BYTES,
    SIZE,
    decode_message,
)
from hermes.protocol.wire import Buffer


class SetCheck(NamedTuple):
    """The result of checking a message set that may be appended.

    Attributes:
        valid_bytes: how long the prefix of whole messages is; only this is appended.
        message_count: how many messages it holds, counting those inside compressed messages,
            but not their wrappers.
        compressed: whether any message is.
    """

    valid_bytes: int
    message_count: int
    compressed: bool


def check_plain_set(message_set: Buffer, *, max_message_bytes: int) -> SetCheck | None:
    """Check a message set if it is plain; leave all others, by None, to `check_message_set`.

    Plain means: whole and intact messages of magic 1, uncompressed and without attributes. Nearly
    every set is. The work is bounded by the set's length, since nothing is expanded: in Python, at
    most about a third of a microsecond per 10 bytes, and much less when messages are larger. A
    broker can do that much inline and leave other sets to a thread.

    Raises:
        MessageTooLargeError: the set is plain, but a payload is too large.
    """
    data = message_set if isinstance(message_set, bytes) else memoryview(message_set)
    end = len(data)
    count = core.count_plain(data, 0, end)
    if not count:
        return None
    # Within this length no payload can be too large.
    if end > max_message_bytes + SIZE.size + HEADER_BYTES[1]:
        _check_sizes(data, max_message_bytes)
    return SetCheck(end, count, False)


def check_message_set(
    message_set: Buffer,
    *,
    max_message_bytes: int,
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES,
) -> SetCheck:
    """Check a message set that a producer sent.

    An incomplete message at the end is no fault unless it is the first.

    Args:
        max_message_bytes: the largest payload allowed, of outer messages only; 0 or more.
        max_expanded_bytes: what the compressed messages of the set may expand to, all together;
            charged as an `Expansion` does.

    Raises:
        MessageTooLargeError: a payload is too large. The whole set is to be dropped; 0.7 keeps
            the connection.
        InvalidMessageError: the set is damaged: nothing may be appended, 0.7 closes the
            connection. `offset` says where in the set. `ExpandedTooLargeError` is one of these.
    """
    plain = check_plain_set(message_set, max_message_bytes=max_message_bytes)
    if plain is not None:
        return plain
    data = memoryview(message_set)
    return _check_contents(data, _check_sizes(data, max_message_bytes), max_expanded_bytes)


def _check_sizes(data: Buffer, max_message_bytes: int) -> int:
    """0.7's first pass; returns where the last whole message ends."""
    position, end = 0, len(data)
    while end - position >= SIZE.size:
        size = SIZE.unpack_from(data, position)[0]
        following = position + SIZE.size + size
        if size < 0:
            raise InvalidMessageError(f"a message has the length {size}", offset=position)
        if following > end:
            if position == 0:
                raise InvalidMessageError(
                    f"the first message has {size} bytes, {end - SIZE.size} were sent", offset=0
                )
            break
        magic = data[position + SIZE.size] if size else -1
        if magic not in (0, 1):
            raise InvalidMessageError(f"a message has the magic {magic}", offset=position)
        # One that is shorter than its header passes here, and is found in the second pass.
        payload_bytes = size - HEADER_BYTES[magic]
        if payload_bytes > max_message_bytes:
            raise MessageTooLargeError(payload_bytes, max_message_bytes)
        position = following
    return position


def _check_contents(data: memoryview, end: int, max_expanded_bytes: int) -> SetCheck:
    """0.7's second pass, over whole messages."""
    expansion = Expansion(max_expanded_bytes)
    compressed = False
    count, position = core.count_uncompressed(data, 0, end)
    while position < end:
        following = position + SIZE.size + SIZE.unpack_from(data, position)[0]
        try:
            message = decode_message(data[position:following].tobytes(), 0, following - position)
            if message.codec is Codec.NONE:
                count += 1
            else:
                compressed = True
                count += expansion.count(message)
        except InvalidMessageError as error:
            error.offset = position
            raise
        more, position = core.count_uncompressed(data, following, end)
        count += more
    return SetCheck(end, count, compressed)
