"""Jute, ZooKeeper's serialization: bytes <-> primitive values.

    int      4 bytes, signed            long     8 bytes, signed
    boolean  1 byte, 0 or 1             buffer   int length | bytes; length -1 is null
    string   a buffer of UTF-8          vector   int count | elements; count -1 is null

Everything is big-endian. Source: ZooKeeper's `BinaryInputArchive` and `BinaryOutputArchive`.
"""

import struct
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from hermes.errors import RemoteProtocolError
from hermes.protocol.wire import ByteReader

_INT: Final = struct.Struct(">i")

#: A buffer, string or vector that is Java's null.
NULL: Final = _INT.pack(-1)

_Element = TypeVar("_Element")


class JuteReader(ByteReader):
    """Reads values one after the other; what is missing raises `RemoteProtocolError`."""

    __slots__ = ()

    def boolean(self) -> bool:
        return self.take(1)[0] != 0

    def buffer(self) -> bytes | None:
        """Read a buffer, as a copy; None is Java's null."""
        length = self.int32()
        return None if length == -1 else bytes(self.take(length))

    def string_or_none(self) -> str | None:
        """Read a string; None is Java's null. Broken UTF-8 becomes U+FFFD, as in Java."""
        length = self.int32()
        return None if length == -1 else str(self.take(length), "utf-8", "replace")

    def string(self) -> str:
        """Read a string; null is read as the empty one, which is neither a path nor a scheme."""
        return self.string_or_none() or ""

    def vector(
        self, element: Callable[[], _Element], most: int = 0x7FFFFFFF
    ) -> tuple[_Element, ...]:
        """Read a vector; null is read as the empty one.

        `element` reads at least a byte, so a count too large ends soon; one above `most` is refused
        before anything is read.
        """
        count = self.int32()
        if count > most:
            raise RemoteProtocolError(f"{count} elements are more than {most}")
        return tuple(element() for _ in range(count))


def encode_buffer(data: bytes | None) -> bytes:
    return NULL if data is None else _INT.pack(len(data)) + data


def encode_string(text: str) -> bytes:
    return encode_buffer(text.encode("utf-8", "replace"))


def encode_vector(elements: Collection[bytes]) -> bytes:
    return _INT.pack(len(elements)) + b"".join(elements)
