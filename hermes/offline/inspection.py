"""One segment of Kafka 0.7's format, read-only, as `dump-log` shows it and `check-log` judges it.

Which bytes are messages, and where the next valid one starts after a bad one, is decided by
`hermes.storage.recovery`, so that the tools never contradict the broker's own recovery. Added to
that is what a CRC can't see: whether a compressed message can be expanded.
"""

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Self
from zlib import crc32

from hermes.errors import InvalidMessageError
from hermes.protocol import Codec, Message
from hermes.protocol.damage import next_valid
from hermes.protocol.expansion import DEFAULT_MAX_EXPANDED_BYTES, Expansion
from hermes.protocol.messages import CODEC_MASK, HEADER_BYTES
from hermes.storage.damage import ReadableFiles
from hermes.storage.files import FileLayer, read_exactly
from hermes.storage.index_entries import ENTRY_BYTES, IndexEntry, decode_entry
from hermes.storage.kafka_0_7 import SegmentReader
from hermes.storage.time_index import SYNC_EVERY_BYTES, TAIL_BYTES

_WINDOW_BYTES: Final = 1024 * 1024
_SIZE: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
#: How often it is looked at again whether the end of a segment is only being appended.
APPEND_CHECKS: Final = 10

_NAME: Final = re.compile(r"([0-9]{1,20})\.[a-z]+")


@dataclass(frozen=True, slots=True)
class Limits:
    """How large damaged and compressed messages may be.

    Attributes:
        max_message_bytes: the largest payload looked for after a damaged message; intact ones
            may be larger.
        max_expanded_bytes: what one compressed message may expand to.
    """

    max_message_bytes: int = 1_000_000
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES


@dataclass(frozen=True, slots=True)
class InspectedMessage:
    """A message with a valid size, magic and CRC.

    Attributes:
        size_bytes: what it takes in the log, its length field included.
        message: its payload is a copy.
        message_count: how many messages it holds: 1, or those of a compressed set.
        problem: why it can't be consumed nevertheless; None when it can.
    """

    offset: int
    size_bytes: int
    message: Message
    message_count: int
    problem: str | None

    @property
    def end_offset(self) -> int:
        return self.offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class BadRange:
    """Bytes that aren't a valid message.

    Attributes:
        next_offset: where the next valid message starts; None when none follows in the segment.
        reason: what is wrong with the first of them.
    """

    offset: int
    end_offset: int
    next_offset: int | None
    reason: str

    @property
    def is_tail(self) -> bool:
        """Whether no valid message follows: then the broker cuts it off when it recovers."""
        return self.next_offset is None


class ReadSegment:
    """A segment's file, opened for reading; a context manager.

    `files`: what reads it; by default one that reads zeros where the disk gives back nothing.

    A broker may be appending to it: what is read ends where the file ended when `refresh` (or the
    constructor) last determined its size. The file's name has the base offset; else it is 0.
    """

    def __init__(self, path: Path, limits: Limits, files: FileLayer | None = None) -> None:
        self.path = path
        named = _NAME.fullmatch(path.name)
        self.base_offset = int(named[1]) if named else 0
        self._limits = limits
        self._files = ReadableFiles() if files is None else files
        self._descriptor = self._files.open_read(os.path.realpath(path))
        self.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._files.close(self._descriptor)

    def refresh(self) -> int:
        """Determine the file's size again, and return it."""
        self.size_bytes = os.fstat(self._descriptor).st_size
        return self.size_bytes


