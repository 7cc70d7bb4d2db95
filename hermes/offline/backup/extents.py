"""Up to where a partition is on disk, and which of its files hold that.

A running broker says so itself: the high watermark. A time index' last entry may prove more, unless
there are other copies.
Without a broker, all counts that the broker's own loader would load.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from hermes.errors import StorageError
from hermes.storage.files import FileLayer
from hermes.storage.kafka_format import format_of
from hermes.storage.loading import arrange
from hermes.storage.log_format import LogFormat
from hermes.storage.segment import UNFLUSHED_SUFFIX, Segment, choose_names
from hermes.storage.segment_files import LoadingSegment


class LogExtent(NamedTuple):
    """Part of a log. `tail`: how many of the last segments recovery looks at; 0 if it need not."""

    bases: Sequence[int]
    end: int
    tail: int = 0


def open_segment(
    directory: str, base: int, files: FileLayer, log_format: LogFormat
) -> tuple[int, Segment] | None:
    """Under either of its names: it may be renamed at any moment.

    Returns a descriptor that the caller closes, and the segment; None when it was deleted.
    """
    for suffix in (log_format.suffix, UNFLUSHED_SUFFIX, log_format.suffix):
        segment = Segment(files, log_format, directory, base, suffix)
        with suppress(FileNotFoundError):
            return files.open_read(segment.path), segment
    return None


def flushed_extent(
    directory: str, high_watermark: int, files: FileLayer, *, has_copies: bool = False
) -> LogExtent | None:
    """Find what is on disk of a partition that a broker is using.

    Args:
        high_watermark: what the broker said before this was called.
        has_copies: whether there are others, so that nothing beyond that is proven.

    Returns:
        It ends at the high watermark, or later; None when there is no segment now (any more).

    Raises:
        StorageError: the high watermark is of another log.
    """
    log_format = format_of(directory, files)
    bases = list(choose_names(files.listdir(directory), log_format.suffix)[0])
    if not bases:
        return None
    if high_watermark < bases[0]:
        raise StorageError(
            f"{directory} begins at offset {bases[0]}, but the broker's high watermark is "
            f"{high_watermark}: is it the broker that uses this directory?"
        )
    end = high_watermark
    for number, base in enumerate(bases):
        is_newest = number + 1 == len(bases) or bases[number + 1] > high_watermark
        if is_newest and not has_copies:
            end = max(end, _proven(directory, base, files, log_format))
    # The last segment that begins at the end may be empty; alone it still says where the log is.
    kept = [base for base in bases if base < end] or [base for base in bases if base == end]
    return LogExtent(kept, end)


def _proven(directory: str, base: int, files: FileLayer, log_format: LogFormat) -> int:
    """Up to where a segment is on disk for certain, by its time index; 0 if that says nothing."""
    opened = open_segment(directory, base, files, log_format)
    if opened is None:
        return 0
    descriptor, segment = opened
    try:
        size = files.fstat(descriptor).st_size
        segment.index.load(descriptor, log_format.end_of(files, segment, size))
    finally:
        files.close(descriptor)
    last = segment.index.last
    return 0 if last is None else last.end_offset


def stopped_extent(directory: str, files: FileLayer, *, clean: bool) -> LogExtent | None:
    """Find what the broker's next start would load of a partition that nobody uses.

    Args:
        clean: whether the last stop was clean.

    Returns:
        None if it would load nothing.

    Raises:
        CorruptLogError: something in the directory isn't a file.
    """
    log_format = format_of(directory, files)
    suffixes, _ = choose_names(files.listdir(directory), log_format.suffix)
    parts = [
        LoadingSegment.of(Segment(files, log_format, directory, base, suffix), files)
        for base, suffix in suffixes.items()
    ]
    found = arrange(parts)
    log = [*found.settled, *found.reached]
    if not log:
        return None
    tail = 1 + len(found.reached)
    if not log_format.is_dense and not clean:
        tail += _count_unproven(found.settled[:-1], files)
    needs_recovery = not clean or tail + len(found.unreached) > 1
    return LogExtent([part.base_offset for part in log], log[-1].end, tail if needs_recovery else 0)


def _count_unproven(parts: Sequence[LoadingSegment], files: FileLayer) -> int:
    """How many of the last segments before the tail recovery would look at as well."""
    unproven = 0
    for part in reversed(parts):
        descriptor = files.open_read(part.segment.path)
        try:
            part.segment.index.load(descriptor, part.end)
        finally:
            files.close(descriptor)
        if part.segment.index.ends_at(part.end):
            break
        unproven += 1
    return unproven
