"""The files of segments as they are found: what each holds, which follow each other, their names.

Names, sizes and identities only: no byte of a message is read here but for one comparison, of a
copy that was put back with what it replaces (`find_again`). What the bytes are worth,
`hermes.storage.recovery` says.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from stat import S_ISREG
from typing import Protocol, TypeVar

from hermes.errors import CorruptLogError
from hermes.storage.files import FileLayer, identity
from hermes.storage.log_format import ScanReport
from hermes.storage.segment import UNFLUSHED_SUFFIX, LogView, Segment

_E = TypeVar("_E", bound="Extent")

_LOST = (
    "so consumers would miss what they have been told of; put back what was there, or restart the "
    "broker to go on with what is there now"
)


@dataclass(slots=True)
class LoadingSegment:
    """A segment while it is loaded.

    Attributes:
        end: the offset at which it ends.
        size_bytes: its size, up to there.
        modified_ms: its file's modification time, in ms since 1970.
        start, start_position: from which offset on it was scanned, and where that lies.
        report: what the scan found. These three are set by `hermes.storage.recovery`.
    """

    segment: Segment
    end: int
    size_bytes: int
    modified_ms: int
    start: int = field(init=False)
    start_position: int = field(init=False)
    report: ScanReport = field(init=False)

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @property
    def is_flushed_name(self) -> bool:
        return self.segment.is_flushed_name

    @classmethod
    def of(cls, segment: Segment, files: FileLayer) -> "LoadingSegment":
        """Look at a segment's file. Raises CorruptLogError if it isn't a regular file."""
        status = files.lstat(segment.path)
        if not S_ISREG(status.st_mode):
            raise CorruptLogError(f"{segment.path} is not a regular file (links are not followed)")
        size = segment.size_bytes = status.st_size
        end = segment.format.end_of(files, segment, size)
        return cls(segment, end, size, status.st_mtime_ns // 1_000_000)


class Extent(Protocol):
    @property
    def base_offset(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def is_flushed_name(self) -> bool: ...


def count_contiguous(parts: Sequence[Extent]) -> int:
    """Count the files that follow each other without a gap, the first one included.

    What has a final name belongs to the log in any case.
    """
    for number in range(1, len(parts)):
        part = parts[number]
        if part.base_offset != parts[number - 1].end and not part.is_flushed_name:
            return number
    return len(parts)


def with_torn_index(parts: Sequence[_E], ends_whole: Callable[[_E], bool]) -> Iterator[_E]:
    """Yield the segments before the tail whose time index a loss of power may have torn.

    The last comes first. An index is synced when its segment is complete, the oldest first, and
    each before anything is written into the next one. So those before one that is written to its
    end are whole.

    Args:
        ends_whole: whether the last entry of a segment's index is about the segment's end.
    """
    for part in reversed(parts):
        yield part
        if ends_whole(part):
            return


def find_again(view: LogView, end: int, files: FileLayer) -> tuple[Segment, ...]:
    """Find the files of a log that is in memory, under the names that they have now.

    What was visible must be there, whether it is in the same files (a disk that failed, or was away
    for a while) or in others (a copy that was put back): nobody's offset may come to nothing.

    Returns:
        New segments in the order of the view; some after the high watermark may be missing.

    Raises:
        CorruptLogError: something that was visible is missing.
    """
    first = view.position_of(view.flushed_end)
    found = []
    for number, old in enumerate(view.segments):
        segment = _named_as_now(old, files)
        if number <= first:
            if segment is None:
                raise CorruptLogError(f"{old.path} is missing, {_LOST}")
            limit = view.end_of(number, end)
            least = view.flushed_end if number == first else limit
            _check_is_whole(old, segment, least, limit, files)
            found.append(segment)
        elif segment is not None and segment.file.identity == old.file.identity:
            found.append(segment)
    return tuple(found)


def remove_unbegun(view: LogView, end: int, files: FileLayer) -> None:
    """Delete the empty file of a segment that was to begin where a log ends, and did not.

    It is none of the log's, and nothing could be appended while it has the next one's name.
    """
    last = view.segments[-1]
    if last.base_offset == end:
        return
    for suffix in (last.format.suffix, UNFLUSHED_SUFFIX):
        path = Segment(files, last.format, last.directory, end, suffix).path
        with suppress(FileNotFoundError, NotADirectoryError):
            status = files.lstat(path)
            if S_ISREG(status.st_mode) and not status.st_size:
                files.unlink(path)


def _named_as_now(old: Segment, files: FileLayer) -> Segment | None:
    there = []
    for suffix in (old.format.suffix, UNFLUSHED_SUFFIX):
        segment = Segment(files, old.format, old.directory, old.base_offset, suffix)
        segment.size_bytes = old.size_bytes
        try:
            segment.file.identity = identity(files.lstat(segment.path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        if segment.file.identity == old.file.identity:
            return segment
        there.append(segment)
    return there[0] if there else None


def _check_is_whole(
    old: Segment, segment: Segment, least: int, limit: int, files: FileLayer
) -> None:
    """Refuse a file that doesn't hold a segment up to `least`, or is of another log."""
    loading = LoadingSegment.of(segment, files)
    end = loading.end
    # Compaction may have left a gap before the next segment: then its size tells.
    is_gap = not old.format.is_dense and least == limit and loading.size_bytes == old.size_bytes
    if end < least and not is_gap:
        raise CorruptLogError(f"{segment.path} ends at offset {end}, not {least}, {_LOST}")
    if old.file.identity in (None, segment.file.identity):
        return
    last = old.index.last
    descriptor = files.open_read(segment.path)
    try:
        is_copy = last is None or last.tail_crc == segment.index.tail_crc(
            descriptor, last.end_offset
        )
    finally:
        files.close(descriptor)
    if end > limit or not is_copy:
        raise CorruptLogError(f"{segment.path} holds other messages than it did, {_LOST}")


def remove_segment(segment: Segment, files: FileLayer) -> None:
    """Delete a segment's files, its index first: what a crash leaves is a segment or nothing.

    The caller syncs the directory afterwards.
    """
    for path in (*segment.beside, segment.path):
        with suppress(FileNotFoundError):
            files.unlink(path)


def finalize_names(segments: Sequence[Segment], files: FileLayer) -> None:
    for segment in segments:
        if not segment.is_flushed_name:
            segment.rename_flushed()
    # Also when nothing changed here: the names that were found may be in memory only.
    files.fsync_directory(segments[0].directory)
