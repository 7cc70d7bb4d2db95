"""One segment: a file of a partition's log, its names, and what is known of it without reading it.

A segment starts where the one before ends and is called by that offset, in 20 digits. Three
endings are in use; Kafka 0.7 reads the first and ignores the others:

    <base>.kafka       the messages, exactly as 0.7 writes them
    <base>.unflushed   the same, while something *before* this segment may not be on disk yet
    <base>.timeindex   what `hermes.storage.time_index` knows of the segment

Invariant: the name `.kafka` promises that every earlier byte of the log is on disk. 0.7 keeps the
same promise by flushing before it rolls, and its recovery relies on it by looking at the last
segment only. Rolling must not wait for a disk here, so a new segment is created as `.unflushed`
and renamed by the flush that covers everything before it. After a crash such a file is kept when
it fits, and was never visible when it doesn't.

What is said here of `.kafka` holds for whatever the log's format calls its segments.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from errno import EEXIST
from typing import Final, NamedTuple, NewType

from hermes.storage.boundary import Boundaries
from hermes.storage.descriptors import CachedFile
from hermes.storage.files import FileLayer, exists
from hermes.storage.kafka_0_7 import INDEX_SUFFIX, SEGMENT_SUFFIX
from hermes.storage.log_format import LogFormat

__all__ = [
    "BESIDE",
    "INDEX_SUFFIX",
    "SEGMENT_SUFFIX",
    "UNFLUSHED_SUFFIX",
    "FlushedEnd",
    "HighWatermark",
    "LastStableOffset",
    "LogView",
    "Segment",
    "choose_names",
    "parse_segment_name",
    "segment_name",
]

UNFLUSHED_SUFFIX = ".unflushed"

#: What may lie beside a segment, by what the segment's format calls it, the index first. Of
#: Kafka's: where offsets and timestamps lie, what its transactions and its producers have come to.
BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    ".kafka": (INDEX_SUFFIX,),
    ".log": (".appends", ".index", INDEX_SUFFIX, ".txnindex", ".snapshot"),
}

_NAME = re.compile(r"([0-9]{20})(\.[a-z]+)")
_LARGEST_OFFSET = 2**63 - 1


def segment_name(base_offset: int, suffix: str = SEGMENT_SUFFIX) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_segment_name(name: str, suffix: str = SEGMENT_SUFFIX) -> tuple[int, str] | None:
    """Read a file's name as (base offset, ending); None when it is none of ours."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) > _LARGEST_OFFSET:
        return None
    if match[2] not in (suffix, UNFLUSHED_SUFFIX, *BESIDE[suffix]):
        return None
    return int(match[1]), match[2]


def choose_names(
    names: Iterable[str], suffix: str = SEGMENT_SUFFIX
) -> tuple[dict[int, str], list[str]]:
    """Choose the file of each segment: the rule for reading a partition's directory.

    Of two files with one base offset `.kafka` counts: it is a promise, and what Kafka 0.7 has
    appended to. The other is a draft that was left.

    Args:
        suffix: what the log's format calls its segments; it sorts before `.unflushed`.

    Returns:
        (the ending that counts by base offset, ascending; names that belong to no segment).
    """
    suffixes: dict[int, str] = {}
    strange = []
    # In this order `.kafka` comes before `.unflushed`.
    for name in sorted(names):
        parsed = parse_segment_name(name, suffix)
        is_segment = parsed is not None and parsed[1] not in BESIDE[suffix]
        if parsed is None or (is_segment and parsed[0] in suffixes):
            strange.append(name)
        elif is_segment:
            suffixes[parsed[0]] = parsed[1]
    return suffixes, strange


