"""Kafka's primitive types, for what is read and written without `kio`.

Flexible versions write lengths as unsigned varints of one more, so that 0 is null, and tags after
each structure.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final
from uuid import UUID

from hermes.errors import RemoteProtocolError
from hermes.protocol.wire import Buffer, ByteReader, encode_string

#: More tags than this, of which a version may have a few, are refused.
MAX_TAGS: Final = 64

_INT32: Final = Struct(">i")


class KafkaReader(ByteReader):
    """Reads values one after another; whatever is missing raises `RemoteProtocolError`."""

    __slots__ = ("_is_flexible",)

    def __init__(self, data: Buffer, position: int, is_flexible: bool) -> None:
        super().__init__(data)
        self.position = position
        self._is_flexible = is_flexible

    def varint(self) -> int:
        """Read an unsigned number of up to 31 bits."""
        view, position, value, shift = self._view, self.position, 0, 0
        while position < len(view) and shift < 35:
            byte = view[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.position = position
                return value
        raise RemoteProtocolError("a number that doesn't end")

    def length(self) -> int:
        """Read the length of an array; -1 for null."""
        return self.varint() - 1 if self._is_flexible else self.int32()

    def each(self) -> Iterator[int]:
        """Read the length of an array that is not null; yields for each of what is in it."""
        return iter(range(self.count(self.length())))

    def text(self) -> str | None:
        if not self._is_flexible:
            return self.string_or_none()
        length = self.varint() - 1
        return None if length < 0 else str(self.take(length), "utf-8", "replace")

    def data(self) -> memoryview | None:
        """Read bytes, as a view; None for null."""
        length = self.length()
        return None if length < 0 else self.take(length)

    def uuid(self) -> UUID:
        """Read a UUID; zero stands for none."""
        return UUID(bytes=bytes(self.take(16)))

    def tags(self) -> None:
        """Step over what later versions have added; there is none in old ones."""
        if self._is_flexible:
            self.position = after_tags(self._view, self.position)


def after_tags(data: Buffer, position: int) -> int:
    """The position after tags: a count, then of each its number, its size and its value.

    Raises RemoteProtocolError: they don't end, or there are too many.
    """
    if data[position : position + 1] == b"\0":  # none, as nearly always
        return position + 1
    reader = KafkaReader(data, position, is_flexible=True)
    count = reader.varint()
    if count > MAX_TAGS:
        raise RemoteProtocolError(f"it has {count} tags")
    for _ in range(count):
        reader.varint()
        reader.take(reader.varint())
    return reader.position


def varint(value: int) -> bytes:
    """Encode an unsigned number, seven bits a byte, the lowest first."""
    if 0x7F < value < 0x4000:  # as nearly all that aren't in `_VARINTS`
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


#: Those of one byte.
_VARINTS: Final = [varint(value) for value in range(0x80)]


def encode_length(count: int, is_flexible: bool) -> bytes:
    """Encode the length of an array or of bytes; -1 for null."""
    if not is_flexible:
        return _INT32.pack(count)
    return _VARINTS[count + 1] if count < 0x7F else varint(count + 1)


def encode_text(text: str | None, is_flexible: bool) -> bytes:
    if text is None:
        return b"\0" if is_flexible else b"\xff\xff"
    if not is_flexible:
        return encode_string(text)
    encoded = text.encode()
    return encode_length(len(encoded), True) + encoded


def encode_topic(topic: str | UUID | bytes, is_flexible: bool) -> bytes:
    """Encode what a response calls a topic: as its request did. Bytes are those of its id."""
    if isinstance(topic, bytes):
        return topic
    return topic.bytes if isinstance(topic, UUID) else encode_text(topic, is_flexible)
