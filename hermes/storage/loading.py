"""From the files of a partition's directory to a log that is whole: list, check, recover the tail.

`load` never deletes what it doesn't understand. Segments that don't fit together raise
`CorruptLogError`, and the partition stays out of service until somebody has looked; files with
other names are reported and left alone. What it does change, after an unclean stop only, is the
*tail*: the last `.kafka` segment and the `.unflushed` ones after it (see `hermes.storage.segment`
for why nothing else can be damaged by a crash).

`recover_tail` scans from the last point that is known to be on disk, cuts a bad tail off, removes
`.unflushed` files that can't be reached any more (nothing in them was ever visible), syncs what it
kept, and notes the new recovery point. So its cost follows what was not flushed, not the size of
the log, and doing it again finds nothing to do.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from stat import S_ISREG

from hermes.errors import CorruptLogError
from hermes.storage.descriptors import DescriptorCache
from hermes.storage.files import FileLayer, read_exactly, write_all
from hermes.storage.recovery import RecoveryReport, scan
from hermes.storage.segment import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    UNFLUSHED_SUFFIX,
    Segment,
    parse_segment_name,
)

__all__ = ["LoadedLog", "LogSettings", "load", "recover_tail", "remove_segment"]

_COPY_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How one topic's logs are kept.

    Attributes:
        segment_bytes: roll before an append when the active segment is strictly larger.
        segment_age_ms: roll before an append when the segment's first append is longer ago.
        max_message_bytes: the largest payload that recovery believes in after damage.
    """

    segment_bytes: int = 1024**3
    segment_age_ms: int = 7 * 24 * 60 * 60 * 1000
    max_message_bytes: int = 1_000_000


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """What `load` found.

    Attributes:
        segments: oldest first, at least one.
        end: the offset after the last byte; all before it counts as flushed.
        report: what recovery did; None when the stop was clean and nothing was read.
        strange: names of files in the directory that belong to no segment.
        has_new_names: whether the directory must still be synced (a first segment was created).
    """

    segments: tuple[Segment, ...]
    end: int
    report: RecoveryReport | None
    strange: tuple[str, ...]
    has_new_names: bool = False


@dataclass(slots=True)
class _Part:
    """One segment of the tail while it is recovered; positions are offsets in the log."""

    segment: Segment
    end: int
    modified_ms: int
    report: RecoveryReport = field(init=False)


def load(
    directory: str,
    files: FileLayer,
    descriptors: DescriptorCache,
    settings: LogSettings,
    *,
    clean: bool,
    now_ms: int,
) -> LoadedLog:
    """Load a partition's log, recovering its tail unless the last stop was clean.

    Args:
        directory: the partition's directory, which exists.
        files: the file layer.
        descriptors: opens the segments that recovery reads.
        settings: the topic's settings.
        clean: True when a marker promised that the whole log is on disk and valid.
        now_ms: ms since 1970.

    Returns:
        The log's segments and end.

    Raises:
        CorruptLogError: the segments don't fit together; nothing was changed.
        OSError: the disk failed, or something isn't readable.
    """
    segments, strange = _list_segments(directory, files)
    parts = [_part(segment, files) for segment in segments]
    flushed = [number for number, part in enumerate(parts) if part.segment.is_flushed_name]
    if not flushed:
        return _begin(directory, files, parts, strange)
    tail = flushed[-1]
    _check_fit(parts[: tail + 1])
    if clean and tail == len(parts) - 1:
        return LoadedLog(tuple(segments), parts[-1].end, None, strange)
    kept, report = _recover(
        parts[tail:], files, descriptors, settings, entries=None, start=None, now_ms=now_ms
    )
    return LoadedLog((*segments[:tail], *kept), report.valid_end, report, strange)


def _begin(
    directory: str, files: FileLayer, parts: Sequence[_Part], strange: tuple[str, ...]
) -> LoadedLog:
    """Begin a log at 0. What is there was never flushed: the name of its start was lost."""
    for part in parts:
        remove_segment(part.segment, files)
    first = Segment(files, directory, 0)
    files.close(files.open_new(first.path))
    first.index.begin()
    lost = sum(part.end - part.segment.base_offset for part in parts)
    report = RecoveryReport(0, 0, dropped_bytes=lost) if parts else None
    return LoadedLog((first,), 0, report, strange, has_new_names=True)


