"""Payloads of compressed messages: GZIP and Snappy, expanded within a limit.

Knows nothing of messages. Source of the formats: Kafka 0.7 (java.util.zip.GZIPInputStream and
snappy-java's SnappyInputStream), whose tolerance is matched: what they read is read here, what
they refuse is refused.

    gzip     one or more members; trailing bytes that are not a member are ignored
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

#: The least that anything expanded is charged, as if it had yielded this many bytes: each gzip
#: member, each snappy block, and so each compressed message. Expanding one is about as much work
#: as checking the tiny messages that fit into as many bytes. What clients write is far larger.
MIN_CHARGE_BYTES: Final = 64


class Codec(IntEnum):
    """The low two bits of a message's attributes. 3 is not assigned and is refused."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2


_GZIP_WINDOW: Final = 31  # how zlib spells the largest window, in a gzip member
_GZIP_LEVEL: Final = 6  # as java.util.zip; higher levels cost much and gain little
# Java looks for another member only when more than this is left after a trailer.
_GZIP_MIN_REST: Final = 18
# A member is fed in pieces that grow up to a limit. zlib returns the part of a piece
# after the member as a copy; this way all copies together stay in proportion to the payload's
# length and the number of members, however many there are.
_GZIP_FIRST_PIECE_BYTES: Final = 1024
_GZIP_LARGEST_PIECE_BYTES: Final = 64 * 1024
# It is expanded in parts, since zlib needs twice the memory of what it returns at a time.
_GZIP_LARGEST_PART_BYTES: Final = 1024 * 1024
# zlib's messages for an invalid member header; after a whole member they mean "ignore it".
_GZIP_HEADER_FAULTS: Final = ("header", "unknown compression method")

_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEADER: Final = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES: Final = 32 * 1024
# A snappy copy element turns 3 bytes into at most 64, so a block that declares more than this many
# times its size lies; refusing it keeps a few bytes from allocating megabytes.
_SNAPPY_MAX_RATIO: Final = 22
_INT32: Final = struct.Struct(">i")


class Budget:
    """How much may still be expanded.

    Not only bytes cost work, but also gzip members and snappy blocks that hold few or none, of
    which a small payload may have millions. So each is charged at least `MIN_CHARGE_BYTES`.

    Args:
        limit: how many bytes everything together may expand to, 0 or more.

    Attributes:
        room: how many are left; never negative.
    """

    __slots__ = ("_limit", "room")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.room = limit

    def charge(self, expanded_bytes: int) -> None:
        """Charge for what one gzip member, snappy block or the like expands to.

        Raises ExpandedTooLargeError when not enough is left; the room stays as it is.
        """
        room = self.room - max(expanded_bytes, MIN_CHARGE_BYTES)
        if room < 0:
            raise ExpandedTooLargeError(
                f"compressed messages expand to more than {self._limit} bytes"
            )
        self.room = room


def compress(codec: Codec, data: Buffer) -> bytes:
    """Compress an encoded message set as 0.7's clients do; NONE returns the data as it is."""
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
        limit: the largest result that is allowed, in bytes, where each gzip member and snappy
            block is charged at least `MIN_CHARGE_BYTES`; little more memory than that is used.

    Raises:
        InvalidMessageError: the data is not what the codec says. It carries no offset.
        ExpandedTooLargeError: it would expand beyond the limit.
    """
    expanded = expand(codec, data, Budget(limit))
    return expanded if isinstance(expanded, bytes) else bytes(expanded)


def expand(codec: Codec, data: Buffer, budget: Budget) -> bytes | bytearray:
    """Expand the payload of a compressed message, as one of several that share a budget.

    The result is new: a bytearray when it came in several parts, which were then never in memory
    twice. Raises as `decompress`; the budget may be charged in part.
    """
    view = memoryview(data)
    if codec is Codec.GZIP:
        return _gunzip(view, budget)
    framed = len(view) >= len(_SNAPPY_HEADER) and bytes(view[:8]) == _SNAPPY_MAGIC
    return _unsnap_framed(view, budget) if framed else _unsnap(view, budget)


def _gunzip(view: memoryview, budget: Budget) -> bytes | bytearray:
    expanded: bytes | bytearray | None = None
    position = 0
    while expanded is None or len(view) - position > _GZIP_MIN_REST:
        try:
            member, position = _gunzip_member(view, position, budget)
        except zlib.error as error:
            if expanded is not None and any(fault in str(error) for fault in _GZIP_HEADER_FAULTS):
                break
            raise InvalidMessageError(f"a gzip payload can't be expanded: {error}") from error
        expanded = member if expanded is None else _appended(expanded, member)
    return expanded


def _gunzip_member(
    view: memoryview, position: int, budget: Budget
) -> tuple[bytes | bytearray, int]:
    member = zlib.decompressobj(_GZIP_WINDOW)
    expanded: bytes | bytearray = b""
    piece: Buffer = b""
    piece_bytes = _GZIP_FIRST_PIECE_BYTES
    is_full = False  # zlib may hold more than it was allowed to return
    while not member.eof and len(expanded) <= budget.room:
        if not piece:
            piece = view[position : position + piece_bytes]
            if not piece and not is_full:
                raise InvalidMessageError("a gzip payload is truncated")
            position += len(piece)
            piece_bytes = min(4 * piece_bytes, _GZIP_LARGEST_PIECE_BYTES)
        # One byte more than there is room for: enough to notice that there isn't.
        most = min(budget.room - len(expanded) + 1, _GZIP_LARGEST_PART_BYTES)
        part = member.decompress(piece, most)
        is_full = len(part) == most
        expanded = _appended(expanded, part) if expanded else part
        piece = member.unconsumed_tail
    budget.charge(len(expanded))
    return expanded, position - len(member.unused_data)


def _appended(expanded: bytes | bytearray, part: Buffer) -> bytearray:
    """Grow in place: joining the pieces at the end would take their memory twice."""
    if isinstance(expanded, bytes):
        expanded = bytearray(expanded)
    expanded += part
    return expanded


def _unsnap_framed(view: memoryview, budget: Budget) -> bytes:
    version = _INT32.unpack_from(view, len(_SNAPPY_MAGIC))[0]
    if version < 1:
        raise InvalidMessageError(f"a snappy payload has the unknown version {version}")
    parts: list[bytes] = []
    position = len(_SNAPPY_HEADER)
    while position + _INT32.size <= len(view):
        start = position + _INT32.size
        length = _INT32.unpack_from(view, position)[0]
        position = start + length
        if length < 0 or position > len(view):
            raise InvalidMessageError(f"a snappy block of {length} bytes is incomplete")
        parts.append(_unsnap(view[start:position], budget))
    if not parts:  # no block, but not free either
        budget.charge(0)
    return b"".join(parts)


def _unsnap(block: memoryview, budget: Budget) -> bytes:
    try:
        declared = cramjam.snappy.decompress_raw_len(block)
        if declared > _SNAPPY_MAX_RATIO * len(block):
            raise InvalidMessageError(f"a snappy block of {len(block)} bytes declares {declared}")
        budget.charge(declared)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise InvalidMessageError(f"a snappy payload can't be expanded: {error}") from error
