"""From the files of a partition's directory to a log that is whole: list, check, recover the tail.

`load` never deletes what it doesn't understand. Segments that don't fit together raise
`CorruptLogError`, and the partition stays out of service until somebody has looked; files with
other names are reported and left alone. What it does change, after an unclean stop only, is the
tail: see `hermes.storage.tail`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from hermes.errors import CorruptLogError
from hermes.storage.files import FileLayer
from hermes.storage.recovery import RecoveryReport
from hermes.storage.segment import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    UNFLUSHED_SUFFIX,
    Segment,
    parse_segment_name,
)
from hermes.storage.tail import Part, TailRecovery, remove_segment, settle_names

__all__ = ["LoadedLog", "load"]


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


def load(directory: str, files: FileLayer, recovery: TailRecovery, *, clean: bool) -> LoadedLog:
    """Load a partition's log, recovering its tail unless the last stop was clean.

    Args:
        directory: the partition's directory, which exists.
        files: the file layer.
        recovery: recovers the tail.
        clean: True when a marker promised that the whole log is on disk and valid.

    Returns:
        The log's segments and end.

    Raises:
        CorruptLogError: the segments don't fit together; nothing was changed.
        OSError: the disk failed, or something isn't readable.
    """
    segments, strange = _list_segments(directory, files)
    parts = [Part.of(segment, files) for segment in segments]
    last = max((n for n, each in enumerate(segments) if each.is_flushed_name), default=None)
    if last is None:
        return _begin(directory, files, parts, strange)
    settled, leftovers = _fit(parts[: last + 1])
    strange += tuple(os.path.basename(part.segment.path) for part in leftovers)
    before = tuple(part.segment for part in settled[:-1])
    if not all(segment.is_flushed_name for segment in before):
        # Of several renames not all had reached the disk; the later name vouches for them.
        settle_names(before, files)
    tail = [settled[-1], *parts[last + 1 :]]
    if clean and len(tail) == 1:
        return LoadedLog((*before, tail[0].segment), tail[0].end, None, strange)
    kept, report = recovery.after_stop(tail)
    return LoadedLog((*before, *kept), report.valid_end, report, strange)


def _begin(
    directory: str, files: FileLayer, parts: Sequence[Part], strange: tuple[str, ...]
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


def _fit(parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    """Check that segments follow each other: (those that do, `.unflushed` ones in the way)."""
    fitting = [parts[-1]]
    leftovers = []
    for part in reversed(parts[:-1]):
        following = fitting[-1].segment.base_offset
        if part.end == following:
            fitting.append(part)
        elif not part.segment.is_flushed_name:
            leftovers.append(part)
        else:
            raise CorruptLogError(
                f"{part.segment.path} ends at offset {part.end}, but the next segment starts at "
                f"{following}: a file is missing, cut or from another log"
            )
    return fitting[::-1], leftovers
