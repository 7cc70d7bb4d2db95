"""A segment's file, message by message, read-only: what `dump-log` shows and `check-log` judges.

Which bytes are messages, and where the next good one starts behind a bad one, is decided by
`hermes.storage.recovery`, so that the tools never contradict the broker's own recovery. On top of
that stands what a CRC can't see: whether a compressed message can be expanded.
"""

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from zlib import crc32

from hermes.errors import InvalidMessageError
from hermes.protocol import Codec, Message
from hermes.protocol.expansion import DEFAULT_MAX_EXPANDED_BYTES, Expansion
from hermes.protocol.messages import CODEC_MASK, HEADER_BYTES
from hermes.storage.files import FileLayer, read_exactly
from hermes.storage.recovery import SegmentReader, next_valid

__all__ = [
    "BadRange",
    "Limits",
    "SegmentFile",
    "StoredMessage",
    "codec_name",
]

_WINDOW_BYTES: Final = 1024 * 1024
_SIZE: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
# By the two bits of the attributes.
_CODEC_NAMES: Final = (*(codec.name.lower() for codec in Codec), "codec-3")
_NAME: Final = re.compile(r"([0-9]{1,20})\.[a-z]+")


@dataclass(frozen=True, slots=True)
class Limits:
    """What is believed of damaged and of compressed messages.

    Attributes:
        max_message_bytes: the largest payload looked for behind a damaged message; intact ones
            may be larger.
        max_expanded_bytes: what one compressed message may expand to.
    """

    max_message_bytes: int = 1_000_000
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message whose size, magic and CRC are right.

    Attributes:
        offset: where it starts in the partition's log.
        size_bytes: what it takes in the log, its length field included.
        message: the message as it stands there, its payload a copy.
        message_count: how many messages it holds: 1, or those of a compressed set.
        problem: why it can't be consumed all the same; None when it can.
    """

    offset: int
    size_bytes: int
    message: Message
    message_count: int
    problem: str | None

    @property
    def end_offset(self) -> int:
        """The offset after it, where the next message starts."""
        return self.offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class BadRange:
    """Bytes that are no valid message.

    Attributes:
        offset: where they start in the partition's log.
        end_offset: the offset after them.
        next_offset: where the next valid message starts; None when none follows in the segment.
        reason: what is wrong with the first of them.
    """

    offset: int
    end_offset: int
    next_offset: int | None
    reason: str

    @property
    def is_tail(self) -> bool:
        """Whether no valid message follows: what the broker cuts off when it recovers."""
        return self.next_offset is None


def codec_name(message: Message) -> str:
    """How a message says it is compressed.

    Args:
        message: any message, valid or not.

    Returns:
        `none`, `gzip` or `snappy`; `codec-3` for the one that isn't assigned.
    """
    return _CODEC_NAMES[message.attributes & CODEC_MASK]


class SegmentFile:
    """A segment's file, opened for reading; a context manager.

    A broker may be appending to it meanwhile: what is read is what was there when `refresh` (or
    the constructor) looked at the file's size.

    Args:
        path: the file, or a link to it. Its name tells the base offset; 0 when it doesn't.
        limits: what is believed.

    Raises:
        OSError: it can't be opened.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        named = _NAME.fullmatch(path.name)
        self.base_offset = int(named[1]) if named else 0
        self._limits = limits
        self._files = FileLayer()
        self._descriptor = self._files.open_read(os.path.realpath(path))
        self._window = b""
        self._window_start = 0
        self.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._files.close(self._descriptor)

    def refresh(self) -> int:
        """Look at the file's size again.

        Returns:
            The offset after its last byte.
        """
        self.end_offset = self.base_offset + os.fstat(self._descriptor).st_size
        self._window = b""
        return self.end_offset

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes by their offset in the partition's log.

        Args:
            offset: the first one; base_offset or more.
            length: how many; fewer come back where the file ends.
        """
        length = min(length, self.end_offset - offset)
        start = offset - self._window_start
        if start < 0 or start + length > len(self._window):
            wanted = min(max(length, _WINDOW_BYTES), self.end_offset - offset)
            position = offset - self.base_offset
            self._window = read_exactly(self._files, self._descriptor, wanted, position)
            self._window_start, start = offset, 0
        return self._window[start : start + length]

    def walk(self, start: int | None = None) -> Iterator[StoredMessage | BadRange]:
        """Step over the segment.

        Args:
            start: the offset to begin at, a message boundary; None for the first.

        Yields:
            What is there, in order and without gaps.

        Raises:
            OSError: it can't be read.
        """
        offset = self.base_offset if start is None else start
        reader = SegmentReader(self._files, self._descriptor, self.base_offset, self.end_offset)
        while offset < reader.end:
            message = self._message_at(offset)
            if isinstance(message, StoredMessage):
                yield message
                offset = message.end_offset
                continue
            following = next_valid(reader, offset, self._limits.max_message_bytes)
            end = reader.end if following is None else following
            yield BadRange(offset, end, following, reason=message)
            offset = end

    def _message_at(self, offset: int) -> StoredMessage | str:
        """The message at an offset, or what is wrong with it."""
        left = self.end_offset - offset
        start = self.read(offset, _SIZE.size + max(HEADER_BYTES))
        if left < _SIZE.size:
            return f"{left} bytes are left, not enough for a length"
        (length,) = _SIZE.unpack_from(start)
        if length < HEADER_BYTES[0]:
            return f"its length is {length}, less than a header"
        if length > left - _SIZE.size:
            missing = length - (left - _SIZE.size)
            return f"its length is {length}, which goes {missing} bytes beyond the end"
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

    def _examined(self, offset: int, size_bytes: int, message: Message) -> StoredMessage:
        codec = message.attributes & CODEC_MASK
        if not codec:
            return StoredMessage(offset, size_bytes, message, 1, None)
        if codec >= len(Codec):
            return StoredMessage(offset, size_bytes, message, 0, f"the codec {codec} is unknown")
        try:
            count = Expansion(self._limits.max_expanded_bytes).count(message)
        except InvalidMessageError as error:
            return StoredMessage(offset, size_bytes, message, 0, str(error))
        return StoredMessage(offset, size_bytes, message, count, None)

    def _crc_of(self, offset: int, end: int) -> int:
        # In pieces: a damaged length may claim the rest of a file of gigabytes.
        crc = 0
        for start in range(offset, end, _WINDOW_BYTES):
            crc = crc32(self.read(start, min(_WINDOW_BYTES, end - start)), crc)
        return crc