def recover_tail(
    tail: Sequence[Segment],
    files: FileLayer,
    descriptors: DescriptorCache,
    settings: LogSettings,
    *,
    start: int,
    end: int,
    entries: Sequence[tuple[int, int]],
    now_ms: int,
) -> tuple[tuple[Segment, ...], RecoveryReport]:
    """Recover the tail of a log that is in memory, after its disk failed.

    What is valid is written again before it is synced: a failed fsync may have marked pages as
    clean that never reached the disk.

    Args:
        tail: the segment that holds `start` and all later ones.
        files: the file layer.
        descriptors: opens the segments.
        settings: the topic's settings.
        start: the high watermark: what is before it is on disk.
        end: where the log ended; bytes beyond it belong to appends that were refused.
        entries: (time_ms, end_offset) of appends after `start`, for the time index.
        now_ms: ms since 1970.

    Returns:
        (the segments that remain of the tail, what was found).

    Raises:
        OSError: the disk still fails.
    """
    parts = [_part(segment, files) for segment in tail]
    parts[-1].end = min(parts[-1].end, end)
    return _recover(
        parts, files, descriptors, settings, entries=entries, start=start, now_ms=now_ms
    )


def remove_segment(segment: Segment, files: FileLayer) -> None:
    """Delete a segment's files, its index first: what a crash leaves is a segment or nothing.

    Args:
        segment: one that no view holds.
        files: the file layer; the caller syncs the directory afterwards.

    Raises:
        OSError: a file can't be deleted.
    """
    with suppress(FileNotFoundError):
        files.unlink(segment.index.path)
    with suppress(FileNotFoundError):
        files.unlink(segment.path)


def _list_segments(directory: str, files: FileLayer) -> tuple[list[Segment], tuple[str, ...]]:
    """Find the segments in a directory: (oldest first, names that are none of ours)."""
    suffixes: dict[int, str] = {}
    strange = []
    # Sorted names put `.kafka` before `.unflushed`, so the promise wins over its draft.
    for name in sorted(files.listdir(directory)):
        parsed = parse_segment_name(name)
        if parsed is None or (parsed[1] != INDEX_SUFFIX and parsed[0] in suffixes):
            strange.append(name)
        elif parsed[1] in (SEGMENT_SUFFIX, UNFLUSHED_SUFFIX):
            suffixes[parsed[0]] = parsed[1]
    segments = [
        Segment(files, directory, base, is_flushed_name=suffixes[base] == SEGMENT_SUFFIX)
        for base in sorted(suffixes)
    ]
    return segments, tuple(strange)


