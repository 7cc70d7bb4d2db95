"""Finds the next good message after a damaged one.

A message carries no marker of its start: only its length leads to the next. When a
length is damaged the chain is lost, and the next message must be found among all positions by
what can be checked: a length that fits, a known magic and codec, and the CRC.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final
from zlib import crc32

from hermes.protocol.messages import CODEC_MASK, HEADER_BYTES, MAGIC0, MAGIC1, SIZE
from hermes.protocol.wire import Buffer

# What a search may spend on CRCs of false candidates, in bytes: initially, and more for each byte
# searched. Only data made for the purpose comes near it.
_FIRST_CREDIT_BYTES: Final = 64 * 1024 * 1024
_CREDIT_PER_BYTE: Final = 64

_WINDOW_BYTES: Final = 64 * 1024
_ZEROS: Final = bytes(_WINDOW_BYTES + 4)


def find_valid_message(
    buffer: Buffer, start: int, *, end: int | None = None, max_message_bytes: int
) -> int | None:
    """Find the next position at which a whole, intact message starts; None if there is none.

    If the message at `start` is good, that is the result. If it is damaged, the position
    that its length leads to is preferred, since its payload may hold bytes that look like
    messages; unless its CRC proves that only the length is damaged, and where it ends. Without
    such a lead every position is tried. Inner sets of compressed messages are not examined.

    The work is bounded by a multiple of the length searched, whatever the bytes are. Data made
    to look like large messages everywhere may exhaust it; small messages are still found then.

    Args:
        buffer: bytes-like objects are used without a copy.
        end: a message must end at or before it. None for the end of the buffer.
        max_message_bytes: no payload is larger than this.
    """
    end = len(buffer) if end is None else end
    search = _MessageSearch(buffer, end, max_message_bytes)
    lead = search.follow(start)
    if lead == start:
        return start
    found = search.after_damaged_length(start, end if lead is None else lead)
    if found is None:
        found = lead
    return next(search.scan(start + 1, end), None) if found is None else found


def find_after_damaged_length(
    buffer: Buffer, start: int, *, end: int | None = None, max_message_bytes: int
) -> int | None:
    """Find the message that follows one at `start` of which nothing but the length is damaged.

    A message whose length exceeds what was read is usually just incomplete. It is certainly
    damaged if its CRC is right up to a place where an intact message starts, or up to the very
    end. Returns that place; None if there is none.
    """
    end = len(buffer) if end is None else end
    search = _MessageSearch(buffer, end, max_message_bytes)
    found = search.after_damaged_length(start, end)
    return end if found is None and search.reaches(start, end) else found


class _MessageSearch:
    """One search: the bytes, the limits, and what is left of the work allowed."""

    def __init__(self, data: Buffer, end: int, max_message_bytes: int) -> None:
        self._data = data
        self._end = end
        self._max_size = max_message_bytes + HEADER_BYTES[1]
        self._pattern = _candidates(self._max_size.bit_length())
        self._credit = _FIRST_CREDIT_BYTES

    def length(self, position: int) -> int | None:
        """The length at a position, if such a message would be whole and not too large."""
        room = self._end - position - SIZE.size
        if room < HEADER_BYTES[0]:
            return None
        size: int = SIZE.unpack_from(self._data, position)[0]
        return size if HEADER_BYTES[0] <= size <= min(room, self._max_size) else None

    def follow(self, position: int) -> int | None:
        """Follow the lengths from a position to the first intact message, or until they fail."""
        while (size := self.length(position)) is not None:
            if self.is_intact(position, size):
                return position
            position += SIZE.size + size
        return None

    def is_intact(self, position: int, size: int) -> bool:
        data = memoryview(self._data)
        magic = data[position + SIZE.size]
        if magic not in (0, 1) or size < HEADER_BYTES[magic]:
            return False
        if magic and data[position + SIZE.size + 1] & CODEC_MASK == CODEC_MASK:
            return False
        struct_format = MAGIC1 if magic else MAGIC0
        payload = data[position + struct_format.size : position + SIZE.size + size]
        return crc32(payload) == int(struct_format.unpack_from(data, position)[-1])

    def scan(self, start: int, end: int) -> Iterator[int]:
        view = memoryview(self._data)
        for window in range(start, end, _WINDOW_BYTES):
            self._credit += _WINDOW_BYTES * _CREDIT_PER_BYTE
            stop = min(window + _WINDOW_BYTES, end)
            # What a file system leaves after a crash is often zeros, gigabytes of them.
            block = bytes(view[window : stop + 4])
            if block == _ZEROS[: len(block)]:
                continue
            yield from self._scan_window(window, stop)

    def _scan_window(self, position: int, stop: int) -> Iterator[int]:
        while match := self._pattern.search(self._data, position, min(stop + 4, self._end)):
            position = match.start()
            size = self.length(position)
            if size is not None and self._spend(size) and self.is_intact(position, size):
                yield position
            position += 1

    def after_damaged_length(self, start: int, lead: int) -> int | None:
        """Where, before `lead`, the message at `start` ends if only its length is damaged.

        An intact message starts there, and the payload up to it has the right CRC; others may be
        part of the payload.
        """
        header = self._header(start)
        if header is None:
            return None
        data = memoryview(self._data)
        (covered, crc), running = header, 0
        for position in self.scan(covered, min(lead, start + SIZE.size + self._max_size + 1)):
            running = crc32(data[covered:position], running)
            covered = position
            if running == crc:
                return position
        return None

    def reaches(self, start: int, end: int) -> bool:
        """Whether the CRC of the message at `start` is right for a payload up to `end`."""
        header = self._header(start)
        return header is not None and crc32(memoryview(self._data)[header[0] : end]) == header[1]

    def _header(self, start: int) -> tuple[int, int] | None:
        """Where the payload of the message at `start` starts, whatever its length, and its CRC."""
        if self._end - start < MAGIC1.size or self._data[start + SIZE.size] not in (0, 1):
            return None
        if not any(self._data[start : start + MAGIC0.size]):  # zeros, not a message
            return None
        struct_format = MAGIC1 if self._data[start + SIZE.size] else MAGIC0
        return start + struct_format.size, int(struct_format.unpack_from(self._data, start)[-1])

    def _spend(self, crc_bytes: int) -> bool:
        """Whether credit is left for another CRC over that many bytes."""
        if crc_bytes > self._credit:
            return False
        self._credit -= crc_bytes
        return True


@lru_cache
def _candidates(bits: int) -> re.Pattern[bytes]:
    """A pattern for `length | magic` that skips zeros and lengths of more than `bits` (3 to 31)."""
    limits = [min(max((1 << max(bits - shift, 0)) - 1, 0), 255) for shift in (24, 16, 8, 0)]
    first, second, third, fourth = (b"[\\x00-\\x%02x]" % limit for limit in limits)
    smallest = b"[\\x%02x-\\xff]" % HEADER_BYTES[0]
    sizes = b"|".join(
        (
            b"\\x00\\x00\\x00" + smallest,
            b"\\x00\\x00[^\\x00].",
            b"\\x00[^\\x00]..",
            b"[^\\x00]...",
        )
    )
    return re.compile(
        b"(?=" + first + second + third + fourth + b")(?:" + sizes + b")[\\x00\\x01]", re.DOTALL
    )
