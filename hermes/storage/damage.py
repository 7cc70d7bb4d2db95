"""Damage of whole segments: which of their bytes are no messages, by length, magic and CRC.

What counts as a message, and where the next one starts behind damage, is for the format's `scan` to
say, as in recovery. But recovery looks at what the last stop may have torn, and here all of a
segment is on disk: what its last message is followed by is damaged as well.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from hermes.storage.files import FileLayer
from hermes.storage.log_format import LogFormat, OpenSegment

#: How much a reader of blocks reads at once.
BLOCK_BYTES: Final = 256 * 1024

#: How many ranges are told apart in a segment.
MOST_RANGES: Final = 100

# A scan steps back by less than two of its own reads, which are no larger than a block.
_KEPT_BLOCKS: Final = 4


class Damage(NamedTuple):
    """Offsets of a log that can't be read, from `start` up to `end`, which can or ends the log."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end}"


def damage_of(
    log_format: LogFormat, opened: OpenSegment, end: int, size_bytes: int, max_message_bytes: int
) -> list[Damage]:
    """Read a segment, all of which is on disk, and find what of it is damaged. Blocks.

    Args:
        log_format: what it holds.
        opened: the segment.
        end: the offset at which it ends.
        size_bytes: the position after its last byte.
        max_message_bytes: the largest payload to believe in where bytes are damaged.

    Returns:
        The damaged ranges, in order; where there are very many, the last one covers the rest.

    Raises:
        OSError: it can't be read.
    """
    base = opened.segment.base_offset
    report = log_format.scan(opened, base, size_bytes, max_message_bytes)
    found = [Damage(*each) for each in report.bad_ranges]
    if report.valid_bytes < size_bytes:
        found.append(Damage(report.valid_end, max(end, report.valid_end)))
    if len(found) > MOST_RANGES:
        found[MOST_RANGES - 1 :] = [Damage(found[MOST_RANGES - 1].start, found[-1].end)]
    return found


class BlockReads(FileLayer):
    """Reads of one file in blocks, each of them once: a scan's reads overlap.

    Only `pread` is of use, and of whatever descriptor it is the same file.

    Args:
        read: reads the block at a position, which is a multiple of `BLOCK_BYTES`; shorter only at
            the file's end.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._blocks: dict[int, bytes] = {}
        self.pread = self._pread

    def _pread(self, descriptor: int, length: int, position: int) -> bytes:
        start = position % BLOCK_BYTES
        # Less than was asked for where a block ends: readers go on there.
        return self._block(position - start)[start : start + length]

    def _block(self, position: int) -> bytes:
        block = self._blocks.get(position)
        if block is None:
            if len(self._blocks) == _KEPT_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            block = self._blocks[position] = self._read(position)
        return block
