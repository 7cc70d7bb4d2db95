"""From the files of a partition's directory to a log that is whole: list, check, recover the tail.

`load` never deletes what it doesn't understand. Segments that don't fit together raise
`CorruptLogError`, and the partition stays out of service until somebody has looked; files with
other names are reported and left alone. After an unclean stop it does change the tail, as
`hermes.storage.recovery` says.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from hermes.errors import CorruptLogError
from hermes.storage.checkpoints import METADATA_NAME
from hermes.storage.files import FileLayer
from hermes.storage.log_format import LogFormat
from hermes.storage.partition_record import check_segments
from hermes.storage.recovery import RecoveryReport, TailRecovery
from hermes.storage.segment import BESIDE, Segment, choose_names, parse_segment_name
from hermes.storage.segment_files import (
    Extent,
    LoadingSegment,
    count_contiguous,
    finalize_names,
    remove_segment,
)
from hermes.storage.source_positions import POSITIONS_NAMES

_E = TypeVar("_E", bound=Extent)


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """What `load` found.

    Attributes:
        end: the offset after the last byte; all before it counts as flushed.
        report: what recovery did; None when the stop was clean and nothing was read.
        strange: names of files in the directory that belong to no segment.
        has_new_names: whether the directory must still be synced (a first segment was created).
        has_damage: whether a segment's last batch says that it ends where it can't.
    """

    segments: tuple[Segment, ...]
    end: int
    report: RecoveryReport | None
    strange: tuple[str, ...]
    has_new_names: bool = False
    has_damage: bool = False


@dataclass(frozen=True, slots=True)
class Arrangement(Generic[_E]):
    """Which files of a directory make up its log, each group in order.

    Attributes:
        settled: up to the last `.kafka`; each should end where the next begins.
        reached: `.unflushed` ones that follow these without a gap.
        unreached: `.unflushed` ones that nothing leads to: recovery removes them.
        leftovers: `.unflushed` ones that don't fit before a later `.kafka`: they are left alone.
    """

    settled: Sequence[_E]
    reached: Sequence[_E]
    unreached: Sequence[_E]
    leftovers: Sequence[_E]


def arrange(parts: Sequence[_E]) -> Arrangement[_E]:
    """Find which files are the log: the rule of the loader and of `check-log`.

    Args:
        parts: one for each base offset (see `choose_names`), ascending.

    Returns:
        Their groups; without a `.kafka` file nothing is settled, and nothing reached.
    """
    last = max((n for n, part in enumerate(parts) if part.is_flushed_name), default=None)
    if last is None:
        return Arrangement([], [], parts, [])
    settled: list[_E] = [parts[last]]
    leftovers: list[_E] = []
    for number in reversed(range(last)):
        part = parts[number]
        # One that ends well may be stale all the same: when the segment before it kept growing.
        fits = part.end == settled[-1].base_offset and (
            not number or parts[number - 1].end == part.base_offset
        )
        (settled if fits or part.is_flushed_name else leftovers).append(part)
    tail = parts[last:]
    reached = count_contiguous(tail)
    return Arrangement(settled[::-1], tail[1:reached], tail[reached:], leftovers[::-1])


def load(
    directory: str,
    files: FileLayer,
    log_format: LogFormat,
    recovery: TailRecovery,
    *,
    clean: bool,
    known: Sequence[int] = (),
) -> LoadedLog:
    """Load a partition's log, recovering its tail unless the last stop was clean.

    Args:
        clean: True when a marker promised that the whole log is on disk and valid.
        known: the base offsets of segments that were there.

    Raises:
        CorruptLogError: the segments don't fit together; nothing was changed.
        OSError: the disk failed, or something isn't readable.
    """
    names = files.listdir(directory)
    _check_kind(directory, names, log_format)
    suffixes, others = choose_names(names, log_format.suffix)
    parts = [
        LoadingSegment.of(Segment(files, log_format, directory, base, suffix), files)
        for base, suffix in suffixes.items()
    ]
    found = arrange(parts)
    own = {*POSITIONS_NAMES, *log_format.first_names, *log_format.last_names}
    drafts = log_format.draft_suffixes
    others = [name for name in others if name not in own and not name.endswith(drafts)]
    strange = (*others, *(os.path.basename(part.segment.path) for part in found.leftovers))
    if not found.settled:
        return _begin(directory, files, log_format, parts, strange)
    has_damage = _check_joints(found.settled, log_format, recovery)
    check_segments(directory, [part.base_offset for part in found.settled], known)
    settled = len(found.settled) - 1
    if not clean and not log_format.is_dense:
        settled = recovery.count_proven(found.settled[:-1])
    before = tuple(part.segment for part in found.settled[:settled])
    if not all(segment.is_flushed_name for segment in before):
        # Of several renames not all had reached the disk; the later name vouches for them.
        finalize_names(before, files)
    tail = [*found.settled[settled:], *found.reached, *found.unreached]
    complete = found.settled[:settled]
    bare = [part for part in (found.settled if clean else complete) if _is_bare(part, names)]
    if clean and len(tail) == 1:
        recovery.mend_indexes((), bare)
        segments, end = (*before, tail[0].segment), tail[0].end
        return LoadedLog(segments, end, None, strange, has_damage=has_damage)
    recovery.mend_indexes(complete, bare)
    kept, report = recovery.after_stop(tail)
    return LoadedLog((*before, *kept), report.valid_end, report, strange, has_damage=has_damage)


def _begin(
    directory: str,
    files: FileLayer,
    log_format: LogFormat,
    parts: Sequence[LoadingSegment],
    strange: tuple[str, ...],
) -> LoadedLog:
    """Begin a log at 0. What exists was never flushed: the name of its start was lost."""
    for part in parts:
        remove_segment(part.segment, files)
    first = Segment(files, log_format, directory, 0)
    files.close(files.open_new(first.path))
    first.index.begin()
    lost = sum(part.size_bytes for part in parts)
    report = RecoveryReport(0, 0, dropped_bytes=lost) if parts else None
    return LoadedLog((first,), 0, report, strange, has_new_names=True)


def _check_kind(directory: str, names: Sequence[str], log_format: LogFormat) -> None:
    """Refuse a directory that holds segments of another format: whose they are isn't known."""
    for suffix in set(BESIDE) - {log_format.suffix}:
        foreign = [name for name in names if _is_segment(name, suffix)]
        if not foreign:
            continue
        raise CorruptLogError(
            f"{directory} holds {min(foreign)}, which is no file of the format "
            f"{log_format.name}: a partition has segments of Kafka 0.7 (.kafka), or those of "
            f"Kafka since 0.8 (.log) with a {METADATA_NAME} that says its topic's id; move what "
            "doesn't belong there away, or put that file there"
        )
    if not log_format.is_dense and any(name.endswith(".swap") for name in names):
        raise CorruptLogError(
            f"{directory} holds .swap files: Kafka was stopped while it compacted the partition; "
            "start it once more on the directory, so that it ends that"
        )


def _is_segment(name: str, suffix: str) -> bool:
    parsed = parse_segment_name(name, suffix)
    return parsed is not None and parsed[1] == suffix


def _is_bare(part: LoadingSegment, names: Sequence[str]) -> bool:
    """Whether an index of one of Kafka's segments is missing: compaction was interrupted, say."""
    kafkas = part.segment.index.paths[1:]
    return any(os.path.basename(path) not in names for path in kafkas)


def _check_joints(
    parts: Sequence[LoadingSegment], log_format: LogFormat, recovery: TailRecovery
) -> bool:
    """Check that segments follow each other; compaction may leave gaps between Kafka's.

    A segment whose last batch is damaged ends where the next one begins; whether there is one.
    """
    has_damage = False
    for part, following in pairwise(parts):
        has_gap = part.end < following.base_offset
        if part.end == following.base_offset or (has_gap and not log_format.is_dense):
            continue
        if log_format.is_dense or recovery.is_intact(part):
            raise CorruptLogError(
                f"{part.segment.path} ends at offset {part.end}, but the next segment starts at "
                f"{following.base_offset}: a file is missing, cut or from another log"
            )
        part.end, has_damage = following.base_offset, True
    return has_damage
