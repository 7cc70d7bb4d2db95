"""Damage of segments: which of their bytes are no messages, by length, magic and CRC.

As in recovery, the format's `scan` says what counts as a message, and where the next one starts
behind damage. But recovery looks at what the last stop may have torn, and here everything is on
disk: a bad tail is damage as well. So is what the disk doesn't give back.
"""

import json
import os
from collections.abc import Callable, Collection, Sequence
from errno import EIO
from typing import Final, NamedTuple

from hermes.storage.files import FileLayer, Identity, identity, is_no_descriptor
from hermes.storage.layout import DAMAGE_NAME
from hermes.storage.log_format import LogFormat, OpenSegment
from hermes.storage.whole_files import read_whole, replace_whole

#: How many ranges are told apart in a segment.
MOST_RANGES: Final = 100

# How much is noted for the next start.
_MOST_NOTED: Final = 1000
_MOST_NOTED_BYTES: Final = 1024 * 1024

# A scan goes back by less than two of its own reads, of a quarter of this.
_KEPT_BYTES: Final = 1024 * 1024
# What a disk loses at once.
_SECTOR_BYTES: Final = 4096


class Damage(NamedTuple):
    """Offsets of a log that can't be read, from `start` up to `end`, which can or ends the log."""

    start: int
    end: int


def damage_of(
    log_format: LogFormat, opened: OpenSegment, end: int, size_bytes: int, max_message_bytes: int
) -> list[Damage]:
    """Read a segment, all of which is on disk, and find what of it is damaged. Blocks.

    Args:
        end: the offset at which it ends.
        size_bytes: the position after its last byte.
        max_message_bytes: the largest payload to believe in where bytes are damaged.

    Returns:
        The damaged ranges, in order; where there are very many, the last one covers the rest.
    """
    base = opened.segment.base_offset
    report = log_format.scan(opened, (base, 0), size_bytes, max_message_bytes)
    found = [Damage(*each) for each in report.bad_ranges]
    is_short = log_format.is_dense and report.valid_end < end
    if is_short or report.valid_bytes < size_bytes:
        found.append(Damage(report.valid_end, max(end, report.valid_end)))
    if len(found) > MOST_RANGES:
        found[MOST_RANGES - 1 :] = [Damage(found[MOST_RANGES - 1].start, found[-1].end)]
    return found


def describe(damage: Sequence[Damage], most: int = 3) -> str:
    if not damage:
        return ""
    text = (
        f"damaged at offsets {', '.join(f'{each.start} to {each.end}' for each in damage[:most])}"
    )
    return text if len(damage) <= most else f"{text} and in {len(damage) - most} more places"


def read_or_zeros(read: Callable[[int, int], bytes], length: int, position: int) -> bytes:
    """Read a range, with zeros for what the disk doesn't give back, as little as possible.

    `read` takes a length and a position.
    """
    try:
        return read(length, position)
    except OSError as error:
        if error.errno != EIO:
            raise
    if length <= _SECTOR_BYTES:
        return bytes(length)
    end = position + length
    starts = range(position, end, _SECTOR_BYTES)
    return b"".join(read_or_zeros(read, min(_SECTOR_BYTES, end - at), at) for at in starts)


class ReadableFiles(FileLayer):
    """Reads zeros for what the disk doesn't give back: for tools that look at all there is.

    Attributes:
        lost: of which files something can't be read, and in which sectors: how many bytes.
    """

    def __init__(self) -> None:
        self.lost: dict[Identity, dict[int, int]] = {}
        self.pread = self._pread

    def _pread(self, descriptor: int, length: int, position: int) -> bytes:
        try:
            return FileLayer.pread(descriptor, length, position)
        except OSError as error:
            if error.errno != EIO:
                raise
        status = self.fstat(descriptor)
        start, end = position - position % _SECTOR_BYTES, min(position + length, status.st_size)
        sectors = range(start, end, _SECTOR_BYTES)
        data = b"".join(self._sector(descriptor, each, status) for each in sectors)
        return data[position - start :][:length]

    def _sector(self, descriptor: int, position: int, status: os.stat_result) -> bytes:
        length = min(_SECTOR_BYTES, status.st_size - position)
        try:
            return FileLayer.pread(descriptor, length, position)
        except OSError as error:
            if error.errno != EIO:
                raise
        self.lost.setdefault(identity(status), {})[position] = length
        return bytes(length)


class DamagedSegment(NamedTuple):
    topic: str
    partition: int
    base_offset: int


def write_damaged(directory: str, damaged: Collection[DamagedSegment], files: FileLayer) -> None:
    """Note in a data directory which segments are damaged; what was noted holds if that fails."""
    data = json.dumps(sorted(damaged)[:_MOST_NOTED]).encode()
    replace_whole(os.path.join(directory, DAMAGE_NAME), data, files)


def read_damaged(directory: str, files: FileLayer) -> frozenset[DamagedSegment]:
    """Read what was noted; nothing from a file that is itself damaged. Blocks.

    Raises OSError: there is no descriptor for it now; try again.
    """
    try:
        data = read_whole(os.path.join(directory, DAMAGE_NAME), _MOST_NOTED_BYTES, files)
        return frozenset(DamagedSegment(*each) for each in json.loads(data or b"[]"))
    except OSError as error:
        if is_no_descriptor(error):
            raise
    except (ValueError, TypeError, RecursionError):
        pass
    return frozenset()  # a round finds them again


class BlockReads(FileLayer):
    """Reads of one file in blocks, each of them once: a scan's reads overlap.

    Only `pread` is of use, and of whatever descriptor it is the same file.

    Args:
        read: reads the block at a position, which is a multiple of `block_bytes`; shorter only at
            the file's end.
    """

    def __init__(self, read: Callable[[int], bytes], block_bytes: int) -> None:
        self._read = read
        self._block_bytes = block_bytes
        self._blocks: dict[int, bytes] = {}
        self.pread = self._pread

    def _pread(self, descriptor: int, length: int, position: int) -> bytes:
        start = position % self._block_bytes
        # Less than was asked for where a block ends: readers go on there.
        return self._block(position - start)[start : start + length]

    def _block(self, position: int) -> bytes:
        block = self._blocks.get(position)
        if block is None:
            if len(self._blocks) * self._block_bytes >= _KEPT_BYTES:
                del self._blocks[next(iter(self._blocks))]
            block = self._blocks[position] = self._read(position)
        return block