class Segment:
    """A part of a log: where it starts, its file, and what is known of it.

    Args:
        suffix: what its file is called: the format's suffix unless given, or `.unflushed`.

    Attributes:
        size_bytes: the size of its file, for one that isn't appended to any more.
        is_flushed_name: whether its file is called `.kafka`, and not `.unflushed`.
        boundaries: message boundaries inside that earlier searches have found.
    """

    __slots__ = (
        "_files",
        "base_offset",
        "boundaries",
        "directory",
        "file",
        "format",
        "index",
        "is_flushed_name",
        "size_bytes",
    )

    def __init__(
        self,
        files: FileLayer,
        log_format: LogFormat,
        directory: str,
        base_offset: int,
        suffix: str | None = None,
    ) -> None:
        self._files = files
        self.format = log_format
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = 0
        self.file = CachedFile(self._named(suffix or log_format.suffix))
        self.is_flushed_name = suffix != UNFLUSHED_SUFFIX
        index_path = self._named(log_format.index_suffix)
        self.index = log_format.new_index(files, index_path, base_offset)
        self.boundaries = Boundaries()

    def _named(self, suffix: str) -> str:
        return os.path.join(self.directory, segment_name(self.base_offset, suffix))

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def beside(self) -> tuple[str, ...]:
        """The paths of what may lie beside it, the index first."""
        return tuple(map(self._named, BESIDE[self.format.suffix]))

    def check_final_name(self) -> None:
        """Make sure that nothing else has the name that an `.unflushed` file is to get.

        Raises FileExistsError: something has; whatever it is, it must not be replaced.
        """
        final = self._named(self.format.suffix)
        if exists(final, self._files):
            raise FileExistsError(EEXIST, f"{final} exists already", final)

    def rename_flushed(self) -> None:
        """Call an `.unflushed` file `.kafka`: all that comes before it is on disk.

        Only here a name changes, on disk first. The caller syncs the directory afterwards.

        Raises:
            FileExistsError: something of that name exists; it was not touched.
            OSError: the disk failed; the name on disk may have changed all the same.
        """
        self.check_final_name()
        final = self._named(self.format.suffix)
        self._files.rename(self.file.path, final)
        self.file.path = final
        self.is_flushed_name = True

    def __repr__(self) -> str:
        return f"<Segment {self.path}>"


#: Up to where a log is on this disk: what recovery starts from and checkpoints say.
FlushedEnd = NewType("FlushedEnd", int)

#: Up to where a log is committed, on the disks of as many as must have it: what readers see.
HighWatermark = NewType("HighWatermark", int)

#: Up to where that is decided, too: no transaction is open before it (`transactions`).
LastStableOffset = NewType("LastStableOffset", int)


class LogView(NamedTuple):
    """What a log shows to readers at one moment: immutable, replaced as a whole (copy-on-write).

    Attributes:
        bases: the segments' base offsets, ascending: what a lookup bisects. The first one is
            where the log begins, which may be inside its segment.
        segments: the segments, in the same order; the last one is active.
        flushed_end: up to where the log is on this disk.
        high_watermark: up to where it is committed, and therefore visible; never beyond the
            flushed end, and the same where there is one copy only.
        stable_end: up to where no transaction is open, for who reads only what was committed;
            never beyond the high watermark, and nearly always the same.
    """

    bases: tuple[int, ...]
    segments: tuple[Segment, ...]
    flushed_end: FlushedEnd
    high_watermark: HighWatermark
    stable_end: LastStableOffset

    @classmethod
    def of(
        cls,
        segments: tuple[Segment, ...],
        flushed_end: FlushedEnd,
        high_watermark: HighWatermark,
        stable_end: LastStableOffset,
        earliest: int = 0,
    ) -> "LogView":
        """A log may begin inside the first segment."""
        first, *others = (each.base_offset for each in segments)
        bases = (max(first, earliest), *others)
        stable_end = LastStableOffset(max(stable_end, bases[0]))
        return cls(bases, segments, flushed_end, high_watermark, stable_end)

    def with_segments(self, segments: tuple[Segment, ...]) -> "LogView":
        marks = self.flushed_end, self.high_watermark, self.stable_end
        return LogView.of(segments, *marks, self.earliest)

    def up_to(self, end: int) -> "LogView":
        """The same for somebody who may read more, up to the log's end, or less."""
        return self._replace(high_watermark=HighWatermark(end))

    @property
    def earliest(self) -> int:
        return self.bases[0] if self.bases else 0

    def position_of(self, offset: int) -> int:
        """The place in the view of the segment that holds an offset, or ends with it."""
        return bisect_right(self.bases, offset) - 1

    def end_of(self, position: int, log_end: int) -> int:
        """Where the segment at a place ends: where the next one begins, or the log ends."""
        following = position + 1
        return self.bases[following] if following < len(self.bases) else log_end

    def visible_end_of(self, position: int) -> int:
        return min(self.end_of(position, self.high_watermark), self.high_watermark)

    def complete_segments(self) -> tuple[Segment, ...]:
        count = len(self.segments) - 1
        while count > 0 and not (
            self.segments[count].is_flushed_name and self.bases[count] <= self.high_watermark
        ):
            count -= 1
        return self.segments[: max(0, count)]