class SegmentFile(ReadSegment):
    """A segment of messages of 0.7."""

    _window = b""
    _window_start = 0

    def refresh(self) -> int:
        """As of any segment; returns the offset after its last byte."""
        self.end_offset = self.base_offset + super().refresh()
        self._window = b""
        return self.end_offset

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes by their offset in the partition's log; fewer where the file ends."""
        length = min(length, self.end_offset - offset)
        start = offset - self._window_start
        if start < 0 or start + length > len(self._window):
            wanted = min(max(length, _WINDOW_BYTES), self.end_offset - offset)
            position = offset - self.base_offset
            self._window = read_exactly(self._files, self._descriptor, wanted, position)
            self._window_start, start = offset, 0
        return self._window[start : start + length]

    def walk(self, start: int | None = None) -> Iterator[InspectedMessage | BadRange]:
        """Yield messages and bad ranges, in order and without gaps, from a message boundary on."""
        offset = self.base_offset if start is None else start
        reader = SegmentReader(self._files, self._descriptor, self.base_offset, self.end_offset)
        while offset < reader.end:
            message = self._message_at(offset)
            if isinstance(message, InspectedMessage):
                yield message
                offset = message.end_offset
                continue
            following = next_valid(reader, offset, self._limits.max_message_bytes)
            end = reader.end if following is None else following
            yield BadRange(offset, end, following, reason=message)
            offset = end

    def _message_at(self, offset: int) -> InspectedMessage | str:
        left = self.end_offset - offset
        start = self.read(offset, _SIZE.size + max(HEADER_BYTES))
        if left < _SIZE.size:
            return f"{left} bytes are left, not enough for a length"
        (length,) = _SIZE.unpack_from(start)
        if length < HEADER_BYTES[0]:
            return f"its length is {length}, less than a header"
        if length > left - _SIZE.size:
            missing = length - (left - _SIZE.size)
            return f"its length is {length}, which is {missing} bytes beyond the end"
        magic = start[_SIZE.size]
        if magic >= len(HEADER_BYTES):
            return f"its magic is {magic}, expected 0 or 1"
        if length < HEADER_BYTES[magic]:
            return f"its length is {length}, less than the header of magic {magic}"
        payload_start = _SIZE.size + HEADER_BYTES[magic]
        (crc,) = _CRC.unpack_from(start, payload_start - _CRC.size)
        actual = self._crc_of(offset + payload_start, offset + _SIZE.size + length)
        if actual != crc:
            return f"its CRC is {crc:#010x}, but that of its payload is {actual:#010x}"
        data = self.read(offset, _SIZE.size + length)
        attributes = data[_SIZE.size + 1] if magic else 0
        message = Message((data[payload_start:], magic, attributes, crc))
        return self._examined(offset, len(data), message)

    def _examined(self, offset: int, size_bytes: int, message: Message) -> InspectedMessage:
        codec = message.attributes & CODEC_MASK
        if not codec:
            return InspectedMessage(offset, size_bytes, message, 1, None)
        if codec >= len(Codec):
            return InspectedMessage(offset, size_bytes, message, 0, f"the codec {codec} is unknown")
        try:
            count = Expansion(self._limits.max_expanded_bytes).count(message)
        except InvalidMessageError as error:
            return InspectedMessage(offset, size_bytes, message, 0, str(error))
        return InspectedMessage(offset, size_bytes, message, count, None)

    def _crc_of(self, offset: int, end: int) -> int:
        # In pieces: a damaged length may claim the rest of a file of gigabytes.
        crc = 0
        for start in range(offset, end, _WINDOW_BYTES):
            crc = crc32(self.read(start, min(_WINDOW_BYTES, end - start)), crc)
        return crc


class IndexFault(NamedTuple):
    """What is wrong with a time index; it costs accuracy and recovery speed, never a message.

    `kind` is `problem` when the disk has damaged it, `notice` for what a crash leaves and the
    broker repairs by itself.
    """

    kind: str
    text: str


def index_faults(
    data: bytes, segment: SegmentFile, *, will_be_recovered: bool
) -> Iterator[IndexFault]:
    """Yield at most one fault per kind and cause, with the number of entries affected.

    Args:
        data: the index file's bytes, read before the segment was opened, so that every entry
            is about bytes that the segment has.
        will_be_recovered: whether the broker's next start drops from it what a power loss has torn.
    """
    entries = [
        decode_entry(data, position)
        for position in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES)
    ]
    torn = len(data) % ENTRY_BYTES > 0
    while entries and entries[-1] is None:
        torn = True
        entries.pop()
    if torn:
        yield IndexFault("notice", "its end is torn; the broker ignores that")
    good = [entry for entry in entries if entry is not None]
    repaired_from = _first_unsynced(entries) if will_be_recovered else len(entries)
    for kind, some, consequence in (
        ("problem", entries[:repaired_from], ""),
        ("notice", entries[repaired_from:], "; recovery drops them"),
    ):
        if damaged := some.count(None):
            text = f"{damaged} of {len(entries)} entries are damaged{consequence}"
            yield IndexFault(kind, text)
        if unordered := _count_unordered([entry for entry in some if entry is not None]):
            text = f"{unordered} of {len(good)} entries are out of order{consequence}"
            yield IndexFault(kind, text)
    if foreign := sum(not _fits(entry, segment) for entry in good):
        yield IndexFault(
            "notice",
            f"{foreign} of {len(good)} entries don't match the segment's bytes; "
            "the broker ignores them",
        )


def _first_unsynced(entries: list[IndexEntry | None]) -> int:
    """The number of the first entry that a power loss may have torn: see `TimeIndex.mend`."""
    last = entries[-1] if entries else None
    known = last.end_offset - SYNC_EVERY_BYTES if last is not None else 0
    for number in reversed(range(len(entries))):
        entry = entries[number]
        if entry is not None and entry.end_offset < known:
            return number + 1
    return 0


def _count_unordered(entries: list[IndexEntry]) -> int:
    return sum(
        after.time_ms < before.time_ms or after.end_offset < before.end_offset
        for before, after in pairwise(entries)
    )


def _fits(entry: IndexEntry, segment: SegmentFile) -> bool:
    if not segment.base_offset < entry.end_offset <= segment.end_offset:
        return False
    length = min(TAIL_BYTES, entry.end_offset - segment.base_offset)
    return crc32(segment.read(entry.end_offset - length, length)) == entry.tail_crc
