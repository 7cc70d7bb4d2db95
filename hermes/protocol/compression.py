"""Payloads of compressed messages: GZIP and Snappy, expanded within a limit.

Knows nothing of messages. Source of the formats: Kafka 0.7 (java.util.zip.GZIPInputStream and
snappy-java's SnappyInputStream), whose tolerance is matched: what they read is read here, what
they refuse is refused.

    gzip     one or more members; what follows the last one and is no member is ignored
    snappy   82 53 4e 41 50 50 59 00 | int32 version 1 | int32 compatible 1
             then repeated: int32 length | raw snappy block; up to 3 stray bytes at the end ignored
    snappy   without that header: a single raw block
"""

import struct
import zlib
from enum import IntEnum
from typing import Final

import cramjam

from hermes.errors import ExpandedTooLargeError, InvalidMessageError
from hermes.protocol.wire import Buffer

__all__ = ["Codec", "compress", "decompress"]


class Codec(IntEnum):
    """The low two bits of a message's attributes. 3 is not assigned and is refused."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2


_GZIP_WINDOW: Final = 31  # zlib's way to say: the largest window, in a gzip member
_GZIP_LEVEL: Final = 6  # what java.util.zip uses; higher levels cost much and gain little
# Java looks for a further member only when more than this is left behind one's trailer.
_GZIP_MIN_REST: Final = 18
# zlib's messages for a member header that is none; behind a whole member they mean "ignore it".
_GZIP_HEADER_FAULTS: Final = ("header", "unknown compression method")

_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEADER: Final = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES: Final = 32 * 1024
# A snappy copy element turns 3 bytes into at most 64, so a block that claims more than this many
# times its size lies; refusing it keeps a claim of a few bytes from allocating megabytes.
_SNAPPY_MAX_RATIO: Final = 22
_INT32: Final = struct.Struct(">i")


def compress(codec: Codec, data: Buffer) -> bytes:
    """Compress an encoded message set as 0.7's clients do.

    Args:
        codec: GZIP or SNAPPY; NONE returns the data as it is.
        data: the bytes to compress; not modified.

    Returns:
        A new bytes object.
    """
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return zlib.compress(data, _GZIP_LEVEL, _GZIP_WINDOW)
    parts = [_SNAPPY_HEADER]
    for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def decompress(codec: Codec, data: Buffer, limit: int) -> bytes:
    """Expand the payload of a compressed message.

    Args:
        codec: GZIP or SNAPPY.
        data: the payload; not modified.
        limit: the largest result that is allowed, in bytes; little more memory than that is used.

    Returns:
        A new bytes object of at most `limit` bytes.

    Raises:
        InvalidMessageError: the data is not what the codec says. It carries no offset.
        ExpandedTooLargeError: it would expand beyond the limit.
    """
    if codec is Codec.GZIP:
        return _gunzip(data, limit)
    view = memoryview(data)
    framed = len(view) >= len(_SNAPPY_HEADER) and bytes(view[:8]) == _SNAPPY_MAGIC
    return _unsnap_framed(view, limit) if framed else _unsnap(view, limit)


def _gunzip(data: Buffer, limit: int) -> bytes:
    parts: list[bytes] = []
    room = limit
    rest: Buffer = data
    while not parts or len(rest) > _GZIP_MIN_REST:
        member = zlib.decompressobj(_GZIP_WINDOW)
        try:
            part = member.decompress(rest, room + 1)
        except zlib.error as error:
            if parts and any(fault in str(error) for fault in _GZIP_HEADER_FAULTS):
                break
            raise InvalidMessageError(f"a gzip payload can't be expanded: {error}") from error
        if len(part) > room:
            raise _too_large(limit)
        if not member.eof:
            # With nothing more to expand, a stop before the end means that bytes are missing.
            raise InvalidMessageError("a gzip payload is truncated")
        parts.append(part)
        room -= len(part)
        rest = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unsnap_framed(view: memoryview, limit: int) -> bytes:
    version = _INT32.unpack_from(view, len(_SNAPPY_MAGIC))[0]
    if version < 1:
        raise InvalidMessageError(f"a snappy payload has the unknown version {version}")
    parts: list[bytes] = []
    room = limit
    position = len(_SNAPPY_HEADER)
    while position + _INT32.size <= len(view):
        start = position + _INT32.size
        length = _INT32.unpack_from(view, position)[0]
        position = start + length
        if length < 0 or position > len(view):
            raise InvalidMessageError(f"a snappy block of {length} bytes is not all there")
        try:
            part = _unsnap(view[start:position], room)
        except ExpandedTooLargeError as error:
            raise _too_large(limit) from error
        parts.append(part)
        room -= len(part)
    return b"".join(parts)


def _unsnap(block: memoryview, limit: int) -> bytes:
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > _SNAPPY_MAX_RATIO * len(block):
            raise InvalidMessageError(f"a snappy block of {len(block)} bytes claims {claimed}")
        if claimed > limit:
            raise _too_large(limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise InvalidMessageError(f"a snappy payload can't be expanded: {error}") from error


def _too_large(limit: int) -> ExpandedTooLargeError:
    return ExpandedTooLargeError(f"a compressed message set expands to more than {limit} bytes")
