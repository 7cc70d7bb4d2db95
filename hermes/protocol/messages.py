"""Messages and message sets as bytes: the layout, and how they are written.

Source of the layout: Kafka 0.7. Everything is big-endian.

    message set   a sequence of:  int32 N | N bytes of message
    magic 0       0 int8 magic=0 | 1 uint32 crc32(payload) | 5 payload (N-5 bytes)
    magic 1       0 int8 magic=1 | 1 int8 attributes | 2 uint32 crc32(payload) | 6 payload (N-6)
    attributes    low 2 bits: codec (0 none, 1 GZIP, 2 Snappy); the other bits are free

The CRC covers the payload alone: neither the attributes nor the length.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Self
from zlib import crc32

from hermes.errors import InvalidMessageError
from hermes.protocol import core
from hermes.protocol.compression import Codec, compress
from hermes.protocol.wire import Buffer

#: The bits of the attributes that hold the codec.
CODEC_MASK: Final = 0x03
#: How long a message's header is, after the int32 length, by magic.
HEADER_BYTES: Final = (5, 6)

#: int32 length
SIZE: Final = struct.Struct(">i")
#: int32 length | int8 magic | uint32 crc
MAGIC0: Final = struct.Struct(">ibI")
#: int32 length | int8 magic | uint8 attributes | uint32 crc
MAGIC1: Final = struct.Struct(">ibBI")


class _MessageFields(NamedTuple):
    payload: bytes
    magic: int
    attributes: int
    crc: int


class Message(tuple[bytes, int, int, int]):
    """One message: `(payload, magic, attributes, crc)`, immutable.

    A tuple that is built from a tuple: consumers make millions of them a second, and a NamedTuple
    or a class with slots takes half as long again. Use `Message.of` where that doesn't matter.

    Example:
        for message, next_offset in consumer.fetch(request):
            print(message.payload, message.is_valid)

    Attributes:
        payload: the published bytes; a compressed message set if `codec` isn't NONE.
        magic: 0 or 1.
        attributes: 0 to 255; 0 for magic 0, which has none.
        crc: the CRC-32 in the message, right or wrong.
        key, headers, timestamp_ms: what records of Kafka's format have beside a payload; none here.
    """

    __slots__ = ()

    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    # A named tuple's own descriptors: a property takes twice as long.
    payload: bytes = _MessageFields.payload
    magic: int = _MessageFields.magic
    attributes: int = _MessageFields.attributes
    crc: int = _MessageFields.crc

    @classmethod
    def of(cls, payload: bytes, *, magic: int = 1, attributes: int = 0) -> Self:
        """Make a message with the right CRC.

        Args:
            magic: 0 or 1.
            attributes: 0 to 255; must be 0 for magic 0.
        """
        return cls((payload, magic, attributes, crc32(payload)))

    @property
    def codec(self) -> Codec:
        """How the payload is compressed.

        Raises:
            ValueError: the codec is 3, which is not assigned; such a message is never valid.
        """
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_valid(self) -> bool:
        """Whether the CRC is that of the payload."""
        return crc32(self.payload) == self.crc

    def encode(self) -> bytes:
        """Encode the message with its length and its CRC."""
        payload, magic, attributes, crc = self
        size = HEADER_BYTES[magic] + len(payload)
        if magic == 0:
            return MAGIC0.pack(size, 0, crc) + payload
        return MAGIC1.pack(size, 1, attributes, crc) + payload

    def __repr__(self) -> str:
        payload = self.payload if len(self.payload) <= 40 else self.payload[:40] + b"..."
        return (
            f"Message({payload!r}, {len(self.payload)} bytes, magic={self.magic}, "
            f"attributes={self.attributes}, crc={self.crc:#010x})"
        )


def encode_message(payload: bytes, *, magic: int = 1, attributes: int = 0) -> bytes:
    """Encode one message; codec bits in the attributes need a compressed set as payload."""
    return Message.of(payload, magic=magic, attributes=attributes).encode()


def encode_message_set(
    payloads: Iterable[bytes], codec: Codec = Codec.NONE, *, magic: int = 1
) -> bytes:
    """Encode payloads as a message set; empty when there are no payloads and no codec.

    GZIP and SNAPPY wrap the whole set into one compressed message, as 0.7's clients do: of magic 1,
    whatever the magic of the messages.
    """
    if magic == 1:
        encoded = core.encode_plain(payloads if isinstance(payloads, list) else list(payloads))
    else:
        encoded = b"".join([encode_message(each, magic=magic) for each in payloads])
    if codec is Codec.NONE:
        return encoded
    return encode_message(compress(codec, encoded), attributes=codec)


def encode_fitting(
    payloads: list[bytes],
    codec: Codec,
    *,
    max_message_bytes: int,
    max_set_bytes: int | None = None,
) -> Iterator[tuple[list[bytes], bytes]]:
    """Encode payloads as message sets that a broker accepts: in halves while a set is too large.

    To a broker a compressed set is one message, whose size is limited. A single payload that became
    too large by compressing goes as it is.

    Args:
        payloads: at least one. None is larger than max_message_bytes.
        max_set_bytes: a set of more than one message is no larger, before compression; None for
            no limit.

    Yields:
        The payloads of a set, and the set, in order.
    """
    is_single = len(payloads) == 1
    size_bytes = sum(map(len, payloads)) + MAGIC1.size * len(payloads)
    if is_single or max_set_bytes is None or size_bytes <= max_set_bytes:
        encoded = encode_message_set(payloads, codec)
        if codec is Codec.NONE or len(encoded) - MAGIC1.size <= max_message_bytes:
            yield payloads, encoded
            return
        if is_single:
            yield payloads, encode_message_set(payloads)
            return
    middle = len(payloads) // 2
    for half in (payloads[:middle], payloads[middle:]):
        yield from encode_fitting(
            half, codec, max_message_bytes=max_message_bytes, max_set_bytes=max_set_bytes
        )


def decode_message(data: Buffer, start: int, end: int) -> Message:
    """Decode and check the message of any kind between two positions.

    Its payload is a slice of the data: a copy of bytes, a view of a memoryview. Raises
    InvalidMessageError: it is shorter than its header, its magic or codec is unknown, or its CRC is
    wrong. The error carries no offset.
    """
    size = end - start - 4
    magic = data[start + 4] if size > 0 else -1
    if magic not in (0, 1) or size < HEADER_BYTES[magic]:
        raise InvalidMessageError(f"a message of {size} bytes and magic {magic} is invalid")
    if magic == 1:
        _, _, attributes, crc = MAGIC1.unpack_from(data, start)
    else:
        attributes, (_, _, crc) = 0, MAGIC0.unpack_from(data, start)
    payload: Any = data[start + 4 + HEADER_BYTES[magic] : end]
    message = Message((payload, magic, attributes, crc))
    if not message.is_valid:
        raise InvalidMessageError(
            f"a message's CRC is {crc:#010x}, its payload's {crc32(message.payload):#010x}"
        )
    if attributes & CODEC_MASK == CODEC_MASK:
        raise InvalidMessageError(f"a message's attributes {attributes} name an unknown codec")
    return message