def _part(segment: Segment, files: FileLayer) -> _Part:
    status = files.stat(segment.path)
    if not S_ISREG(status.st_mode):
        raise CorruptLogError(f"{segment.path} is not a regular file")
    return _Part(segment, segment.base_offset + status.st_size, status.st_mtime_ns // 1_000_000)


def _check_fit(parts: Sequence[_Part]) -> None:
    for part, following in pairwise(parts):
        if part.end != following.segment.base_offset:
            raise CorruptLogError(
                f"{part.segment.path} ends at offset {part.end}, but the next segment starts at "
                f"{following.segment.base_offset}: a file is missing, cut or from another log"
            )


def _recover(
    parts: Sequence[_Part],
    files: FileLayer,
    descriptors: DescriptorCache,
    settings: LogSettings,
    *,
    entries: Sequence[tuple[int, int]] | None,
    start: int | None,
    now_ms: int,
) -> tuple[tuple[Segment, ...], RecoveryReport]:
    """Scan, decide what stays, make it durable; `start` given means: write it again as well."""
    reached = [parts[0]]
    for part in parts[1:]:
        if part.segment.base_offset != reached[-1].end:
            break
        reached.append(part)
    for part in reached:
        with _opened(part.segment, descriptors) as descriptor:
            _scan_part(part, descriptor, files, settings, start)
        start = None if start is None else part.end
    # A segment that holds something valid keeps all that stands before it, damaged or not.
    last = max(
        (n for n, part in enumerate(reached) if part.report.valid_end > part.segment.base_offset),
        default=0,
    )
    kept, dropped = reached[: last + 1], parts[last + 1 :]
    report = _summary(kept, dropped)
    for part in kept:
        end = report.valid_end if part is kept[-1] else part.end
        with _opened(part.segment, descriptors) as descriptor:
            _secure(part, end, descriptor, files, rewrite=entries is not None)
            _note_end(part, end, descriptor, entries, now_ms)
    _settle_names(kept, dropped, files)
    return tuple(part.segment for part in kept), report


@contextmanager
def _opened(segment: Segment, descriptors: DescriptorCache) -> Iterator[int]:
    descriptor = descriptors.acquire(segment, writable=True)
    try:
        yield descriptor
    finally:
        descriptors.release(segment)


def _scan_part(
    part: _Part, descriptor: int, files: FileLayer, settings: LogSettings, start: int | None
) -> None:
    """Scan a segment from `start`, or from the last point that its index can prove."""
    segment = part.segment
    segment.index.load(descriptor, part.end - segment.base_offset)
    if start is None:
        last = segment.index.last
        start = segment.base_offset if last is None else last.end_offset
    part.report = scan(
        files,
        descriptor,
        start,
        part.end,
        base_offset=segment.base_offset,
        max_message_bytes=settings.max_message_bytes,
    )


def _summary(kept: Sequence[_Part], dropped: Sequence[_Part]) -> RecoveryReport:
    """Sum up: a bad tail that a kept segment follows is a bad range; what goes is counted."""
    bad_ranges: list[tuple[int, int]] = []
    for part in kept:
        bad_ranges.extend(part.report.bad_ranges)
        if part is not kept[-1] and part.report.dropped_bytes:
            bad_ranges.append((part.report.valid_end, part.end))
    lost = sum(part.end - part.segment.base_offset for part in dropped)
    return RecoveryReport(
        start=kept[0].report.start,
        valid_end=kept[-1].report.valid_end,
        messages=sum(part.report.messages for part in kept),
        bad_ranges=tuple(bad_ranges),
        dropped_bytes=kept[-1].report.dropped_bytes + lost,
    )


def _secure(part: _Part, end: int, descriptor: int, files: FileLayer, *, rewrite: bool) -> None:
    """Cut a segment at `end` and put on disk what was scanned."""
    base = part.segment.base_offset
    start = part.report.start - base
    if rewrite:
        for position in range(start, end - base, _COPY_BYTES):
            length = min(_COPY_BYTES, end - base - position)
            write_all(
                files, descriptor, [read_exactly(files, descriptor, length, position)], position
            )
    is_longer = files.stat(part.segment.path).st_size > end - base
    if is_longer:
        files.ftruncate(descriptor, end - base)
    if is_longer or end - base > start:
        files.fdatasync(descriptor)


def _note_end(
    part: _Part, end: int, descriptor: int, entries: Sequence[tuple[int, int]] | None, now_ms: int
) -> None:
    """Make the recovered end the recovery point, so that the next crash need not look again."""
    start = part.report.start
    if entries is None:
        # By when it was appended is known from outside only, but no later than now.
        entries = [(min(part.modified_ms, now_ms), end)]
    fitting = [entry for entry in entries if start < entry[1] <= end]
    with suppress(OSError):
        part.segment.index.append(fitting, descriptor)


def _settle_names(kept: Sequence[_Part], dropped: Sequence[_Part], files: FileLayer) -> None:
    """Give kept segments their final names and delete dropped ones, then sync the directory."""
    renamed = [part.segment for part in kept if not part.segment.is_flushed_name]
    for segment in renamed:
        draft = segment.path
        segment.is_flushed_name = True
        files.rename(draft, segment.path)
    for part in dropped:
        remove_segment(part.segment, files)
    # Also when nothing changed here: the names that were found may be in memory only.
    files.fsync_directory(kept[0].segment.directory)
