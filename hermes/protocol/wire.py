"""The primitive types of the wire: big-endian integers, and strings with an int16 length.

Source: Kafka 0.7. A `ByteReader` walks a request or a response and refuses whatever does not fit.
"""

import struct
from typing import Final, TypeAlias

from hermes.errors import LocalProtocolError, RemoteProtocolError
from hermes.quoting import quoted

#: What bytes may come in. A memoryview keeps the whole object beneath it alive.
Buffer: TypeAlias = bytes | bytearray | memoryview

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_MAX_STRING_BYTES: Final = 0x7FFF


def pack(struct_format: str, *values: int) -> bytes:
    """Pack integers, by a format of `struct`; LocalProtocolError for what doesn't fit the wire."""
    try:
        return struct.pack(struct_format, *values)
    except struct.error as error:
        raise LocalProtocolError(f"{values} do not fit the wire: {error}") from error


def frame(*parts: Buffer) -> bytes:
    """Join parts and put their `int32 size` before them; LocalProtocolError for 2 GiB or more."""
    return b"".join((pack(">i", sum(map(len, parts))), *parts))


def own_frame(request_type: int, *parts: Buffer) -> bytes:
    """Frame a request of Hermes' own: its type and the version, which is 0 so far, come first."""
    return frame(pack(">hh", request_type, 0), *parts)


def encode_string(text: str) -> bytes:
    """Encode a string: `int16 length | UTF-8`.

    Raises LocalProtocolError: it is longer than 32,767 bytes, or holds half a surrogate pair;
    nothing can be sent.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"{quoted(text)} can't be encoded in UTF-8") from error
    if len(data) > _MAX_STRING_BYTES:
        raise LocalProtocolError(
            f"a string of {len(data)} bytes is longer than {_MAX_STRING_BYTES}, "
            "the most that the wire can carry"
        )
    return _INT16.pack(len(data)) + data


class ByteReader:
    """Reads values one after another; whatever is missing raises `RemoteProtocolError`."""

    __slots__ = ("_view", "position")

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data)
        self.position = 0

    @property
    def remaining(self) -> int:
        return len(self._view) - self.position

    def int16(self) -> int:
        return self.numbers(_INT16)[0]

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def _number(self, struct_format: struct.Struct) -> int:
        return self.numbers(struct_format)[0]

    def numbers(self, struct_format: struct.Struct) -> tuple[int, ...]:
        """Read several big-endian integers at once, which costs about as much as one."""
        try:
            values: tuple[int, ...] = struct_format.unpack_from(self._view, self.position)
        except struct.error:
            raise RemoteProtocolError(
                f"{self.remaining} bytes are left where integers of {struct_format.size} bytes "
                "belong"
            ) from None
        self.position += struct_format.size
        return values

    def string_or_none(self) -> str | None:
        """Read a string; a negative length, which is Java's null, gives None.

        Broken UTF-8 is replaced by U+FFFD as Java does. No topic's name may hold that character.
        """
        view, start = self._view, self.position + _INT16.size
        if start > len(view):
            self.numbers(_INT16)  # raises
        (length,) = _INT16.unpack_from(view, self.position)
        self.position = start
        if length < 0:
            return None
        if start + length > len(view):
            self.take(length)  # raises
        self.position = start + length
        return str(view[start : self.position], "utf-8", "replace")

    def string(self) -> str:
        """Read a string that must not be null."""
        text = self.string_or_none()
        if text is None:
            raise RemoteProtocolError("a string has a negative length")
        return text

    def take(self, length: int) -> memoryview:
        start, end = self.position, self.position + length
        if length < 0 or end > len(self._view):
            raise RemoteProtocolError(f"a length of {length} where {self.remaining} bytes are left")
        self.position = end
        return self._view[start:end]

    def count(self, value: int) -> int:
        """Check a count that was just read: negative ones are refused."""
        if value < 0:
            raise RemoteProtocolError(f"a count is {value}")
        return value
