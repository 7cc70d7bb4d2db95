"""The bytes of a `sources.positions` file: a header, then records that are only ever appended.

    header   8 bytes "HSOURCES" | uint32 version
    record   uint32 CRC-32 of what follows | uint8 type | body

    1 opened      string of 36 bytes boot id | int64 end | int64 flushed
    2 source      int32 number | uint16 length | name in UTF-8
    3 range       int32 number | uint8 flags | int64 source begin | int64 source end
                  int64 log begin | int64 log end | int64 flushed
    4 checkpoint  int64 end | int64 flushed
    5 closed      int64 end | int64 flushed

All is big-endian. What follows the first record that isn't whole and valid means nothing.
`hermes.storage.source_positions` says when each is written.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from hermes.protocol import SourceSpan

HEADER: Final = b"HSOURCES" + struct.pack(">I", 1)

_CRC: Final = struct.Struct(">I")
_TWO: Final = struct.Struct(">qq")
_SOURCE: Final = struct.Struct(">iH")
_RANGE: Final = struct.Struct(">iBqqqqq")
_BOOT_BYTES: Final = 36
_OPENED, _NAMED, _COPIED, _CHECKPOINT, _CLOSED = range(1, 6)
_SIZES: Final = {
    _OPENED: _BOOT_BYTES + _TWO.size,
    _NAMED: _SOURCE.size,
    _COPIED: _RANGE.size,
    _CHECKPOINT: _TWO.size,
    _CLOSED: _TWO.size,
}
_FRAME_BYTES: Final = 5  # the CRC and the type


class Opened(NamedTuple):
    """From here on every range is written down before it is appended.

    Attributes:
        boot_id: which start of the machine this was in; empty where that isn't known.
        end: where the log ended. All ranges before it are written down above.
        flushed: up to where it was flushed.
    """

    boot_id: str
    end: int
    flushed: int


class Named(NamedTuple):
    """A source has a number from now on: the next one."""

    number: int
    name: str


class Copied(NamedTuple):
    """A range is about to be appended as `span`. `flushed`: up to where the log was flushed."""

    span: SourceSpan
    flushed: int


class Checkpoint(NamedTuple):
    """The log is about to be flushed; all ranges before its end are written down above."""

    end: int
    flushed: int


class Closed(NamedTuple):
    """All of the log is flushed, and no range is appended before the next `Opened`."""

    end: int
    flushed: int


Record: TypeAlias = Opened | Named | Copied | Checkpoint | Closed


def encode_record(record: Record) -> bytes:
    match record:
        case Opened(boot_id, end, flushed):
            boot = boot_id.encode("ascii", "replace")[:_BOOT_BYTES].ljust(_BOOT_BYTES, b"\0")
            return _framed(_OPENED, boot + _TWO.pack(end, flushed))
        case Named(number, name):
            data = name.encode()
            return _framed(_NAMED, _SOURCE.pack(number, len(data)) + data)
        case Copied(span, flushed):
            return _framed(_COPIED, _RANGE.pack(*span, flushed))
        case Checkpoint(end, flushed):
            return _framed(_CHECKPOINT, _TWO.pack(end, flushed))
        case Closed(end, flushed):
            return _framed(_CLOSED, _TWO.pack(end, flushed))


def _framed(kind: int, body: bytes) -> bytes:
    checked = bytes([kind]) + body
    return _CRC.pack(crc32(checked)) + checked


def parse_records(data: bytes, position: int = len(HEADER)) -> Iterator[tuple[Record, int]]:
    while True:
        begin = position + _FRAME_BYTES
        kind = data[begin - 1] if begin <= len(data) else 0
        end = begin + _SIZES.get(kind, 0)
        if kind not in _SIZES or end > len(data):
            return
        if kind == _NAMED:
            end += _SOURCE.unpack_from(data, begin)[1]
        (crc,) = _CRC.unpack_from(data, position)
        if end > len(data) or crc32(data[begin - 1 : end]) != crc:
            return
        yield _decoded(kind, data[begin:end]), end
        position = end


def records_beyond(data: bytes, position: int) -> Iterator[Record]:
    """Find the records after bytes that aren't one: a write that was cut off has none after it.

    Args:
        position: where the first record begins that isn't whole and valid.

    Yields:
        Records that are whole and valid; first, the one at `position` if only its type is wrong.
    """
    body = data[position + _FRAME_BYTES :]
    for kind in _SIZES.keys() - {_NAMED}:
        whole = _framed(kind, body[: _SIZES[kind]])
        if len(body) >= _SIZES[kind] and whole[:4] == data[position : position + 4]:
            yield _decoded(kind, body[: _SIZES[kind]])
    while position < len(data):
        position += 1
        for record, end in parse_records(data, position):
            yield record
            position = end - 1


def is_whole(data: bytes, position: int) -> bool:
    """Whether the record at a position has all its bytes, whatever they are."""
    begin = position + _FRAME_BYTES
    kind = data[begin - 1] if begin <= len(data) else 0
    return begin <= len(data) and begin + _SIZES.get(kind, 0) <= len(data)


def _decoded(kind: int, body: bytes) -> Record:
    if kind == _COPIED:
        *span, flushed = _RANGE.unpack(body)
        return Copied(SourceSpan(*span), flushed)
    if kind == _NAMED:
        number, _ = _SOURCE.unpack_from(body)
        return Named(number, body[_SOURCE.size :].decode("utf-8", "replace"))
    if kind == _OPENED:
        boot_id = body[:_BOOT_BYTES].rstrip(b"\0").decode("ascii", "replace")
        return Opened(boot_id, *_TWO.unpack_from(body, _BOOT_BYTES))
    end, flushed = _TWO.unpack(body)
    return Checkpoint(end, flushed) if kind == _CHECKPOINT else Closed(end, flushed)
